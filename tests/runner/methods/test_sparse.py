"""Sparse thoughts: one line a turn, an action or a thought, in a world that writes its prompts so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from envs.base import Observation, Outcome, Session, Task, World
from runner import library
from runner.errors import JobError
from runner.job import Job
from runner.methods.act import Act
from runner.methods.react import React
from runner.methods.react_im import ReactIM
from runner.models.scripted import scripted


class Rooms(Session):
    """Two rooms: `go north`, then `take lamp` ends it."""

    def __init__(self) -> None:
        self.there = False

    async def reset(self) -> str:
        return "You are in a hall."

    async def step(self, action: str) -> Observation:
        if action == "go north":
            self.there = True
            return Observation("You are in a cellar with a lamp.")
        if action == "take lamp" and self.there:
            return Observation("You have the lamp.", 1.0, True)
        return Observation("Nothing happens.")


class House(World):
    name: ClassVar[str] = "house"
    acts: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    steps: ClassVar[int] = 5
    most: int = 10_000

    def tasks(self) -> Iterator[Task]:
        yield Task(id="t", input="Fetch the lamp.")

    def session(self, task: Task) -> Session:
        return Rooms()

    def shots(self, style: str, task: Task) -> str:
        return f"An example ({style}).\n\n"

    def window(self, prompt: str) -> str | None:
        return None if len(prompt) <= self.most else prompt[-self.most :]

    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        return {"reward": sum(outcome.rewards)}


async def played(
    replies: Sequence[str],
    outputs: Path,
    method: dict[str, Any] | None = None,
    name: str = "react",
    **world: Any,
) -> tuple[dict[str, Any], list[str]]:
    """The row, and the prompts that were sent."""
    lines = iter(replies)
    model = scripted(lambda call: next(lines))
    kind = {"act": Act, "react": React, "react_im": ReactIM}[name]
    job = Job.of(House(**world), kind(**(method or {})), model)
    run = await library.run(job, outputs=outputs, progress=False)
    prompts = [str(call.request.turns[-1].text) for call in model.calls]
    (row,) = run.trajectories
    return row, prompts


THINKS = ["think: The lamp is in the cellar.", "go north", "take lamp"]


async def test_a_thought_is_answered_and_the_prompt_grows_by_turns(tmp_path: Path) -> None:
    row, prompts = await played(THINKS, tmp_path)
    assert prompts[-1] == (
        "An example (react).\n\nYou are in a hall.\n> think: The lamp is in the cellar.\nOK.\n> go north\n"
        "You are in a cellar with a lamp.\n>"
    )
    assert [(s["thought"], s["action"], s["observation"]) for s in row["steps"]] == [
        ("The lamp is in the cellar.", None, "OK."),
        (None, "go north", "You are in a cellar with a lamp."),
        (None, "take lamp", "You have the lamp."),
    ]
    assert row["n_steps"] == 2 and row["scores"] == {"reward": 1.0} and row["reward"] == 1.0


@pytest.mark.parametrize(("costs", "reward"), [(True, 0.0), (False, 1.0)])
async def test_whether_a_thought_uses_a_step_up_is_a_setting(
    tmp_path: Path, costs: bool, reward: float
) -> None:
    row, _ = await played(THINKS, tmp_path, {"steps": 2, "thoughts_cost_steps": costs})
    assert row["scores"] == {"reward": reward}
    assert row["status"] == ("step_limit" if costs else "finished")


async def test_a_model_that_only_thinks_ends(tmp_path: Path) -> None:
    row, prompts = await played(["think[Hm]"] * 99, tmp_path, {"steps": 2, "thoughts_cost_steps": False})
    assert row["status"] == "step_limit" and len(prompts) == 6
    assert {step["thought"] for step in row["steps"]} == {"Hm"}


@pytest.mark.parametrize(("end", "status", "steps"), [(False, "step_limit", 5), (True, "repeated", 1)])
async def test_a_loop_is_noted_and_ends_the_episode_where_that_is_wanted(
    tmp_path: Path, end: bool, status: str, steps: int
) -> None:
    row, _ = await played(["look"] * 9, tmp_path, {"end_on_repeat": end})
    assert (row["status"], row["n_steps"], row["flags"]) == (status, steps, ["repeats"])


@pytest.mark.parametrize("name", ["act", "react", "react_im"])
async def test_each_method_has_its_examples(tmp_path: Path, name: str) -> None:
    row, prompts = await played(["go north", "take lamp"], tmp_path, name=name)
    assert prompts[0].startswith(f"An example ({name}).")
    assert row["scores"] == {"reward": 1.0}


async def test_a_world_may_cut_a_prompt_that_has_grown(tmp_path: Path) -> None:
    _, prompts = await played(THINKS, tmp_path, most=30)
    assert [len(prompt) for prompt in prompts] == [30, 30, 30]


def test_dense_worlds_have_no_sparse_methods() -> None:
    model = {"provider": "scripted", "replies": ["x"]}
    with pytest.raises(JobError, match=r"method 'react_im' needs a world with sparse thoughts.*use react"):
        Job.parse({"models": {"m": model}, "envs": {"hotpotqa": {}}, "methods": {"react_im": {}}})
