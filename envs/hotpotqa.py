"""HotpotQA (Yang et al. 2018): questions that need two Wikipedia pages, read as in the ReAct paper.

`WikiWorld` is what it shares with FEVER: a source of pages, sessions that read them, and the worked examples.
"""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import orjson
from pydantic import Field, PrivateAttr, field_validator

from envs.base import DataError, Exemplar, Replay, Task, World, WorldError
from envs.data import find
from envs.scoring import exact_match, f1, lenient_match, normalize_answer
from envs.snapshot import SnapshotSource, embedded
from envs.tables import Row, read_rows
from envs.wikipedia import WIKIPEDIA, Compat, Source, WikiSession

ENCYCLOPEDIA = Path(str(resources.files("envs") / "encyclopedia"))


class WikiWorld(World):
    """A world whose sessions read an encyclopedia. Subclasses turn rows into tasks and score answers."""

    acts: ClassVar[bool] = True
    replay: ClassVar[Replay] = "pure"
    paths: ClassVar[tuple[str, ...]] = ("source",)
    manners: ClassVar[tuple[str, ...]] = (*World.manners, "contact", "pace")
    questions: ClassVar[str]
    """The embedded data file, used where `data` is not set."""
    examples: ClassVar[str]
    """The embedded file of worked examples."""

    source: str = Field(
        "encyclopedia",
        description="Where pages come from: `encyclopedia` (a small one that comes with the program), "
        "`wikipedia` (live, needs `contact`), or the path of a snapshot file (.jsonl or .jsonl.gz).",
    )
    data: Path | None = Field(
        None, description="The data set's file, also gzipped; unset: the encyclopedia's own small set."
    )
    contact: str = Field(
        "", description="Whom a live wiki's operators may write to: your e-mail address or web page."
    )
    api: str = Field(WIKIPEDIA, description="The MediaWiki API that `source = 'wikipedia'` asks.")
    pace: float = Field(5.0, gt=0, description="Most requests a second to a live wiki.")
    compat: Compat = Field(
        "default",
        description="`reference`: the public ReAct environment to the letter, accidents included.",
    )

    _source: Source | None = PrivateAttr(default=None)

    @field_validator("source")
    @classmethod
    def _source_is_named(cls, source: str) -> str:
        if not source.strip():
            raise ValueError("empty; write encyclopedia, wikipedia or the path of a snapshot file")
        return source

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """The file's rows in its own order; `metadata["row"]` counts them from 0, as ReAct's subset does.

        Raises DataError naming file, row (from 1) and field: a missing, empty or damaged file, a row that is
        not an object, a missing or wrong field, an id that stands twice.
        """
        file = ENCYCLOPEDIA / self.questions if self.data is None else located(self.data)
        first: dict[str, int] = {}
        for number, row in read_rows(file):
            place = f"{file}: row {number}"
            task = self._task(row, number - 1, place)
            if task.id in first:
                raise DataError(
                    f"{file}: rows {first[task.id]} and {number} have one id, {task.id!r}; make ids unique"
                )
            first[task.id] = number
            yield task

    @abstractmethod
    def _task(self, row: Row, index: int, place: str) -> Task:
        """One row as a task; `place` names file and row for errors."""

    # -- prompt material -------------------------------------------------------------------------------
    def exemplars(self) -> Sequence[Exemplar]:
        """The embedded worked examples, over the embedded encyclopedia."""
        return read_exemplars(self.examples)

    # -- answers ---------------------------------------------------------------------------------------
    def extract(self, task: Task, text: str) -> str | None:
        """What follows the last "Answer:" on its line, None if nothing does. A next task that the model goes
        on to invent is not read."""
        return after_answer(text, self.introduction)

    @abstractmethod
    def reward(self, task: Task, answer: str) -> float:
        """What `finish[answer]` earns, 0 or 1."""

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> WikiSession:
        if self._source is None:
            raise WorldError(f"world {self.name!r} is not open; await open(cache) first")
        return WikiSession(self._source, functools.partial(self.reward, task), self.compat)

    async def open(self, cache: Path) -> None:
        """Open the source: index a snapshot into `cache`, or make a live wiki's client. Raises WorldError."""
        source = self._make_source()
        try:
            await source.open(cache)
        except BaseException:
            await source.close()
            raise
        self._source = source

    async def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    @property
    def source_version(self) -> str:
        """What the observations depend on beside the code: a digest of the pages, or "live". Needs no `open`.
        Raises DataError for a source that is not there."""
        if "source_version" not in self.made:
            self.made["source_version"] = self._make_source().version
        return str(self.made["source_version"])

    def _make_source(self) -> Source:
        if self.source == "encyclopedia":
            return embedded()
        if self.source == "wikipedia":
            from envs.mediawiki import MediaWikiSource  # httpx takes 0.1 s of CPU

            return MediaWikiSource(self.api, contact=self.contact, pace=self.pace)
        try:
            return SnapshotSource(located(self.source))
        except DataError as error:
            raise DataError(f"{error}. (`source` is encyclopedia, wikipedia or a snapshot file)") from error


def located(path: str | Path) -> Path:
    """`envs.data.find`, also for a path that the system itself refuses (too long, with a NUL)."""
    try:
        return find(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)[:200]!r} can't be the path of a file ({error.args[-1]})") from error


_ANSWER = re.compile(r"\banswer[*_]{0,3}\s?:[*_]{0,3}", re.IGNORECASE)


def after_answer(text: str, introduction: str) -> str | None:
    """The first line after the last "Answer:" of `text`, which ends where a next `introduction:` begins."""
    text = re.split(rf"\n\s*{re.escape(introduction)}\s?\d*:", text, maxsplit=1)[0]
    *_, rest = _ANSWER.split(text)
    line = rest.strip().split("\n")[0].strip()
    return line or None if rest is not text else None


@functools.cache
def read_exemplars(name: str) -> tuple[Exemplar, ...]:
    """Worked examples of an embedded file; what they observe was played by `python -m envs.encyclopedia`."""
    return tuple(
        Exemplar(
            input=row["claim"] if "claim" in row else row["question"],
            answer=row["answer"],
            reasoning=row["reasoning"],
            steps=tuple(
                (step["thought"], step["action"], seen)
                for step, seen in zip(row["steps"], [*row["observations"], ""], strict=True)
            ),
        )
        for row in orjson.loads((ENCYCLOPEDIA / name).read_bytes())
    )


def text_field(row: Row, field: str, place: str) -> str:
    """A field that must hold text. Raises DataError naming it."""
    if field not in row:
        raise DataError(
            f"{place}: field {field!r} is missing; there are {', '.join(map(repr, row)) or 'none'}"
        )
    value = row[field]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{place}: field {field!r} must be a text that is not blank, found {_short(value)}")
    return value


def id_field(row: Row, fields: Sequence[str], place: str) -> str | int | None:
    """The first of `fields` that the row has: a text or whole number; None if it has none of them."""
    field = next((field for field in fields if row.get(field) is not None), None)
    if field is None:
        return None
    value = row[field]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError(f"{place}: field {field!r} must be a text or a whole number, found {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class HotpotQA(WikiWorld):
    """HotpotQA's questions. `data` may be the public repository's `hotpot_dev_v1_simplified.json`, an
    official file (`hotpot_dev_distractor_v1.json`, ...fullwiki..., train), or JSON lines of the same fields.

    A task's `target` is the gold answer. Scores: `em` and `f1` by the official rules, and `em_lenient`, which
    forgives Unicode dashes and quotes.
    """

    name: ClassVar[str] = "hotpotqa"
    label: ClassVar[str] = "Question"
    steps: ClassVar[int] = 7
    questions: ClassVar[str] = "questions.jsonl"
    examples: ClassVar[str] = "exemplars_hotpotqa.json"

    def _task(self, row: Row, index: int, place: str) -> Task:
        id = id_field(row, ("id", "_id"), place)
        # The paragraphs of the distractor files are pages to be searched, not part of the question.
        metadata = {key: row[key] for key in row if key not in {"id", "_id", "question", "answer", "context"}}
        return Task(
            id=f"hotpot-{index}" if id is None else str(id),
            input=text_field(row, "question", place),
            target=text_field(row, "answer", place),
            split=self.split,
            metadata=metadata | {"row": index},
        )

    def instruction(self, style: str) -> str:
        return INSTRUCTIONS.get(style, "")

    def canonical(self, task: Task, answer: str | None) -> str | None:
        """The official normal form; None for an answer that comes to nothing."""
        return None if answer is None else normalize_answer(answer) or None

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        """`em`, `f1` and `em_lenient` in [0, 1]; with `compat = "reference"` an empty answer equals a gold
        that normalises to nothing, as in the public code."""
        target = str(task.target)
        em = 0.0 if answer is None else self.reward(task, answer)
        return {"em": em, "f1": f1(answer, target), "em_lenient": max(em, lenient_match(answer, target))}

    def reward(self, task: Task, answer: str) -> float:
        if self.compat == "reference":
            return float(normalize_answer(answer) == normalize_answer(str(task.target)))
        return exact_match(answer, str(task.target))


ACTIONS = """\
Each action is one of these:
(1) Search[entity] shows the first sentences of the page about that entity. If there is no such page, it shows
the titles of similar ones, which can be searched.
(2) Lookup[keyword] shows the next sentence of the open page that contains the keyword.
(3) Finish[answer] gives the answer and ends the task.
Here are some examples.
"""

INSTRUCTIONS = {
    "standard": "Answer each question as briefly as possible, with a name, a date, a number, yes or no.\n",
    "cot": "Answer each question. Reason first, in a line that begins with Thought, then give the answer, as "
    "brief as possible, in a line that begins with Answer.\n",
    "act": f"Answer each question by taking actions and reading the observations. {ACTIONS}",
    "react": "Answer each question in turns of Thought, Action and Observation. A Thought reasons about what "
    f"is known and what to do next, an Observation is what an Action brought. {ACTIONS}",
}
