"""Runs that go on: what is asked again, what may change, what is noticed, how a run is stopped."""

from __future__ import annotations

import dataclasses

import anyio
import pytest

from envs.base import DataError, Observation
from runner import library
from runner.errors import EpisodeFailed, RunError
from runner.job import Job
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.methods.standard import Standard
from runner.models.scripted import Scripted, scripted
from runner.outputs import RunFolder
from tests.echo import Echo, EchoSession, resumed, right, run, statuses


async def test_a_finished_run_resumes_without_a_call_and_without_a_new_row(tmp_path):
    first = scripted(right)
    found = await run(tmp_path, Echo(), CotSC(samples=3), first)
    before = (found.path / "trajectories.jsonl").read_bytes()
    again = scripted(right)
    await library.resume(found.path, job=Job.of(Echo(), CotSC(samples=3), again), progress=False)
    assert again.calls == []
    assert (found.path / "trajectories.jsonl").read_bytes() == before


async def test_raising_samples_on_resume_draws_only_the_difference(tmp_path):
    found = await run(tmp_path, Echo(count=2), CotSC(samples=3, until="all"), scripted(right))
    model = scripted(right)
    found = await library.resume(
        found.path, job=Job.of(Echo(count=2), CotSC(samples=5, until="all"), model), progress=False
    )
    assert sorted(call.first for call in model.calls) == [3, 3, 4, 4]
    assert [row["votes"]["n_drawn"] for row in found.trajectories] == [5, 5]
    assert len((found.path / "trajectories.jsonl").read_bytes().splitlines()) == 2


async def test_another_rule_on_resume_draws_only_what_the_first_left_out(tmp_path):
    found = await run(tmp_path, Echo(count=2), CotSC(samples=5), scripted(right))
    assert [row["votes"]["n_drawn"] for row in found.trajectories] == [3, 3]
    model = scripted(right)
    found = await library.resume(
        found.path, job=Job.of(Echo(count=2), CotSC(samples=5, until="all"), model), progress=False
    )
    assert sorted(call.first for call in model.calls) == [3, 3, 4, 4]
    assert [(row["votes"]["n_drawn"], row["votes"]["stopped_by"]) for row in found.trajectories] == [
        (5, "all"),
        (5, "all"),
    ]


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
    found = await run(tmp_path, Echo(count=1), CotSC(samples=2, until="all"), model)
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
