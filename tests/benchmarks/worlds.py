"""What a step of a world costs: `python -m tests.benchmarks.worlds [WORLD...] --json FILE`.

Plays the same actions twice, in turn: in a bare loop around the world's engine, in a process of its own; and as runs
do, all episodes at once, through the world's sessions and its worker. Prints for each steps a second of CPU (the
owner's, the worker's and all that it started), the same of the clock, and what an episode more holds in memory. The
ratio is that of steps a second of CPU. A world whose engine is not installed is passed over.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from envs.base import Session, Task, World
from envs.worker import found
from tests.hosted import children, megabytes

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Bench:
    """How a world is measured: `made` gives it, `engine` what its worker runs (`module:Class` and settings), `given`
    what that engine takes for a task; `missing` says why it cannot be measured here."""

    made: Callable[[], World]
    engine: Callable[[], tuple[str, dict[str, Any]]]
    given: Callable[[World, Task], dict[str, Any]]
    actions: Sequence[str]
    episodes: int
    steps: int
    missing: Callable[[], str | None]


def _lacks(*packages: str) -> str | None:
    lacking = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else None


def _scienceworld() -> Bench:
    from envs.scienceworld import java
    from envs.scienceworld.world import ENGINE, ScienceWorld
    from tests.published.test_scienceworld import WAYS

    return Bench(
        made=lambda: ScienceWorld(workers=1, per_worker=64),
        engine=lambda: (ENGINE, {"simplifications": "easy", "step_limit": 0, "heap": 256}),
        given=lambda _, task: {"task": task.metadata["task"], "variation": task.metadata["variation"]},
        actions=WAYS,
        episodes=16,
        steps=20,
        missing=java.missing,
    )


def _alfworld() -> Bench:
    from envs.alfworld.world import Alfworld
    from tests.published.test_alfworld import WAYS

    return Bench(
        made=lambda: Alfworld(workers=1, per_worker=64),
        engine=lambda: ("envs.alfworld.engine:AlfworldEngine", {}),
        given=lambda world, task: dict(world._games.game(task)),  # type: ignore[attr-defined]
        actions=[way for way in WAYS if not way.startswith("think")],
        episodes=16,
        steps=20,
        missing=lambda: _lacks("alfworld", "textworld"),
    )


def _webarena() -> Bench:
    from envs.webarena.world import ENGINE, WebArena

    def missing() -> str | None:
        if lacking := _lacks("playwright"):
            return lacking
        from envs.webarena.chromium import program

        return None if program() else "no Chromium"

    return Bench(
        made=lambda: WebArena(workers=1, per_worker=64),
        engine=lambda: (
            ENGINE,
            {"shop": "", "seed": 233, "page_seconds": 30.0, "most": 250, "whole": False},
        ),
        given=lambda _, task: {"start_url": task.metadata["start_url"], "eval": task.target},
        actions=[
            "scroll [down]",
            "scroll [up]",
            "go_back",
            "click [3]",
            "click [8]",
            "click [12]",
            "click [14]",
        ],
        episodes=4,
        steps=24,
        missing=missing,
    )


class ShopEngine:
    """The shop without its world: what WebShop's sessions do, called directly."""

    many = True

    def __init__(self) -> None:
        from envs.webshop.world import WebShop

        self._world = WebShop(split="")
        anyio.run(self._world.open, Path(tempfile.gettempdir()))
        self._tasks = {task.id: task for task in self._world.tasks()}
        self._playing: dict[str, Session] = {}

    def begin(self, episode: str, task: dict[str, Any]) -> str:
        self._playing[episode] = self._world.session(self._tasks[task["id"]])
        return _at_once(self._playing[episode].reset())

    def step(self, episode: str, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        seen = _at_once(self._playing[episode].step(action))
        return seen.text, seen.reward, seen.done, {}

    def end(self, episode: str) -> None:
        del self._playing[episode]

    def close(self) -> None:
        anyio.run(self._world.close)


def _at_once(waiting: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        waiting.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waited for something")


def _webshop() -> Bench:
    from envs.webshop.world import WebShop

    return Bench(
        made=lambda: WebShop(split=""),
        engine=lambda: ("tests.benchmarks.worlds:ShopEngine", {}),
        given=lambda _, task: {"id": task.id},
        actions=["search[soft blue blanket]", "click[Next >]", "click[< Prev]", "click[Back to Search]"],
        episodes=64,
        steps=100,
        missing=lambda: _lacks("numpy", "rapidfuzz", "snowballstemmer"),
    )


WORLDS: dict[str, Callable[[], Bench]] = {
    "scienceworld": _scienceworld,
    "alfworld": _alfworld,
    "webshop": _webshop,
    "webarena": _webarena,
}


def action_of(bench: Bench, episode: int, step: int) -> str:
    """Different in each episode, the same in both ways."""
    return bench.actions[(7 * episode + step) % len(bench.actions)]


def cpu_of(process: int) -> float:
    """Seconds of CPU of a process and of all that it started and that runs (Linux)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(map(cpu_of, children(process)))


class Meter:
    """CPU, clock and memory of this process and all below it."""

    def __init__(self) -> None:
        self.one = megabytes(os.getpid())

    def begin(self) -> None:
        self._cpu, self._wall = cpu_of(os.getpid()), time.monotonic()

    def end(self, steps: int, episodes: int) -> dict[str, float]:
        cpu, wall = cpu_of(os.getpid()) - self._cpu, time.monotonic() - self._wall
        held = (megabytes(os.getpid()) - self.one) / max(episodes - 1, 1)
        return {
            "steps_per_cpu_s": round(steps / cpu, 1),
            "steps_per_s": round(steps / wall, 1),
            "mb_per_episode": round(held, 2),
        }


def bare(name: str) -> dict[str, float]:
    """The engine in this process, without anything of ours around it."""
    bench = WORLDS[name]()
    world = bench.made()
    tasks = [task for task, _ in zip(world.tasks(), range(bench.episodes), strict=False)]
    kind, settings = bench.engine()
    given = [bench.given(world, task) for task in tasks]
    engine = found(kind)(**settings)
    try:
        meter = None
        for k, task in enumerate(given):
            engine.begin(f"e{k}", task)
            meter = meter or Meter()
        assert meter is not None
        meter.begin()
        for step in range(bench.steps):
            for k in range(len(given)):
                engine.step(f"e{k}", action_of(bench, k, step))
        return meter.end(bench.steps * len(given), len(given))
    finally:
        engine.close()


async def _hosted(name: str) -> dict[str, float]:
    bench = WORLDS[name]()
    world = bench.made()
    with tempfile.TemporaryDirectory() as cache:
        await world.open(Path(cache))
        try:
            tasks = [task for task, _ in zip(world.tasks(), range(bench.episodes), strict=False)]
            sessions = [world.session(task) for task in tasks]
            await sessions[0].reset()
            meter = Meter()
            async with anyio.create_task_group() as beginning:
                for session in sessions[1:]:
                    beginning.start_soon(session.reset)
            meter.begin()

            async def play(k: int) -> None:
                for step in range(bench.steps):
                    await sessions[k].step(action_of(bench, k, step))

            async with anyio.create_task_group() as playing:
                for k in range(len(sessions)):
                    playing.start_soon(play, k)
            figures = meter.end(bench.steps * len(sessions), len(sessions))
            for session in sessions:
                await session.close()
            return figures
        finally:
            await world.close()


def once(how: str, name: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    words = [sys.executable, "-m", "tests.benchmarks.worlds", f"--{how}", name]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(name: str, runs: int) -> dict[str, Any]:
    """The medians of several runs of both, in turn."""
    rows: dict[str, list[dict[str, float]]] = {"bare": [], "hosted": []}
    for _ in range(runs):
        for how, of in rows.items():
            of.append(once(how, name))
    medians = {
        how: {key: statistics.median(each[key] for each in of) for key in of[0]} for how, of in rows.items()
    }
    ratio = medians["hosted"]["steps_per_cpu_s"] / medians["bare"]["steps_per_cpu_s"]
    return {**medians, "ratio": round(ratio, 3)}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.worlds")
    parser.add_argument("names", nargs="*", choices=[*WORLDS, []], metavar="WORLD", help=", ".join(WORLDS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    parser.add_argument("--hosted", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.bare or given.hosted:
        figures = bare(given.bare) if given.bare else anyio.run(_hosted, given.hosted)
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    found_all: dict[str, Any] = {}
    sys.stdout.write(
        f"{'world':14}{'way':8}{'steps/CPU s':>12}{'steps/s':>10}{'MB/episode':>12}{'ratio':>8}\n"
    )
    for name in given.names or WORLDS:
        if problem := WORLDS[name]().missing():
            sys.stdout.write(f"{name:14}{problem}\n")
            continue
        figures = found_all[name] = measured(name, given.runs)
        for how in ("bare", "hosted"):
            of = figures[how]
            ratio = f"{figures['ratio']:.3f}" if how == "hosted" else ""
            sys.stdout.write(
                f"{name:14}{how:8}{of['steps_per_cpu_s']:12,.1f}{of['steps_per_s']:10,.1f}"
                f"{of['mb_per_episode']:12,.2f}{ratio:>8}\n"
            )
        sys.stdout.flush()
    if given.json:
        given.json.write_text(json.dumps(found_all, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
