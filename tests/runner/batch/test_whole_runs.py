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


SERVERS = {FakeOpenAIBatches: lambda: pure_answer, FakeAnthropicBatches: Chains}
COT_SC = {"methods": CotSC(samples=21, until="all"), "limit": 60}
FEWER = {**COT_SC, "methods": CotSC(samples=5, until="all")}
REACT = {"methods": React(), "limit": 15}
DIRECT = {}


async def directly(fake, what, tmp_path, model):
    """The rows of the same job in direct mode; asked for once."""
    key = fake, what["limit"]
    if key not in DIRECT:
        async with fake(SERVERS[fake]()) as server:
            run = await ran(a_job(server, "direct", model=model, **what), tmp_path / "direct")
            DIRECT[key] = rows_of(run)
    return DIRECT[key]


async def batched(fake, what, tmp_path, model, traps):
    async with fake(SERVERS[fake](), traps=traps) as server:
        run = await ran(a_job(server, model={**model, "attempts": 9}, **what), tmp_path / "batched")
    assert run.status == "finished" and run.manifest["totals"]["calls"] == server.answered
    return rows_of(run), server


@pytest.mark.parametrize("traps", [(), OPENAI_TRAPS], ids=["clean", "traps"])
async def test_cot_sc_by_openais_batches_votes_as_in_direct_mode(traps, tmp_path):
    model = {"max_n": 7}
    rows, server = await batched(FakeOpenAIBatches, COT_SC, tmp_path, model, traps)
    assert rows == await directly(FakeOpenAIBatches, COT_SC, tmp_path, model)
    assert len(rows) == 60
    assert set(server.asked.values()) == {1} and server.answered == 60 * 3
    assert len(server.batches) == 1 if not traps else len(server.batches) > len(traps)


@pytest.mark.parametrize("traps", [(), OPENAI_TRAPS], ids=["clean", "traps"])
async def test_react_by_openais_batches_takes_the_same_steps_a_wave_each(traps, tmp_path):
    rows, server = await batched(FakeOpenAIBatches, REACT, tmp_path, {}, traps)
    assert rows == await directly(FakeOpenAIBatches, REACT, tmp_path, {})
    assert set(server.asked.values()) == {1}
    if not traps:
        assert len(server.batches) == max(row["n_steps"] for row in rows)


@pytest.mark.parametrize("traps", [(), ANTHROPIC_TRAPS], ids=["clean", "traps"])
async def test_cot_sc_by_message_batches_votes_as_in_direct_mode(traps, tmp_path):
    model = {"in_flight": 1}  # directly one after the other, as the API has no seed to tell chains apart
    rows, server = await batched(FakeAnthropicBatches, FEWER, tmp_path, model, traps)
    kept = in_any_order if traps else dict
    direct = await directly(FakeAnthropicBatches, FEWER, tmp_path, model)
    assert [kept(row) for row in rows] == [kept(row) for row in direct]
    assert len(rows) == 60 and server.answered == 60 * 5


@pytest.mark.parametrize("traps", [(), ANTHROPIC_TRAPS], ids=["clean", "traps"])
async def test_react_by_message_batches_takes_the_same_steps(traps, tmp_path):
    rows, server = await batched(FakeAnthropicBatches, REACT, tmp_path, {}, traps)
    assert rows == await directly(FakeAnthropicBatches, REACT, tmp_path, {})
    assert set(server.asked.values()) == {1}
