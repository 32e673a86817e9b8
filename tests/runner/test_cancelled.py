"""Whole runs that are cancelled at each step of the event loop, one run a step: what is left is whole, and goes on."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import orjson
import pytest

from runner import library
from runner.errors import Transient
from runner.execution import Execution
from runner.job import Job
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.methods.standard import Standard
from runner.models.base import Call
from runner.models.scripted import Scripted, scripted
from runner.outputs import locked, read_manifest
from tests.echo import Echo, right
from tests.killing import timeless

FEWEST = 40
"""Steps that the run takes at least, so that there is something to cancel."""


class Watched(Execution):
    """Each execution that was made, to look into afterwards."""

    made: list[Execution] = []  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Watched.made.append(self)


@contextmanager
def stepwise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is done in threads, and nothing is waited for by the clock, so that a run takes the same steps each
    time."""

    async def inline(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*args)

    monkeypatch.setattr(anyio.to_thread, "run_sync", inline)
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    monkeypatch.setattr(library, "provenance", dict)
    monkeypatch.setattr(library, "Execution", Watched)
    gc.collect()
    gc.freeze()  # what is older than the test need not be looked through after each run
    yield
    gc.unfreeze()
    Watched.made.clear()


class Trial:
    """A small job of three methods with a model that fails once, and what was paid for it."""

    def __init__(self, outputs: Path, count: int = 2) -> None:
        self.outputs = outputs
        self.count = count
        self.paid: Counter[tuple[str, str, int]] = Counter()
        self.failed = False

    def model(self) -> Scripted:
        async def script(call: Call) -> list[str]:
            await anyio.lowlevel.checkpoint()
            if call.first == 2 and not self.failed:
                self.failed = True
                raise Transient("busy", retry_after=0)
            await anyio.lowlevel.checkpoint()
            said = (
                " First.\nAction 1: Search[it]" if call.request.prompt.endswith("Thought 1:") else right(call)
            )
            texts = [said] if isinstance(said, str) else said[: max(1, call.n - 1)]
            self.paid.update((call.scope, call.request.hash, call.first + k) for k in range(len(texts)))
            return texts

        return scripted(script, max_n=3, in_flight=3)

    def job(self) -> Job:
        methods = {"react": React(), "cot_sc": CotSC(samples=4, until="all"), "standard": Standard()}
        return Job.of(Echo(count=self.count), methods, self.model(), seed=3)

    async def run(self) -> library.Run:
        return await library.run(self.job(), outputs=self.outputs, progress=False)

    async def resume(self, path: Path) -> library.Run:
        return await library.resume(path, job=self.job(), progress=False)


def steps_until(k: int, task: asyncio.Task[Any]) -> Any:
    async def step() -> None:
        for _ in range(k):
            if task.done():
                return
            await asyncio.sleep(0)

    return step()


async def in_a_scope(trial: Trial, k: int) -> bool:
    """As by a task group of the caller's: cancelled again at each await from then on."""
    async with anyio.create_task_group() as tasks:

        async def body() -> None:
            await trial.run()
            tasks.cancel_scope.cancel()

        tasks.start_soon(body)
        for _ in range(k):
            await asyncio.sleep(0)
        tasks.cancel_scope.cancel()
        return True
    return False


async def by_its_task(trial: Trial, k: int) -> bool:
    """As `asyncio.wait_for` does: cancelled once."""
    task = asyncio.ensure_future(trial.run())
    await steps_until(k, task)
    cancelled = task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return cancelled


async def _interrupted(trial: Trial, k: int, times: int) -> bool:
    task = asyncio.ensure_future(trial.run())
    made = len(Watched.made)
    await steps_until(k, task)
    ended = task.done()
    for execution in Watched.made[made:]:
        for _ in range(times):
            execution.interrupt()
    await task
    return not ended


async def by_one_ctrl_c(trial: Trial, k: int) -> bool:
    return await _interrupted(trial, k, 1)


async def by_two_ctrl_c(trial: Trial, k: int) -> bool:
    return await _interrupted(trial, k, 2)


def left_over(loop: asyncio.AbstractEventLoop, complaints: list[dict[str, Any]]) -> list[Any]:
    """Tasks that nobody ended, and errors that nobody heard."""
    gc.collect()
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task(loop)]
    return [*tasks, *complaints]


def check(execution: Execution) -> None:
    """Nothing is counted as under way, and the files are let go."""
    for passage in execution.passages.values():
        assert (passage.flying, passage.waiting) == (0, 0)
        assert not passage.under_way and not passage.retrying and not passage._pauses
    sampler = getattr(execution, "sampler", None)
    if sampler is not None:
        assert (sampler.flights, sampler.in_flight, sampler._pending, sampler._flying) == (0, 0, {}, {})
    assert execution.scheduler.in_flight == 0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0  # noqa: PTH208


async def once(trial: Trial, cancel: Callable[[Trial, int], Any], k: int, whole: list[Any]) -> bool:
    """Cancel a run at its k-th step, look at what is left, and resume it; whether it was running still."""
    loop, complaints = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    Watched.made.clear()
    before = descriptors()
    cancelled = await cancel(trial, k)
    assert left_over(loop, complaints) == []
    assert descriptors() == before
    for execution in Watched.made:
        check(execution)
    for path in trial.outputs.glob("*"):
        await look_and_resume(trial, path, whole)
    assert left_over(loop, complaints) == []
    assert descriptors() == before
    assert set(trial.paid.values()) <= {1}
    return cancelled


async def look_and_resume(trial: Trial, path: Path, whole: list[Any]) -> None:
    assert not locked(path)
    assert read_manifest(path).get("status", "died") in ("interrupted", "finished", "died")
    assert not list(path.glob("*.tmp"))
    begun = 0
    for name in ("ledger.jsonl", "trajectories.jsonl"):
        data = (path / name).read_bytes() if (path / name).exists() else b""
        assert data == b"" or data.endswith(b"\n")
        for row in map(orjson.loads, data.splitlines()):
            if row.get("kind") in ("attempt", "reply"):
                begun += 1 if row["kind"] == "attempt" and row["error"] is None else -1
    assert begun == 0, "each try that was begun has an end on record"
    found = await trial.resume(path)
    assert found.status == "finished"
    assert [timeless(row) for row in found.trajectories] == whole
    assert found.manifest["totals"]["cut_off_attempts"] == 0


WAYS = (in_a_scope, by_its_task, by_one_ctrl_c, by_two_ctrl_c)


def at_each_step(folder: Path, way: Callable[[Trial, int], Any], count: int, every: int = 1) -> int:
    """Cancel a run of so many tasks in this way at each of its steps in turn (or at every third, say); how many
    there are."""
    whole = [timeless(row) for row in asyncio.run(Trial(folder / "whole", count).run()).trajectories]
    assert len(whole) == 3 * count and {row["status"] for row in whole} == {"finished"}
    k = 0
    while asyncio.run(once(Trial(folder / str(k), count), way, k, whole)):
        k += every
    return k


@pytest.mark.parametrize("way", WAYS)
def test_a_run_cancelled_at_any_step_is_whole_and_resumes(
    tmp_path: Path, way: Callable[[Trial, int], Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch, stepwise(patch):
        every = 1 if way in (in_a_scope, by_its_task) else 3
        assert at_each_step(tmp_path, way, 2, every) > FEWEST


def full(tasks: int = 12) -> dict[str, Any]:
    """The long proof: `python -m tests.full cancelled`."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, stepwise(patch):
        steps = {way.__name__: at_each_step(Path(folder) / way.__name__, way, tasks) for way in WAYS}
    figures = {"episodes": 3 * tasks, "runs_cancelled_and_resumed": sum(steps.values()), "steps": steps}
    sys.stdout.buffer.write(orjson.dumps(figures) + b"\n")
    return figures
