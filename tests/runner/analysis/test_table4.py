"""Table 4 of runs on WebShop: whole ones, of several methods and models, and such as are not done."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from envs.webshop.world import WebShop
from runner import library
from runner.analysis.table4 import GOALS, OTHERS, PAPER, table4
from runner.cli import main
from runner.errors import EpisodeFailed, OvernightError
from runner.job import Job
from runner.methods.act import Act
from runner.methods.cot import Cot
from runner.methods.react import React
from runner.methods.react_im import ReactIM
from runner.models.scripted import scripted
from tests.echo import Echo, right
from tests.shoppers import shopper

SHOP = {"count": 120, "recent": 0, "shown": 10}


async def ran(folder, methods, script, limit=8, **more):
    job = Job.of(WebShop(**SHOP), methods, scripted(script), limit=limit, **more)
    return await library.run(job, outputs=folder, progress=False)


def half_hearted():
    """Buys what is asked for, but no options of every other goal, and nothing for two of eight."""
    policy = shopper(WebShop(**SHOP).tasks())
    order = {task.input: number for number, task in enumerate(WebShop(**SHOP).tasks())}

    def script(call):
        own = str(call.request.prompt).rpartition("Instruction:  \n")[2].split(" \n[Search]")[0]
        number, said = order[own], policy(call)
        if number % 8 in (1, 2):
            return " click[nothing]"
        if (
            number % 2
            and said.startswith(" click[")
            and "Rating: " in str(call.request.prompt).rpartition("[Search]")[2]
        ):
            return " click[Buy Now]"
        return said

    return script


async def test_score_and_success_beside_the_papers(tmp_path):
    run = await ran(tmp_path, {"act": Act(), "react": React()}, half_hearted())
    (table,) = table4(run)
    assert list(table.methods) == ["act", "react"]
    for method, found in table.methods.items():
        rows = [row for row in run.trajectories if row["method"] == method]
        rewards = [row["scores"]["reward"] for row in rows]
        assert found.reward["mean"] == pytest.approx(sum(rewards) / 8)
        assert found.success["mean"] == pytest.approx(sum(reward == 1 for reward in rewards) / 8)
        assert 0 < found.success["mean"] < found.reward["mean"] < 1
        assert 0 <= found.reward["low"] < found.reward["mean"] < found.reward["high"] <= 1
        assert (found.goals, found.unbought, found.errors) == (8, 2, 0)
    text = str(table)
    assert "goals: 8" in text and "Act: episodes that bought nothing: 2; they score 0 and count" in text
    assert f"Act: goals: 8 (the paper's test split has {GOALS})" in text
    shown = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert f"{100 * table.methods['act'].reward['mean']:.1f}" in shown["Act"]
    assert "62.3" in text and "40.0" in text and "missing" not in text
    for name, numbers in OTHERS.items():
        assert all(f"{number:.1f}" in shown[name] for number in numbers)
    told = table.as_dict()
    assert [row["paper"] for row in told["rows"]] == [PAPER["act"], PAPER["react"]]


async def test_what_the_paper_lacks_and_what_the_run_lacks_is_said(tmp_path):
    run = await ran(tmp_path, {"react_im": ReactIM()}, half_hearted())
    (table,) = table4(run)
    assert table.as_dict()["rows"][0]["paper"] is None
    assert "missing: Act, ReAct" in str(table) and "ReAct-IM" in str(table)


async def test_errors_score_nothing_and_count(tmp_path):
    policy = shopper(WebShop(**SHOP).tasks())

    def script(call):
        if "Buy Now" in str(call.request.prompt).rpartition("[Search]")[2]:
            raise EpisodeFailed("no more")
        return policy(call)

    run = await ran(tmp_path, {"act": Act()}, script)
    found = table4(run)[0].methods["act"]
    assert (found.errors, found.reward["mean"], found.goals) == (8, 0, 8)
    assert "Act: episodes that ended in an error: 8;" in str(table4(run)[0])


async def test_several_runs_make_one_table_and_the_later_counts(tmp_path):
    nothing = await ran(tmp_path / "a", {"act": Act(steps=2)}, lambda call: " click[nothing]")
    better = await ran(tmp_path / "b", {"act": Act()}, shopper(WebShop(**SHOP).tasks()), limit=4)
    react = await ran(tmp_path / "c", {"react": React()}, shopper(WebShop(**SHOP).tasks()))
    (table,) = table4(nothing, better, react)
    assert table.methods["act"].success["mean"] == 0.5 and table.methods["act"].goals == 8
    assert table.methods["react"].success["mean"] == 1
    assert table4(better, nothing)[0].methods["act"].success["mean"] == 0


async def test_trials_of_a_goal_are_averaged_before_goals_are(tmp_path):
    calls = {"n": 0}
    policy = shopper(WebShop(**SHOP).tasks())

    def script(call):
        calls["n"] += 1
        return policy(call)

    run = await ran(tmp_path, {"act": Act()}, script, limit=3, trials=2)
    found = table4(run)[0].methods["act"]
    assert found.goals == 3 and found.success["mean"] == 1 and calls["n"] > 3


async def test_a_run_elsewhere_has_no_table(tmp_path):
    run = await library.run(Job.of(Echo(), Cot(), scripted(right)), outputs=tmp_path, progress=False)
    with pytest.raises(OvernightError, match="no row of act, react or react_im on WebShop"):
        table4(run)


async def test_the_command_prints_it_and_gives_json(tmp_path):
    run = await ran(tmp_path, {"act": Act()}, half_hearted())
    done = CliRunner().invoke(main, ["table4", str(run.path)])
    assert done.exit_code == 0 and done.output.strip() == str(table4(run)[0])
    told = CliRunner().invoke(main, ["table4", str(run.path), "--json"])
    assert json.loads(told.output) == json.loads(json.dumps([table4(run)[0].as_dict()]))
    lost = CliRunner().invoke(main, ["table4", str(tmp_path / "nowhere")])
    assert lost.exit_code == 3 and "nowhere" in lost.output
