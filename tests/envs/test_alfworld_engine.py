"""ALFWorld's engine: our households are solved as their walkthroughs say, in one process or in workers."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envs.alfworld.engine import NOTHING, AlfworldEngine
from envs.alfworld.examples import embedded, shots
from envs.alfworld.goals import BY_SHORT
from envs.alfworld.households import household
from envs.alfworld.logic import GOAL, installed
from envs.alfworld.problem import problem
from envs.alfworld.seeker import answer
from envs.alfworld.session import in_wording, shown, without_banner
from envs.alfworld.world import Alfworld
from envs.base import WorldError
from runner import library
from runner.job import Job
from runner.methods.act import Act
from runner.methods.react import React
from runner.methods.react_im import ReactIM
from runner.models.scripted import scripted
from runner.testing import FakeOpenAI, prompt_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("alfworld") is None, reason="needs overnight[alfworld]"
)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def engine():
    made = AlfworldEngine()
    yield made
    made.close()


def game(of, wording="put"):
    return {"problem": problem(of), "goal": of.text, "wording": wording}


def play(engine, name, actions):
    """The observations, and whether the last one won."""
    seen, reward, done = [], 0.0, False
    for action in actions:
        assert not done
        text, reward, done, _ = engine.step(name, action)
        seen.append(text)
    return seen, bool(reward) and done


@pytest.mark.parametrize("wording", ["put", "move"])
def test_walkthroughs_of_all_kinds_win_and_no_action_of_them_is_in_vain(engine, wording):
    split = "unseen" if wording == "put" else "seen"
    for k in range(6):
        of = household(31, split, k)
        first = engine.begin("walk", game(of, wording))
        assert first.endswith(f"Your task is to: {of.text}") and GOAL not in first
        assert all(each.name in first for each in of.receptacles)
        seen, won = play(engine, "walk", of.walkthrough(wording))
        assert won and NOTHING not in seen, (of.id, seen)
        assert all(text.startswith(("You ", "The ")) for text in seen)
        engine.end("walk")


def test_games_beside_one_another_do_not_touch(engine):
    games = {f"g{k}": household(8, "train", k) for k in range(4)}
    alone = {}
    for name, of in games.items():
        engine.begin(name, game(of))
        alone[name] = play(engine, name, of.walkthrough())
        engine.end(name)
    for name, of in games.items():
        engine.begin(name, game(of))
    together = {name: [] for name in games}
    won = {}
    for turn in itertools.zip_longest(*(of.walkthrough() for of in games.values())):
        for name, action in zip(games, turn, strict=True):
            if action is not None:
                text, reward, done, _ = engine.step(name, action)
                together[name].append(text)
                won[name] = bool(reward) and done
    assert alone == {name: (together[name], won[name]) for name in games}


def test_a_thought_amid_a_game_changes_nothing(engine):
    of = household(4, "unseen", 1)
    engine.begin("t", game(of))
    plain, _ = play(engine, "t", of.walkthrough())
    engine.begin("t", game(of))
    with_thought = [
        text for action in of.walkthrough() for text in play(engine, "t", ["think: so.", action])[0]
    ]
    assert with_thought[0::2] == [NOTHING] * len(plain)
    assert with_thought[1::2] == plain


def test_what_can_be_done_is_told_and_the_wording_is_that_of_the_game(engine):
    of = household(6, "train", 0)
    for wording, other in (("put", "move"), ("move", "put")):
        engine.begin("w", game(of, wording))
        assert ("help" in engine.admissible("w")) == (wording == "move")
        *walk, last = of.walkthrough(wording)
        play(engine, "w", walk)
        assert last in engine.admissible("w")
        assert engine.step("w", in_wording(last, other))[:3] == (NOTHING, 0.0, False)
        arrived = engine.step("w", f"go to {of.receptacles[0].name}")[0]
        assert arrived.startswith(f"You arrive at {'loc ' if wording == 'put' else of.receptacles[0].name}")


@pytest.mark.parametrize("wording", ["put", "move"])
def test_the_worked_examples_show_what_this_engine_says(engine, wording):
    for (short, number), row in list(embedded().items())[::5]:
        split, seed, which = row["household"].split("/")[1].split("_")
        of = household(int(seed[1:]), split, int(which))
        assert of.id == row["household"]
        first = without_banner(engine.begin("e", game(of, wording)))
        walk = [in_wording(turn["action"], wording) for turn in row["turns"]]
        seen, won = play(engine, "e", walk)
        assert won
        lines = [f"> {action}\n{shown(text)}" for action, text in zip(walk, seen, strict=True)]
        assert "\n".join([first, *lines]) + "\n\nHere is the task." in shots(
            "act", BY_SHORT[short], [number], wording
        )
        engine.end("e")


@pytest.mark.parametrize("wording", ["put", "move"])
def test_what_is_no_action_of_the_game_changes_nothing(engine, wording):
    """Unknown words, capitals, no words, control characters, the other wording, thoughts one after another."""
    of = household(12, "train", 0)
    walk = of.walkthrough(wording)
    for at in (0, len(walk) // 2, len(walk) - 1):
        engine.begin("n", game(of, wording))
        play(engine, "n", walk[:at])
        can, following = engine.admissible("n"), walk[at]
        other = in_wording(walk[-1], "move" if wording == "put" else "put")
        for said in (
            "dance", "", " ", following.upper(), following.capitalize(), f"{following} now", f"{following}.", other,
            "think: so.", "think: and so.", "think:", "\t", "\x00", "go to go to", "take", "\u4e2d", "look" * 500,
        ):  # fmt: skip
            assert engine.step("n", said)[:3] == (NOTHING, 0.0, False), said
            assert engine.admissible("n") == can, said
        _, won = play(engine, "n", walk[at:])
        assert won, at
        engine.end("n")


def test_a_game_that_the_engine_cannot_read_is_named(engine):
    with pytest.raises(WorldError, match="cannot read the game of broken"):
        engine.begin("broken", {"problem": "(define (problem", "goal": "", "wording": "put"})
    of = household(6, "train", 0)
    engine.begin("whole", game(of))
    assert play(engine, "whole", of.walkthrough())[1]


BARE = """
import json, sys, textworld
from textworld.envs.pddl import PddlEnv
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
task = json.load(sys.stdin)
game = {"pddl_domain": task["domain"], "grammar": task["grammar"], "pddl_problem": task["problem"]}
environment = AlfredDemangler(env=PddlEnv(textworld.EnvInfos()))
environment.load(game)
state = environment.reset()
told = [[state.feedback, state["admissible_commands"]]]
for action in task["actions"]:
    state = environment.step(action)[0]
    told.append([state.feedback, state["admissible_commands"]])
json.dump(told, sys.stdout)
"""


def test_the_quicker_engine_says_what_the_bare_one_says(engine):
    of = household(9, "unseen", 3)
    actions = ["look", "inventory", "dance", *of.walkthrough(), f"examine {of.wanted[0].name}"]
    logic = installed("put")
    told = subprocess.run(
        [sys.executable, "-c", BARE],
        input=json.dumps(
            {"domain": logic.domain, "grammar": logic.grammar, "problem": problem(of), "actions": actions}
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [[engine.begin("q", game(of)), engine.admissible("q")]]
    ours += [[engine.step("q", action)[0], engine.admissible("q")] for action in actions]
    bare = json.loads(told.stdout[told.stdout.index("[[") :])
    bare[0][0] = bare[0][0].replace(GOAL, of.text)
    assert ours == bare


# -- whole runs ----------------------------------------------------------------------------------------
def model():
    return scripted(lambda call: answer(str(call.request.turns[-1].text)))


def told(rows):
    """What happened in each episode."""
    return {
        row["id"]: [row["status"], row["scores"], [[s["action"], s["observation"]] for s in row["steps"]]]
        for row in rows
    }


@pytest.mark.parametrize(
    ("method", "wording"), [(Act(), "put"), (React(), "put"), (React(), "move"), (ReactIM(), "put")]
)
async def test_a_player_by_rules_wins_households_of_every_kind(method, wording, tmp_path):
    """It says `put`; games that say `move` take that where the world is lenient."""
    world = Alfworld(households=6, workers=1, wording=wording, lenient=wording == "move")
    job = Job.of(world, method, model())
    run = await library.run(job, outputs=tmp_path, progress=False)
    rows = list(run.trajectories)
    assert len(rows) == 6
    for row in rows:
        assert (row["status"], row["scores"]) == ("finished", {"reward": 1.0, "success": 1.0}), row["id"]
        assert row["error"] is None and row["split"] == "unseen"
        assert not any("loc " in step["observation"] for step in row["steps"])
    assert [row["target"]["type"] for row in rows] == [
        household(233, "unseen", k).kind.name for k in range(6)
    ]


async def test_a_worker_that_is_killed_costs_no_episode_and_changes_none(tmp_path):
    world = Alfworld(households=4, split="train", workers=1)
    whole = await library.run(Job.of(world, React(), model()), outputs=tmp_path / "whole", progress=False)
    killed = []

    def kill(call):
        host = world._host
        if host is not None and len(killed) < 2 and len(model_.calls) in (9, 17):
            (worker,) = host._all
            os.kill(worker.process.pid, signal.SIGKILL)
            killed.append(worker.process.pid)
        return answer(str(call.request.turns[-1].text))

    model_ = scripted(kill)
    run = await library.run(Job.of(world, React(), model_), outputs=tmp_path / "killed", progress=False)
    assert len(killed) == 2
    assert told(run.trajectories) == told(whole.trajectories)


async def test_thoughts_may_go_to_the_engine_as_in_the_public_code(tmp_path):
    def thinks_first(call):
        text = str(call.request.turns[-1].text)
        own = text.split("Here is the task.")[-1]
        return "think: I begin." if "> think:" not in own else answer(text)

    rows = {}
    for reach in (False, True):
        world = Alfworld(households=1, workers=1, thoughts_reach_engine=reach)
        job = Job.of(world, React(steps=3), scripted(thinks_first))
        run = await library.run(job, outputs=tmp_path / str(reach), progress=False)
        (rows[reach],) = run.trajectories
    shown_ = {
        reach: [[s["thought"], s["action"], s["observation"]] for s in row["steps"]]
        for reach, row in rows.items()
    }
    assert shown_[False][0] == ["I begin.", None, "OK."]
    assert shown_[True][0] == [None, "think: I begin.", "OK."]
    assert shown_[False][1:] == shown_[True][1:] and len(shown_[True]) == 3
    assert rows[True]["status"] == rows[False]["status"] == "step_limit"
    assert rows[True]["scores"] == {"reward": 0.0, "success": 0.0}


@pytest.mark.parametrize("ready", ["alfworld", "table3"])
async def test_the_ready_jobs_run_on_a_given_endpoint(ready, tmp_path):
    def player(body, k):
        return answer(prompt_of(body, whole=True))

    async with FakeOpenAI(player) as server:
        endpoint = f'models.policy={{provider="openai", base_url="{server.url}", model="m"}}'
        few = {"alfworld": 6, "table3": 1}[ready]
        job = Job.read(ROOT / "jobs" / f"{ready}.toml", [endpoint, f"limit={few}"])
        run = await library.run(job, outputs=tmp_path, progress=False)
    rows = list(run.trajectories)
    assert len(rows) == few * len(job.worlds) * len(job.methods) and run.status == "finished"
    for row in rows:
        assert row["error"] is None and row["status"] in ("finished", "step_limit"), row["id"]
    assert sum(row["scores"]["success"] for row in rows) > len(rows) / 2
    assert server.draws >= sum(row["usage"]["calls"] for row in rows) > 0


async def test_49_actions_and_no_more_and_20_where_the_job_says_so(tmp_path):
    for method, steps in ((Act(), 49), (React(steps=20), 20)):
        world = Alfworld(households=1, workers=1)
        lines = itertools.cycle(("look", "inventory", "", "LOOK", "dance"))
        idle = scripted(lambda call, lines=lines: f" {next(lines)}")
        run = await library.run(Job.of(world, method, idle), outputs=tmp_path / str(steps), progress=False)
        (row,) = run.trajectories
        assert (row["status"], row["n_steps"], len(row["steps"])) == ("step_limit", steps, steps)
        assert len(idle.calls) == steps and row["scores"] == {"reward": 0.0, "success": 0.0}
        seen = {step["action"]: step["observation"] for step in row["steps"]}
        assert {seen[action] for action in ("", "LOOK", "dance")} == {NOTHING}
        assert seen["inventory"] == "You are not carrying anything."


async def test_a_problem_that_the_engine_cannot_read_costs_its_own_episode_alone(tmp_path):
    rows = []
    for k in range(3):
        of = household(1, "unseen", k)
        text = problem(of)
        rows.append(
            {"id": of.id, "task": of.text, "pddl_problem": text[: len(text) // 2] if k == 1 else text}
        )
    file = tmp_path / "games.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    job = Job.of(Alfworld(source=str(file), workers=1), React(), model())
    run = await library.run(job, outputs=tmp_path / "out", progress=False)
    ended = {row["task_id"]: row for row in run.trajectories}
    assert [ended[row["id"]]["scores"].get("success") for row in rows][::2] == [1.0, 1.0]
    assert "cannot read the game" in ended[rows[1]["id"]]["error"]["message"]
