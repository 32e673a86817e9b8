"""Every gold answer of the published data sets, given back, scores 1 through the job files' own settings."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.answers import answer_kind
from envs.base import DataError, Task
from envs.data import find
from envs.fever import Fever
from envs.hotpotqa import HotpotQA
from envs.qa import QA
from envs.scoring import normalize_answer

JOBS = Path(__file__).parents[2] / "jobs"
NAMES = ["gsm8k", "svamp", "strategyqa", "aqua"]


def _world(job: str) -> QA:
    """The world of a ready job file, over the published file; OVERNIGHT_GSM8K names another for GSM8K."""
    settings: dict[str, Any] = tomllib.loads((JOBS / f"{job}.toml").read_text("utf-8"))["envs"][job]
    assert settings.pop("world") == "qa"
    override = os.environ.get(f"OVERNIGHT_{job.upper()}")
    return QA(**(settings | {"data": _published(override or settings["data"])}))


def _published(path: str) -> Path:
    try:
        return find(path)
    except DataError as error:
        pytest.skip(str(error))


def _wrong(world: QA, reply: Callable[[Task], str]) -> tuple[int, list[str]]:
    tasks = list(world.tasks())
    wrong = [
        task.id
        for task in tasks
        if world.score(task, world.extract(task, reply(task))) != {"em": 1.0, "f1": 1.0}
    ]
    return len(tasks), wrong


def test_all_gsm8k_gold_solutions_given_as_replies_score_one() -> None:
    world = _world("gsm8k")
    count, wrong = _wrong(world, lambda task: str(task.metadata["answer"]))
    print(f"\nGSM8K: {count - len(wrong)} of {count} gold solutions score 1")
    assert not wrong
    assert count == 1319


def test_all_gsm8k_golds_stated_in_a_sentence_score_one_and_the_next_number_zero() -> None:
    world = _world("gsm8k")
    count, wrong = _wrong(world, lambda task: f"So 1 + 2 = 3. The answer is {task.target}.")
    assert not wrong
    for task in world.tasks():
        more = str(int(str(task.target).replace(",", "")) + 1)
        assert world.score(task, more)["em"] == 0.0
    print(f"\nGSM8K: {count} golds in a sentence score 1, {count} neighbours score 0")


@pytest.mark.parametrize(("job", "count"), [("svamp", 1000), ("strategyqa", 229), ("aqua", 254)])
@pytest.mark.parametrize(
    "form", ["{}", "Let us see.\nThe answer is {}.", "We have 12 of them.\nAnswer: {}\n"]
)
def test_all_golds_of_the_other_question_sets_score_one(job: str, count: int, form: str) -> None:
    found, wrong = _wrong(_world(job), lambda task: form.format(task.target))
    print(f"\n{job}: {found - len(wrong)} of {found} golds as {form!r} score 1")
    assert not wrong
    assert found == count


@pytest.mark.parametrize("job", ["strategyqa", "aqua"])
def test_any_other_answer_of_a_closed_set_scores_zero(job: str) -> None:
    world = _world(job)
    kinds = {"strategyqa": ["yes", "no"], "aqua": ["A", "B", "C", "D", "E"]}
    for task in world.tasks():
        right = [answer for answer in kinds[job] if world.score(task, answer)["em"] == 1.0]
        assert right == [task.target]


def test_svamp_questions_join_body_and_question_with_one_full_stop() -> None:
    world = _world("svamp")
    rows = json.loads(_published("qa/svamp.json").read_text("utf-8"))
    for task, row in zip(world.tasks(), rows, strict=True):
        assert task.id == row["ID"]
        assert task.input.startswith(row["Body"].strip())
        assert task.input.endswith(row["Question"].strip())
        joined = row["Body"].strip() + " " + row["Question"].strip()
        assert task.input in {joined, joined.replace(row["Body"].strip(), row["Body"].strip() + ".", 1)}
        assert (task.input == joined) == row["Body"].strip().endswith((".", "?", "!"))


@pytest.mark.parametrize("job", NAMES)
def test_the_worked_examples_of_a_job_are_answered_as_they_say(job: str) -> None:
    settings = tomllib.loads((JOBS / f"{job}.toml").read_text("utf-8"))["envs"][job]
    kind = answer_kind(settings["answer"])
    examples = settings["examples"]
    assert len(examples) == 4
    for example in examples:
        options = example.get("options", [])
        reply = f"{example['reasoning']}\nThe answer is {example['answer']}."
        assert kind.score(kind.extract(reply, options), example["answer"], options)["em"] == 1.0
        if settings["answer"] == "number":  # the reasoning itself comes to that number
            assert kind.canonical(example["answer"]) in {
                kind.canonical(word.strip(".,")) for word in example["reasoning"].split()
            }
        if options:
            assert f"option {example['answer']}." in example["reasoning"]


def test_no_worked_example_stands_in_the_data_it_is_used_on() -> None:
    for job in NAMES:
        world = _world(job)
        inputs = {task.input for task in world.tasks()}
        assert not inputs & {example.input for example in world.exemplars()}


# ---------------------------------------------------------------- HotpotQA and FEVER


def test_all_hotpotqa_golds_score_one_and_no_answer_scores_zero() -> None:
    world = HotpotQA(data=_published("hotpotqa/hotpot_dev_v1_simplified.json"))
    tasks = list(world.tasks())
    wrong = [task.target for task in tasks if world.score(task, str(task.target))["em"] != 1.0]
    assert not wrong
    empty = [task for task in tasks if not normalize_answer(str(task.target))]
    for task in tasks:
        for nothing in (None, "", " ", "the", "..."):
            assert set(world.score(task, nothing).values()) == {0.0}, (task.id, nothing)
    print(f"\nHotpotQA: {len(tasks)} golds score 1; no answer scores 0, also for {[t.target for t in empty]}")
    assert len(tasks) == 7405
    assert sorted(str(task.target) for task in empty) == ["!!!", "The The"]


def test_hotpotqa_as_the_public_code_scores_it_gives_the_empty_answer_its_two_points() -> None:
    world = HotpotQA(data=_published("hotpotqa/hotpot_dev_v1_simplified.json"), compat="reference")
    tasks = list(world.tasks())
    assert [task.target for task in tasks if world.score(task, str(task.target))["em"] != 1.0] == []
    assert sorted(str(task.target) for task in tasks if world.score(task, "")["em"] == 1.0) == [
        "!!!",
        "The The",
    ]


@pytest.mark.parametrize("compat", ["default", "reference"])
def test_all_fever_golds_score_one_and_other_labels_zero(compat: Any) -> None:
    world = Fever(data=_published("fever/paper_dev.jsonl"), compat=compat)
    labels = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
    count = 0
    for task in world.tasks():
        count += 1
        right = [label for label in labels if world.score(task, label)["em"] == 1.0]
        assert right == [task.target], task.id
        assert world.score(task, None)["em"] == 0.0
        if compat == "reference":  # the prompt's own wording of the third label earns nothing there
            assert world.score(task, "NOT ENOUGH INFORMATION")["em"] == 0.0
    print(f"\nFEVER ({compat}): {count} golds score 1")
    assert count == 9999
