"""Whole runs: what lands on disk, resuming, sharing, failing, changing."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from functools import partial

import anyio
import pytest

from envs.base import DataError, Observation, Session, Task, World, WorldError
from runner import library
from runner.errors import CellStopped, EpisodeFailed, JobError, RunError, Transient
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot_sc import CotSC
from runner.methods.cot_sc_then_react import CotSCThenReact
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.methods.standard import Standard
from runner.models.base import Choice
from runner.models.scripted import Scripted, scripted
from runner.outputs import RunFolder

FIELDS = {
    "schema",
    "id",
    "run",
    "config",
    "env",
    "split",
    "task_id",
    "index",
    "input",
    "target",
    "method",
    "model",
    "trial",
    "status",
    "answer",
    "scores",
    "reward",
    "n_steps",
    "steps",
    "votes",
    "usage",
    "cost_usd",
    "seconds",
    "waited_seconds",
    "memory",
    "error",
    "forked_from",
    "flags",
}


class Echo(World):
    """Tasks that are answered by repeating their word; an action is answered with what it says."""

    name = "echo"
    acts = True
    count: int = 4
    twins: bool = False

    def tasks(self):
        for k in range(self.count):
            word = "same" if self.twins else f"word{k}"
            yield Task(id=f"t{k}", input=f"Say {word}.", target=word, metadata={"even": k % 2 == 0})

    def extract(self, task, text):
        return text.split("Answer:")[-1].strip() or None

    def score(self, task, answer):
        return {"em": float(answer == task.target)}

    def session(self, task):
        return EchoSession()


class EchoSession(Session):
    async def step(self, action):
        if action.startswith("finish["):
            self.answer = action[7:-1]
            return Observation("Done.", 1.0, True)
        if action == "explode[]":
            raise RuntimeError("the engine burst")
        return Observation(f"You did {action}.")


def right(call):
    """Says each task's word, as an answer or as a finishing action."""
    prompt = call.request.prompt
    word = prompt.rsplit("Say ", 1)[1].split(".", 1)[0]
    if prompt.rstrip().endswith("Answer:"):
        return [f" {word}"] * call.n
    if prompt.rstrip().endswith("Thought:"):
        return [f" it is clear, chain {call.first + k}.\nAnswer: {word}" for k in range(call.n)]
    step = prompt.rsplit("Thought ", 1)[1].split(":")[0]
    return f" I finish.\nAction {step}: Finish[{word}]"


async def run(tmp_path, world, methods, model, **settings):
    return await library.run(
        Job.of(world, methods, model, **settings), outputs=tmp_path, progress=False
    )  # fmt: skip


def statuses(run):
    return Counter(row["status"] for row in run.trajectories)


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
    methods = {"five": CotSC(samples=5), "nine": CotSC(samples=9), "back": CotSCThenReact(samples=9)}
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
    await run(tmp_path, Echo(count=2, twins=True), CotSC(samples=3), model)
    assert len({call.request.hash for call in model.calls}) == 1
    assert Counter(call.scope for call in model.calls) == {"echo/t0#0": 3, "echo/t1#0": 3}
    assert len({call.seed for call in model.calls}) == 6


async def test_trials_do_not_share_draws(tmp_path):
    model = scripted(right)
    found = await run(tmp_path, Echo(count=2), Standard(), model, trials=3)
    assert len(list(found.trajectories)) == 6
    assert len(model.calls) == 6 and len({call.seed for call in model.calls}) == 6


async def test_a_finished_run_resumes_without_a_call_and_without_a_new_row(tmp_path):
    first = scripted(right)
    found = await run(tmp_path, Echo(), CotSC(samples=3), first)
    before = (found.path / "trajectories.jsonl").read_bytes()
    again = scripted(right)
    await library.resume(found.path, job=Job.of(Echo(), CotSC(samples=3), again), progress=False)
    assert again.calls == []
    assert (found.path / "trajectories.jsonl").read_bytes() == before


async def test_raising_samples_on_resume_draws_only_the_difference(tmp_path):
    found = await run(tmp_path, Echo(count=2), CotSC(samples=3), scripted(right))
    model = scripted(right)
    found = await library.resume(
        found.path, job=Job.of(Echo(count=2), CotSC(samples=5), model), progress=False
    )
    assert sorted(call.first for call in model.calls) == [3, 3, 4, 4]
    assert [row["votes"]["n_drawn"] for row in found.trajectories] == [5, 5]
    assert len((found.path / "trajectories.jsonl").read_bytes().splitlines()) == 2


async def test_more_tasks_on_resume_keep_the_rows_that_are_done(tmp_path):
    found = await run(tmp_path, Echo(), Standard(), scripted(right), limit=2)
    model = scripted(right)
    found = await library.resume(found.path, job=Job.of(Echo(), Standard(), model, limit=4), progress=False)
    assert [row["task_id"] for row in found.trajectories] == ["t0", "t1", "t2", "t3"]
    assert len(model.calls) == 2


async def test_a_changed_setting_is_named_and_refused_unless_accepted(tmp_path):
    found = await run(tmp_path, Echo(), Standard(), scripted(right))
    changed = Job.of(Echo(), Standard(temperature=0.5), scripted(right))
    with pytest.raises(RunError, match=r"methods\.standard\.temperature: was 0\.0, is 0\.5"):
        await library.resume(found.path, job=changed, progress=False)
    model = scripted(right)
    changed = Job.of(Echo(), Standard(temperature=0.5), model)
    await library.resume(found.path, job=changed, accept_changes=True, progress=False)
    assert len(model.calls) == 4


async def test_a_changed_method_file_is_noticed_on_resume(tmp_path, monkeypatch):
    source = (
        "from runner.methods.base import Method\n"
        "class Mine(Method):\n"
        "    name = 'mine'\n"
        "    async def solve(self, ep):\n"
        "        ep.answer = 'one'\n"
    )
    file = tmp_path / "mine.py"
    file.write_text(source)
    raw = {
        "models": {"policy": {"provider": "scripted", "replies": ["x"]}},
        "envs": {"hotpotqa": {}},
        "limit": 1,
        "methods": {"mine": {"method": f"{file}:Mine"}},
    }
    found = await library.run(Job.parse(raw), outputs=tmp_path / "out", progress=False)
    file.write_text(source.replace("'one'", "'two'"))
    with pytest.raises(RunError, match=r"methods\.mine \(code\): the text differs"):
        await library.resume(found.path, progress=False)


async def test_an_episode_that_raises_becomes_an_error_row_and_its_neighbours_finish(tmp_path):
    def script(call):
        if "word2." in call.request.prompt:
            return " I break it.\nAction 1: Explode[]"
        return right(call)

    found = await run(tmp_path, Echo(count=50), React(), scripted(script))
    assert statuses(found) == {"finished": 49, "error": 1}
    (row,) = [row for row in found.trajectories if row["status"] == "error"]
    assert row["error"] == {"type": "RuntimeError", "message": "the engine burst"}
    assert row["scores"] == {} and row["task_id"] == "t2"


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


async def test_a_changed_task_is_named_and_refused_on_resume(tmp_path):
    table = tmp_path / "table.jsonl"
    table.write_text('{"id": "1", "question": "One and one?", "answer": "2"}\n')
    raw = {
        "models": {"policy": {"provider": "scripted", "replies": ["Answer: 2"]}},
        "envs": {"qa": {"data": str(table), "answer": "number"}},
        "methods": {"standard": {}},
    }
    found = await library.run(Job.parse(raw), outputs=tmp_path / "out", progress=False)
    table.write_text('{"id": "1", "question": "One and two?", "answer": "3"}\n')
    with pytest.raises(RunError, match=r"envs\.qa: task 1: its input or target differs"):
        await library.resume(found.path, progress=False)


async def test_rescoring_with_another_method_does_not_make_a_resume_accept_it(tmp_path):
    found = await run(tmp_path, Echo(count=2), Standard(), scripted(right))
    changed = Job.of(Echo(count=2), Standard(max_tokens=9), scripted(right))
    await library.rescore(found.path, job=changed)
    with pytest.raises(RunError, match="max_tokens"):
        await library.resume(found.path, job=changed, progress=False)


async def test_scoring_an_interrupted_run_leaves_it_interrupted(tmp_path):
    async def watch(execution):
        execution.interrupt()
        execution.interrupt()

    job = Job.of(Echo(count=9), Standard(), scripted(right, delay=0.2))
    found = await library.run(job, outputs=tmp_path, progress=watch)
    assert found.status == "interrupted"
    found = await library.rescore(found.path, job=job)
    assert found.status == "interrupted"


async def test_a_resume_that_is_refused_changes_nothing(tmp_path):
    raw = {
        "models": {"policy": {"provider": "scripted", "replies": ["Answer: 2"]}},
        "envs": {"hotpotqa": {}},
        "limit": 2,
        "methods": {"standard": {}},
    }
    found = await library.run(Job.parse(raw), outputs=tmp_path, progress=False)
    before = (found.path / "run.json").read_bytes()
    with pytest.raises(DataError, match="nope"):
        await library.resume(found.path, overrides=['ids=["nope"]'], progress=False)
    assert (found.path / "run.json").read_bytes() == before
    await library.resume(found.path, progress=False)


async def test_rows_keep_the_order_of_the_plan_when_methods_are_added(tmp_path):
    first = {"a": Standard(), "c": CotSC(samples=2)}
    found = await run(tmp_path, Echo(count=3), first, scripted(right))
    more = {"a": Standard(), "b": React(), "c": CotSC(samples=2)}
    job = Job.of(Echo(count=3), more, scripted(right))
    found = await library.resume(found.path, job=job, progress=False)
    order = [(row["index"], row["task_id"], row["method"]) for row in found.trajectories]
    assert order == [(3 * t + k, f"t{t}", m) for t in range(3) for k, m in enumerate("abc")]


async def test_a_parameter_that_was_refused_flags_the_rows(tmp_path):
    class NoTemperature(Scripted):
        async def call(self, call):
            reply = await super().call(call)
            sent = {key: value for key, value in reply.sent.items() if key != "temperature"}
            return dataclasses.replace(reply, sent=sent)

    model = NoTemperature(replies=["Answer: x", "Answer: y"])
    found = await run(tmp_path, Echo(count=1), CotSC(samples=2), model)
    (row,) = found.trajectories
    assert row["flags"] == ["sent_without_temperature", "tied_vote"]


async def test_a_damaged_row_is_set_aside_and_its_episode_run_again(tmp_path):
    found = await run(tmp_path, Echo(count=3), Standard(), scripted(right))
    file = found.path / "trajectories.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b'{"id": "half\n' + lines[2])
    found = await library.resume(
        found.path, job=Job.of(Echo(count=3), Standard(), scripted(right)), progress=False
    )
    assert [row["task_id"] for row in found.trajectories] == ["t0", "t1", "t2"]
    assert found.manifest["totals"]["damaged_trajectory_lines"] == 1
    assert (found.path / "damaged.jsonl").read_bytes() == b'{"id": "half\n'


async def test_error_rows_are_run_again_on_resume_and_replaced(tmp_path):
    def failing(call):
        if "word1." in call.request.prompt:
            raise EpisodeFailed("no such luck")
        return right(call)

    found = await run(tmp_path, Echo(), Standard(), scripted(failing))
    assert statuses(found) == {"finished": 3, "error": 1}
    model = scripted(right)
    found = await library.resume(found.path, job=Job.of(Echo(), Standard(), model), progress=False)
    assert statuses(found) == {"finished": 4} and len(model.calls) == 1
    assert len((found.path / "trajectories.jsonl").read_bytes().splitlines()) == 4


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


async def test_an_observation_of_a_page_that_changed_is_read_from_the_ledger(tmp_path):
    pages = {"text": "old"}

    class Live(Echo):
        name = "live"
        replay = "pure"

        def session(self, task):
            class Reads(EchoSession):
                async def step(self, action):
                    if action.startswith("finish["):
                        return await super().step(action)
                    return Observation(f"The page says {pages['text']}.")

            return Reads()

    def first(call):
        if "Thought 2:" in call.request.prompt:
            raise EpisodeFailed("killed here")
        return " I look.\nAction 1: Read[page]"

    found = await run(tmp_path, Live(count=1), React(), scripted(first))
    pages["text"] = "new"

    def second(call):
        assert "The page says old." in call.request.prompt
        return " I see.\nAction 2: Finish[old]"

    found = await library.resume(
        found.path, job=Job.of(Live(count=1), React(), scripted(second)), progress=False, accept_changes=True
    )
    (row,) = found.trajectories
    assert [step["observation"] for step in row["steps"]] == ["The page says old.", "Done."]


class Engine(Session):
    """Counts its steps; what it says depends on all of them."""

    made = 0

    def __init__(self, task, drift):
        Engine.made += 1
        self.steps, self.drift = 0, drift

    async def step(self, action):
        self.steps += 1
        if action.startswith("finish["):
            self.answer = action[7:-1]
            return Observation("Done.", 1.0, True)
        return Observation(f"Step {self.steps} of the engine{self.drift}.")


def engine_world(kind, drift=""):
    class Built(Echo):
        name = "built"
        replay = kind

        def session(self, task):
            return Engine(task, drift)

    Built.__qualname__ = "Built"
    return Built(count=1)


def two_steps_then(end):
    def script(call):
        step = call.request.prompt.rsplit("Thought ", 1)[1].split(":")[0]
        if step == "3":
            return end(call)
        return f" On.\nAction {step}: Go[{step}]"

    return script


def killed(call):
    raise EpisodeFailed("killed here")


def finishing(call):
    return " So.\nAction 3: Finish[x]"


async def resumed(tmp_path, kind, drift):
    found = await run(tmp_path, engine_world(kind), React(), scripted(two_steps_then(killed)))
    model = scripted(two_steps_then(finishing))
    job = Job.of(engine_world(kind, drift), React(), model)
    found = await library.resume(found.path, job=job, progress=False, accept_changes=True)
    (row,) = found.trajectories
    assert row["status"] == "finished"
    return [step["observation"] for step in row["steps"]], model


async def test_a_rebuilt_world_replays_its_actions_and_goes_on(tmp_path):
    seen, model = await resumed(tmp_path, "rebuild", "")
    assert seen == ["Step 1 of the engine.", "Step 2 of the engine.", "Done."]
    assert len(model.calls) == 1


async def test_a_rebuilt_world_that_differs_starts_the_episode_anew_with_new_draws(tmp_path):
    seen, model = await resumed(tmp_path, "rebuild", " (changed)")
    assert seen[:2] == ["Step 1 of the engine (changed).", "Step 2 of the engine (changed)."]
    assert [call.scope for call in model.calls] == ["built/t0#0~1"] * 3


async def test_a_world_that_cannot_be_replayed_starts_the_episode_anew(tmp_path):
    _, model = await resumed(tmp_path, "none", "")
    assert [call.scope for call in model.calls] == ["built/t0#0~1"] * 3


async def test_a_worlds_first_words_stand_in_the_prompt_and_come_back_from_the_record(tmp_path):
    class Greets(Echo):
        name = "greets"

        def session(self, task):
            class Hello(EchoSession):
                async def reset(self):
                    return "You are in a room."

            return Hello()

    def script(call):
        assert "Say word0.\nYou are in a room.\nThought 1:" in call.request.prompt
        return right(call)

    found = await run(tmp_path, Greets(count=1), React(), scripted(script))
    assert statuses(found) == {"finished": 1}
    model = scripted(right)
    found = await library.rescore(found.path, job=Job.of(Greets(count=1), React(), model))
    assert model.calls == [] and found.manifest["totals"]["left_for_resume"] == 0


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


async def test_rescoring_uses_todays_scorer_and_no_call(tmp_path):
    methods = {"react": React(), "cot_sc": CotSC(samples=3)}
    found = await run(tmp_path, Echo(), methods, scripted(right))
    seconds = [row["seconds"] for row in found.trajectories]

    class Echo2(Echo):
        name = "echo"

        def score(self, task, answer):
            return {"em": 0.25}

    model = scripted(right)
    found = await library.rescore(found.path, job=Job.of(Echo2(), methods, model))
    assert model.calls == []
    assert {row["scores"]["em"] for row in found.trajectories} == {0.25}
    assert [row["seconds"] for row in found.trajectories] == seconds
    assert statuses(found) == {"finished": 8}


async def test_rescoring_keeps_rows_whose_replies_are_not_all_on_record(tmp_path):
    found = await run(tmp_path, Echo(count=2), CotSC(samples=3), scripted(right))
    before = list(found.trajectories)
    found = await library.rescore(found.path, job=Job.of(Echo(count=2), CotSC(samples=9), scripted(right)))
    assert list(found.trajectories) == before
    assert found.manifest["totals"]["left_for_resume"] == 2


async def test_a_second_process_on_the_same_run_is_refused_while_the_first_lives(tmp_path):
    found = await run(tmp_path, Echo(), Standard(), scripted(right))
    held = RunFolder.open(found.path)
    with pytest.raises(RunError, match="is working on this run"):
        await library.resume(found.path, job=Job.of(Echo(), Standard(), scripted(right)), progress=False)
    held.close()
    await library.resume(found.path, job=Job.of(Echo(), Standard(), scripted(right)), progress=False)


async def test_an_interrupt_lets_episodes_in_flight_finish_and_begins_no_new_one(tmp_path):
    started = anyio.Event()
    executions = []

    async def slow(call):
        started.set()
        await anyio.sleep(0.05)
        return right(call)

    async def watch(execution):
        executions.append(execution)
        await started.wait()
        execution.interrupt()

    job = Job.of(Echo(count=40), Standard(), scripted(slow), limits={"max_episodes": 5})
    found = await library.run(job, outputs=tmp_path, progress=watch)
    assert found.status == "interrupted"
    assert 1 <= len(list(found.trajectories)) <= 10
    assert set(statuses(found)) == {"finished"}
    model = scripted(right)
    found = await library.resume(found.path, job=Job.of(Echo(count=40), Standard(), model), progress=False)
    assert statuses(found) == {"finished": 40} and found.status == "finished"


async def test_a_second_interrupt_stops_at_once_and_loses_nothing_answered(tmp_path):
    asked = []

    async def never(call):
        if "word0." in call.request.prompt:
            return right(call)
        while not executions:
            await anyio.sleep(0.001)
        asked.append(call.scope)
        if len(asked) == 3:
            execution = executions[0]
            execution.interrupt()
            execution.interrupt()
        await anyio.sleep_forever()

    executions = []

    async def watch(execution):
        executions.append(execution)

    job = Job.of(Echo(count=9), Standard(), scripted(never), limits={"max_episodes": 9})
    found = await library.run(job, outputs=tmp_path, progress=watch)
    assert found.status == "interrupted"
    assert statuses(found) == {"finished": 1}
    model = scripted(right)
    found = await library.resume(found.path, job=Job.of(Echo(count=9), Standard(), model), progress=False)
    assert len(model.calls) == 8 and statuses(found) == {"finished": 9}


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


class Broken(Echo):
    name = "broken"
    at: int = 2

    def tasks(self):
        for k, task in enumerate(super().tasks()):
            if k == self.at:
                raise DataError("rows.jsonl: row 3: field 'target' is NaN")
            yield task


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
