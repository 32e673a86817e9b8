"""ScienceWorld as a world: its tasks, how they are shown, and what an episode scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator

from envs.base import DataError, Exemplar, Outcome, Replay, Session, Task, WorldError
from envs.hosting import Host, HostedWorld
from envs.scienceworld import java
from envs.scienceworld.exemplars import plays, sparse
from envs.scienceworld.tasks import BY_WORD, KINDS, SIMPLIFICATIONS, SPLITS, Kind, enabled
from envs.tables import listed, nearest

ENGINE = "envs.scienceworld.engine:ScienceWorldEngine"


class ScienceWorld(HostedWorld):
    """ScienceWorld (Wang et al. 2022): 30 kinds of elementary science tasks in 7,207 variations, in the original
    simulator (needs Java 11 and `pip install 'overnight[scienceworld]'`).

    A task's id is its name and variation, `boil-21`. What it asks for is the first thing that an episode sees:
    the simulator writes it. Scores: `reward`, the final score in 0..100 with a failure's -100 counted as 0, and
    `success`, 1 where it is 100.
    """

    name: ClassVar[str] = "scienceworld"
    acts: ClassVar[bool] = True
    replay: ClassVar[Replay] = "rebuild"
    label: ClassVar[str] = "Task"
    steps: ClassVar[int] = 80
    manners: ClassVar[tuple[str, ...]] = (*HostedWorld.manners, "heap")

    split: str = Field("test", description="train, dev or test; empty: all variations.")
    kinds: list[str] = Field(
        default_factory=list,
        description="Which of the 30 tasks, by name (`boil`) or number (`1-1`); unset: all.",
    )
    variations: int | None = Field(
        None, gt=0, description="At most so many variations of each task, the first of its split."
    )
    simplifications: str = Field(
        "easy",
        description="What is made simpler: `easy`, or some of teleportAction, noElectricalAction, openDoors, "
        "selfWateringFlowerPots and openContainers with commas between them; empty: nothing.",
    )
    step_limit: int = Field(
        0,
        ge=0,
        description="The simulator ends an episode after so many moves (its own Python class: 100); 0: never. "
        "The method's own limit is `steps`.",
    )
    thoughts: Literal["sparse", "dense"] = Field(
        "sparse",
        description="How methods write episodes: one line a turn, `> think: ...` or `> action`, or a numbered thought "
        "before each action.",
    )
    recent: int | None = Field(
        None,
        gt=0,
        description="Most characters of an episode's turns that sparse prompts keep, the latest ones; unset: all.",
    )
    per_worker: int | None = Field(32, gt=0, description="Episodes to a Java machine, about 1 MB each.")
    heap: int = Field(256, ge=64, description="Most megabytes of each Java machine's heap.")

    _host: Host | None = PrivateAttr(default=None)

    @field_validator("split")
    @classmethod
    def _split_is_known(cls, split: str) -> str:
        if split and split not in SPLITS:
            raise ValueError(f"there is no split {split!r}; there are: {', '.join(SPLITS)}, or empty for all")
        return split

    @field_validator("kinds")
    @classmethod
    def _kinds_are_known(cls, kinds: list[str]) -> list[str]:
        for word in kinds:
            if word not in BY_WORD:
                raise ValueError(
                    f"there is no task {word!r}{nearest(word, BY_WORD)}; there are: "
                    f"{listed([kind.name for kind in KINDS])}"
                )
        return kinds

    @field_validator("simplifications")
    @classmethod
    def _simplifications_are_known(cls, text: str) -> str:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in SIMPLIFICATIONS and names != ["easy"]:
                raise ValueError(
                    f"there is no simplification {name!r}{nearest(name, SIMPLIFICATIONS)}; write easy alone, or "
                    f"some of {', '.join(SIMPLIFICATIONS)}"
                )
        return ",".join(names)

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """Kind after kind in the paper's order, variations in order. Listed without Java. Raises DataError where
        the simplifications take away what an electrical task needs."""
        chosen = [BY_WORD[word] for word in self.kinds] or KINDS
        for kind in dict.fromkeys(chosen):
            if kind.electrical and "noElectricalAction" in self.simplifications:
                raise DataError(
                    f"scienceworld: {kind.name} can't be solved without electrical actions; write "
                    "simplifications = 'easy', which leaves them where they are needed, or choose other `kinds`"
                )
            for variation in islice(self._variations(kind), self.variations):
                yield Task(
                    id=f"{kind.name}-{variation}",
                    input=f"{kind.name}, variation {variation}",
                    target=100,
                    split=kind.part_of(variation),
                    metadata={"task": kind.name, "number": kind.number, "variation": variation},
                )

    def _variations(self, kind: Kind) -> range:
        # one of the three by its validator
        return kind.split(self.split) if self.split else range(kind.variations)  # type: ignore[arg-type]

    # -- prompt material -------------------------------------------------------------------------------
    @property
    def sparse(self) -> bool:  # type: ignore[override]  # a setting here
        """Whether episodes are written as one line a turn."""
        return self.thoughts == "sparse"

    @property
    def material(self) -> str:
        """The instruction and the examples of all styles."""
        return self.instruction("react") + "".join(
            sparse(each, style) for style in ("act", "react", "react_im") for each in plays()
        )

    def shots(self, style: str, task: Task) -> str:
        """The instruction and all examples, for every task the same ones."""
        shown = "\n".join(sparse(each, style) for each in plays())
        return f"{self.instruction(style)}Here are {len(plays())} examples.\n\n{shown}\n{HERE}"

    def window(self, prompt: str) -> str | None:
        """All up to the first observation, then the latest whole turns of at most `recent` characters."""
        if self.recent is None:
            return None
        own = prompt.rindex(HERE) + len(HERE)
        turns = prompt.index(self.cue, own)
        if len(prompt) - turns <= self.recent:
            return None
        kept = prompt.find(self.cue, len(prompt) - self.recent)
        return prompt[:turns] + prompt[kept if kept >= 0 else len(prompt) - len(self.cue) :]

    def introduce(self, task: Task) -> str:
        """Only the word: the simulator says what the task is, in the first observation."""
        return f"{self.introduction}:"

    def instruction(self, style: str) -> str:
        teleport = "teleportAction" in enabled(self.simplifications, KINDS[0])
        return INSTRUCTION.format(teleport=" teleport to PLACE," if teleport else "")

    def exemplars(self) -> Sequence[Exemplar]:
        """The embedded worked examples, played in the simulator."""
        return [
            Exemplar(
                input=play["first"],
                answer="",
                steps=tuple((step["thought"], step["action"], step["observation"]) for step in play["steps"]),
            )
            for play in plays()
        ]

    # -- answers ---------------------------------------------------------------------------------------
    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        """`reward` 0..100 (the sum of the rewards of the actions is the simulator's score) and `success`."""
        score = max(0.0, sum(outcome.rewards))
        return {"reward": score, "success": float(score == 100)}

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> Session:
        if self._host is None:
            raise WorldError(f"world {self.name!r} is not open; await open(cache) first")
        return self._host.session({"task": task.metadata["task"], "variation": task.metadata["variation"]})

    def check(self) -> None:
        """Raises WorldError where the package or Java is missing."""
        if problem := java.missing():
            raise WorldError(problem)

    async def open(self, cache: Path) -> None:
        """Get the workers ready. Raises WorldError as `check` does."""
        self.check()
        settings = {"simplifications": self.simplifications, "step_limit": self.step_limit, "heap": self.heap}
        self._host = self.host(ENGINE, settings)

    async def close(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            await host.close()


HERE = "Here is the task.\n"
"""Stands before a task in sparse prompts."""
INSTRUCTION = """\
Solve science tasks in a house of ten places, one action at a time. Only what is in the same place or carried can be
seen and used. Actions, with names of things and places as they are shown:
open X, close X, activate X, deactivate X, use X on Y, connect X to Y, disconnect X, look around, look at X,
look in X, read X, pick up X, put down X, move X to Y, pour X into Y, dunk X into Y, mix X, eat X, flush X,
go to PLACE,{teleport} inventory, task, wait (ten moments), wait1 (one moment), focus on X.
Focusing says that this is the thing that the task asks for: a wrong focus ends the task as failed. Where a name fits
several things they are listed with numbers, and the next action is just the number.
"""
