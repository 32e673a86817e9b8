"""The qa world: tasks out of any table, golds checked before a call is made, prompts and scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from envs.base import DataError
from envs.data import cache_folder, data_folder, find
from envs.qa import QA

Write = Callable[..., Path]


@pytest.fixture
def table(tmp_path: Path) -> Write:
    def write(*rows: dict[str, Any]) -> Path:
        path = tmp_path / "table.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


# ---------------------------------------------------------------- tasks


def test_columns_are_found_by_their_usual_names_in_any_case(table: Write) -> None:
    data = table({"ID": 7, "Question": "2 + 2?", "Answer": 4.0, "level": "easy"})
    [task] = QA(data=data, answer="number", split="dev").tasks()
    assert (task.id, task.input, task.target, task.split) == ("7", "2 + 2?", "4", "dev")
    assert task.metadata == {"level": "easy"}


def test_named_columns_win_over_usual_names(table: Write) -> None:
    data = table({"id": "x", "key": "k1", "question": "no", "text": "yes", "answer": "1", "gold": "2"})
    fields = {"id": "key", "input": "text", "target": "gold"}
    [task] = QA(data=data, answer="number", fields=fields).tasks()
    assert (task.id, task.input, task.target) == ("k1", "yes", "2")


def test_rows_without_an_id_are_called_by_their_number_in_the_file(table: Write) -> None:
    data = table(*({"question": f"{n}?", "answer": n} for n in range(3)))
    assert [task.id for task in QA(data=data, answer="number").tasks()] == ["row-1", "row-2", "row-3"]


@settings(deadline=None)
@given(order=st.permutations(range(5)))
def test_the_id_of_a_row_does_not_depend_on_the_order_of_rows(
    order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("qa") / "t.jsonl"
    path.write_text(
        "".join(json.dumps({"qid": f"q{n}", "question": f"{n}?", "answer": n}) + "\n" for n in order)
    )
    tasks = list(QA(data=path, answer="number").tasks())
    assert {task.id: task.input for task in tasks} == {f"q{n}": f"{n}?" for n in range(5)}


def test_tasks_are_read_as_they_are_asked_for(table: Write) -> None:
    data = table({"question": "1?", "answer": "1"}, {"question": "2?", "answer": "no number"})
    tasks = QA(data=data, answer="number").tasks()
    assert next(tasks).input == "1?"
    with pytest.raises(DataError):
        next(tasks)


def test_equal_ids_are_refused_with_both_rows_five_at_a_time(table: Write) -> None:
    rows = [{"id": str(n % 8), "question": "?", "answer": "1"} for n in range(16)]
    with pytest.raises(DataError) as caught:
        list(QA(data=table(*rows), answer="number").tasks())
    message = str(caught.value)
    for n in range(5):
        assert f"'{n}' (rows {n + 1} and {n + 9})" in message
    assert "'5'" not in message
    assert "..." in message


def test_a_number_and_its_text_are_the_same_id(table: Write) -> None:
    data = table({"id": 1, "question": "?", "answer": "1"}, {"id": "1", "question": "?", "answer": "1"})
    with pytest.raises(DataError, match=r"'1' \(rows 1 and 2\)"):
        list(QA(data=data, answer="number").tasks())


def test_a_template_puts_the_question_together(table: Write) -> None:
    data = table(
        {"Body": "Tim has 3 pens", "Question": "How many?", "n": 2.0, "answer": 3},
        {"Body": "Tim has 3 pens. ", "Question": "How many?", "n": None, "answer": 3},
    )
    world = QA(data=data, answer="number", template="{Body}. {Question} {{{n}}}")
    assert [task.input for task in world.tasks()] == [
        "Tim has 3 pens. How many? {2}",
        "Tim has 3 pens. How many? {}",
    ]


def test_a_pattern_takes_the_answer_out_of_a_worked_solution(table: Write) -> None:
    data = table({"question": "?", "answer": "3 * 6 = 18\n#### 18"})
    [task] = QA(data=data, answer="number", target_pattern=r"#### (\S+)").tasks()
    assert task.target == "18"
    assert task.metadata == {"answer": "3 * 6 = 18\n#### 18"}


def test_a_number_beyond_64_bits_stays_exact(table: Write) -> None:
    [task] = (world := QA(data=table({"question": "?", "answer": 10**30}), answer="number")).tasks()
    assert task.target == "1" + "0" * 30
    assert world.score(task, str(10**30))["em"] == 1.0
    assert world.score(task, str(10**30 + 1))["em"] == 0.0


@pytest.mark.parametrize(
    "options",
    [
        ["A)5", "B)6"],
        ["5", "6"],
        [5, 6],
        '["5", "6"]',
        {"A": "5", "B": "6"},
        {"text": ["5", "6"], "label": ["A", "B"]},
    ],
)
def test_options_are_shown_with_letters_however_the_table_holds_them(table: Write, options: Any) -> None:
    data = table({"question": "2 * 3?", "options": options, "answer": "B"})
    world = QA(data=data, answer="choice")
    [task] = world.tasks()
    assert world.introduce(task) == "Question: 2 * 3?\nA) 5\nB) 6"
    assert world.score(task, "(B)")["em"] == world.score(task, "6")["em"] == 1.0
    assert world.score(task, "A")["em"] == 0.0


def test_options_may_stand_in_a_column_each(table: Write) -> None:
    data = table({"question": "?", "first": "left", "second": "right", "answer": "right"})
    world = QA(data=data, answer="choice", fields={"options": ["first", "second"]})
    [task] = world.tasks()
    assert task.metadata == {"options": ["left", "right"]}
    assert world.canonical(task, world.extract(task, "So the answer is (B).")) == "B"
    assert world.score(task, "B")["em"] == 1.0


@pytest.mark.parametrize(
    ("row", "settings", "told"),
    [
        (
            {"text": "?", "answer": "1"},
            {},
            "no column for the input; set fields.input to one of 'text', 'answer'",
        ),
        ({"question": "?", "gold": "1"}, {}, "no column for the target"),
        (
            {"question": "?", "answers": "1"},
            {"fields": {"target": "answer"}},
            r"row 1: no column 'answer' \(fields.target\) \(did you mean 'answers'\?\)",
        ),
        (
            {"Body": "b", "answer": "1"},
            {"template": "{body} {Question}"},
            r"no column 'body' \(template\) \(did you mean 'Body'\?\)",
        ),
        ({"question": " ", "answer": "1"}, {}, "row 1: the question is empty"),
        ({"question": "?", "answer": None}, {}, "row 1: column 'answer'"),
        ({"question": "?", "answer": ""}, {}, "row 1: column 'answer': the gold answer is an empty text"),
        ({"question": "?", "answer": "many"}, {}, "row 1: column 'answer': .*'many'"),
        ({"question": "?", "answer": "18"}, {"target_pattern": "#### (.*)"}, "row 1: .*'18' has no match"),
        (
            {"question": "?", "answer": "####"},
            {"target_pattern": "####(.*)"},
            "the gold answer is an empty text",
        ),
        ({"id": "", "question": "?", "answer": "1"}, {}, "row 1: the id in 'id' is ''"),
        ({"id": None, "question": "?", "answer": "1"}, {}, "row 1: the id in 'id' is None"),
        ({"question": "?", "answer": "A"}, {"answer": "choice"}, "no column for the options"),
        (
            {"question": "?", "options": ["5", "6"], "answer": "C"},
            {"answer": "choice"},
            "row 1: .* an option's letter or its text is needed",
        ),
        (
            {"question": "?", "options": "5", "answer": "A"},
            {"answer": "choice"},
            "row 1: the options .* not a list",
        ),
        (
            {"question": "?", "answer": "perhaps"},
            {"answer": "boolean"},
            "row 1: column 'answer': .*'perhaps'",
        ),
        (
            {"question": "?", "answer": "sad"},
            {"answer": "label", "labels": ["good", "bad"]},
            "row 1: column 'answer': .*'sad'",
        ),
    ],
)
def test_a_row_that_makes_no_task_is_refused_by_place_and_column(
    row: dict[str, Any], settings: dict[str, Any], told: str, table: Write
) -> None:
    data = table(row)
    with pytest.raises(DataError, match=told) as caught:
        list(QA(**{"data": data, "answer": "number", **settings}).tasks())
    assert str(caught.value).startswith(str(data))


def test_a_later_row_that_lacks_a_column_is_named(table: Write) -> None:
    data = table({"question": "?", "answer": "1"}, {"questoin": "?", "answer": "1"})
    with pytest.raises(DataError, match=r"row 2: no column 'question' .*did you mean 'questoin'"):
        list(QA(data=data, answer="number").tasks())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"answer": "numbr"}, "number"),
        ({"answer": "label"}, "labels"),
        ({"answer": "number", "labels": ["a"]}, "labels"),
        ({"answer": "number", "target_pattern": "("}, "regular expression"),
        ({"answer": "number", "template": "{a} {b"}, "brace"),
        ({"answer": "number", "template": "question"}, "column"),
        ({"answer": "number", "fields": {"inptu": "x"}}, "inptu"),
        ({"answer": "number", "format": "xls"}, "jsonl"),
        ({"answer": "number", "dta": "x"}, "dta"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_before_any_file_is_read(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        QA(**{"data": "nowhere.jsonl", **settings})


# ---------------------------------------------------------------- prompts and scores


def test_examples_become_exemplars_with_their_options() -> None:
    world = QA(
        data="-",
        answer="choice",
        instruct="Choose.",
        introduce_as="Riddle",
        examples=[{"input": "2 * 3?", "options": ["A)5", "B)6"], "reasoning": "It is 6.", "answer": "B"}],
    )
    [example] = world.exemplars()
    assert (example.input, example.reasoning, example.answer) == ("2 * 3?\nA) 5\nB) 6", "It is 6.", "B")
    assert world.introduction == "Riddle"
    assert world.instruction("cot") == "Choose."
    assert not world.acts


def test_a_missing_answer_scores_zero_and_votes_for_nothing(table: Write) -> None:
    world = QA(data=table({"question": "?", "answer": "1"}), answer="number")
    [task] = world.tasks()
    assert world.score(task, None)["em"] == 0.0
    assert world.canonical(task, None) is None
    assert world.extract(task, "I cannot say.") is None


def test_equal_numbers_are_one_vote(table: Write) -> None:
    world = QA(data=table({"question": "?", "answer": "1,234.5"}), answer="number")
    [task] = world.tasks()
    keys = {world.canonical(task, answer) for answer in ("1234.5", "$1,234.50", "1234.500")}
    assert len(keys) == 1
    assert world.score(task, world.extract(task, "So the answer is $1,234.50."))["em"] == 1.0


# ---------------------------------------------------------------- where data lie


def test_a_relative_path_is_looked_up_here_and_then_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, folder = tmp_path / "here", tmp_path / "folder"
    here.mkdir()
    folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("OVERNIGHT_DATA", str(folder))
    (folder / "t.csv").write_text("question,answer\nthere?,1\n")
    assert [task.input for task in QA(data="t.csv", answer="number").tasks()] == ["there?"]
    (here / "t.csv").write_text("question,answer\nhere?,1\n")
    assert [task.input for task in QA(data="t.csv", answer="number").tasks()] == ["here?"]


def test_a_missing_file_that_fetch_brings_is_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in ("gsm8k/test.jsonl", tmp_path / "gsm8k" / "test.jsonl"):
        with pytest.raises(DataError, match="overnight fetch gsm8k"):
            find(path)
    (tmp_path / "mine.jsonl").touch()
    with pytest.raises(DataError, match=r"did you mean 'mine\.jsonl'\?"):
        find("mime.jsonl")


def test_the_data_folder_is_the_users_own_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OVERNIGHT_DATA", raising=False)
    monkeypatch.delenv("OVERNIGHT_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert data_folder() == Path("/x/overnight")
    assert cache_folder() == Path("/c/overnight")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert data_folder() == Path("/home/u/.local/share/overnight")
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == Path("/home/u/Library/Application Support/overnight")
    monkeypatch.setenv("OVERNIGHT_DATA", "/d")
    monkeypatch.setenv("OVERNIGHT_CACHE", "/e")
    assert data_folder() == Path("/d")
    assert cache_folder() == Path("/e")
