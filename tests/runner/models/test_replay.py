"""Replies from a record: a published transcript, or an earlier run's ledger."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs.hotpotqa import HotpotQA
from runner import library
from runner.errors import EpisodeFailed, JobError
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot import Cot
from runner.models.base import Call, Choice, Params, Request, Text, Turn, Usage
from runner.models.replay import Replay
from runner.models.scripted import scripted
from runner.models.transcript import Transcript, steps_without_action

CHAINS = {"question": "Ada?", "answer": "x", "generated_answer": ["one", "two", "three"]}
EPISODE = {
    "claim": "A is B.",
    "steps": [["I look.", "Search[A]", "A is C."], ["So no.", "Finish[no]", "Done"]],
}


def written(file: Path, *lines: Any) -> Path:
    """A file of these rows; texts stand as they are."""
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


async def asked(model: Replay, prompt: str, n: int = 1, first: int = 0, **params: Any) -> list[str]:
    request = Request(model.identity, (Turn("prompt", Text(prompt)),), Params(**params))
    return [c.text for c in (await model.call(Call(request, n, first=first, scope="w/t#0"))).choices]


def complaint(**settings: Any) -> str:
    raw = {
        "models": {"m": {"provider": "replay", **settings}},
        "envs": {"hotpotqa": {}},
        "methods": {"cot": {}},
    }
    with pytest.raises(JobError) as caught:
        Job.parse(raw)
    return str(caught.value)


# -- settings ------------------------------------------------------------------------------------------


def test_one_source_is_given_and_no_more(tmp_path: Path) -> None:
    file = str(written(tmp_path / "t.jsonl", CHAINS))
    neither = complaint()
    assert neither == "job (models.m): give either `transcript` (a file) or `run` (a run's folder)"
    assert complaint(transcript=file, run=str(tmp_path)) == neither + ", not both"


def test_a_source_that_is_not_there_is_named_with_the_table_that_wants_it(tmp_path: Path) -> None:
    said = complaint(transcript=str(tmp_path / "t.jsonl"))
    assert said.startswith("job (models.m): ") and "t.jsonl: no such file" in said
    said = complaint(run=str(tmp_path / "none"))
    assert said.startswith("job (models.m): ") and "none: no run here" in said
    assert "cannot be read" in complaint(transcript=str(tmp_path))


def test_the_api_is_one_of_two(tmp_path: Path) -> None:
    file = written(tmp_path / "t.jsonl", CHAINS)
    assert Replay(transcript=file).api == "completions"
    said = complaint(transcript=str(file), api="chats")
    assert "(models.m.api): input should be 'completions' or 'chat', not 'chats'" in said


def test_the_identity_of_a_transcript_is_its_content(tmp_path: Path) -> None:
    one, same, other = (
        Replay(transcript=written(tmp_path / name, row))
        for name, row in (("a", CHAINS), ("b", CHAINS), ("c", EPISODE))
    )
    assert one.identity == same.identity != other.identity


# -- chains --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        "Question: Bob?\nThought: Hm.\nAnswer: 3\nQuestion: Ada?\nThought:",
        "Question: Ada?\nAnswer:",
        "Q: Ada?",
        "Problem:  Ada? \nThought:",
        "Solve this.\n\nAda?\n",
    ],
)
async def test_draw_i_is_chain_i_however_the_task_is_introduced(tmp_path: Path, prompt: str) -> None:
    model = Replay(transcript=written(tmp_path / "t.jsonl", CHAINS))
    assert await asked(model, prompt, 3) == ["one", "two", "three"]
    assert await asked(model, prompt, 1, first=2) == ["three"]


async def test_too_few_chains_are_an_error_that_says_how_many_there_are(tmp_path: Path) -> None:
    model = Replay(transcript=written(tmp_path / "t.jsonl", CHAINS))
    with pytest.raises(EpisodeFailed, match=r"t\.jsonl: only 3 chains of 'Ada\?.*', asked for 4"):
        await asked(model, "Question: Ada?\nThought:", 4)


async def test_stop_strings_are_applied_to_recorded_texts(tmp_path: Path) -> None:
    row = {"question": "Ada?", "generated_answer": ["Answer: 1\nQuestion: Next?"]}
    model = Replay(transcript=written(tmp_path / "t.jsonl", row))
    assert await asked(model, "Question: Ada?\nThought:", stop=("\nQuestion:",)) == ["Answer: 1"]


async def test_a_vote_over_recorded_chains_is_the_vote_of_then(tmp_path: Path) -> None:
    texts = [f"So.\nAnswer: {answer}" for answer in ("7", "8", "8")]
    data = written(tmp_path / "d.jsonl", {"question": "What?", "answer": "8", "generated_answer": texts})
    raw = {
        "models": {"m": {"provider": "replay", "transcript": str(data)}},
        "envs": {"hotpotqa": {"data": str(data)}},
        "methods": {"cot_sc": {"samples": 3}, "four": {"method": "cot_sc", "samples": 4}},
    }
    found = await library.run(Job.parse(raw), outputs=tmp_path, progress=False)
    three, four = found.trajectories
    assert (three["answer"], three["votes"]["n_drawn"], three["scores"]["em"]) == ("8", 3, 1.0)
    assert four["status"] == "error" and "only 3 chains" in four["error"]["message"]


# -- steps ---------------------------------------------------------------------------------------------


async def test_a_step_is_found_by_all_that_was_said_before_it(tmp_path: Path) -> None:
    model = Replay(transcript=written(tmp_path / "t.jsonl", EPISODE))
    start = "Verify.\nClaim: X.\nThought 1: y\nClaim: A is B.\n"
    assert await asked(model, start + "Thought 1:") == [" I look.\nAction 1: Search[A]"]
    second = start + "Thought 1: I look.\nAction 1: Search[A]\nObservation 1: A is C.\nThought 2:"
    assert await asked(model, second) == [" So no.\nAction 2: Finish[no]"]
    with pytest.raises(
        EpisodeFailed, match=r"no reply was recorded after .*this episode has left the recording$"
    ):
        await asked(model, second.replace("A is C.", "A is D."))


@pytest.mark.parametrize(
    ("steps", "bad_calls", "expected"),
    [
        ([("t", "a", "o"), ("t", "b", "o")], 0, set()),
        ([("t", "a", "o"), ("t", "b", "o")], 1, {1}),
        ([("t\nu", "a", "o"), ("t", "a\nb", "o"), ("t", "b", "o")], 1, {3}),
        ([("t ", "a", "o"), ("t", "b", "o")], 1, {2}),  # the whole reply is stripped, so it had more lines
        ([("t ", "a", "o"), ("t", "b", "o")], 2, {1, 2}),
        ([("t", "a", "o"), ("", "b", "o")], 1, {2}),  # nothing said: there was no action either
        ([("t", "a", "o")], 5, {1}),
    ],
)
def test_which_replies_can_have_lacked_their_action(
    steps: list[tuple[str, str, str]], bad_calls: int, expected: set[int]
) -> None:
    assert steps_without_action(steps, bad_calls) == expected


BAD_CALLS: list[dict[str, Any]] = [
    {
        "idx": 7,
        "claim": "Oslo is in Norway.",
        "label": "SUPPORTS",
        "steps": [
            ["I search Oslo.  ", "Search[Oslo]", "Oslo is the capital of Norway.  It has trams. "],
            ["It says so.", "Finish[SUPPORTS]", "Episode finished, reward = 1"],
        ],
        "n_badcalls": 1,
        "answer": "SUPPORTS",
        "em": 1,
    },
    {
        "idx": 9,
        "claim": "Bergen is a planet.",
        "label": "REFUTES",
        "steps": [
            ["I search\nBergen. ", "Search[Bergen]", "Could not find Bergen. Similar: ['Oslo']."],
            ["Nothing there \t", "Search[Bergen city]", "Bergen is a city."],
            ["A city may be a planet", "Finish[NOT ENOUGH INFO]", "Episode finished, reward = 0"],
        ],
        "n_badcalls": 2,
        "answer": "NOT ENOUGH INFO",
        "em": 0,
    },
]


@pytest.fixture
def fever(tmp_path: Path) -> Job:
    recording = written(tmp_path / "recording.jsonl", *BAD_CALLS)
    prompts = tmp_path / "prompts.json"
    shot = (
        "Check it.\nClaim: C.\nThought 1: Hm.\nAction 1: Finish[REFUTES]\nObservation 1: Episode finished\n\n"
    )
    prompts.write_text(json.dumps({"webthink_simple3": shot}))
    world = {"world": "recording", "scorer": "fever", "data": str(recording), "prompts": [str(prompts)]}
    return Job.parse(
        {
            "compat": "reference",
            "models": {"recorded": {"provider": "replay", "transcript": str(recording)}},
            "envs": {"fever": world},
            "methods": {"react": {"steps": 7}},
        }
    )


async def test_bad_calls_are_put_together_again_with_thoughts_as_they_were(
    tmp_path: Path, fever: Job
) -> None:
    found = await library.run(fever, outputs=tmp_path / "out", progress=False)
    by_id = {row["task_id"]: row for row in found.trajectories}
    ledger = list(rows(found.path / "ledger.jsonl"))
    again = {r["hash"] for r in ledger if r["kind"] == "request" and r["params"].get("stop") == ["\n"]}
    second_calls = Counter(r["scope"] for r in ledger if r["kind"] == "draw" and r["hash"] in again)
    for episode in BAD_CALLS:
        row = by_id[str(episode["idx"])]
        seen = [[s["thought"], s["action"], s["observation"]] for s in row["steps"]]
        assert seen == [[t, a[:1].lower() + a[1:], o] for t, a, o in episode["steps"]]
        assert (row["answer"], row["scores"]["em"]) == (episode["answer"], episode["em"])
        assert second_calls[f"fever/{episode['idx']}#0"] == episode["n_badcalls"]
        assert row["status"] == "finished" and row["usage"]["calls"] == len(seen) + episode["n_badcalls"]


# -- damage --------------------------------------------------------------------------------------------

DAMAGED = [
    '{"question": "torn", "ste',
    "[1, 2]",
    {"steps": []},
    {"question": "no record"},
    {"question": "steps", "steps": [["thought", "action"]]},
    {"question": "steps", "steps": [["thought", "action", None]]},
    {"question": "steps", "steps": {"1": "x"}},
    {"question": 7, "generated_answer": ["x"]},
    {"question": "chains", "generated_answer": "x"},
]


async def test_damaged_rows_of_a_transcript_cost_only_their_own_episodes(tmp_path: Path) -> None:
    odd = {"claim": "Odd.", "steps": [["t", "Finish[x]", "o"]], "n_badcalls": "many"}
    holey = {"question": "Holey?", "generated_answer": ["one", None, "three"]}
    file = written(tmp_path / "t.jsonl", *DAMAGED, "", odd, CHAINS, holey)
    model = Replay(transcript=file)
    assert Transcript(file).unreadable == len(DAMAGED)
    assert await asked(model, "Question: Ada?\nThought:") == ["one"]
    assert await asked(model, "Claim: Odd.\nThought 1:") == [" t\nAction 1: Finish[x]"]
    assert await asked(model, "Question: Holey?\nThought:", first=2) == ["three"]
    with pytest.raises(EpisodeFailed, match=r"chain 1 of 'Holey\?.*' is damaged"):
        await asked(model, "Question: Holey?\nThought:", first=1)
    with pytest.raises(EpisodeFailed, match=rf"or it stood in one of the {len(DAMAGED)} damaged rows"):
        await asked(model, "Question: torn\nThought 1:")


def test_a_transcript_without_any_episode_is_refused(tmp_path: Path) -> None:
    said = complaint(transcript=str(written(tmp_path / "t.jsonl", *DAMAGED)))
    assert f"no recorded episode in it ({len(DAMAGED)} rows are of no use)" in said
    assert "no recorded episode" in complaint(transcript=str(written(tmp_path / "empty.jsonl")))


async def test_an_archive_that_ends_too_early_gives_what_it_holds(tmp_path: Path) -> None:
    chance = random.Random(1)
    many = [{"question": f"Q{k}?", "generated_answer": [f"a{k} {chance.random()}"]} for k in range(5000)]
    whole = gzip.compress("\n".join(map(json.dumps, many)).encode())
    file = tmp_path / "t.jsonl.gz"
    file.write_bytes(whole)
    assert Transcript(file).unreadable == 0
    file.write_bytes(whole[: len(whole) * 3 // 4])
    transcript = Transcript(file)
    assert transcript.unreadable == 1
    assert transcript.replies("Question: Q7?\nThought:", [0])[0].startswith("a7 ")
    with pytest.raises(EpisodeFailed, match="left the recording"):
        transcript.replies("Question: Q4999?\nThought:", [0])[0]


# -- an earlier run ------------------------------------------------------------------------------------


def job_of(model: dict[str, Any], **settings: Any) -> Job:
    return Job.parse(
        {
            "limit": 3,
            "models": {"policy": model},
            "envs": {"hotpotqa": {}},
            "methods": {"react": {}, "cot_sc": {"samples": 4}},
            **settings,
        }
    )


def draws_like_none_other(call: Call) -> list[str]:
    """Texts that differ by task, call and draw, so that a mix-up would show."""
    if call.request.params.temperature == 0:
        step = call.request.prompt.rsplit("Thought ", 1)[1].split(":")[0]
        return [f" I end {call.scope}.\nAction {step}: Finish[{call.scope}]"]
    return [f" Chain {i} of {call.scope}.\nAnswer: {i % 3}" for i in range(call.first, call.first + call.n)]


async def past(tmp_path: Path, **model: Any) -> library.Run:
    job = job_of({"provider": "scripted", "model": "then", **model})
    job.models["policy"]._script = draws_like_none_other  # type: ignore[attr-defined]
    return await library.run(job, outputs=tmp_path / "past", progress=False)


def told(run: library.Run) -> list[dict[str, Any]]:
    keys = ("id", "status", "answer", "scores", "votes", "flags")
    return [
        {key: row[key] for key in keys} | {"steps": [{**s, "seconds": 0} for s in row["steps"]]}
        for row in run.trajectories
    ]


@pytest.mark.parametrize(
    "settings",
    [{"api": "chat"}, {"api": "completions"}, {"api": "chat", "max_tokens": 77, "top_p": 0.5, "max_n": 4}],
)
async def test_an_earlier_run_replays_by_default_whatever_its_api_and_sampling(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    then = await past(tmp_path, **settings)
    job = job_of({"provider": "replay", "run": str(then.path)})
    assert (job.models["policy"].api, job.models["policy"].identity) == (settings["api"], "then")
    now = await library.run(job, outputs=tmp_path / "now", progress=False)
    assert len(told(now)) == 6 and told(now) == told(then)
    assert sum(row["usage"]["completion"] for row in now.trajectories) == sum(
        row["usage"]["completion"] for row in then.trajectories
    )
    assert now.manifest["totals"]["paid_usd"] == 0


async def test_what_the_job_says_comes_before_what_the_run_says(tmp_path: Path) -> None:
    then = await past(tmp_path, api="chat", max_tokens=77)
    model = Replay(run=then.path, api="completions", max_tokens=5)
    assert (model.api, model.max_tokens) == ("completions", 5)
    with pytest.raises(
        EpisodeFailed, match=r"holds no draw 0 of this request in w/t#0: the prompt, its param"
    ):
        await asked(model, "Never asked.")


async def test_draws_are_found_by_scope_and_index(tmp_path: Path) -> None:
    then = await past(tmp_path)
    ledger = [row for row in rows(then.path / "ledger.jsonl") if row["kind"] == "draw" and row["i"] == 2]
    assert len(ledger) == 3
    model = Replay(run=then.path)
    await model.open(tmp_path)
    job = job_of({"provider": "replay", "run": str(then.path)})
    now = await library.run(job, outputs=tmp_path / "now", progress=False)
    again = {(r["scope"], r["i"]): r["text"] for r in rows(now.path / "ledger.jsonl") if r["kind"] == "draw"}
    assert all(
        again[row["scope"], 2] == row["text"] == f" Chain 2 of {row['scope']}.\nAnswer: 2" for row in ledger
    )
    assert model._past is not None and len(model._past.draws) == 3 * (1 + 4)


async def test_reasoning_and_endings_come_back(tmp_path: Path) -> None:
    cut = Choice("Answer: so", "length", "hm", (-0.5, -1.0), 9)
    job = Job.of(HotpotQA(), Cot(), scripted(lambda call: [cut], model="m"), limit=1)
    then = await library.run(job, outputs=tmp_path / "past", progress=False)
    job = Job.of(HotpotQA(), Cot(), Replay(run=then.path), limit=1)
    now = await library.run(job, outputs=tmp_path / "now", progress=False)
    (draw,) = [row for row in rows(now.path / "ledger.jsonl") if row["kind"] == "draw"]
    assert (draw["text"], draw["finish"], draw["reasoning"], draw["logprobs"]) == (
        *("Answer: so", "length", "hm"),
        [-0.5, -1.0],
    )


async def test_lost_and_damaged_lines_of_a_ledger_cost_only_the_episodes_that_need_them(
    tmp_path: Path,
) -> None:
    then = await past(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(then.path, copy)
    lines, damaged = [], 0
    for row in rows(copy / "ledger.jsonl"):
        if row["kind"] == "draw" and row["i"] == 0 and "q001" in row["scope"]:
            row["text"] = None
            damaged += 1
        if row["kind"] == "draw" and row["i"] == 3 and "q002" in row["scope"]:
            damaged += 1
            continue
        lines += [row, '{"kind": "draw", "sco', {"kind": "draw"}, "7"]
    written(copy / "ledger.jsonl", *lines)
    assert damaged == 3
    job = job_of({"provider": "replay", "run": str(copy)})
    now = await library.run(job, outputs=tmp_path / "now", progress=False)
    ended = {row["id"].removeprefix("hotpotqa/enc-"): row for row in now.trajectories}
    assert {id: row["status"] for id, row in ended.items()} == {
        "q001/react/policy": "error",
        "q001/cot_sc/policy": "error",
        "q002/react/policy": "finished",
        "q002/cot_sc/policy": "error",
        "q003/react/policy": "finished",
        "q003/cot_sc/policy": "finished",
    }
    assert "holds no draw 3 of this request" in ended["q002/cot_sc/policy"]["error"]["message"]
    assert "or the draw was never made" in ended["q002/cot_sc/policy"]["error"]["message"]


def as_a_run(folder: Path, shape: dict[str, Any], *ledger: Any) -> str:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"job": {}, "shape": shape}))
    written(folder / "ledger.jsonl", *ledger)
    return str(folder)


def test_which_model_is_meant_must_be_clear(tmp_path: Path) -> None:
    two = {
        "models.a.identity": "x",
        "models.a.api": "chat",
        "models.b.c.identity": "y",
        "models.b.c.max_tokens": 9,
    }
    run = as_a_run(tmp_path / "two", two)
    assert "a replay is of one model; name it (`model`): that run has a, b.c" in complaint(run=run)
    assert "no model 'x' in that run; it has a, b.c" in complaint(run=run, model="x")
    first, second = Replay(run=Path(run), model="a"), Replay(run=Path(run), model="b.c")
    assert (first.identity, first.api, first.max_tokens) == ("x", "chat", None)
    assert (second.identity, second.api, second.max_tokens) == ("y", "completions", 9)
    run = as_a_run(tmp_path / "none", {})
    assert "that run has none that its run.json tells of" in complaint(run=run)


def test_a_run_without_a_ledger_is_refused(tmp_path: Path) -> None:
    run = as_a_run(tmp_path / "r", {"models.m.identity": "x"})
    Path(run, "ledger.jsonl").unlink()
    assert "there is no ledger.jsonl in it" in complaint(run=run)


async def test_odd_values_in_a_draws_row_do_no_harm(tmp_path: Path) -> None:
    request = Request("x", (Turn("prompt", Text("Why?")),), Params())
    row = {"kind": "draw", "scope": "w/t#0", "hash": request.hash, "text": "So.", "finish": "stop"}
    run = as_a_run(
        tmp_path / "r",
        {"models.m.identity": "x"},
        row | {"i": "0"},
        row | {"i": 0, "finish": "odd"},
        row | {"i": 0, "scope": ["w"]},
        row | {"i": 0, "reasoning": 3},
        row | {"i": 0, "logprobs": ["a"], "usage": {"prompt": 5, "completion": "many", "other": 1}},
        row | {"i": 0, "text": "A later line of the same key."},
    )
    reply = await Replay(run=Path(run)).call(Call(request, scope="w/t#0"))
    assert [(c.text, c.logprobs) for c in reply.choices] == [("So.", None)]
    assert reply.usage == Usage(prompt=5)
