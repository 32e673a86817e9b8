"""WebArena's task files: what a task asks for, where it begins, and how it is judged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from envs.base import DataError, Task
from envs.data import find
from envs.tables import read_rows

SHOPPING = "__SHOPPING__"
"""Stands for the shop's address in a task's texts."""
AND = " |AND| "
"""Between the tabs in which a task begins."""
OR = " |OR| "
"""Between alternatives of which one is enough."""
Kind: TypeAlias = Literal["string_match", "url_match", "program_html"]
KINDS: tuple[Kind, ...] = ("string_match", "url_match", "program_html")
STRINGS = ("exact_match", "must_include", "fuzzy_match")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be on a page in the end: at `url` (`last`: where the episode ended; `func:...`), what
    `locator` gives (empty: the whole page) is `exact`, or holds each of `include`."""

    url: str
    locator: str
    exact: str | None
    include: tuple[str, ...]


def read_tasks(path: Path, sites: Collection[str] = ("shopping",), split: str = "") -> Iterator[Task]:
    """The tasks of a file (JSON lines, or one JSON list) that need no other sites than `sites`. A task's id is its
    number; `target` is its `eval`. Raises DataError, naming file, row and field."""
    for number, row in read_rows(find(path)):
        place = f"{path}, row {number}"
        of = row.get("sites")
        if not isinstance(of, list):
            raise DataError(f"{place}: field 'sites' is {of!r:.60}; a list of sites belongs there")
        if not set(of) <= set(sites):
            continue
        yield task_of(row, place, split)


def task_of(row: Mapping[str, Any], place: str, split: str = "") -> Task:
    """One row as a task. Raises DataError."""
    for name, kind, word in (
        ("intent", str, "a text"),
        ("start_url", str, "a text"),
        ("eval", dict, "an object"),
    ):
        if not isinstance(row.get(name), kind):
            raise DataError(f"{place}: field {name!r} is {row.get(name)!r:.60}; {word} belongs there")
    if "task_id" not in row:
        raise DataError(f"{place}: no field 'task_id'")
    _check(row["eval"], place)
    return Task(
        id=str(row["task_id"]),
        input=row["intent"],
        target=row["eval"],
        split=split,
        metadata={
            "start_url": row["start_url"],
            "template": row.get("intent_template", ""),
            "template_id": row.get("intent_template_id"),
        },
    )


def _check(judged: Mapping[str, Any], place: str) -> None:
    kinds = judged.get("eval_types")
    if not isinstance(kinds, list) or not kinds or not set(kinds) <= set(KINDS):
        raise DataError(f"{place}: eval.eval_types is {kinds!r:.80}; some of {', '.join(KINDS)} belong there")
    if "string_match" in kinds:
        answers = judged.get("reference_answers")
        if not isinstance(answers, dict) or not answers or not set(answers) <= set(STRINGS):
            raise DataError(
                f"{place}: eval.reference_answers is {answers!r:.80}; an object with some of {', '.join(STRINGS)}"
            )
    if "url_match" in kinds and not judged.get("reference_url"):
        raise DataError(f"{place}: eval.reference_url is missing")
    if "program_html" in kinds and not checks(judged):
        raise DataError(f"{place}: eval.program_html is empty")


def checks(judged: Mapping[str, Any]) -> list[Check]:
    """What `program_html` looks for. Raises DataError for a form that is not known."""
    found = []
    for each in judged.get("program_html") or ():
        required = each["required_contents"]
        if not isinstance(required, dict) or not set(required) <= {"exact_match", "must_include"}:
            raise DataError(f"eval.program_html: required_contents is {required!r:.80}")
        found.append(
            Check(
                each["url"],
                each["locator"],
                required.get("exact_match"),
                tuple(required.get("must_include") or ()),
            )
        )
    return found
