"""Runs against a real server that enforces limits over a sliding window: use, refusals, changes half-way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from envs.base import Task, World
from runner import library
from runner.execution import Execution
from runner.faults import Limited
from runner.job import Job
from runner.methods.standard import Standard
from runner.models.openai import OpenAI
from runner.testing import FakeOpenAI


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
    """What the server saw, from the end of the first window on where it says `after`."""

    answered: int
    refused: int
    use_after: float
    """Share of what the limit allowed after the first window that was answered."""
    largest: int
    """The most answers within any window."""

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
) -> Figures:
    """Press a limited server for so long with more work than it takes, then stop."""

    async def watch(execution: Execution) -> None:
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
    after = began + limited.window
    allowed = (seconds - limited.window) * (limited.requests or 0) / limited.window
    counted = sum(1 for when, _, ok in limited.arrivals if ok and after <= when <= began + seconds)
    return Figures(
        answered=limited.answered,
        refused=limited.refused,
        use_after=counted / max(allowed, 1),
        largest=limited.largest_requests,
    )


def full() -> dict[str, Any]:
    """For `tests.full`: three minutes at 600 requests a minute, 60 s windows; the limit known to the job, told
    in headers, and unknown."""
    import tempfile

    found: dict[str, Any] = {}

    async def one(name: str, settings: dict[str, Any], headers: bool) -> None:
        limited = Limited(requests=600, window=60.0, headers=headers)
        with tempfile.TemporaryDirectory() as folder:
            figures = await pressed(Path(folder), limited, 180.0, settings=settings)
        found[name] = {
            "answered": figures.answered,
            "refused": figures.refused,
            "refused_share": round(figures.refused_share, 4),
            "use_after_first_window": round(figures.use_after, 4),
            "most_in_a_window": figures.largest,
        }

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "known", {"requests_per_minute": 600, "in_flight": 200}, False)
            tasks.start_soon(one, "told", {}, True)
            tasks.start_soon(one, "unknown", {}, False)

    anyio.run(all_of_them)
    return found
