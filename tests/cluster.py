"""Jobs that several workers share, against a local server in a process of its own, and a world that eats memory."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from envs.base import Task, World
from runner import library
from runner.cluster.coordinator import Coordinator
from runner.outputs import read_trajectories
from runner.results import Run
from tests.killing import SEED, asked, cut_off, lines, timeless

METHODS: dict[str, dict[str, Any]] = {
    "react": {},
    "cot_sc": {"samples": 5},
    "react_then_cot_sc": {"samples": 5, "steps": 2},
}


def job(url: str, tasks: int, workers: int, **settings: Any) -> dict[str, Any]:
    """The questions of the embedded encyclopedia, by three methods that share draws."""
    model = {
        "provider": "openai",
        "model": "fake",
        "api": "completions",
        "base_url": url,
        "in_flight": 8,
        **settings.pop("model", {}),
    }
    return {
        "name": "shared",
        "seed": SEED,
        "limit": tasks,
        "workers": workers,
        "models": {"policy": model},
        "envs": {"hotpotqa": {}},
        "methods": METHODS,
        **settings,
        "limits": {"max_episodes": 12, **settings.get("limits", {})},
    }


def told(run: Run) -> list[dict[str, Any]]:
    """A run's rows without what may differ between two runs of the same."""
    return [timeless(row) for row in read_trajectories(run.path)]


def unexplained(log: Path, run: Run) -> list[str]:
    """Requests that the server saw more than once and that were not under way when a process died."""
    under_way = cut_off(run.path)
    return [key for key, count in asked(log).items() if count - 1 > under_way[key]]


def repeated(log: Path) -> Counter[str]:
    """Requests that the server saw more than once."""
    return Counter({key: count for key, count in asked(log).items() if count > 1})


async def when(log: Path, requests: int) -> None:
    """Until the server has seen so many."""
    while lines(log) < requests:
        await anyio.sleep(0.01)


async def run_and(folder: Path, what: dict[str, Any], log: Path, requests: int, then: Any) -> Run:
    """Run a job; after so many requests do something with its coordinator."""

    async def watch(execution: Coordinator) -> None:
        await when(log, requests)
        then(execution)
        await anyio.sleep_forever()

    return await library.run(what, outputs=folder, progress=watch)


class Hungry(World):
    """Its first task takes a lot of memory, once; the process that has it keeps it."""

    name = "hungry"
    marker: str
    megabytes: int = 400

    def tasks(self) -> Any:
        for k in range(30):
            yield Task(id=f"t{k}", input=f"Say {k}.", target=str(k))

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        marker = Path(self.marker)
        if not marker.exists():
            marker.write_text("eaten")
            KEPT.append(bytearray(self.megabytes * 1_000_000))
        return {"em": float(answer is not None)}


KEPT: list[bytearray] = []


class Many(World):
    """As many one-call tasks as are wanted; `busy` milliseconds of computing for each."""

    name = "many"
    count: int = 100
    busy: float = 0.0

    def tasks(self) -> Any:
        for k in range(self.count):
            yield Task(id=f"t{k}", input=f"What follows the number {k}?", target=str(k + 1))

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        until = perf_counter() + self.busy / 1000
        while perf_counter() < until:
            pass
        return {"em": float(answer is not None)}


class Deadly(World):
    """No process survives to open it."""

    name = "deadly"

    def tasks(self) -> Any:
        yield Task(id="t", input="Say yes.", target="yes")

    async def open(self, cache: Path) -> None:
        os._exit(3)

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": 0.0}
