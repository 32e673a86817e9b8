"""A recorded run, played back: each action must be the recorded one, and is answered with what was seen then.

With it a method can be proved against published trajectories without a model or a wiki: a scripted model
gives the recorded replies (`replies`), this world the recorded observations; the scores must be the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from envs.base import DataError, Exemplar, Observation, Replay, Session, Task, World, WorldError
from envs.fever import Fever
from envs.hotpotqa import HotpotQA, WikiWorld, id_field, located, text_field
from envs.tables import Row, read_rows
from envs.wikipedia import Compat, clean

_CANONICAL = re.compile(r"(\w+)\s*\[(.*)\]", re.DOTALL)


def replies(steps: Sequence[Sequence[str]]) -> list[str]:
    """What the model said at each step of a recording: thought, newline, `Action i: ` and action."""
    return [f"{thought}\nAction {i}: {action}" for i, (thought, action, _) in enumerate(steps, 1)]


def _forms(action: str) -> tuple[str, str]:
    """An action as the public code hands it over (first letter small), and as `verb[argument]`."""
    plain = clean(action).strip()
    plain = plain[:1].lower() + plain[1:]
    found = _CANONICAL.match(plain)
    return plain, f"{found[1].lower()}[{' '.join(found[2].split())}]" if found else plain


class RecordedSession(Session):
    """One recorded episode: the action of step k must be the recorded one, up to the case of its first
    letter. `finish[...]` always ends it, whatever was recorded."""

    def __init__(self, world: WikiWorld, task: Task) -> None:
        self._world = world
        self._task = task
        self._steps: Sequence[Sequence[str]] = task.metadata["steps"]
        self._at = 0
        self._text = ""
        self._done = False

    async def reset(self) -> str:
        self.answer, self._at, self._text, self._done = None, 0, "", False
        return ""

    async def step(self, action: str) -> Observation:
        """The recorded observation. Raises WorldError, naming task and step, where the action is another."""
        if self._done:
            return Observation(self._text, 0.0, True)
        plain = clean(action).strip()
        if plain.startswith("finish[") and plain.endswith("]"):
            answer = plain.removeprefix("finish[")[:-1]
            reward = self._world.reward(self._task, answer)
            self.answer, self._done = answer, True
            self._text = f"Episode finished, reward = {reward:.15g}"
            return Observation(self._text, reward, True)
        k = self._at
        if k >= len(self._steps):
            raise WorldError(
                f"task {self._task.id}: left the recording at step {k + 1}: it has {len(self._steps)} steps, "
                f"and {plain!r} is one more; use the model and method that were recorded"
            )
        _, recorded, observation = self._steps[k]
        if not set(_forms(action)) & set(_forms(recorded)):
            raise WorldError(
                f"task {self._task.id}: left the recording at step {k + 1}: the action is {plain!r}, "
                f"recorded is {recorded!r}; use the model and method that were recorded"
            )
        self._at, self._text = k + 1, observation
        return Observation(observation)

    def snapshot(self) -> dict[str, Any]:
        """The place in the recording, as JSON."""
        return {"at": self._at, "answer": self.answer, "done": self._done, "text": self._text}

    def restore(self, state: Any) -> None:
        """Continue from what `snapshot` gave."""
        self._at, self.answer = state["at"], state["answer"]
        self._done, self._text = state["done"], state["text"]


class Recording(World):
    """Recorded episodes, one a row: `{"id" or "idx", "claim" or "question", "label" or "answer", "steps"}`.

    `steps` is a list of [thought, action, observation]. The target is `label`, or `answer` where there is no
    label (beside one, `answer` is what the recorded run answered). Other fields go to the metadata.
    """

    name: ClassVar[str] = "recording"
    acts: ClassVar[bool] = True
    replay: ClassVar[Replay] = "pure"
    steps: ClassVar[int] = 7

    data: Path = Field(description="The recording: JSON lines, also gzipped.")
    scorer: Literal["hotpotqa", "fever"] = Field("hotpotqa", description="Whose rules score an answer.")
    introduce_as: str = Field(
        "", description="The word before the task's text; unset: Question for hotpotqa, Claim for fever."
    )
    compat: Compat = Field("default", description="`reference`: score as the public ReAct code does.")

    def _like(self) -> WikiWorld:
        if "like" not in self.made:
            kind = Fever if self.scorer == "fever" else HotpotQA
            self.made["like"] = kind.model_validate({"compat": self.compat})
        world: WikiWorld = self.made["like"]
        return world

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """The recorded episodes in the file's order. Raises DataError naming file, row and field."""
        file = located(self.data)
        first: dict[str, int] = {}
        for number, row in read_rows(file):
            task = self._task(row, number - 1, f"{file}: row {number}")
            if task.id in first:
                raise DataError(
                    f"{file}: rows {first[task.id]} and {number} have one id, {task.id!r}; make ids unique"
                )
            first[task.id] = number
            yield task

    def _task(self, row: Row, index: int, place: str) -> Task:
        id = id_field(row, ("id", "idx"), place)
        words = "claim" if "claim" in row else "question"
        gold = "label" if "label" in row else "answer"
        used = {words, gold, "id"}
        return Task(
            id=f"recording-{index}" if id is None else str(id),
            input=text_field(row, words, place),
            target=text_field(row, gold, place),
            split=self.split,
            metadata={key: row[key] for key in row if key not in used}
            | {"row": index, "steps": _checked_steps(row, place)},
        )

    # -- prompt material -------------------------------------------------------------------------------
    @property
    def introduction(self) -> str:
        return self.introduce_as or self._like().introduction

    def instruction(self, style: str) -> str:
        return self._like().instruction(style)

    def exemplars(self) -> Sequence[Exemplar]:
        return self._like().exemplars()

    # -- answers ---------------------------------------------------------------------------------------
    def extract(self, task: Task, text: str) -> str | None:
        return self._like().extract(task, text)

    def canonical(self, task: Task, answer: str | None) -> str | None:
        return self._like().canonical(task, answer)

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return self._like().score(task, answer)

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> RecordedSession:
        return RecordedSession(self._like(), task)


def _checked_steps(row: Row, place: str) -> list[list[str]]:
    steps = row.get("steps")
    if not isinstance(steps, list):
        raise DataError(f"{place}: field 'steps' must be a list of [thought, action, observation]")
    for k, step in enumerate(steps, 1):
        if not isinstance(step, list) or len(step) != 3 or not all(isinstance(part, str) for part in step):
            raise DataError(
                f"{place}: field 'steps', step {k} must be [thought, action, observation], three texts"
            )
    return steps
