"""ALFWorld: households from a seed, listed without the engine; and with it, each solved by its own walkthrough."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from envs.alfworld.households import household
from envs.alfworld.problem import problem
from envs.alfworld.world import Alfworld

ENGINE = (
    importlib.util.find_spec("alfworld") is not None and importlib.util.find_spec("textworld") is not None
)


def test_households_come_from_their_seed_and_have_all_six_kinds() -> None:
    made = [household(233, "unseen", number) for number in range(60)]
    assert {each.kind.short for each in made} == {"put", "clean", "heat", "cool", "examine", "puttwo"}
    assert len({each.id for each in made}) == 60
    assert [household(233, "unseen", number) for number in range(60)] == made
    assert [household(7, "unseen", number) for number in range(60)] != made
    assert all(problem(each).count("(") == problem(each).count(")") for each in made)


def test_each_has_a_walkthrough_in_both_wordings() -> None:
    for number in range(30):
        of = household(1, "train", number)
        put, move = of.walkthrough("put"), of.walkthrough("move")
        assert len(put) == len(move) >= 2
        assert not any(action.startswith("move ") for action in put)
        assert not any(action.startswith("put ") for action in move)


def test_tasks_are_listed_without_the_engine() -> None:
    tasks = [task for task, _ in zip(Alfworld().tasks(), range(12), strict=False)]
    assert len({task.id for task in tasks}) == 12
    assert all(task.input and task.target["type"] for task in tasks)


@pytest.mark.parametrize("style", ["act", "react", "react_im"])
def test_each_kind_of_task_has_examples_in_each_style(style: str) -> None:
    world = Alfworld()
    shots = {
        task.target["type"]: world.shots(style, task)
        for task, _ in zip(world.tasks(), range(60), strict=False)
    }
    assert len(shots) == len(set(shots.values())) == 6
    assert all(("think:" in text) == (style != "act") for text in shots.values())


@pytest.mark.skipif(not ENGINE, reason="the engine is not installed: pip install 'overnight[alfworld]'")
@pytest.mark.parametrize("wording", ["put", "move"])
def test_walkthroughs_win_on_the_engine(wording: Any) -> None:
    from envs.alfworld.engine import AlfworldEngine

    engine = AlfworldEngine()
    for number in range(6):
        of = household(233, "unseen", number)
        engine.begin(of.id, {"problem": problem(of), "goal": of.text, "wording": wording})
        ends = [engine.step(of.id, action) for action in of.walkthrough(wording)]
        assert ends[-1][1:3] == (1.0, True), (of.id, ends[-1])
        engine.end(of.id)
    engine.close()
