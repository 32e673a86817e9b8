"""Prompts: one set of examples in four styles, the public prompt files as they are, and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.base import DataError, Exemplar, Task, World
from envs.data import find
from envs.fever import Fever
from envs.hotpotqa import HotpotQA
from envs.qa import QA
from runner.errors import JobError
from runner.job import Job
from runner.methods.prompts import CONTINUE, FILE_KEYS, Style, few_shot, opening, to_turns
from runner.models.base import Text

STYLES: tuple[Style, ...] = ("standard", "cot", "act", "react")


class Small(World):
    name = "small"
    acts = True

    def tasks(self) -> Iterator[Task]:
        yield Task("1", "Who?")

    def instruction(self, style: str) -> str:
        return {"react": "Think and act.", "act": "Act.\n"}.get(style, "")

    def exemplars(self) -> Sequence[Exemplar]:
        steps = (("I look.", "Search[Ada]", "Ada wrote it."), ("It was Ada.", "Finish[Ada]", "not shown"))
        return (
            Exemplar("Who wrote it?", "Ada", "Ada wrote it, so Ada.", steps),
            Exemplar("2 + 2?", "4", "Four."),
        )

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": 0.0}


EXPECTED = {
    "standard": "Question: Who wrote it?\nAnswer: Ada\nQuestion: 2 + 2?\nAnswer: 4\n",
    "cot": "Question: Who wrote it?\nThought: Ada wrote it, so Ada.\nAnswer: Ada\n"
    "Question: 2 + 2?\nThought: Four.\nAnswer: 4\n",
    "act": "Act.\nQuestion: Who wrote it?\nAction 1: Search[Ada]\nObservation 1: Ada wrote it.\n"
    "Action 2: Finish[Ada]\nQuestion: 2 + 2?\n",
    "react": "Think and act.\nQuestion: Who wrote it?\nThought 1: I look.\nAction 1: Search[Ada]\n"
    "Observation 1: Ada wrote it.\nThought 2: It was Ada.\nAction 2: Finish[Ada]\nQuestion: 2 + 2?\n",
}


@pytest.mark.parametrize("style", STYLES)
def test_each_style_writes_its_part_of_the_examples(style: Style) -> None:
    assert str(opening(Small(), style, Task("1", "Who?"))) == EXPECTED[style] + "Question: Who?\n"


def without(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(words)]


@pytest.mark.parametrize("world", [HotpotQA(), Fever()], ids=["hotpotqa", "fever"])
def test_the_styles_are_ablations_of_one_set(world: World) -> None:
    """Take the thoughts out of `react` and it is `act`; take them out of `cot` and it is `standard`."""
    examples = {style: str(few_shot(world, style)).removeprefix(world.instruction(style)) for style in STYLES}
    assert without(examples["react"], "Thought") == examples["act"].splitlines()
    assert without(examples["cot"], "Thought") == examples["standard"].splitlines()
    asked = [line for line in examples["standard"].splitlines() if line.startswith(world.introduction)]
    assert asked == without(examples["act"], "Action", "Observation") and len(asked) == len(world.exemplars())
    answers = [line.removeprefix("Answer: ") for line in without(examples["standard"], world.introduction)]
    finished = [line for line in examples["act"].splitlines() if ": Finish[" in line]
    assert finished == [
        f"{line.split(':')[0]}: Finish[{answer}]" for line, answer in zip(finished, answers, strict=True)
    ]
    assert "Observation" in examples["act"] and "Observation" not in examples["cot"]


@pytest.mark.parametrize("style", STYLES)
def test_what_precedes_the_task_is_one_object_for_all_tasks(style: Style) -> None:
    world = HotpotQA()
    one, other = (opening(world, style, Task(id, f"{id}?")) for id in "ab")
    assert one.parts[0] is other.parts[0]
    assert [one.parts[1], other.parts[1]] == ["Question: a?\n", "Question: b?\n"]
    assert few_shot(world, style) is few_shot(world, style)


def test_a_world_without_examples_has_a_prompt_of_only_the_task() -> None:
    class Bare(Small):
        def exemplars(self) -> Sequence[Exemplar]:
            return ()

    assert str(opening(Bare(), "cot", Task("1", "Who?"))) == "Question: Who?\n"


# ---------------------------------------------------------------- prompt files


def published(name: str) -> Path:
    try:
        return find(f"prompts/react/{name}")
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("style", STYLES)
def test_public_fever_prompts_are_used_as_they_are(style: Style) -> None:
    file = published("fever.json")
    text = json.loads(file.read_text())[f"{FILE_KEYS[style]}_simple3"]
    assert str(opening(Fever(prompts=[file]), style, Task("1", "It is."))) == text + "Claim: It is.\n"


@pytest.mark.parametrize("style", STYLES)
def test_public_hotpotqa_prompts_take_the_six_examples_and_the_instruction_for_react(style: Style) -> None:
    files = [published("prompts_naive.json"), published("hotpotqa_instruction.json")]
    texts = {key: text for file in files for key, text in json.loads(file.read_text()).items()}
    expected = texts[f"{FILE_KEYS[style]}_simple6"]
    if style == "react":
        expected = texts["hotpotqa_react_instruction"] + expected
    for order in (files, files[::-1]):
        assert str(few_shot(HotpotQA(prompts=order), style)) == expected


def test_a_prompt_file_is_found_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERNIGHT_DATA", str(tmp_path))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "x.json").write_text('{"webqa": "W"}')
    assert str(few_shot(HotpotQA(prompts=["p/x.json"]), "standard")) == "W"


def prompt_file(folder: Path, name: str = "prompts.json", **texts: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(texts), encoding="utf-8")
    return path


def test_a_key_named_in_the_job_wins(tmp_path: Path) -> None:
    file = prompt_file(
        tmp_path, webthink_simple6="six", webthink_mine="mine", intro="I. ", x_react_instruction="X. "
    )
    world = HotpotQA(prompts=[file], prompt_keys={"react": "webthink_mine"})
    assert str(few_shot(world, "react")) == "X. mine"
    world = HotpotQA(prompts=[file], prompt_keys={"react": "intro", "react_instruction": "webthink_mine"})
    assert str(few_shot(world, "react")) == "mineI. "


def test_the_only_key_of_a_style_is_taken(tmp_path: Path) -> None:
    assert (
        str(few_shot(HotpotQA(prompts=[prompt_file(tmp_path, webqa_v2="only", other="x")]), "standard"))
        == "only"
    )


BAD: dict[str, tuple[str, dict[str, str], str]] = {
    "several keys": (
        "webthink_a webthink_b",
        {},
        "several begin with 'webthink': 'webthink_a', 'webthink_b'",
    ),
    "both usual keys": (
        "webthink_simple6 webthink_simple3",
        {},
        "both webthink_simple6 and webthink_simple3",
    ),
    "no key": ("webact cotqa", {}, "none begins with 'webthink'; there are: 'cotqa', 'webact'"),
    "no such key": (
        "webthink_a",
        {"react": "webthink_b"},
        "no prompt 'webthink_b' (did you mean 'webthink_a'?)",
    ),
    "no such instruction": ("webthink", {"react_instruction": "intro"}, "no prompt 'intro'"),
    "no such style": ("webthink", {"reakt": "webthink"}, "no style 'reakt' (did you mean 'react'?)"),
}


@pytest.mark.parametrize("texts, keys, message", BAD.values(), ids=BAD.keys())
def test_a_choice_that_is_not_clear_is_refused(
    texts: str, keys: dict[str, str], message: str, tmp_path: Path
) -> None:
    file = prompt_file(tmp_path, **dict.fromkeys(texts.split(), "x"))
    with pytest.raises(DataError) as caught:
        few_shot(HotpotQA(prompts=[file], prompt_keys=keys), "react")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"{", "not JSON"),
        (b"[1]", "one JSON object of names and texts"),
        (b'{"webqa": 3}', "one JSON object of names and texts"),
        (None, "no such file"),
    ],
)
def test_a_damaged_prompt_file_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        few_shot(HotpotQA(prompts=[path]), "standard")
    assert str(path) in str(caught.value)


def test_a_folder_is_no_prompt_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        few_shot(HotpotQA(prompts=[tmp_path]), "standard")


def test_a_byte_order_mark_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b'\xef\xbb\xbf{"webqa": "W"}')
    assert str(few_shot(HotpotQA(prompts=[tmp_path / "p.json"]), "standard")) == "W"


def test_an_edited_prompt_file_is_read_again_by_the_next_job(tmp_path: Path) -> None:
    for text in ("old", "new"):
        file = prompt_file(tmp_path, webqa=text)
        assert str(few_shot(HotpotQA(prompts=[file]), "standard")) == text


def test_keys_without_files_are_refused() -> None:
    with pytest.raises(DataError, match="`prompts` names no file"):
        few_shot(HotpotQA(prompt_keys={"react": "webthink"}), "react")


@pytest.mark.parametrize("method, style", [("react", "react"), ("cot_sc_then_react", "cot"), ("act", "act")])
def test_a_job_whose_prompt_file_lacks_a_style_is_refused_before_it_runs(
    method: str, style: str, tmp_path: Path
) -> None:
    texts = {key: "x" for name, key in FILE_KEYS.items() if name != style}
    raw = {
        "envs": {"hotpotqa": {"prompts": [str(prompt_file(tmp_path, **texts))]}},
        "methods": {method: {}},
        "models": {"m": {"provider": "scripted"}},
    }
    with pytest.raises(JobError, match=rf"job \(envs.hotpotqa.prompts\): .*which prompt serves '{style}'"):
        Job.parse(raw)
    other = "standard" if style != "standard" else "cot"
    Job.parse(raw | {"methods": {other: {}}})


# ---------------------------------------------------------------- messages


def test_a_completion_endpoint_gets_the_prompt_as_it_is() -> None:
    (turn,) = to_turns("Question: x\nThought 1:", "completions")
    assert (turn.role, str(turn.text)) == ("prompt", "Question: x\nThought 1:")


def test_a_chat_endpoint_gets_it_as_the_users_message_to_be_continued() -> None:
    prompt = Text("Question: x\n", "Thought 1:")
    system, user = to_turns(prompt, "chat")
    assert (system.role, str(system.text)) == ("system", CONTINUE)
    assert user.role == "user"
    assert user.text is prompt


def test_a_qa_worlds_own_word_introduces_examples_and_task(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1, "question": "6?", "answer": 6}\n')
    examples = [{"input": "5?", "reasoning": "Five.", "answer": "5"}]
    world = QA(
        data=tmp_path / "t.jsonl",
        answer="number",
        introduce_as="Problem",
        instruct="Solve.",
        examples=examples,
    )
    (task,) = world.tasks()
    assert str(opening(world, "cot", task)) == "Solve.\nProblem: 5?\nThought: Five.\nAnswer: 5\nProblem: 6?\n"
