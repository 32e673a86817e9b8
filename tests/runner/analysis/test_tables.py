"""Table 1 and Figure 2 of runs that are not whole, not of the usual make, or asked in ways of their own."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from envs.hotpotqa import HotpotQA
from runner import library
from runner.analysis.figure2 import ChainsMissing, figure2
from runner.analysis.table1 import table1
from runner.cli import main
from runner.errors import ContextOverflow, EpisodeFailed, OvernightError, RunError
from runner.job import Job
from runner.methods.cot import Cot
from runner.methods.cot_sc import CotSC
from runner.methods.cot_sc_then_react import CotSCThenReact
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.models.base import Choice
from runner.models.scripted import scripted
from runner.testing import pure_answer
from runner.testing_batches import FakeOpenAIBatches
from tests.batches import a_job, ran
from tests.echo import Echo, right
from tests.echo import run as run_of

ALL = {"until": "all", "samples": 5}


def luck(call):
    """Echo's right answers, but for chains 1 and 3, and ReAct on even tasks, which never finishes."""
    prompt = call.request.prompt
    word = prompt.rsplit("Say ", 1)[1].split(".", 1)[0]
    if "Thought 1" in prompt:
        if word in ("word0", "word2"):
            return f" On.\nAction 1: Go[{len(prompt)}]"
        return right(call)
    indices = range(call.first, call.first + call.n)
    return [f" Hm.\nAnswer: {'wrong' if i in (1, 3) else word}" for i in indices]


def named(*methods):
    return {method.name: method for method in methods}


def means(panel):
    return {name: [round(point.mean, 9) for point in curve] for name, curve in panel.curves.items()}


async def test_episodes_that_ended_in_an_error_score_0_and_count(tmp_path):
    def script(call):
        if "Which" in call.request.prompt.rsplit("Question:", 1)[1]:
            raise EpisodeFailed("no")
        return " So.\nAnswer: yes"

    run = await run_of(tmp_path, HotpotQA(), Cot(), scripted(script), limit=20)
    (table,) = table1(run)
    score = table.scores["hotpotqa"]["cot"]
    rows = list(run.trajectories)
    errors = sum(row["status"] == "error" for row in rows)
    assert 0 < errors == score.errors < score.questions == 20
    assert score.mean == sum(row["scores"].get("em", 0.0) for row in rows) / 20
    assert f"{errors} episodes ended in an error; they score 0 and count" in str(table)
    assert "missing in hotpotqa: Standard, CoT-SC, Act" in str(table)


async def test_a_run_without_the_papers_worlds_has_no_table_1(tmp_path):
    run = await run_of(tmp_path, Echo(), Cot(), scripted(right))
    with pytest.raises(OvernightError, match="on HotpotQA or FEVER"):
        table1(run)


async def test_without_react_there_is_one_curve_and_a_word_for_it(tmp_path):
    run = await run_of(tmp_path, Echo(count=2), named(Cot(), CotSC(**ALL)), scripted(luck))
    (panel,) = figure2(run, job=Job.of(Echo(count=2), named(Cot(), CotSC(**ALL)), scripted(luck))).panels
    assert list(panel.curves) == ["cot_sc"] and list(panel.levels) == ["cot"]
    assert means(panel)["cot_sc"] == pytest.approx([0.6, 0.6, 0.7, 0.7, 1.0])
    assert any("no ReAct in this run" in note for note in panel.notes)


async def test_react_is_read_from_the_hybrid_where_it_has_no_rows_of_its_own(tmp_path):
    hybrid = ReactThenCotSC(**ALL, steps=1)
    methods = {
        "with": named(CotSC(**ALL), React(steps=1), hybrid),
        "without": named(CotSC(**ALL), hybrid),
    }
    panels = {}
    for name, chosen in methods.items():
        run = await run_of(tmp_path / name, Echo(), chosen, scripted(luck))
        (panels[name],) = figure2(run, job=Job.of(Echo(), chosen, scripted(luck))).panels
    assert means(panels["with"]) == means(panels["without"])
    # Two of four tasks are ReAct's; CoT-SC -> ReAct loses a task where a subset has no half and ReAct no answer.
    assert means(panels["with"])["react_then_cot_sc"] == pytest.approx([0.8, 0.8, 0.85, 0.85, 1.0])


async def test_react_with_other_settings_in_a_hybrid_is_said(tmp_path):
    methods = named(CotSC(**ALL), React(steps=1), CotSCThenReact(**ALL, steps=2), ReactThenCotSC(samples=3))
    job = Job.of(Echo(count=2), {**methods, "warm": CotSC(temperature=1.0)}, scripted(luck))
    run = await library.run(job, outputs=tmp_path, progress=False)
    (panel,) = figure2(run, job=job).panels
    assert any(note.startswith("cot_sc_then_react, react_then_cot_sc: ReAct") for note in panel.notes)
    assert any(note.startswith("warm: chains with other settings") for note in panel.notes)


async def test_a_run_whose_react_is_not_done_is_to_be_finished_first(tmp_path):
    run = await run_of(tmp_path, Echo(count=2), CotSC(**ALL), scripted(luck))
    job = Job.of(Echo(count=2), named(CotSC(**ALL), React()), scripted(luck))
    with pytest.raises(RunError, match=f"2 of 2 questions have no ReAct .*overnight resume {run.path}"):
        figure2(run, job=job)


async def test_chains_that_the_provider_refuses_score_0_and_are_not_asked_for_again(tmp_path):
    def script(call):
        if "word1" in call.request.prompt:
            raise ContextOverflow("too long")
        return right(call)

    model = scripted(script)
    job = Job.of(Echo(count=2), CotSC(samples=5), model)
    run = await library.run(job, outputs=tmp_path, progress=False)
    with pytest.raises(ChainsMissing) as caught:
        figure2(run, job=job)
    assert caught.value.tasks == {"echo": ["t0"]} and caught.value.draws == 2
    asked = len(model.calls)
    run = await library.complete(run.path, job=job, progress=False)
    assert len(model.calls) == asked + 2
    (panel,) = figure2(run, job=job).panels
    assert means(panel)["cot_sc"][4] == 0.5 and "1 questions' chains were refused" in panel.notes[-1]


async def test_trials_of_a_question_are_one_question(tmp_path):
    job = Job.of(Echo(count=3), CotSC(**ALL), scripted(luck), trials=2)
    run = await library.run(job, outputs=tmp_path, progress=False)
    (panel,) = figure2(run, job=job).panels
    assert panel.questions == 3 and means(panel)["cot_sc"][0] == pytest.approx(0.6)


async def test_weighted_votes_are_seen_as_the_run_saw_them(tmp_path):
    def script(call):
        draws = range(call.first, call.first + call.n)
        word = call.request.prompt.rsplit("Say ", 1)[1].split(".", 1)[0]
        return [
            Choice(f"Answer: {'wrong' if i != 2 else word}", logprobs=(-0.01,) if i == 2 else (-3.0,))
            for i in draws
        ]

    chains = CotSC(samples=3, until="all", weights="logprob")
    job = Job.of(Echo(count=2), chains, scripted(script, logprobs=True))
    run = await library.run(job, outputs=tmp_path, progress=False)
    assert [row["scores"]["em"] for row in run.trajectories] == [1.0, 1.0]
    (panel,) = figure2(run, job=job).panels
    assert means(panel)["cot_sc"][2] == 1.0 and means(panel)["cot_sc"][0] == pytest.approx(1 / 3, abs=0.1)


async def test_what_cannot_be_bought_is_said(tmp_path):
    def script(call):
        if call.first + call.n > 3:
            raise EpisodeFailed("that one never")
        return right(call)

    job = Job.of(Echo(count=2), CotSC(samples=5), scripted(script))
    run = await library.run(job, outputs=tmp_path, progress=False)
    with pytest.raises(OvernightError, match=r"not all missing chains were drawn: .*that one never"):
        await library.complete(run.path, job=job, progress=False)
    assert run.status == "finished"


async def test_missing_chains_come_by_a_batch_in_batch_mode(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        run = await ran(a_job(server, methods=CotSC(samples=3, until="all")), tmp_path)
        before = len(server.batches)
        job = a_job(server, methods=CotSC(samples=9, until="all"))
        run = await library.complete(run.path, job=job, progress=False)
        assert len(server.batches) == before + 1
        assert set(server.asked.values()) == {1} and server.answered == 4 * 3
    (panel,) = figure2(run, job=job).panels
    assert panel.samples == 9


async def test_a_changed_method_is_not_completed(tmp_path):
    run = await run_of(tmp_path, Echo(count=2), CotSC(samples=3), scripted(right))
    model = scripted(right)
    with pytest.raises(RunError, match=r"methods\.cot_sc\.temperature: was 0\.7, is 1\.0"):
        await library.complete(
            run.path, job=Job.of(Echo(count=2), CotSC(temperature=1.0), model), progress=False
        )
    assert model.calls == []


JOB = """
name = "small"
limit = 2
[models.policy]
provider = "scripted"
replies = [" So.\\nAction 1: Finish[yes]", " So.\\nAnswer: yes", " So.\\nAnswer: yes", " So.\\nAnswer: no"]
[envs.hotpotqa]
[methods.react]
[methods.cot_sc]
samples = 5
"""


def test_the_commands_say_what_is_missing_buy_it_and_write_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(JOB)

    def call(*words):
        return CliRunner().invoke(main, [str(word) for word in words])

    out = call("run", "small.toml", "--quiet").stdout
    (folder,) = [line for line in out.splitlines() if line.startswith("outputs/")]
    short = call("figure2", folder)
    assert short.exit_code == 1 and "never drawn" in short.stderr and "Traceback" not in short.output
    files = ["--json", "f.json", "--png", "f.png", "--svg", "f.svg", "--quiet"]
    whole = call("figure2", folder, "--complete", *files)
    assert whole.exit_code == 0, whole.output
    assert "HotpotQA EM, 2 questions" in whole.stdout
    assert json.loads((tmp_path / "f.json").read_text())["panels"][0]["chains"] == [1, 2, 3, 4, 5]
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG") and b"<svg" in (
        tmp_path / "f.svg"
    ).read_bytes()
    assert call("table1", folder, "--json").exit_code == 0
    unknown = call("figure2", folder, "--png", "f.xyz")
    assert unknown.exit_code == 1 and "end its name in .png" in unknown.stderr
