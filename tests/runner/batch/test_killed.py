"""A process that dies at any stage of a batch's life is followed by one that goes on, and nothing is submitted
twice."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from runner import library
from runner.batch.log import read
from runner.testing import pure_answer
from runner.testing_batches import FakeAnthropicBatches, FakeOpenAIBatches
from tests.batches import Chains, a_job, ran, resumed, rows_of
from tests.dying import DEAD, METHODS, MOMENTS, job

SERVERS = {
    "openai": lambda: FakeOpenAIBatches(pure_answer),
    "anthropic": lambda: FakeAnthropicBatches(Chains()),
}
WHOLE = {}


async def whole(provider, tmp_path):
    """The rows of the run that nothing happened to, and how many batches it took."""
    if provider not in WHOLE:
        async with SERVERS[provider]() as server:
            run = await ran(a_job(server, methods=METHODS, limit=3), tmp_path / "whole")
            WHOLE[provider] = rows_of(run), len(server.batches)
    return WHOLE[provider]


async def killed(provider, server, moment, outputs):
    """The folder of a run whose process ended at that moment."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.dying", provider, server.url, str(outputs), moment,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, complaint = await process.communicate()
    assert process.returncode == DEAD, complaint.decode()
    (path,) = outputs.iterdir()
    return library.load(path)


CASES = [("openai", moment) for moment in MOMENTS] + [
    ("anthropic", moment) for moment in ("intended", "unconfirmed", "half")
]


@pytest.mark.parametrize(("provider", "moment"), CASES)
async def test_a_process_killed_at_any_stage_is_gone_on_with(provider, moment, tmp_path):
    rows, batches = await whole(provider, tmp_path)
    async with SERVERS[provider]() as server:
        run = await killed(provider, server, moment, tmp_path / "killed")
        again = await resumed(job(provider, server.url), run)
    assert again.status == "finished"
    assert rows_of(again) == rows
    assert len(server.batches) == batches  # none was submitted twice
    assert sum(len(batch.requests) for batch in server.batches) == server.answered
    assert {batch.stage for batch in read(run.path / "batches.jsonl").values()} == {"settled"}
    assert not list((run.path / "batches").iterdir())
    assert again.manifest["totals"]["calls"] == server.answered
    assert again.manifest["totals"]["possibly_billed_attempts"] == 0
