"""Plain question answering over any table: GSM8K, SVAMP, StrategyQA, AQuA, or a file of your own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from envs.answers import AnswerKind, KindName, answer_kind, option_texts, target_text
from envs.base import DataError, Exemplar, Task, World
from envs.data import find
from envs.seen import Seen
from envs.tables import Format, Row, listed, nearest, read_rows

_USUAL = {
    "id": ("id", "qid", "_id"),
    "input": ("question", "input", "prompt"),
    "target": ("answer", "target", "label"),
    "options": ("options", "choices"),
}
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<column>[^{}]*)\}(?P<stop>\.?)")
_ENDS_SENTENCE = (".", "?", "!")
_SHOWN = 5


class Columns(BaseModel):
    """Which column of the table holds what; the rest is looked for by its usual names, in any case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str | None = Field(
        None, description="Unique per row; usual names: id, qid, _id. Without: row-1, row-2, ..."
    )
    input: str | None = Field(None, description="The question; usual names: question, input, prompt.")
    target: str | None = Field(None, description="The right answer; usual names: answer, target, label.")
    options: str | list[str] | None = Field(
        None, description="For choice: a column with a list of options, or the columns that hold one each."
    )


class Example(BaseModel):
    """One worked example; `reasoning` is shown by the styles that reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: str
    answer: str
    reasoning: str = ""
    options: list[str] = Field(
        default_factory=list, description="For choice: the options, with or without letters."
    )


class _Layout(NamedTuple):
    """The columns of one table, once its first row is known."""

    id: str | None
    input: str | None
    target: str
    options: tuple[str, ...]
    used: frozenset[str | None]
    """Columns that are no metadata."""


class QA(World):
    """Questions from a table, answered in one reply.

    A task's `input` is the question as shown (for `choice` with its options, "A) ..." a line), its `target`
    the gold answer as text, its `metadata` the other columns, and `options` for `choice`.
    """

    name: ClassVar[str] = "qa"
    acts: ClassVar[bool] = False

    data: str | Path = Field(
        description="A table: a path, looked up in the data folder as well, or - for stdin."
    )
    format: Format | None = Field(
        None, description="jsonl, json, csv, tsv or parquet; else told by name or content."
    )
    answer: KindName = Field(description="What an answer is: number, choice, boolean, text or label.")
    labels: list[str] = Field(default_factory=list, description="The labels, for answer = 'label'.")
    fields: Columns = Field(
        default_factory=lambda: Columns.model_validate({}), description="Names of columns."
    )
    template: str = Field(
        "",
        description="The question put together from columns, e.g. '{Body}. {Question}'. A full stop after a "
        "column is left out where the column ends in one. {{ and }} stand for braces.",
    )
    target_pattern: str | None = Field(
        None,
        description="Takes the answer out of a longer gold text: the first match's group 1 (or all of it).",
    )
    examples: list[Example] = Field(default_factory=list, description="Worked examples, in prompt order.")
    instruct: str = Field("", description="Text before the examples.")
    introduce_as: str = Field("Question", description="The word before the question.")

    @field_validator("target_pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @field_validator("template")
    @classmethod
    def _template_has_columns(cls, template: str) -> str:
        if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
            raise ValueError("a brace without its partner; write {{ or }} for a brace of the text")
        if template and not any(match["column"] for match in _PLACEHOLDER.finditer(template)):
            raise ValueError("no {column} in it")
        return template

    @model_validator(mode="after")
    def _labels_fit(self) -> QA:
        answer_kind(self.answer, labels=self.labels)
        return self

    @cached_property
    def _kind(self) -> AnswerKind:
        return answer_kind(self.answer, labels=self.labels)

    # -- tasks -----------------------------------------------------------------------------------------
    @property
    def streams(self) -> bool:
        return str(self.data) == "-"

    def tasks(self) -> Iterator[Task]:
        """The table's rows in its own order, read lazily.

        Raises DataError, naming file, row and column: what `read_rows` and `find` raise; a column that is not
        there (with the nearest that is); an empty question; a gold answer that is missing or no answer of
        this kind; an id that stands twice.
        """
        source = self._source()
        layout: _Layout | None = None
        seen = Seen()
        for number, row in read_rows(source, self.format):
            place = f"{source}: row {number}"
            layout = layout or self._layout(row, place)
            task = self._task(row, number, layout, place)
            if layout.id is not None and not seen.add(task.id):
                self._refuse_doubles(source, layout.id)
            yield task

    def _source(self) -> str | Path:
        return "-" if str(self.data) == "-" else find(self.data)

    def _layout(self, row: Row, place: str) -> _Layout:
        def column(part: str, named: str | None, needed: bool) -> str | None:
            if named is not None:
                return self._known(named, row, place, f"fields.{part}")
            by_lower = {name.lower(): name for name in reversed(row)}
            found = next((by_lower[usual] for usual in _USUAL[part] if usual in by_lower), None)
            if found is None and needed:
                raise DataError(
                    f"{place}: no column for the {part}; set fields.{part} to one of {listed(row)}"
                )
            return found

        choice, named = self.answer == "choice", self.fields.options
        if isinstance(named, list):
            options = tuple(self._known(name, row, place, "fields.options") for name in named)
        else:
            only = column("options", named, needed=False) if choice or named else None
            options = (only,) if only else ()
        if choice and not options:
            raise DataError(f"{place}: no column for the options; set fields.options to one of {listed(row)}")
        for match in _PLACEHOLDER.finditer(self.template):
            if match["column"] is not None:
                self._known(match["column"], row, place, "template")
        id = column("id", self.fields.id, needed=False)
        input = column("input", self.fields.input, needed=not self.template)
        target = column("target", self.fields.target, needed=True) or ""
        used = {id, None if self.template else input, *options}
        if self.target_pattern is None:
            used.add(target)
        return _Layout(id, input, target, options, frozenset(used))

    @staticmethod
    def _known(column: str, row: Row, place: str, setting: str) -> str:
        if column not in row:
            raise DataError(
                f"{place}: no column {column!r} ({setting}){nearest(column, row)}; there are {listed(row)}"
            )
        return column

    def _task(self, row: Row, number: int, layout: _Layout, place: str) -> Task:
        options = self._options(row, layout, place)
        question = self._question(row, layout, place)
        metadata = {name: value for name, value in row.items() if name not in layout.used}
        if options:
            metadata["options"] = options
        return Task(
            id=f"row-{number}" if layout.id is None else self._id(row, layout.id, place),
            input=_with_options(question, options),
            target=self._target(row, layout, options, place),
            split=self.split,
            metadata=metadata,
        )

    def _id(self, row: Row, column: str, place: str) -> str:
        value = row[self._known(column, row, place, "fields.id")]
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # pandas writes whole numbers so when another row's is missing
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise DataError(
                f"{place}: the id in {column!r} is {_short(value)}; give each row a text or a whole number"
            )
        return str(value)

    def _question(self, row: Row, layout: _Layout, place: str) -> str:
        if self.template:

            def filled(match: re.Match[str]) -> str:
                column = match["column"]
                if column is None:
                    return match[0][0]
                text = _text(row[self._known(column, row, place, "template")])
                return text if text.endswith(_ENDS_SENTENCE) else text + match["stop"]

            question = _PLACEHOLDER.sub(filled, self.template).strip()
        else:
            question = _text(row[self._known(layout.input or "", row, place, "fields.input")])
        if not question:
            raise DataError(f"{place}: the question is empty; take the row out or fill in {layout.input!r}")
        return question

    def _options(self, row: Row, layout: _Layout, place: str) -> list[str]:
        if not layout.options:
            return []
        values: Any = [row[self._known(name, row, place, "fields.options")] for name in layout.options]
        if not isinstance(self.fields.options, list):
            values = _listed_options(values[0])
        if not isinstance(values, list) or not 2 <= len(values) <= 26:
            names = listed(layout.options)
            raise DataError(f"{place}: the options in {names} are {_short(values)}, not a list of 2 to 26")
        return option_texts([_text(value) for value in values])

    def _target(self, row: Row, layout: _Layout, options: Sequence[str], place: str) -> str:
        value = row[self._known(layout.target, row, place, "fields.target")]
        try:
            text = target_text(value)
            if self.target_pattern is not None:
                match = re.search(self.target_pattern, text)
                if match is None:
                    raise DataError(
                        f"{place}: column {layout.target!r}: {_short(text)} has no match of target_pattern "
                        f"{self.target_pattern!r}"
                    )
                text = (match[1] if match.re.groups else match[0]) or ""
            self._kind.gold(text, options)
        except ValueError as error:
            hint = (
                "an option's letter or its text is needed"
                if options
                else "check `answer` and `fields.target`"
            )
            raise DataError(f"{place}: column {layout.target!r}: {error}; {hint}") from error
        return text

    def _refuse_doubles(self, source: str | Path, column: str) -> None:
        first: dict[str, int] = {}
        doubles: list[str] = []
        for number, row in read_rows(source, self.format):
            id = self._id(row, column, f"{source}: row {number}")
            if id in first:
                doubles.append(f"{id!r} (rows {first[id]} and {number})")
            first.setdefault(id, number)
            if len(doubles) == _SHOWN:
                doubles.append("...")
                break
        if doubles:  # else two ids had one hash
            raise DataError(
                f"{source}: ids in {column!r} stand twice: {', '.join(doubles)}; make them unique"
            )

    # -- prompt material -------------------------------------------------------------------------------
    @property
    def introduction(self) -> str:
        return self.introduce_as

    def instruction(self, style: str) -> str:
        return self.instruct

    def exemplars(self) -> Sequence[Exemplar]:
        return tuple(
            Exemplar(_with_options(one.input, option_texts(one.options)), one.answer, one.reasoning)
            for one in self.examples
        )

    # -- answers ---------------------------------------------------------------------------------------
    def extract(self, task: Task, text: str) -> str | None:
        return self._kind.extract(text, _options_of(task))

    def canonical(self, task: Task, answer: str | None) -> str | None:
        return self._kind.canonical(answer, _options_of(task))

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return self._kind.score(answer, task.target, _options_of(task))


def _options_of(task: Task) -> Sequence[str]:
    options: Sequence[str] = task.metadata.get("options", ())
    return options


def _with_options(question: str, options: Sequence[str]) -> str:
    if not options:
        return question
    return "\n".join([question, *(f"{chr(ord('A') + place)}) {text}" for place, text in enumerate(options))])


def _listed_options(value: Any) -> Any:
    """A list from what tables hold options in: a list, its JSON text (CSV), {"A": ...}, or the ARC data set's
    {"text": [...], "label": [...]}."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    if isinstance(value, dict):
        return value["text"] if isinstance(value.get("text"), list) else list(value.values())
    return value


def _text(value: Any) -> str:
    """A cell as it stands in a prompt."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
