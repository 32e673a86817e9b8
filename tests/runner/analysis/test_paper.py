"""All of the ReAct paper's Table 1 and Figure 2 from one run, against a server and against a slow reckoning."""

from __future__ import annotations

import tomllib

import pytest

from runner import library
from runner.analysis.figure2 import ChainsMissing, figure2
from runner.analysis.table1 import METHODS, PAPER, table1
from runner.job import Job
from runner.jsonl import rows
from runner.testing import FakeOpenAI
from tests import paper


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")


def job_of(server, limit=24, samples=21, until="lossless"):
    text = paper.JOB.format(url=server.url, limit=limit, samples=samples, until=until, more="")
    return tomllib.loads(text)


async def test_table_1_and_figure_2_from_one_run_that_asks_for_nothing_twice(tmp_path):
    async with FakeOpenAI(paper.script) as server:
        run = await library.run(job_of(server), outputs=tmp_path, progress=False)
        (table,) = table1(run)
        drawn = asked_once(server, run)
        assert sum(row["votes"]["n_drawn"] for row in run.trajectories if row["method"] == "cot_sc") < 48 * 17
        with pytest.raises(ChainsMissing) as caught:
            figure2(run)
        before = (run.path / "trajectories.jsonl").read_bytes()
        run = await library.complete(run.path, progress=False)
        assert asked_once(server, run) == drawn + caught.value.draws
        assert (run.path / "trajectories.jsonl").read_bytes() == before

        expected = paper.verdicts(run)  # of all 21 chains, of which the run had drawn fewer
        assert list(table.worlds) == ["hotpotqa", "fever"]
        for world in table.worlds:
            assert list(table.scores[world]) == list(METHODS)
            for method, score in table.scores[world].items():
                own = expected[world, method]
                assert len(own) == score.questions == 24 and score.errors == 0
                assert score.mean == pytest.approx(sum(own) / 24, abs=1e-6), (world, method)
                assert score.low <= score.mean <= score.high

        calls = len(server.requests)
        figure = figure2(run)
        slow = paper.curve(run, 21)
        for panel in figure.panels:
            assert panel.samples == 21 and panel.questions == 24
            for method, points in panel.curves.items():
                means = [point.mean for point in points]
                assert means == pytest.approx(slow[panel.env, method]), (panel.env, method)
                assert all(point.low <= point.mean <= point.high for point in points)
            for name in ("cot", "react"):
                own = expected[panel.env, name]
                assert panel.levels[name].mean == pytest.approx(sum(own) / 24)
        assert len(server.requests) == calls
    # The server's luck makes the curves differ, so that nothing above is true by chance.
    curves = [tuple(p.mean for p in points) for panel in figure.panels for points in panel.curves.values()]
    assert len(set(curves)) == 6 and all(len(set(points)) > 10 for points in curves)


def asked_once(server, run):
    """Checks that what the server returned is what the ledger holds, each of it asked for once; how much it is."""
    draws = [row for row in rows(run.path / "ledger.jsonl") if row["kind"] == "draw"]
    assert server.draws == len(draws) == len({(row["scope"], row["hash"], row["i"]) for row in draws})
    asked = [(request.prompt, request.body["seed"]) for request in server.requests]
    assert len(set(asked)) == len(asked)
    begun = paper.begun(run)
    assert len(set(begun)) == len(begun) == server.draws
    return server.draws


async def test_chains_that_were_left_out_are_named_priced_and_bought_without_touching_rows(tmp_path):
    async with FakeOpenAI(paper.script) as server:
        run = await library.run(
            job_of(server, limit=3, samples=5, until="all"), outputs=tmp_path, progress=False
        )
        before = (run.path / "trajectories.jsonl").read_bytes()
        job = Job.parse(job_of(server, limit=3, samples=21, until="all"))
        with pytest.raises(ChainsMissing) as caught:
            figure2(run, job=job)
        missing = caught.value
        assert missing.draws == 6 * 16
        assert missing.tasks == {
            "hotpotqa": ["enc-q001", "enc-q002", "enc-q003"],
            "fever": ["enc-c001", "enc-c002", "enc-c003"],
        }
        assert "96 of them were never drawn" in str(missing) and "--complete" in str(missing)

        asked, paid, used = server.draws, *paid_by(run)
        run = await library.complete(run.path, job=job, progress=False)
        assert server.draws == asked + 6 * 16
        assert (run.path / "trajectories.jsonl").read_bytes() == before
        assert run.status == "finished" and run.manifest["totals"]["done"] == 6 * 7
        # What they were said to cost is what they do, but for the chance in their lengths: a prompt for each call.
        usd, tokens = paid_by(run)
        assert missing.usd == pytest.approx(usd - paid, rel=0.02)
        assert missing.tokens == pytest.approx(tokens - used, rel=0.02)
        figure = figure2(run, job=job)
        assert [panel.samples for panel in figure.panels] == [21, 21]
        slow = paper.curve(run, 21)
        for panel in figure.panels:
            assert [p.mean for p in panel.curves["cot_sc"]] == pytest.approx(slow[panel.env, "cot_sc"])

        again = await library.complete(run.path, job=job, progress=False)
        assert server.draws == asked + 6 * 16
        # The bought chains are the ones that a resume with more samples would draw.
        again = await library.resume(run.path, overrides=SAMPLES, progress=False)
        assert server.draws == asked + 6 * 16
        assert {row["votes"]["n_drawn"] for row in again.trajectories if row["votes"]} == {21}


def paid_by(run):
    totals = run.manifest["totals"]
    return totals["paid_usd"], totals["paid"]["prompt"] + totals["paid"]["completion"]


SAMPLES = [f"methods.{name}.samples=21" for name in ("cot_sc", "cot_sc_then_react", "react_then_cot_sc")]


async def test_several_runs_make_one_table_and_what_is_missing_is_said(tmp_path):
    async with FakeOpenAI(paper.script) as server:
        job = job_of(server, limit=4, samples=3)
        one, two = ({**job, "envs": {env: {}}, "name": env} for env in ("hotpotqa", "fever"))
        two["methods"] = {name: table for name, table in job["methods"].items() if name != "act"}
        runs = [await library.run(each, outputs=tmp_path, progress=False) for each in (one, two)]
    (table,) = table1(*runs)
    assert set(table.scores) == {"hotpotqa", "fever"} and "act" not in table.scores["fever"]
    text = str(table)
    assert "missing in fever: Act" in text and "the paper's 21" in text and "fake" in text
    (line,) = [line for line in text.splitlines() if line.startswith("ReAct -> CoT-SC")]
    assert "35.1" in line and "62.0" in line
    found = table.as_dict()
    assert [column["measure"] for column in found["columns"]] == ["HotpotQA EM", "FEVER accuracy"]
    assert found["columns"][1]["rows"][3] == {
        "method": "act",
        "label": "Act",
        "paper": PAPER["fever"]["act"],
        "missing": True,
    }
