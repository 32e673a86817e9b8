"""What a batch's life looks like from outside: waiting, leaving, budgets, refusals, and what a person must say."""

from __future__ import annotations

import anyio
import orjson
import pytest

from runner import library
from runner.batch.courier import Courier
from runner.batch.log import BatchLog, read
from runner.errors import JobError
from runner.execution import Execution
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot import Cot
from runner.methods.react import React
from runner.testing import Delay, pure_answer
from runner.testing_batches import FakeAnthropicBatches, FakeOpenAIBatches
from tests.batches import SOON, a_job, ran, resumed, rows_of
from tests.dying import job as dying_job
from tests.runner.batch.test_killed import killed

PRICE = {"input": 1.0, "output": 2.0}


def stages(run):
    return [batch.stage for batch in read(run.path / "batches.jsonl").values()]


async def test_a_run_that_does_not_wait_submits_leaves_and_goes_on_later(tmp_path):
    async with FakeOpenAIBatches(pure_answer, looks=1) as server:
        job = a_job(server, methods=React(), limit=3)
        run = await ran(job, tmp_path, wait=False)
        assert (run.status, stages(run), len(server.batches)) == ("waiting", ["submitted"], 1)
        assert run.manifest["totals"]["left_for_resume"] == 3
        (told,) = run.manifest["batches"]
        assert (told["id"], told["stage"], told["requests"]) == ("batch_0", "submitted", 3)
        run = await resumed(job, run, wait=False)  # takes the first wave's results, submits the second
        assert (run.status, len(server.batches)) == ("waiting", 2)
        run = await resumed(job, run)
    assert run.status == "finished" and set(server.asked.values()) == {1}


async def test_ctrl_c_leaves_batches_where_they_are(tmp_path):
    async with FakeOpenAIBatches(pure_answer, looks=10**9) as server:
        job = a_job(server, limit=3)

        async def interrupting(execution: Execution) -> None:
            while not any(batch["stage"] == "submitted" for batch in execution.batches.told()):
                await anyio.sleep(0.01)
            execution.interrupt()

        run = await library.run(job, outputs=tmp_path, progress=interrupting)
        assert run.status == "interrupted" and len(server.batches) == 1
        server.looks = 1
        run = await resumed(job, run)
    assert run.status == "finished" and len(server.batches) == 1


async def test_replies_cost_half_and_say_by_which_batch_they_came(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        direct = await ran(a_job(server, "direct", model={"price": PRICE}), tmp_path / "d")
        batched = await ran(a_job(server, model={"price": PRICE}), tmp_path / "b")
        quarter = await ran(a_job(server, model={"price": PRICE, "batch": {"factor": 0.25}}), tmp_path / "q")
    paid = direct.manifest["totals"]["paid_usd"]
    assert batched.manifest["totals"]["paid_usd"] == pytest.approx(paid / 2, abs=1e-5)
    assert quarter.manifest["totals"]["paid_usd"] == pytest.approx(paid / 4, abs=1e-5)
    replies = [row for row in rows(batched.path / "ledger.jsonl") if row["kind"] == "reply"]
    assert {row["batch"] for row in replies} == {"batch_0"}


@pytest.mark.parametrize("limits", [{"max_calls": 5}, {"max_tokens": 6000}, {"max_usd": 0.003}])
async def test_budgets_bound_what_is_submitted(limits, tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        model = {"price": PRICE}
        run = await ran(a_job(server, limit=30, methods=Cot(), model=model, limits=limits), tmp_path)
        totals = run.manifest["totals"]
        assert run.status == "budget" and 0 < totals["calls"] == server.answered < 30
        assert totals["calls"] <= limits.get("max_calls", 30)
        assert totals["paid_usd"] <= limits.get("max_usd", 1.0)
        run = await resumed(a_job(server, limit=30, methods=Cot(), model=model), run)
    assert run.status == "finished" and server.answered == 30


async def test_a_batch_of_one_request_waits_for_room_in_the_queue(tmp_path):
    async with FakeOpenAIBatches(pure_answer, traps=[{"queue_full"}, {"queue_full"}]) as server:
        run = await ran(a_job(server, methods=Cot(), limit=1), tmp_path)
        assert (run.status, len(server.batches), server.answered) == ("finished", 3, 1)


async def test_a_batch_that_fails_its_validation_stops_the_cell_with_one_line(tmp_path):
    async with FakeOpenAIBatches(pure_answer, traps=[{"invalid"}]) as server:
        job = a_job(server)
        run = await ran(job, tmp_path)
        (why,) = run.manifest["stopped_cells"].values()
        assert run.status == "stopped" and "\n" not in why
        assert "failed its validation: line 1: The provided model 'fake' is not supported" in why
        run = await resumed(job, run)
    assert run.status == "finished" and stages(run) == ["dropped", "settled"]


async def test_lines_that_are_refused_for_good_fail_their_episodes_only(tmp_path):
    def script(body, k):
        if "Danish" in orjson.dumps(body["messages"]).decode()[-400:] or k == 1:
            return 400, {}, b'{"error": {"message": "no", "type": "invalid_request_error"}}'
        return pure_answer(body, k)

    async with FakeOpenAIBatches(script) as server:
        run = await ran(a_job(server, methods=Cot(), limit=6), tmp_path)
    errors = [row for row in run.trajectories if row["status"] == "error"]
    assert len(errors) >= 1 and all("refused" in row["error"]["message"] for row in errors)
    assert len(list(run.trajectories)) == 6 and len(server.batches) == 1


async def test_a_refused_parameter_is_left_out_of_the_next_batch(tmp_path):
    def script(body, k):
        if "temperature" in body:
            error = {"message": "Unsupported value: 'temperature'", "param": "temperature"}
            return 400, {}, orjson.dumps({"error": {**error, "code": "unsupported_value"}})
        return pure_answer(body, k)

    async with FakeOpenAIBatches(script) as server:
        run = await ran(a_job(server, methods=Cot(), limit=4), tmp_path)
    assert run.status == "finished" and len(server.batches) == 2
    assert all("sent_without_temperature" in row["flags"] for row in run.trajectories)


async def test_a_wrong_key_stops_the_cell(tmp_path):
    def script(body, k):
        return 401, {}, b'{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}'

    async with FakeOpenAIBatches(script) as server:
        run = await ran(a_job(server, methods=Cot(), limit=4), tmp_path)
    assert run.status == "stopped" and run.manifest["totals"]["left_for_resume"] + len(rows_of(run)) == 4


async def test_chunks_hold_no_more_than_the_job_says(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        run = await ran(a_job(server, methods=Cot(), limit=10, model={"batch": {"requests": 4}}), tmp_path)
    assert run.status == "finished" and [len(batch.requests) for batch in server.batches] == [4, 4, 2]


async def test_a_direct_models_work_delays_a_wave(tmp_path):
    """Of two models one is direct and slow, and takes places of the few that there are: the other one's calls are
    in one batch all the same."""

    def script(body, k):
        answer = pure_answer(body, k)
        return Delay(0.02, answer) if body["model"] == "slow" else answer

    async with FakeOpenAIBatches(script) as server:
        at = {"provider": "openai", "base_url": server.url}
        models = {
            "direct": {**at, "model": "slow", "in_flight": 2},
            "batched": {**at, "model": "fake", "mode": "batch", "batch": SOON},
        }
        job = {"limit": 12, "models": models, "envs": {"hotpotqa": {}}, "methods": {"cot": {}, "react": {}}}
        run = await library.run(job, outputs=tmp_path, progress=False)
    assert run.status == "finished" and len(list(run.trajectories)) == 48
    assert len(server.batches[0].requests) == 24


def test_chains_are_all_drawn_in_batch_mode_unless_a_method_says_otherwise():
    model = {"provider": "openai", "model": "m", "mode": "batch"}
    methods = {"cot_sc": {}, "react_then_cot_sc": {"until": "lossless"}}
    job = {"models": {"m": model}, "envs": {"hotpotqa": {}}, "methods": methods}
    assert [method.until for method in Job.parse(job).methods.values()] == ["all", "lossless"]
    job["models"] = {"m": model, "direct": {**model, "mode": "direct"}}
    assert [method.until for method in Job.parse(job).methods.values()] == ["lossless", "lossless"]
    job |= {"roles": {"judge": "direct"}}
    assert Job.parse(job).methods["cot_sc"].until == "all"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"provider": "scripted", "replies": ["x"]}, "mode"),
        (
            {"provider": "openai", "model": "m", "endpoints": [{"key_env": "A"}, {"key_env": "B"}]},
            "one base_url",
        ),
    ],
)
def test_models_that_have_no_batches_say_so(settings, why):
    job = {"models": {"m": {**settings, "mode": "batch"}}, "envs": {"hotpotqa": {}}, "methods": {"cot": {}}}
    with pytest.raises(JobError, match=why):
        Job.parse(job)


# -- what a person must say ----------------------------------------------------------------------------------
async def unconfirmed(server, tmp_path, strangers):
    """A run that died as its submission was taken, and other batches of the same size at the provider."""
    run = await killed("anthropic", server, "unconfirmed", tmp_path)
    for _ in range(strangers):
        body = {k: dict(v) for k, v in server.batches[0].requests.items()}
        server._create(
            {"requests": [{"custom_id": f"x{i}", "params": p} for i, p in enumerate(body.values())]}
        )
    return dying_job("anthropic", server.url), run


async def test_a_batch_that_cannot_be_told_from_anothers_stops_the_run_until_a_person_names_it(tmp_path):
    async with FakeAnthropicBatches(pure_answer) as server:
        job, run = await unconfirmed(server, tmp_path, 1)
        run = await resumed(job, run)
        (why,) = set(run.manifest["stopped_cells"].values())
        assert run.status == "stopped" and "--adopt ID" in why and "--resubmit" in why
        assert "msgbatch_0" in why and "msgbatch_1" in why and len(server.batches) == 2
        run = await resumed(job, run, adopt=("msgbatch_0",))
    assert (
        run.status == "finished" and next(iter(read(run.path / "batches.jsonl").values())).id == "msgbatch_0"
    )


async def test_a_batch_that_was_adopted_and_is_anothers_is_found_out_by_its_results(tmp_path):
    async with FakeAnthropicBatches(pure_answer) as server:
        job, run = await unconfirmed(server, tmp_path, 1)
        ours = server.batches.pop(0)  # so that the other one alone looks like it
        before = len(server.batches)
        run = await resumed(job, run)
        assert len(server.batches) > before
    assert run.status == "finished"
    first = next(iter(read(run.path / "batches.jsonl").values()))
    assert first.strangers == {"msgbatch_1"} and ours.object["id"] == "msgbatch_0"


async def test_resubmit_makes_a_batch_anew_that_the_provider_lost(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        job = a_job(server, methods=Cot())
        run = await ran(job, tmp_path, wait=False)
        server.batches.clear()
        run = await resumed(job, run)
        (why,) = run.manifest["stopped_cells"].values()
        assert run.status == "stopped" and "--resubmit" in why
        run = await resumed(job, run, resubmit=True)
    assert run.status == "finished" and stages(run) == ["dropped", "settled"]


def test_no_step_is_taken_that_the_table_does_not_have(tmp_path):
    log = BatchLog(tmp_path)
    batch = log.intend("m", "w0", "/chat/completions", 1.0, [(("t#0", "h", 0, 1), {"a": 1}, b"{}\n")])
    with pytest.raises(ValueError, match="from intended to settled"):
        log.step(batch, "settled")
    log.step(batch, "uploaded", file="f")
    log.step(batch, "submitted", id="b")
    log.close()
    again = BatchLog(tmp_path)
    (found,) = again.batches.values()
    assert (found.stage, found.id, found.file, found.sents) == ("submitted", "b", "f", [{"a": 1}])
    assert again.find("w0-0")[1].place == ("t#0", "h", 0, 1)
    assert again.line_of(found, "w0-0") == b"{}\n"


@pytest.mark.parametrize("fake", [FakeOpenAIBatches, FakeAnthropicBatches])
async def test_results_that_end_amid_a_line_are_fetched_again_before_anything_is_asked_anew(fake, tmp_path):
    async with fake(pure_answer, traps=[{"download_short"}]) as server:
        run = await ran(a_job(server, methods=Cot(), limit=4), tmp_path)
        assert (run.status, len(server.batches), server.answered) == ("finished", 1, 4)
        assert server.batches[0].downloads == 2


async def test_what_a_batch_waits_for_is_told_while_its_provider_is_away(tmp_path, monkeypatch):
    told = []
    original = Courier._patiently

    async def watched(self, what, act):
        async def tried():
            told.append(self.trouble)
            return await act()

        return await original(self, what, tried)

    monkeypatch.setattr(Courier, "_patiently", watched)
    async with FakeOpenAIBatches(pure_answer, traps=[{"poll_503"}]) as server:
        run = await ran(a_job(server, methods=Cot(), limit=1), tmp_path)
    assert run.status == "finished"
    failed = [words for words in told if words is not None]
    assert failed and all(words.startswith("a look at batch batch_0 failed: ") for words in failed)
    assert told[-1] is None
