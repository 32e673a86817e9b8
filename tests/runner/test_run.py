"""Whole runs: what lands on disk, what methods share, what fails and how that is said."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import anyio
import pytest

from envs.base import DataError, WorldError
from runner import library
from runner.errors import CellStopped, JobError, Transient
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot_sc import CotSC
from runner.methods.cot_sc_then_react import CotSCThenReact
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.methods.standard import Standard
from runner.models.base import Choice
from runner.models.scripted import scripted
from tests.echo import FIELDS, Broken, Echo, EchoSession, right, run, statuses


async def test_every_episode_leaves_one_row_with_the_documented_fields(tmp_path):
    found = await run(tmp_path, Echo(), {"react": React(), "standard": Standard()}, scripted(right))
    lines = list(found.trajectories)
    assert [row["index"] for row in lines] == list(range(8))
    assert all(row["scores"] == {"em": 1.0} and row["status"] == "finished" for row in lines)
    assert set(lines[0]) == FIELDS
    step = lines[0]["steps"][0]
    assert (step["thought"], step["action"], step["observation"]) == (
        "I finish.",
        "finish[word0]",
        "Done.",
    )
    assert len(step["draws"]) == 1
    assert found.manifest["versions"]["python"] and found.manifest["totals"]["done"] == 8
    assert (found.path / "summary.json").exists()


async def test_methods_that_ask_for_the_same_chains_share_them(tmp_path):
    model = scripted(right)
    methods = {
        "five": CotSC(samples=5, until="all"),
        "nine": CotSC(samples=9, until="all"),
        "back": CotSCThenReact(samples=9, until="all"),
    }
    found = await run(tmp_path, Echo(count=3), methods, model)
    assert len(model.calls) == 3 * 9
    assert {(call.scope, call.request.hash, call.first) for call in model.calls} == {
        (call.scope, call.request.hash, k) for call in model.calls for k in range(9)
    }
    by_method = Counter()
    for row in found.trajectories:
        by_method[row["method"]] += row["usage"]["calls"]
    assert by_method == {"five": 15, "nine": 27, "back": 27}
    assert found.manifest["totals"]["calls"] == 27


async def test_a_duplicate_question_under_another_id_has_its_own_draws(tmp_path):
    model = scripted(right)
    await run(tmp_path, Echo(count=2, twins=True), CotSC(samples=3, until="all"), model)
    assert len({call.request.hash for call in model.calls}) == 1
    assert Counter(call.scope for call in model.calls) == {"echo/t0#0": 3, "echo/t1#0": 3}
    assert len({call.seed for call in model.calls}) == 6


async def test_trials_do_not_share_draws(tmp_path):
    model = scripted(right)
    found = await run(tmp_path, Echo(count=2), Standard(), model, trials=3)
    assert len(list(found.trajectories)) == 6
    assert len(model.calls) == 6 and len({call.seed for call in model.calls}) == 6


async def test_as_many_episodes_run_at_once_as_the_job_allows_and_no_more(tmp_path):
    peaks = []

    async def watch(execution):
        executions.append(execution)

    async def slow(call):
        while not executions:
            await anyio.sleep(0.001)
        await anyio.sleep(0.02)
        peaks.append(executions[0].scheduler.in_flight)
        return right(call)

    executions = []
    job = Job.of(Echo(count=40), Standard(), scripted(slow), limits={"max_episodes": 7})
    found = await library.run(job, outputs=tmp_path, progress=watch)
    assert statuses(found) == {"finished": 40}
    assert max(peaks) == 7


async def test_the_display_may_fail_and_the_run_goes_on(tmp_path):
    async def watch(execution):
        raise BrokenPipeError("nobody is there")

    job = Job.of(Echo(count=3), Standard(), scripted(right))
    found = await library.run(job, outputs=tmp_path, progress=watch)
    assert found.status == "finished" and statuses(found) == {"finished": 3}


async def test_a_method_that_samples_side_by_side_stops_its_cell_like_any_other(tmp_path):
    class Both(Standard):
        name = "both"

        async def solve(self, ep):
            async with anyio.create_task_group() as tasks:
                for stream in ("a", "b"):
                    tasks.start_soon(partial(ep.sample, "Say word0. Answer:", stream=stream))

    def broke(call):
        raise CellStopped("no credit")

    found = await run(tmp_path, Echo(count=9), Both(), scripted(broke), limits={"max_episodes": 1})
    assert found.status == "stopped" and len(list(found.trajectories)) == 1


async def test_a_cell_without_credit_stops_alone_and_says_what_to_do(tmp_path):
    def broke(call):
        raise CellStopped("no credit on gpt-x; add some, then resume")

    job = Job.parse(
        {
            "models": {
                "good": {"provider": "scripted", "replies": [" x"]},
                "bad": {"provider": "scripted", "model": "other"},
            },
            "envs": {"hotpotqa": {}},
            "limit": 30,
            "methods": {"standard": {}},
            "limits": {"max_episodes": 4},
        }
    )
    job.models["bad"]._script = broke
    found = await library.run(job, outputs=tmp_path, progress=False)
    assert found.status == "stopped"
    by_model = Counter((row["model"], row["status"]) for row in found.trajectories)
    assert by_model["good", "finished"] + by_model["good", "no_answer"] == 30
    assert 1 <= by_model["bad", "error"] <= 4
    assert "no credit" in str(found.manifest["stopped_cells"])
    assert len(job.models["bad"].calls) <= 4


async def test_chains_that_were_all_cut_off_leave_a_truncated_row(tmp_path):
    model = scripted(lambda call: [Choice("", "length", reasoning=f"hm {call.first}")] * call.n)
    found = await run(tmp_path, Echo(count=1), CotSC(samples=3), model)
    assert statuses(found) == {"truncated": 1}


async def test_a_voted_answer_does_not_keep_the_reward_of_the_failed_acting_before_it(tmp_path):
    def script(call):
        if "Thought 1:" in call.request.prompt.rsplit("Say ", 1)[1]:
            return " No.\nAction 1: Finish[]"
        return right(call)

    found = await run(tmp_path, Echo(count=1), ReactThenCotSC(samples=3, steps=1), scripted(script))
    (row,) = found.trajectories
    assert (row["status"], row["answer"], row["reward"]) == ("finished", "word0", None)


async def test_a_transient_failure_is_tried_again_and_kept_as_an_attempt(tmp_path, monkeypatch):
    async def no_pause(self, *about):
        pass

    monkeypatch.setattr("runner.models.passage.Passage._pause", no_pause)
    failed = []

    def flaky(call):
        if len(failed) < 2:
            failed.append(call)
            raise Transient("503 overloaded", billed=len(failed) == 1)
        return right(call)

    found = await run(tmp_path, Echo(count=1), Standard(), scripted(flaky))
    assert statuses(found) == {"finished": 1}
    attempts = [row for row in rows(found.path / "ledger.jsonl") if row["kind"] == "attempt" and row["error"]]
    assert [row["possible_cost"] for row in attempts] == [True, False]
    totals = found.manifest["totals"]
    assert (totals["failed_attempts"], totals["possibly_billed_attempts"]) == (2, 1)


@pytest.mark.parametrize(
    ("choice", "status"),
    [
        (Choice("", "length", reasoning="hm, hm"), "truncated"),
        (Choice("", "filter"), "filtered"),
        (Choice("", "stop"), "no_answer"),
    ],
)
async def test_a_reply_without_text_is_a_row_with_a_status(tmp_path, choice, status):
    found = await run(tmp_path, Echo(count=1), Standard(), scripted(lambda call: [choice]))
    (row,) = found.trajectories
    assert (row["status"], row["answer"], row["scores"]) == (status, None, {"em": 0.0})


async def test_identical_chains_flag_the_row(tmp_path):
    found = await run(
        tmp_path, Echo(count=1), CotSC(samples=4), scripted(lambda call: [" Answer: x"] * call.n)
    )
    (row,) = found.trajectories
    assert row["flags"] == ["identical_draws"]


async def test_a_reply_that_a_stop_string_ended_within_its_thoughts_flags_the_row(tmp_path):
    reply = Choice("", "stop", reasoning="The")  # as of vLLM, where the model thinks "Question: ..."
    found = await run(tmp_path, Echo(count=1), Standard(), scripted(lambda call: [reply]))
    (row,) = found.trajectories
    assert (row["status"], row["flags"]) == ("no_answer", ["only_thoughts"])


async def test_a_lone_surrogate_in_a_reply_reaches_file_and_next_prompt_in_a_form_that_both_take(tmp_path):
    prompts = []

    def script(call):
        prompts.append(call.request.prompt)
        step = call.request.prompt.rsplit("Thought ", 1)[1].split(":")[0]
        return " broken \ud835 text.\nAction 1: Look[\ud835]" if step == "1" else " so.\nAction 2: Finish[x]"

    found = await run(tmp_path, Echo(count=1), React(), scripted(script))
    (row,) = found.trajectories
    assert row["status"] == "finished" and "\ufffd" in row["steps"][0]["thought"]
    assert prompts[1].encode()
    assert json.loads((found.path / "trajectories.jsonl").read_text("utf-8"))


async def test_a_bad_row_is_found_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match="row 3"):
        await run(tmp_path, Broken(), Standard(), scripted(right))
    assert list(tmp_path.iterdir()) == []


async def test_a_bad_row_far_down_ends_the_run_and_keeps_the_episodes_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "CHECK_SECONDS", -1.0)  # as if reading so far had taken too long
    with pytest.raises(DataError, match="row 3"):
        await run(tmp_path, Broken(), Standard(), scripted(right))
    (folder,) = tmp_path.iterdir()
    found = library.load(folder)
    assert found.status == "failed" and "row 3" in found.manifest["error"]
    assert set(statuses(found)) <= {"finished"} and len(list(found.trajectories)) <= 2


async def test_an_episode_that_never_ends_is_given_up(tmp_path):
    class Endless(Standard):
        name = "endless"

        async def solve(self, ep):
            while True:
                await ep.sample("Say word0. Answer:")

    found = await run(tmp_path, Echo(count=1), Endless(), scripted(right), limits={"episode_draws": 50})
    (row,) = found.trajectories
    assert row["status"] == "error" and "episode_draws" in row["error"]["message"]
    assert row["usage"]["calls"] == 50


@pytest.mark.parametrize("wrong", ["tasks", "step", "score", "exit", "answer"])
async def test_what_a_world_or_method_does_wrong_is_said_in_its_name(tmp_path, wrong):
    class Wrong(Echo):
        name = "wrong"

        def tasks(self):
            yield from super().tasks()
            if wrong == "tasks":
                yield {"id": "x"}

        def score(self, task, answer):
            return 1.0 if wrong == "score" else super().score(task, answer)

        def session(self, task):
            class Odd(EchoSession):
                async def step(self, action):
                    if wrong == "exit":
                        raise SystemExit(3)
                    return "text" if wrong == "step" else await super().step(action)

            return Odd()

    class Returns(React):
        name = "returns"

        async def solve(self, ep):
            await super().solve(ep)
            return "an answer" if wrong == "answer" else None

    if wrong == "tasks":
        with pytest.raises(DataError, match=r"envs\.wrong: tasks\(\) gave {'id': 'x'}"):
            await run(tmp_path, Wrong(count=1), Returns(), scripted(right))
        return
    found = await run(tmp_path, Wrong(count=1), Returns(), scripted(right))
    (row,) = found.trajectories
    said = {
        "step": "step() gave 'text'",
        "score": "score() gave 1.0",
        "exit": "SystemExit",
        "answer": "ep.answer = ...",
    }
    assert row["status"] == "error" and said[wrong] in row["error"]["message"]


async def test_an_empty_data_set_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match="no task"):
        await run(tmp_path, Echo(count=0), Standard(), scripted(right))
    assert list(tmp_path.iterdir()) == []


async def test_a_world_whose_scores_are_not_finite_gives_an_error_row(tmp_path):
    class Nan(Echo):
        name = "nan"

        def score(self, task, answer):
            return {"em": float("nan")}

    found = await run(tmp_path, Nan(count=1), Standard(), scripted(right))
    (row,) = found.trajectories
    assert row["status"] == "error" and row["scores"] == {} and "nan" in row["error"]["message"]


async def test_a_world_that_fails_to_close_does_not_lose_the_episode(tmp_path):
    class Sticky(Echo):
        name = "sticky"

        def session(self, task):
            class Clings(EchoSession):
                async def close(self):
                    raise WorldError("the door is stuck")

            return Clings()

    found = await run(tmp_path, Sticky(count=2), React(), scripted(right))
    assert statuses(found) == {"finished": 2}


async def test_the_same_notebook_can_run_twice(tmp_path):
    first = await run(tmp_path, Echo(), Standard(), scripted(right))
    second = await run(tmp_path, Echo(), Standard(), scripted(right))
    assert first.path != second.path
    frame = second.frame()
    assert list(frame["scores.em"]) == [1.0] * 4


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "https://me:sk-very-secret@host/v1"},
        {"base_url": "https://host/v1?key=sk-very-secret"},
        {"key_env": "sk-very-secret"},
        {"headers": {"Authorization": "Bearer sk-very-secret"}},
    ],
)
def test_a_key_written_into_a_job_is_refused_and_not_repeated(settings):
    raw = {
        "models": {"policy": {"provider": "openai", "model": "m", **settings}},
        "envs": {"hotpotqa": {}},
        "methods": {"standard": {}},
    }
    with pytest.raises(JobError, match="key_env") as caught:
        Job.parse(raw)
    assert "sk-very-secret" not in str(caught.value)


async def test_a_key_in_the_environment_reaches_no_file(tmp_path, monkeypatch):
    from runner.testing import FakeOpenAI

    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    async with FakeOpenAI(
        lambda body, k: (401, {}, b'{"error": {"message": "bad key sk-very-secret"}}')
    ) as server:
        raw = {
            "models": {
                "policy": {"provider": "openai", "model": "m", "base_url": server.url, "key_env": "MY_KEY"}
            },
            "envs": {"hotpotqa": {}},
            "limit": 1,
            "methods": {"standard": {}},
        }
        found = await library.run(Job.parse(raw), outputs=tmp_path, progress=False)
        assert server.requests[0].headers["authorization"] == "Bearer sk-very-secret"
    assert found.status == "stopped"
    for file in found.path.iterdir():
        assert b"sk-very-secret" not in file.read_bytes(), file
