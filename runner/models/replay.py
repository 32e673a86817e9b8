"""A model that answers from a record: a published transcript, or the ledger of an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from anyio import to_thread
from pydantic import Field, PrivateAttr, model_validator

from envs.base import DataError
from envs.data import find
from runner.errors import RunError
from runner.models.base import Call, Choice, Model, Reply, Usage, cut_at_stop
from runner.models.past_run import PastRun
from runner.models.transcript import Transcript

OF_THE_RUN = ("api", "temperature", "max_tokens", "top_p", "logprobs")
"""Settings that requests depend on: where the job gives none, the earlier run's are taken."""


class Replay(Model):
    """Exactly one of `transcript` and `run` is given.

    `transcript`: a file of recorded episodes or chains (see `runner.models.transcript`). Replies are found by
    all that was said before them.

    `run`: a run's folder. Draws are found by their key in its ledger (scope, request hash, index), so worlds'
    names, methods and prompts must be the same; `api` and the sampling settings are that run's unless given.
    `model` names one of that run's models where it has several.
    """

    provider: ClassVar[str] = "replay"
    remote: ClassVar[bool] = False

    transcript: Path | None = Field(None, description="A recorded transcript, JSON lines.")
    run: Path | None = Field(None, description="The folder of an earlier run.")
    shuffle: int | None = Field(
        None,
        description="Take a transcript's chains in another order, which this seed, the task and the trial "
        "decide; unset: as recorded.",
    )
    model: str = Field("", description="Which model of that run, by its name in the job, if it had several.")
    api: Literal["completions", "chat"] = Field(
        "completions", description="Raw prompts or messages; unset: the earlier run's, where one is given."
    )
    max_n: int = Field(1000, gt=0, description="Draws that one call may ask for.")

    _transcript: Transcript | None = PrivateAttr(None)
    _past: PastRun | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        transcript, run = settings.get("transcript"), settings.get("run")
        if bool(transcript) == bool(run):
            both = ", not both" if run else ""
            raise ValueError(f"give either `transcript` (a file) or `run` (a run's folder){both}")
        if not isinstance(run, str | Path) or not run:
            return settings
        past = _past_run(Path(run), settings.get("model"))
        known = {key: past.settings[key] for key in OF_THE_RUN if past.settings.get(key) is not None}
        return known | settings

    def model_post_init(self, context: Any) -> None:
        if self.transcript is not None:
            try:
                self._transcript = Transcript(find(self.transcript))
            except DataError as error:
                raise ValueError(str(error)) from error
            except OSError as error:
                raise ValueError(f"{self.transcript}: cannot be read ({error.strerror or error})") from error
        if self.run is not None:
            self._past = _past_run(self.run, self.model)

    @property
    def identity(self) -> str:
        """Of a run, that of its model, so that requests have the hashes they had."""
        if self._past is not None:
            return str(self._past.settings["identity"])
        assert self._transcript is not None
        order = "" if self.shuffle is None else f":{self.shuffle}"
        return f"replay:{self._transcript.digest[:16]}{order}"

    async def open(self, cache: Path) -> None:
        if self._past is not None:
            await to_thread.run_sync(lambda past: past.draws, self._past)

    def cost(self, usage: Usage) -> float | None:
        return super().cost(usage) or 0.0

    async def call(self, call: Call) -> Reply:
        stops, prompt = call.request.params.stop, call.request.prompt
        wanted = range(call.first, call.first + call.n)
        if self._past is not None:
            found = [self._past.draw(call, i) for i in wanted]
            choices, usage = [choice for choice, _ in found], sum((used for _, used in found), Usage())
        else:
            assert self._transcript is not None
            order = "" if self.shuffle is None else f"{self.shuffle} {call.scope}"
            replies = self._transcript.replies(prompt, wanted, order)
            texts = [cut_at_stop(reply, stops)[0] for reply in replies]
            choices = [Choice(text) for text in texts]
            words = sum(len(text.split()) for text in texts)
            usage = Usage(prompt=len(prompt.split()), completion=words, calls=1)
        return Reply(choices, usage, sent=call.request.params.as_dict(), endpoint="replay", cost_usd=0.0)


def _past_run(path: Path, model: Any) -> PastRun:
    try:
        return PastRun(path, model if isinstance(model, str) else "")
    except RunError as error:
        raise ValueError(str(error)) from error
