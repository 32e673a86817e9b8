"""Runs against a real server that enforces limits over a sliding window: use, refusals, changes half-way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from envs.base import Task, World
from runner import library, loop
from runner.execution import Execution
from runner.faults import Limited
from runner.job import Job
from runner.methods.standard import Standard
from runner.models.openai import OpenAI
from runner.testing import Delay, FakeOpenAI, pure_answer


class Endless(World):
    """More one-call tasks than a run has time for."""

    name = "endless"

    def tasks(self) -> Any:
        for k in range(1_000_000):
            yield Task(id=f"t{k}", input=f"What follows the number {k}?", target=str(k + 1))

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": float(answer is not None)}

    @property
    def streams(self) -> bool:
        return True


@dataclass
class Figures:
    """What the server saw."""

    answered: int
    refused: int
    use_after: float
    """Share of what the limit allowed, once settled, that was answered."""
    of_room: float | None
    """Of the requests that the windows had room for from then on, given what they held at that moment, the share
    that was answered. (Whoever uses new room at once has to wait later: that is no room left unused.)"""
    largest: int
    """The most answers within any window."""
    largest_tokens: int = 0
    """The most tokens within any window."""
    lag: float = 0.0
    """Seconds that the machine kept the event loop waiting at most: by so much calls arrive later than they left,
    whatever the gate does."""

    @property
    def refused_share(self) -> float:
        return self.refused / max(self.answered + self.refused, 1)


async def pressed(
    folder: Path,
    limited: Limited,
    seconds: float,
    *,
    settings: dict[str, Any],
    change: tuple[float, Callable[[Limited], None]] | None = None,
    settled: float | None = None,
) -> Figures:
    """Press a limited server for so long with more work than it takes, then stop. Use is counted from `settled`
    seconds on (unset: from the end of the first window), of the limit that is used most."""

    lag = 0.0

    async def look_at_lag() -> None:
        nonlocal lag
        while True:
            before = anyio.current_time()
            await anyio.sleep(0.005)
            lag = max(lag, anyio.current_time() - before - 0.005)

    async def watch(execution: Execution) -> None:
        async with anyio.create_task_group() as beside:
            beside.start_soon(look_at_lag)
            await press(execution)
            beside.cancel_scope.cancel()

    async def press(execution: Execution) -> None:
        if change is not None:
            await anyio.sleep(change[0])
            change[1](limited)
            await anyio.sleep(seconds - change[0])
        else:
            await anyio.sleep(seconds)
        execution.interrupt()
        execution.interrupt()

    async with FakeOpenAI(limited) as server:
        model = OpenAI(model="limited", base_url=server.url, api="completions", timeout=30, **settings)
        job = Job.of(Endless(), Standard(), model, limits={"max_episodes": 2000})
        await library.run(job, outputs=folder, progress=watch)
    began = limited.arrivals[0][0]
    start = limited.window if settled is None else settled
    counted = [
        tokens for when, tokens, ok in limited.arrivals if ok and began + start <= when <= began + seconds
    ]
    windows = (seconds - start) / limited.window
    used = [
        have / (windows * most)
        for have, most in ((len(counted), limited.requests), (sum(counted), limited.tokens))
        if most
    ]
    return Figures(
        answered=limited.answered,
        refused=limited.refused,
        use_after=max(used),
        of_room=len(counted) / room(limited, began + start, began + seconds) if not limited.tokens else None,
        largest=limited.largest_requests,
        largest_tokens=limited.largest_tokens,
        lag=lag,
    )


def room(limited: Limited, start: float, end: float) -> int:
    """The most requests that the server can let in between two moments, given what it let in before: each place in
    its window is free again when a window's length has passed."""
    most, window = int(limited.requests or 0), limited.window
    held = sorted(when + window for when, _, ok in limited.arrivals if ok and start - window < when < start)
    free = [*held[max(len(held) - most, 0) :], *[start] * max(most - len(held), 0)]
    return sum(1 + int((end - moment) // window) for moment in free if moment <= end)


def full() -> dict[str, Any]:
    """For `tests.full`: three minutes at 600 requests and 90,000 tokens a minute, 60 s windows; limits known to
    the job, told in headers, unknown; and limits that are halved or doubled after 90 s. Use is then counted from a
    third of a window after the doubling; and of two windows, from two thirds of one after the halving, as a server
    whose window is too full lets nothing in until then. Two at a time, so that they don't disturb each other."""
    import tempfile

    found: dict[str, Any] = {}
    known = {"requests_per_minute": 600, "in_flight": 200}

    async def one(name: str, limited: Limited, *, seconds: float = 180.0, **how: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            figures = await pressed(Path(folder), limited, seconds, **how)
        found[name] = {
            "answered": figures.answered,
            "refused": figures.refused,
            "refused_share": round(figures.refused_share, 4),
            "use": round(figures.use_after, 4),
            "use_of_room": figures.of_room and round(figures.of_room, 4),
            "most_requests_in_a_window": figures.largest,
            "most_tokens_in_a_window": figures.largest_tokens,
            "longest_lag_of_the_machine": round(figures.lag, 3),
        }

    def limit(**changed: Any) -> Limited:
        return Limited(**{"requests": 600, "window": 60.0, **changed})

    def to(requests: float) -> tuple[float, Callable[[Limited], None]]:
        return 90.0, lambda limited: setattr(limited, "requests", requests)

    def slow(body: dict[str, Any], k: int) -> Delay:
        return Delay(1.0, pure_answer(body, k))

    long = Limited(lambda body, k: "word " * (100 + k % 100), requests=600, tokens=90_000, window=60.0)
    halved = {"change": to(300), "settled": 130.0, "seconds": 250.0}
    doubled = {"change": to(600), "settled": 110.0}
    cases: list[tuple[str, Limited, dict[str, Any]]] = [
        ("known", limit(), {"settings": known}),
        ("known, tokens bind", long, {"settings": {**known, "tokens_per_minute": 90_000}}),
        ("told", limit(headers=True), {"settings": {}}),
        ("unknown", limit(), {"settings": {}}),
        ("unknown, replies take a second", limit(script=slow), {"settings": {}}),
        ("told, halved", limit(headers=True), {"settings": {}, **halved}),
        ("told, doubled", limit(headers=True, requests=300), {"settings": {}, **doubled}),
        ("unknown, halved", limit(), {"settings": {}, **halved}),
        ("unknown, doubled", limit(requests=300), {"settings": {}, **doubled}),
    ]

    async def in_turn() -> None:
        while cases:
            name, limited, how = cases.pop(0)
            await one(name, limited, **how)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_turn)
            tasks.start_soon(in_turn)

    loop.run(all_of_them)
    return found
