"""Runs over real sockets, cancelled at many moments: calls that are cut off are counted, and no connection is left."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner import library
from runner.execution import Execution
from runner.job import Job
from runner.jsonl import rows
from runner.methods.react import React
from runner.models.openai import OpenAI
from runner.testing import Delay, FakeOpenAI
from tests import stepping
from tests.killing import SEED, timeless
from tests.stepping import Steps

COUNT = 3
MOMENTS = 12


def job(url: str, transport: str) -> Job:
    model = OpenAI(model="m", base_url=url, api="completions", in_flight=3, transport=transport, attempts=3)
    return Job.of(Steps(count=COUNT), {"react": React()}, model, seed=SEED)


def answer(body: dict[str, Any], k: int) -> Any:
    """Now and then busy, else after a moment as always."""
    if k % 9 == 4:
        return 503, {}, b'{"error": {"message": "busy"}}'
    return Delay(0.001, stepping.script(body, k))


@pytest.mark.parametrize("transport", ["native", "httpx"])
async def test_cut_off_at_any_moment_calls_are_counted_and_connections_closed(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Execution] = []

    class Watched(Execution):
        def __init__(self, *args: Any, **how: Any) -> None:
            super().__init__(*args, **how)
            made.append(self)

    monkeypatch.setattr(library, "Execution", Watched)
    monkeypatch.setattr(library, "provenance", dict)
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    heard: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: heard.append(context))
    whole: list[Any] = []
    met: Counter[str] = Counter()
    for moment in range(MOMENTS):
        async with FakeOpenAI(answer) as server:
            folder = tmp_path / str(moment)
            running = asyncio.ensure_future(
                library.run(job(server.url, transport), outputs=folder, progress=False)
            )
            if whole:  # after so many requests, and a few turns of the loop
                while len(server.requests) < 1 + moment * COUNT * stepping.STEPS // MOMENTS:
                    await asyncio.sleep(0)
                for _ in range(moment % 5):
                    await asyncio.sleep(0)
                running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            (path,) = folder.iterdir()
            for execution in made:
                for passage in execution.passages.values():
                    assert (passage.flying, passage.waiting, passage.under_way) == (0, 0, {})
                assert (execution.sampler.flights, execution.sampler._pending) == (0, {})
            made.clear()
            cut = begun(path)
            assert cut == 0, "what was cut off has an end on record"
            again = await library.resume(path, job=job(server.url, transport), progress=False)
            assert again.status == "finished"
            found = [timeless(row) for row in again.trajectories]
            whole = whole or found
            assert found == whole
            totals = again.manifest["totals"]
            asked = Counter((r.body["prompt"], r.body["seed"]) for r in server.requests)
            answered_twice = sum(asked.values()) - len(asked)
            assert answered_twice <= totals["failed_attempts"]
            met["cut off"] += sum(
                "cut off" in (row["error"] or "")
                for row in rows(path / "ledger.jsonl")
                if row["kind"] == "attempt"
            )
            while server._tasks:  # one a connection; the test's time-out ends this where one stays open
                await asyncio.sleep(0.001)
    assert met["cut off"] > MOMENTS // 2
    gc.collect()
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == [] and heard == []


def begun(path: Path) -> int:
    """Tries that were begun and have no end on record."""
    count = 0
    for row in rows(path / "ledger.jsonl"):
        if row["kind"] in ("attempt", "reply"):
            count += 1 if row["kind"] == "attempt" and row["error"] is None else -1
    return count
