"""A recorded run played back."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from envs.base import DataError, Observation, WorldError
from envs.recording import Recording, replies

ROW = {
    "idx": 7,
    "claim": "Oslo is in Norway.",
    "label": "SUPPORTS",
    "answer": "REFUTES",
    "steps": [
        ["I search.", "Search[Oslo [city]]", "Oslo is a city."],
        ["I look.", "Lookup[Norway] on another site", "Invalid action: lookup[Norway] on another site"],
        ["Done.", "Finish[SUPPORTS]", "Episode finished, reward = 1"],
    ],
}


def recording(path: Path, *rows: Any, **settings: Any) -> Recording:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Recording.model_validate({"data": path, "scorer": "fever"} | settings)


@pytest.fixture
def world(tmp_path: Path) -> Recording:
    return recording(tmp_path / "run.jsonl", ROW)


def published(name: str, scorer: str, compat: str = "reference") -> Recording:
    folder = os.environ.get("OVERNIGHT_DATA")
    if not folder or not Path(folder, name).is_file():
        pytest.skip(f"needs $OVERNIGHT_DATA/{name}")
    return Recording.model_validate({"data": Path(folder, name), "scorer": scorer, "compat": compat})


def test_rows_become_tasks_and_the_label_outranks_the_recorded_answer(world: Recording) -> None:
    (task,) = world.tasks()
    assert (task.id, task.input, task.target) == ("7", "Oslo is in Norway.", "SUPPORTS")
    assert task.metadata["answer"] == "REFUTES"
    assert task.metadata["row"] == 0
    assert world.introduce(task) == "Claim: Oslo is in Norway."


def test_the_introduction_can_be_set(tmp_path: Path) -> None:
    row = {"id": "a", "question": "Q?", "answer": "A", "steps": []}
    world = recording(tmp_path / "run.jsonl", row, scorer="hotpotqa")
    (task,) = world.tasks()
    assert world.introduce(task) == "Question: Q?"
    other = recording(tmp_path / "run.jsonl", row, introduce_as="Riddle")
    assert (other.introduction, other.introduce(task)) == ("Riddle", "Riddle: Q?")


async def test_recorded_actions_are_answered_as_recorded(world: Recording) -> None:
    session = world.session(next(world.tasks()))
    assert await session.step("search[Oslo [city]]") == Observation("Oslo is a city.")
    assert await session.step("lookup[Norway]") == Observation(
        "Invalid action: lookup[Norway] on another site"
    )
    assert await session.step("finish[SUPPORTS]") == Observation("Episode finished, reward = 1", 1.0, True)
    assert await session.step("search[x]") == Observation("Episode finished, reward = 1", 0.0, True)
    assert session.answer == "SUPPORTS"
    await session.reset()
    assert session.answer is None
    assert await session.step("Search[Oslo [city]]") == Observation("Oslo is a city.")


async def test_any_finish_ends_the_episode_and_is_scored(world: Recording) -> None:
    session = world.session(next(world.tasks()))
    assert await session.step("finish[REFUTES]") == Observation("Episode finished, reward = 0", 0.0, True)
    assert session.answer == "REFUTES"


async def test_leaving_the_recording_is_an_error_that_names_task_and_step(world: Recording) -> None:
    session = world.session(next(world.tasks()))
    await session.step("search[Oslo [city]]")
    with pytest.raises(
        WorldError, match=r"task 7: left the recording at step 2: .*'lookup\[Sweden\]'.*Norway"
    ):
        await session.step("lookup[Sweden]")
    await session.step("lookup[Norway]")
    with pytest.raises(WorldError, match="step 3"):
        await session.step("Finish [x")


async def test_going_on_after_the_recording_is_an_error(tmp_path: Path) -> None:
    world = recording(tmp_path / "run.jsonl", ROW | {"steps": ROW["steps"][:1]})  # type: ignore[index]
    session = world.session(next(world.tasks()))
    await session.step("search[Oslo [city]]")
    with pytest.raises(WorldError, match="left the recording at step 2: it has 1 steps"):
        await session.step("search[Oslo]")


async def test_a_restored_session_goes_on_at_its_step(world: Recording) -> None:
    task = next(world.tasks())
    session = world.session(task)
    actions = ["search[Oslo [city]]", "lookup[Norway]", "finish[SUPPORTS]", "x"]
    for action in actions:
        again = world.session(task)
        again.restore(json.loads(json.dumps(session.snapshot())))
        assert await again.step(action) == await session.step(action)
        assert again.answer == session.answer


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"claim": "C", "label": "REFUTES"}, "'steps'"),
        ({"claim": "C", "label": "REFUTES", "steps": [["a", "b"]]}, "step 1"),
        ({"claim": "C", "label": "REFUTES", "steps": [["a", "b", 1]]}, "step 1"),
        ({"claim": "C", "steps": []}, "'answer'"),
        ({"label": "REFUTES", "steps": []}, "'question'"),
        ({"idx": 7, "claim": "C", "label": "REFUTES", "steps": []}, "rows 1 and 2"),
    ],
)
def test_a_bad_row_is_named_by_row_and_field(tmp_path: Path, row: dict[str, Any], field: str) -> None:
    with pytest.raises(DataError) as caught:
        list(recording(tmp_path / "run.jsonl", ROW, row).tasks())
    assert field in str(caught.value)
    assert str(tmp_path / "run.jsonl") in str(caught.value)
    assert "2" in str(caught.value)


def test_zipped_recordings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert [task.id for task in Recording.model_validate({"data": path}).tasks()] == ["7"]


def test_replies_are_put_together_from_steps() -> None:
    assert replies([["I think.", "Search[A]", "x"], ["So.", "Finish[B]", ""]]) == [
        "I think.\nAction 1: Search[A]",
        "So.\nAction 2: Finish[B]",
    ]


async def test_the_published_fever_run_plays_back_to_its_own_scores() -> None:
    world = published("fever/react_davinci002_0_249.jsonl.gz", "fever")
    right = count = 0
    for task in world.tasks():
        session = world.session(task)
        observation = Observation("")
        for _, action, expected in task.metadata["steps"]:
            observation = await session.step(action[:1].lower() + action[1:])
            assert observation.text == expected
        if not observation.done:
            observation = await session.step("finish[]")
        assert observation.done
        assert session.answer == task.metadata["answer"]
        assert observation.reward == task.metadata["em"] == world.score(task, session.answer)["em"]
        right, count = right + int(observation.reward), count + 1
    assert count == 250
    assert right == sum(task.metadata["em"] for task in world.tasks())


async def test_the_published_reflexion_trial_plays_back_to_its_own_verdicts() -> None:
    world = published("hotpotqa/reflexion_react_trial0.jsonl.gz", "hotpotqa")
    verdicts = {"correct": 0, "incorrect": 0, "halted": 0}
    for task in world.tasks():
        session = world.session(task)
        for _, action, expected in task.metadata["steps"]:
            observation = await session.step(action[:1].lower() + action[1:])
            assert observation.done or observation.text == expected
        status = task.metadata["status"]
        assert session.answer is None or world.score(task, session.answer)["em"] == float(status == "correct")
        verdicts[status] += 1
    assert verdicts == {"correct": 32, "incorrect": 51, "halted": 17}
