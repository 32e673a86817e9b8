"""A model that says what it is told: for tests of methods, worlds and runs, without a server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import anyio
from pydantic import Field, PrivateAttr

from runner.errors import CellStopped
from runner.models.base import Call, Choice, Model, Reply, Usage, cut_at_stop

Answer: TypeAlias = str | Choice | Sequence["str | Choice"]
Script: TypeAlias = Callable[[Call], "Answer | Awaitable[Answer]"]


class Scripted(Model):
    """Replies come from `replies`, in turn, or from a function of the `Call` given to `scripted(...)`.

    The function may be async, may return fewer choices than asked for, and may raise any
    `runner.errors.ModelError`. Texts are cut at the request's stop strings. Every call is kept in `calls`.
    With a list, draw `i` of every request is `replies[i % len(replies)]`, so that a run can be repeated.
    """

    provider: ClassVar[str] = "scripted"
    remote: ClassVar[bool] = False

    model: str = "scripted"
    replies: list[str] = Field(default_factory=list, description="Reply i answers draw i of each request.")
    delay: float = Field(0.0, ge=0, description="Seconds each call takes.")
    tokens_per_word: float = Field(1.0, description="For the usage it reports.")

    _script: Script | None = PrivateAttr(None)
    _calls: list[Call] = PrivateAttr(default_factory=list)

    @property
    def calls(self) -> list[Call]:
        """The calls that were made, in order."""
        return self._calls

    def cost(self, usage: Usage) -> float | None:
        return super().cost(usage) or 0.0

    async def call(self, call: Call) -> Reply:
        self._calls.append(call)
        if self.delay:
            await anyio.sleep(self.delay)
        choices = await self._answer(call)
        stops = call.request.params.stop
        cut = []
        for choice in choices:
            if isinstance(choice, str):
                choice = Choice(cut_at_stop(choice, stops)[0])
            cut.append(choice)
        return Reply(
            choices=cut,
            usage=Usage(
                prompt=self._count(call.request.prompt),
                completion=sum(self._count(choice.text) for choice in cut),
                calls=1,
            ),
            sent=call.request.params.as_dict(),
            endpoint="scripted",
            cost_usd=0.0,
        )

    async def _answer(self, call: Call) -> list[str | Choice]:
        if self._script is None:
            if not self.replies:
                raise CellStopped("a scripted model without `replies`: list some in the job")
            wanted = range(call.first, call.first + call.n)
            return [self.replies[i % len(self.replies)] for i in wanted]
        answer: Any = self._script(call)
        if inspect.isawaitable(answer):
            answer = await answer
        return [answer] if isinstance(answer, (str, Choice)) else list(answer)

    def _count(self, text: str) -> int:
        return round(len(text.split()) * self.tokens_per_word)


def scripted(script: Script | Sequence[str], **settings: Any) -> Scripted:
    """A scripted model from a function of the call, or from a list of replies.

    >>> model = scripted(lambda call: "Answer: Warsaw")
    """
    if callable(script):
        model = Scripted(**settings)
        model._script = script
        return model
    replies = [script] if isinstance(script, str) else list(script)
    return Scripted(replies=replies, **settings)
