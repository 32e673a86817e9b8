"""ScienceWorld: its table of tasks, its scores, and the simulator's many worlds in one Java machine."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
from pydantic import ValidationError

from envs.base import DataError, Outcome, Task, WorldError
from envs.scienceworld import java
from envs.scienceworld.engine import ScienceWorldEngine
from envs.scienceworld.exemplars import PLAYS, play, plays, sparse
from envs.scienceworld.tasks import KINDS, SPLITS, enabled
from envs.scienceworld.world import ScienceWorld
from runner import library
from runner.job import Job
from runner.methods.react import React
from runner.models.scripted import scripted
from tests.hosted import played as played_in_workers
from tests.hosted import wanderer, what_happened, workers
from tests.published.test_scienceworld import WAYS

NON_LIVING = (
    {"task": "find-non-living-thing", "variation": 0},
    ["go to kitchen", "focus on cupboard", "move cupboard to red box"],
)
SHORT = (
    *(
        ({"task": each.task, "variation": each.variation}, [move.action for move in each.moves])
        for each in PLAYS
    ),
    NON_LIVING,
)
"""Tasks and how they are solved."""


# -- tasks, without Java -------------------------------------------------------------------------------
def test_7207_variations_of_30_tasks_each_in_one_split():
    everything = list(ScienceWorld(split="").tasks())
    assert len(everything) == 7207 == len({task.id for task in everything})
    assert len({task.metadata["task"] for task in everything}) == 30
    parts = [list(ScienceWorld(split=split).tasks()) for split in SPLITS]
    assert sorted(task.id for part in parts for task in part) == sorted(task.id for task in everything)
    assert [len(part) for part in parts] == [3592, 1796, 1819]
    assert all(task.split == split for part, split in zip(parts, SPLITS, strict=True) for task in part)


def test_kinds_by_name_or_number_and_the_first_variations_of_each():
    world = ScienceWorld(split="dev", kinds=["6-2", "boil", "1-1"], variations=2)
    assert [task.id for task in world.tasks()] == [
        "chemistry-mix-paint-secondary-color-18",
        "chemistry-mix-paint-secondary-color-19",
        "boil-14",
        "boil-15",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"split": "valid"}, "there is no split 'valid'; there are: train, dev, test"),
        ({"kinds": ["boiling"]}, "there is no task 'boiling' (did you mean 'boil'?)"),
        (
            {"simplifications": "openDoor"},
            "there is no simplification 'openDoor' (did you mean 'openDoors'?)",
        ),
        ({"simplifications": "easy,openDoors"}, "write easy alone"),
        ({"variations": 0}, "greater than 0"),
    ],
)
def test_a_wrong_setting_is_named(settings, said):
    with pytest.raises(ValidationError) as error:
        ScienceWorld(**settings)
    assert said in str(error.value)


def test_electrical_tasks_refuse_to_be_played_without_electricity():
    world = ScienceWorld(simplifications="openDoors, noElectricalAction", kinds=["boil", "3-1"])
    with pytest.raises(DataError, match="power-component can't be solved without electrical actions"):
        list(world.tasks())
    electric = {kind.name: enabled("easy", kind) for kind in KINDS}
    assert "noElectricalAction" in electric["boil"]
    assert "noElectricalAction" not in electric["test-conductivity"]


@pytest.mark.parametrize(
    ("rewards", "reward", "success"),
    [
        ((), 0, 0),
        ((8.0, 17.0, 75.0), 100, 1),
        ((8.0, 17.0), 25, 0),
        ((8.0, -108.0), 0, 0),  # a wrong focus: -100 in all, counted as nothing
        ((8.0, 92.0, -8.0), 92, 0),
    ],
)
def test_the_score_is_the_sum_of_rewards_and_never_below_nothing(rewards, reward, success):
    scores = ScienceWorld().score_outcome(Task("boil-21", ""), Outcome(None, rewards, True))
    assert scores == {"reward": reward, "success": success}


async def test_what_is_missing_is_said_in_one_line_before_anything_begins(monkeypatch, tmp_path):
    monkeypatch.setattr(java, "PACKAGE", "scienceworld_that_nobody_installed")
    with pytest.raises(WorldError, match=r"^.*not installed; run: pip install 'overnight\[scienceworld\]'$"):
        await ScienceWorld().open(tmp_path)
    monkeypatch.setattr(java, "PACKAGE", "json")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(WorldError, match="needs Java 11 or newer") as error:
        await ScienceWorld().open(tmp_path)
    assert "\n" not in str(error.value)


# -- the simulator -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def simulator():
    if problem := java.missing():
        pytest.skip(problem)
    engine = ScienceWorldEngine("easy", step_limit=100)
    yield engine
    engine.close()


def played(engine, episode, task, actions):
    """(first, [step, ...]) of one episode."""
    first = engine.begin(episode, task)
    steps = [engine.step(episode, action) for action in actions]
    engine.end(episode)
    return first, steps


def test_the_table_is_the_simulators_own(simulator):
    assert simulator.counts() == {kind.name: kind.variations for kind in KINDS}


def test_worlds_that_take_turns_in_one_machine_are_as_if_alone(simulator):
    """One of them keeps its electrical actions, which the others are without."""
    alone = [played(simulator, "alone", task, actions) for task, actions in SHORT]
    assert [sum(step[1] for step in steps) for _, steps in alone] == [100] * len(SHORT)
    firsts = [simulator.begin(str(k), task) for k, (task, _) in enumerate(SHORT)]
    together = [[] for _ in SHORT]
    for turn in itertools.zip_longest(*(actions for _, actions in SHORT)):
        for k, action in enumerate(turn):
            if action is not None:
                together[k].append(simulator.step(str(k), action))
    for k in range(len(SHORT)):
        simulator.end(str(k))
    assert list(zip(firsts, together, strict=True)) == alone


def test_a_wrong_focus_ends_an_episode_at_minus_100(simulator):
    simulator.begin("wrong", {"task": "find-living-thing", "variation": 0})
    before = simulator.step("wrong", "go to kitchen")[1]
    _, reward, over, more = simulator.step("wrong", "focus on cupboard")
    simulator.end("wrong")
    assert before > 0
    assert (before + reward, over, more["score"]) == (-100, True, -100)


def test_an_episode_ends_when_its_moves_are_used_up(simulator):
    simulator.begin("slow", {"task": "boil", "variation": 0})
    steps = [simulator.step("slow", "wait") for _ in range(11)]
    simulator.end("slow")
    moves = [more["moves"] for *_, more in steps]
    assert [over for _, _, over, _ in steps] == [count > 100 for count in moves]
    assert moves[-1] > 100


def test_what_the_simulator_does_not_know_changes_nothing(simulator):
    simulator.begin("odd", {"task": "boil", "variation": 0})
    for action in ("", "sing", "go to kitchen\ngo to hallway", "wziąć łódź 船", "x" * 20_000):
        text, reward, over, more = simulator.step("odd", action)
        assert (text, reward, over) == ("No known action matches that input.", 0.0, False)
    simulator.end("odd")
    assert more["moves"] == 0


def test_a_variation_that_is_not_there_is_named(simulator):
    with pytest.raises(WorldError, match="could not load boil, variation 30"):
        simulator.begin("none", {"task": "boil", "variation": 30})


def test_the_worked_examples_are_what_the_simulator_says(simulator):
    assert [play(simulator, each) for each in PLAYS] == plays()
    training = {task.id for task in ScienceWorld(split="train").tasks()}
    assert {f"{each.task}-{each.variation}" for each in PLAYS} <= training


def test_java_ends_with_a_worker_that_is_killed():
    if problem := java.missing():
        pytest.skip(problem)
    code = (
        "import sys, envs.scienceworld.engine as e\n"
        "engine = e.ScienceWorldEngine()\n"
        "print(engine._gateway.java_process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with worker:
        machine = int(worker.stdout.readline())
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert ends(machine)


async def test_a_worker_that_is_killed_changes_no_trajectory():
    """In small; `python -m tests.full hosted_scienceworld` plays 64 at once."""
    if problem := java.missing():
        pytest.skip(problem)
    world = ScienceWorld(workers=1, heap=128)
    policy, calls = wanderer(WAYS, sparse=True), itertools.count(1)

    def murderous(call):
        if next(calls) == 6:
            for worker in workers():
                os.kill(worker, signal.SIGKILL)
        return policy(call)

    calm = await played_in_workers(world, policy, episodes=3, steps=3)
    troubled = await played_in_workers(world, murderous, episodes=3, steps=3)
    assert next(calls) == 10
    assert {task: what_happened(row) for task, row in troubled.items()} == {
        task: what_happened(row) for task, row in calm.items()
    }


def test_a_machine_that_dies_takes_its_worker_with_it():
    """So that the worker is replaced, and its episodes are brought back."""
    if problem := java.missing():
        pytest.skip(problem)
    engine = ScienceWorldEngine()
    engine.begin("lost", {"task": "boil", "variation": 0})
    machine = engine._gateway.java_process
    machine.kill()
    machine.wait()
    with pytest.raises(SystemExit, match="Java machine is gone, amid the action 'look around'"):
        engine.step("lost", "look around")


def test_a_java_that_does_not_start_is_told_of_with_what_it_said(monkeypatch, tmp_path):
    if problem := java.missing():
        pytest.skip(problem)
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text('#!/bin/sh\necho "openjdk version 1.8.0" >&2\nexit 1\n')
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(WorldError, match=r"did not start .*openjdk version 1\.8\.0.*needs Java 11 or newer"):
        ScienceWorldEngine()


# -- prompts and runs ----------------------------------------------------------------------------------
def test_examples_in_each_style_differ_in_their_thoughts_only():
    world = ScienceWorld()
    task = next(world.tasks())
    told = {style: world.shots(style, task) for style in ("act", "react", "react_im")}
    lines = {style: text.split("\n") for style, text in told.items()}
    without = {
        style: [line for line in text if not line.startswith("> think:") and line != "OK."]
        for style, text in lines.items()
    }
    assert without["act"] == without["react"] == without["react_im"] == lines["act"]
    assert [told[style].count("> think:") for style in told] == [0, 9, 23]
    assert all(text.endswith("\nHere is the task.\n") for text in told.values())
    assert all(sparse(each, style) in world.material for style in told for each in plays())
    assert "teleport to" in told["react"] and "teleport to" not in ScienceWorld(simplifications="").shots(
        "act", task
    )


def test_a_prompt_that_has_grown_keeps_its_task_and_the_latest_turns():
    world = ScienceWorld(recent=40)
    opening = world.shots("react", next(world.tasks())) + "Your task is this.\nYou see much."
    turns = [f"\n> go to {place}\nYou are there." for place in ("kitchen", "hallway", "workshop")]
    assert world.window(opening + turns[0] + "\n>") is None
    assert world.window(opening + "".join(turns) + "\n>") == opening + turns[2] + "\n>"
    assert world.window(opening + "\n> look\n" + "x" * 100 + "\n>") == opening + "\n>"
    assert ScienceWorld().window(opening + "".join(turns) * 1000) is None


SOLVED, FAILED = "chemistry-mix-paint-secondary-color-1", "find-living-thing-0"
WRONG = ["go to kitchen", "focus on cupboard"]


@pytest.mark.parametrize("thoughts", ["sparse", "dense"])
async def test_a_run_of_it_acts_and_is_scored(tmp_path, thoughts):
    """The third example's task, solved as there, and another one failed."""
    if problem := java.missing():
        pytest.skip(problem)

    def policy(call):
        own = str(call.request.turns[-1].text).rsplit("Your task is", 1)[-1]
        moves = [move.action for move in PLAYS[2].moves] if "green paint" in own else WRONG
        if thoughts == "sparse":
            return moves[own.count("\n>") - 1]
        return f" Hm.\nAction 1: {moves[own.count(chr(10) + 'Action ')]}"

    world = ScienceWorld(split="train", kinds=["6-2", "4-1"], thoughts=thoughts, workers=1)
    job = Job.of(world, React(), scripted(policy), ids=[SOLVED, FAILED])
    run = await library.run(job, outputs=tmp_path, progress=False)
    rows = {row["task_id"]: row for row in run.trajectories}
    assert rows[SOLVED]["scores"] == {"reward": 100, "success": 1}
    assert rows[FAILED]["scores"] == {"reward": 0, "success": 0}
    assert rows[SOLVED]["steps"][-1]["observation"] == "You focus on the green paint."
    assert [rows[task]["n_steps"] for task in (SOLVED, FAILED)] == [4, 2]
    assert {row["status"] for row in rows.values()} == {"finished"}


def ends(process: int) -> bool:
    """Waits until a process is no more."""
    for _ in range(1000):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False
