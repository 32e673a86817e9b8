"""A simulated endpoint in virtual time: windows that slide, replies that take time, 429 beyond a limit.

`load` keeps a passage before it busy and tells what the server saw.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio

from runner.errors import EpisodeFailed, Transient
from runner.models.base import Call, Choice, Model, Params, Reply, Request, Text, Turn, Usage, Window
from runner.models.passage import Passage
from runner.models.queue import Ticket
from runner.models.scripted import Scripted


@dataclass
class Server:
    """Lets in `requests` and `tokens` in any `seconds`, as they are at that moment; refuses the rest."""

    requests: float = float("inf")
    tokens: float = float("inf")
    seconds: float = 60.0
    takes: Callable[[int], float] = lambda flying: 0.5
    """Seconds for a reply, by how many are in flight."""
    refuses_in: float = 0.05
    retry_after: Callable[[float], float | None] = lambda until: until
    """What a refusal says, given the seconds until there is room."""
    completion: Callable[[], int] = lambda: 50
    tells: bool = False
    """Its replies tell the limits."""
    began: list[float] = field(default_factory=list)
    let_in: list[tuple[float, float]] = field(default_factory=list)
    """(time, tokens) of each request that was let in."""
    refused: list[float] = field(default_factory=list)
    flying: int = 0
    most: int = 0
    _window: deque[tuple[float, float]] = field(default_factory=deque)
    _used: float = 0.0

    async def answer(self, call: Call) -> tuple[int, int]:
        """Prompt and completion tokens, after some time. Raises Transient(429)."""
        now = anyio.current_time()
        self.began.append(now)
        while self._window and now - self._window[0][0] > self.seconds:
            self._used -= self._window.popleft()[1]
        prompt, completion = call.request.characters // 4, self.completion()
        tokens = prompt + completion
        if len(self._window) + 1 > self.requests or (self._window and self._used + tokens > self.tokens):
            self.refused.append(now)
            until = self._window[0][0] + self.seconds - now if self._window else self.seconds
            await anyio.sleep(self.refuses_in)
            error = Transient("429", status=429, retry_after=self.retry_after(until))
            error.windows = self.windows()
            raise error
        self._window.append((now, tokens))
        self._used += tokens
        self.let_in.append((now, tokens))
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await anyio.sleep(self.takes(self.flying))
        finally:
            self.flying -= 1
        return prompt, completion

    def windows(self) -> tuple[Window, ...]:
        if not self.tells:
            return ()
        told = [Window("requests", self.seconds, limit=self.requests)] if self.requests < 1e12 else []
        if self.tokens < 1e12:
            told.append(Window("tokens", self.seconds, limit=self.tokens))
        return tuple(told)

    def most_let_in(self, seconds: float | None = None) -> tuple[float, float]:
        """The most requests and tokens within any such window."""
        seconds = self.seconds if seconds is None else seconds
        first, requests, tokens, used = 0, 0, 0.0, 0.0
        for last, (at, amount) in enumerate(self.let_in):
            used += amount
            while at - self.let_in[first][0] > seconds:
                used -= self.let_in[first][1]
                first += 1
            requests, tokens = max(requests, last - first + 1), max(tokens, used)
        return requests, tokens

    def use(self, begin: float, end: float) -> float:
        """Share of the limit that was used between two moments, of requests or tokens, whichever is more."""
        windows = (end - begin) / self.seconds
        these = [tokens for at, tokens in self.let_in if begin <= at < end]
        return max(len(these) / (self.requests * windows), sum(these) / (self.tokens * windows))

    @property
    def share_refused(self) -> float:
        return len(self.refused) / max(len(self.began), 1)


class Simulated(Scripted):
    """A model that such a server answers."""

    _server: Server

    def at(self, server: Server) -> Simulated:
        object.__setattr__(self, "_server", server)
        return self

    async def call(self, call: Call) -> Reply:
        prompt, completion = await self._server.answer(call)
        return Reply([Choice("x")], Usage(prompt, completion, calls=1), windows=self._server.windows())


def model(server: Server, **settings: object) -> Simulated:
    """A model before a server; adaptive unless the settings say otherwise."""
    return Simulated.model_validate({"adaptive": True, **settings}).at(server)


def call(characters: int = 400, max_tokens: int = 100) -> Call:
    return Call(Request("m", (Turn("prompt", Text("x" * characters)),), Params(max_tokens=max_tokens)))


async def load(
    of: Model,
    seconds: float,
    askers: int = 200,
    *,
    characters: Callable[[], int] = lambda: 400,
    later: Iterable[tuple[float, Callable[[], None]]] = (),
) -> Passage:
    """Ask without pause, `askers` at once, for some time. `later` are things to do after so many seconds."""
    passage = Passage("m", of)
    ages = iter(range(10**9))

    async def ask() -> None:
        while True:
            try:
                await passage.ask(call(characters()), Ticket(next(ages)))
            except EpisodeFailed:
                pass

    async def do(after: float, what: Callable[[], None]) -> None:
        await anyio.sleep(after)
        what()

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(passage.serve)
            for _ in range(askers):
                tasks.start_soon(ask)
            for each in later:
                tasks.start_soon(do, *each)
    return passage


def lengths(seed: int, low: int, high: int) -> Callable[[], int]:
    """Random whole numbers, the same each time."""
    chance = random.Random(seed)
    return lambda: chance.randint(low, high)
