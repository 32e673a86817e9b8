"""Table 3 of runs on ALFWorld: six prompts, their average and their best, and what a run lacks of them."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from envs.alfworld.examples import EACH, shots
from envs.alfworld.goals import KINDS
from envs.alfworld.world import Alfworld
from envs.base import Observation, Session
from runner import library
from runner.analysis.table3 import BUTLER, COLUMNS, PAPER, table3
from runner.cli import main
from runner.errors import EpisodeFailed, OvernightError
from runner.job import Job
from runner.methods.cot import Cot
from runner.models.scripted import scripted
from tests.echo import Echo, right

JOB = Path(__file__).parents[3] / "jobs" / "table3.toml"
PAIRS = list(itertools.permutations(range(EACH), 2))
SHORT = [f"methods.{method}.steps=2" for method in ("act", "react", "react_im")]


class Room(Session):
    """In place of the engine: won by `win`."""

    def __init__(self, task):
        self.task = task

    async def reset(self):
        return f"You are in a room.\nYour task is to: {self.task.input}"

    async def step(self, action):
        return Observation("You win.", 1.0, True) if action == "win" else Observation("Nothing happens.")


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    async def opened(self, cache):
        pass

    monkeypatch.setattr(Alfworld, "check", lambda self: None)
    monkeypatch.setattr(Alfworld, "open", opened)
    monkeypatch.setattr(Alfworld, "session", lambda self, task: Room(task))


@functools.cache
def prompts(kind):
    """A kind's prompts without a task, to (method, number of the pair of examples)."""
    styles = ("act", "react", "react_im")
    return {shots(s, kind, PAIRS[k], "put"): (s, k) for s in styles for k in range(len(PAIRS))}


@functools.cache
def tasks():
    """What a goal asks for, to (kind, the goal's number among its kind's)."""
    goals = [task.input for task in Alfworld(households=12).tasks()]
    return {goal: (KINDS[k % 6], k // 6) for k, goal in enumerate(goals)}


def asked(call):
    """What stands in a prompt: the method, the pair of examples, the kind of task, which task of its kind."""
    text = str(call.request.turns[-1].text)
    kind, number = tasks()[text.rpartition("Your task is to: ")[2].partition("\n")[0]]
    method, pair = next(what for start, what in prompts(kind).items() if text.startswith(start))
    return method, pair, KINDS.index(kind), number


def lucky(call):
    """Of the two tasks of kind c, ReAct solves the first with prompts c to 5 and the second with prompt 5 - c alone,
    Act the second so and not the first, ReAct-IM both with prompt 3."""
    method, prompt, kind, number = asked(call)
    solved = {
        "react": prompt == 5 - kind if number else prompt >= kind,
        "act": bool(number) and prompt == 5 - kind,
        "react_im": prompt == 3,
    }
    return " win" if solved[method] else " look"


async def ran(folder, script, *overrides, limit=12):
    """The ready job, asking a script."""
    asks = ['models.policy={provider="scripted"}', f"limit={limit}", *SHORT, *overrides]
    job = Job.read(JOB, asks)
    job.models = {"policy": scripted(script)}
    return await library.run(job, outputs=folder, progress=False)


def near(*numbers):
    return pytest.approx(dict(zip(COLUMNS, numbers, strict=True)), abs=1e-6)  # means have six digits


async def test_the_ready_job_tries_all_six_prompts_and_the_table_has_their_average_and_their_best(tmp_path):
    run = await ran(tmp_path, lucky)
    (table,) = table3(run)
    assert list(table.attempts) == ["act", "react", "react_im"]
    for attempts in table.attempts.values():
        assert [each.examples for each in attempts] == PAIRS
        assert all(each.tasks == dict(zip(COLUMNS, [2] * 6 + [12], strict=True)) for each in attempts)
    twelfths = [number / 12 for number in (7, 6, 5, 4, 3, 2)]
    assert table.row("react", "average") == near(*twelfths, 27 / 72)
    # A column's best is its own: with no prompt are three columns whole and the others half, which would be 9 of 12.
    assert table.row("react", "best") == near(1, 1, 1, 0.5, 0.5, 0.5, 7 / 12)
    assert table.row("act", "average") == near(*[1 / 12] * 7)
    assert table.row("act", "best") == near(*[0.5] * 6, 1 / 12)
    assert table.row("react_im", "average") == near(*[1 / 6] * 7)
    assert table.row("react_im", "best") == near(*[1.0] * 7)
    assert table.notes == []
    for attempts in table.attempts.values():
        for each in attempts:
            assert all(0 <= s["low"] <= s["mean"] <= s["high"] <= 1 for s in each.solved.values())


async def test_it_stands_beside_the_papers_numbers(tmp_path):
    run = await ran(tmp_path, lucky)
    (table,) = table3(run)
    told = {(row["method"], row["of"]): row for row in table.as_dict()["rows"]}
    assert len(told) == 6 and told["act", "average"]["paper"] is None
    assert told["react", "best"]["paper"] == dict(zip(COLUMNS, (92, 58, 96, 86, 78, 41, 71), strict=True))
    assert told["react_im", "average"]["paper"]["All"] == 48 and told["act", "best"]["paper"]["All"] == 45
    shown = [line.split() for line in str(table).splitlines()]
    assert str(table).startswith("ReAct paper, Table 3: ALFWorld, per cent of 12 tasks solved")
    assert ["ReAct", "(average", "of", "6)", "58", "50", "42", "33", "25", "17", "38"] in shown
    assert any(
        line[:11] == ["ReAct", "(best", "of", "6)", "100", "100", "100", "50", "50", "50", "58"]
        for line in shown
    )
    for numbers in (*PAPER.values(), *BUTLER.values()):
        assert any(line[-7:] == [str(number) for number in numbers] for line in shown)


async def test_what_is_missing_and_what_failed_is_said_and_counts(tmp_path):
    def broken(call):
        if asked(call) == ("react", 0, 1, 0):
            raise EpisodeFailed("no more")
        return " win"

    run = await ran(tmp_path, broken, limit=6)
    (table,) = table3(run)
    first = table.attempts["react"][0]
    assert first.errors == 1 and first.solved["Clean"]["mean"] == 0 and first.tasks["Clean"] == 1
    assert first.solved["All"]["mean"] == pytest.approx(5 / 6)
    assert table.row("react", "best")["All"] == 1
    assert any("ended in an error" in note for note in table.notes)


async def test_fewer_prompts_than_the_papers_are_said(tmp_path):
    text = JOB.read_text("utf-8")
    begin, end = text.index("[envs.p01]"), text.index("[envs.p20]")
    few = tmp_path / "few.toml"
    few.write_text(text[:begin] + text[end:].replace("[methods.act]\n", ""), "utf-8")
    job = Job.read(few, ['models.policy={provider="scripted"}', "limit=6", *SHORT[1:]])
    job.models = {"policy": scripted(lambda call: " win")}
    run = await library.run(job, outputs=tmp_path / "out", progress=False)
    (table,) = table3(run)
    assert [each.examples for each in table.attempts["react"]] == [(2, 0), (2, 1)]
    assert "ReAct: 2 of the paper's 6 prompts (examples 2+0, 2+1)" in table.notes
    assert "missing: Act" in table.notes and "ReAct (best of 2)" in str(table)


async def test_several_runs_make_one_table_and_the_later_counts(tmp_path):
    worse = await ran(tmp_path / "a", lambda call: " look", limit=6)
    better = await ran(tmp_path / "b", lambda call: " win", limit=6)
    assert table3(worse, better)[0].row("act", "average")["All"] == 1
    assert table3(better, worse)[0].row("act", "best")["All"] == 0


async def test_trials_of_a_task_are_averaged_before_tasks_are(tmp_path):
    turns = itertools.count()
    run = await ran(tmp_path, lambda call: " win" if next(turns) % 3 == 0 else " look", "trials=2", limit=6)
    (table,) = table3(run)
    for method, attempts in table.attempts.items():
        for each in attempts:
            names = {f"p{a}{b}": (a, b) for a, b in PAIRS}
            rows = [r for r in run.trajectories if r["method"] == method and names[r["env"]] == each.examples]
            assert len(rows) == 12 and each.tasks["All"] == 6
            assert each.solved["All"]["mean"] == pytest.approx(sum(r["scores"]["success"] for r in rows) / 12)


async def test_a_run_elsewhere_has_no_table(tmp_path):
    run = await library.run(Job.of(Echo(), Cot(), scripted(right)), outputs=tmp_path, progress=False)
    with pytest.raises(OvernightError, match="no row of act, react or react_im on ALFWorld"):
        table3(run)


async def test_the_command_prints_it_and_gives_json(tmp_path):
    run = await ran(tmp_path, lucky)
    done = CliRunner().invoke(main, ["table3", str(run.path)])
    assert done.exit_code == 0 and done.output.strip() == str(table3(run)[0])
    told = CliRunner().invoke(main, ["table3", str(run.path), "--json"])
    assert json.loads(told.output) == json.loads(json.dumps([table3(run)[0].as_dict()]))
