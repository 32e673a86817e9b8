"""Runs by batches end as the same runs in direct mode do, whatever befalls the batches."""

from __future__ import annotations

import pytest

from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.testing import pure_answer
from runner.testing_batches import FakeAnthropicBatches, FakeOpenAIBatches
from tests.batches import Chains, a_job, in_any_order, ran, rows_of

OPENAI_TRAPS = [
    {"expired", "shuffled", "download_502"},
    {"all_failed", "poll_503"},
    {"queue_full"},
    {"answer_lost", "empty_error_id"},
    {"cancelled", "shuffled", "download_cut"},
    {"lines_lost"},
]
ANTHROPIC_TRAPS = [
    {"expired", "shuffled", "download_502"},
    {"all_failed", "poll_503"},
    {"answer_lost"},
    {"cancelled", "download_cut"},
    {"lines_lost"},
]


@pytest.mark.parametrize("traps", [(), OPENAI_TRAPS], ids=["clean", "traps"])
async def test_cot_sc_by_openais_batches_votes_as_in_direct_mode(traps, tmp_path):
    methods, settings = CotSC(samples=21), {"max_n": 7, "attempts": 9}
    async with FakeOpenAIBatches(pure_answer) as server:
        direct = await ran(a_job(server, "direct", methods=methods, limit=60, model=settings), tmp_path / "d")
    async with FakeOpenAIBatches(pure_answer, traps=traps) as server:
        batched = await ran(a_job(server, methods=methods, limit=60, model=settings), tmp_path / "b")
    assert rows_of(batched) == rows_of(direct)
    assert len(list(batched.trajectories)) == 60 and batched.status == "finished"
    assert set(server.asked.values()) == {1} and server.answered == 60 * 3
    assert len(server.batches) == 1 if not traps else len(server.batches) > len(traps)


@pytest.mark.parametrize("traps", [(), OPENAI_TRAPS], ids=["clean", "traps"])
async def test_react_by_openais_batches_takes_the_same_steps_a_wave_each(traps, tmp_path):
    model = {"attempts": 9}
    async with FakeOpenAIBatches(pure_answer) as server:
        direct = await ran(a_job(server, "direct", methods=React(), limit=15, model=model), tmp_path / "d")
    async with FakeOpenAIBatches(pure_answer, traps=traps) as server:
        batched = await ran(a_job(server, methods=React(), limit=15, model=model), tmp_path / "b")
    assert rows_of(batched) == rows_of(direct)
    assert set(server.asked.values()) == {1}
    if not traps:
        assert len(server.batches) == max(row["n_steps"] for row in direct.trajectories)


@pytest.mark.parametrize("traps", [(), ANTHROPIC_TRAPS], ids=["clean", "traps"])
async def test_cot_sc_by_message_batches_votes_as_in_direct_mode(traps, tmp_path):
    methods, model = CotSC(samples=21), {"attempts": 9}
    async with FakeAnthropicBatches(Chains()) as server:
        direct = await ran(
            a_job(server, "direct", methods=methods, limit=60, model={**model, "in_flight": 1}),
            tmp_path / "d",
        )
    async with FakeAnthropicBatches(Chains(), traps=traps) as server:
        batched = await ran(a_job(server, methods=methods, limit=60, model=model), tmp_path / "b")
    kept = in_any_order if traps else dict
    assert [kept(row) for row in rows_of(batched)] == [kept(row) for row in rows_of(direct)]
    assert server.answered == 60 * 21


@pytest.mark.parametrize("traps", [(), ANTHROPIC_TRAPS], ids=["clean", "traps"])
async def test_react_by_message_batches_takes_the_same_steps(traps, tmp_path):
    model = {"attempts": 9}
    async with FakeAnthropicBatches(Chains()) as server:
        direct = await ran(a_job(server, "direct", methods=React(), limit=15, model=model), tmp_path / "d")
    async with FakeAnthropicBatches(Chains(), traps=traps) as server:
        batched = await ran(a_job(server, methods=React(), limit=15, model=model), tmp_path / "b")
    assert rows_of(batched) == rows_of(direct)
    assert set(server.asked.values()) == {1}
