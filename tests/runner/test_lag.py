"""The loop's lag: measured, and what blocks it named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runner import library
from runner.job import Job
from runner.lag import Lag
from runner.methods.standard import Standard
from runner.models.scripted import scripted
from tests.echo import Echo


class Grinding(Standard):
    """Computes without a pause."""

    name = "grinding"

    async def solve(self, ep):
        await ep.sample("Say word0. Answer:")
        time.sleep(0.4)  # noqa: ASYNC251 (that is the fault)
        ep.answer = "word0"


async def test_what_blocks_the_loop_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.lag.EVERY", 0.01)
    monkeypatch.setattr("runner.lag.BLOCKED", 0.05)
    model = scripted("Answer: word0", delay=0.05)
    run = await library.run(Job.of(Echo(count=1), Grinding(), model), outputs=tmp_path, progress=False)
    (line, *_) = [line for line in (run.path / "run.log").read_text("utf-8").splitlines() if "waited" in line]
    assert f"{__file__}:" in line and "(solve)" in line and "belongs into a thread" in line
    assert run.manifest["totals"]["loop_lag_p99_ms"] >= 100


def test_a_quantile_is_the_milliseconds_within_which_so_many_looks_were() -> None:
    lag = Lag(print)
    assert lag.quantile(0.99) is None
    lag._counts.update({0: 97, 3: 2, 250: 1})
    assert [lag.quantile(share) for share in (0.5, 0.97, 0.99, 1.0)] == [0.0, 0.0, 3.0, 250.0]
