"""ALFWorld (Shridhar et al. 2021): household tasks in text, acted in as in the ReAct paper, section 4."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, cast

from pydantic import Field, PrivateAttr, field_validator

from envs.alfworld import examples
from envs.alfworld.games import (
    VARIABLE,
    Folder,
    Games,
    Households,
    Records,
    alfworld_data,
    located,
    split_named,
)
from envs.alfworld.goals import BY_SHORT, Wording
from envs.alfworld.households import PLANS, Split
from envs.alfworld.logic import INSTALL
from envs.alfworld.session import NOD, AlfworldSession
from envs.base import DataError, Outcome, Replay, Session, Task, WorldError
from envs.hosting import Host, HostedWorld
from envs.promptfiles import read_prompts

OWN = "households"


class Alfworld(HostedWorld):
    """Household tasks in text: six kinds, in households of our own or in ALFWorld's games.

    A task is won or not: `reward` and `success` are 1 where the engine says so. Prompts are those of the task's kind.
    """

    name: ClassVar[str] = "alfworld"
    acts: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    replay: ClassVar[Replay] = "rebuild"
    label: ClassVar[str] = "Task"
    steps: ClassVar[int] = 49
    cue: ClassVar[str] = "\n>"
    nod: ClassVar[str] = NOD
    paths: ClassVar[tuple[str, ...]] = ("source",)

    source: str = Field(
        OWN,
        description="Where games come from: `households` (made from `seed`), `ALFWORLD_DATA` (the folder which that "
        "variable names), the path of such a folder, or of a file of records (.jsonl, .jsonl.gz).",
    )
    split: str = Field(
        "",
        description="`train`, `seen` (new tasks in rooms of `train`) or `unseen` (new rooms); unset: unseen, or all "
        "rows of a file.",
    )
    seed: int = Field(233, description="Of the households.")
    households: int = Field(120, gt=0, description="How many households; their six kinds take turns.")
    wording: Wording = Field(
        "put",
        description="`put` (games 2.1.1, as in the paper: put x in/on y) or `move` (later games: move x to y), where "
        "a game does not say it itself.",
    )
    examples: list[int] = Field(
        [1, 0],
        min_length=1,
        max_length=examples.EACH,
        description="Which of the three worked examples of a kind stand before a task (0 to 2), in order. The paper "
        "tries all six pairs; its public code has [1, 0].",
    )
    opening: str = Field("", description="The prompt's first line; unset: our own.")
    lenient: bool = Field(
        False,
        description="Take `put x in y`, `put x on y` and `move x to y` for the form that the game knows.",
    )
    raw: bool = Field(
        False, description="Observations to the engine's letter, with its banner and `You arrive at loc 7.`"
    )
    thoughts_reach_engine: bool = Field(
        False,
        description="Whether `think: ...` goes to the engine, which does not know it, and its answer is replaced, as "
        "in the public code. It is an action then and always costs a step.",
    )

    _host: Host | None = PrivateAttr(default=None)
    _translations: TemporaryDirectory[str] | None = PrivateAttr(default=None)

    @field_validator("split")
    @classmethod
    def _split_is_known(cls, split: str) -> str:
        split = split_named(split)
        if split not in ("", *PLANS):
            raise ValueError(f"no split {split!r}; there are train, seen and unseen")
        return split

    @field_validator("examples")
    @classmethod
    def _examples_are_there(cls, which: list[int]) -> list[int]:
        if len(set(which)) < len(which) or not set(which) <= set(range(examples.EACH)):
            raise ValueError(f"{which}: different numbers from 0 to {examples.EACH - 1}")
        return which

    @field_validator("source")
    @classmethod
    def _source_is_named(cls, source: str) -> str:
        if not source.strip():
            raise ValueError(f"empty; write {OWN}, {VARIABLE} or the path of games")
        return source

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """The source's games in its own order; `metadata["type"]` is the kind (put, clean, heat, cool, examine,
        puttwo). Raises DataError."""
        return self._games.tasks()

    @cached_property
    def _games(self) -> Games:
        if self.source == OWN:
            return Households(self.seed, cast(Split, self.split or "unseen"), self.households, self.wording)
        place = alfworld_data() if self.source == VARIABLE else located(self.source)
        if place.is_dir():
            return Folder(place, self.split or "unseen")
        return Records(place, self.split, self.wording)

    @property
    def source_version(self) -> str:
        """The engine's versions."""
        return " ".join(f"{package} {_version(package)}" for package in ("alfworld", "textworld"))

    # -- prompt material -------------------------------------------------------------------------------
    def introduce(self, task: Task) -> str:
        return f"Your task is to: {task.input}"

    @property
    def material(self) -> str:
        chosen = f"{self.examples} {self.opening}\n"
        return chosen + ("".join(self._texts.values()) if self.prompts else examples.everything())

    def shots(self, style: str, task: Task) -> str:
        if style not in examples.STYLES:
            raise DataError(
                f"world {self.name!r} has examples for {', '.join(examples.STYLES)}, not for {style!r}"
            )
        kind, wording = BY_SHORT[task.metadata["type"]], task.metadata["wording"]
        key = f"{style} {kind.short} {wording}"
        kept: dict[str, str] = self.made.setdefault("shots", {})
        if key not in kept:
            if self.prompts:
                kept[key] = examples.shots_of_files(style, kind, self.examples, self._texts, self.opening)
            else:
                kept[key] = examples.shots(style, kind, self.examples, wording, self.opening)
        return kept[key]

    @property
    def _texts(self) -> dict[str, str]:
        if "texts" not in self.made:
            self.made["texts"] = read_prompts(self.prompts)
        texts: dict[str, str] = self.made["texts"]
        return texts

    def thought(self, line: str) -> str | None:
        return None if self.thoughts_reach_engine else super().thought(line)

    # -- the end ---------------------------------------------------------------------------------------
    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        """`reward` and `success`, both 1 where the game was won, else 0. The end of its steps is no success."""
        won = float(any(reward > 0 for reward in outcome.rewards))
        return {"reward": won, "success": won}

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> Session:
        if self._host is None:
            raise WorldError(f"world {self.name!r} is not open; await open(cache) first")
        hosted = self._host.session(self._games.game(task))
        return AlfworldSession(hosted, task.metadata["wording"], raw=self.raw, lenient=self.lenient)

    def check(self) -> None:
        """Raises WorldError where the engine is not installed."""
        if any(
            importlib.util.find_spec(package) is None
            for package in ("alfworld", "textworld", "fast_downward")
        ):
            raise WorldError(INSTALL)

    async def open(self, cache: Path) -> None:
        """Raises WorldError where the engine is not installed."""
        self.check()
        self._translations = TemporaryDirectory(prefix="overnight-alfworld-")
        self._host = self.host(
            "envs.alfworld.engine:AlfworldEngine", {"translations": self._translations.name}
        )

    async def close(self) -> None:
        host, self._host = self._host, None
        folder, self._translations = self._translations, None
        try:
            if host is not None:
                await host.close()
        finally:
            if folder is not None:
                folder.cleanup()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
