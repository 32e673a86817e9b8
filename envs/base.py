"""What a world is: tasks, a place where actions have effects, and the scores at the end.

A world is one frozen settings object (a pydantic model, so that a job's keys are checked where they are
documented). It lists tasks, opens one `Session` an episode for worlds that take actions, and scores answers.
Nothing here knows of models, methods or files of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Replay: TypeAlias = Literal["pure", "rebuild", "none"]


class WorldError(Exception):
    """A world could not do its part: bad data, a missing file, an engine that failed.

    The message says what happened, where (file, row, field, task id) and what to do next.
    """


class DataError(WorldError):
    """A data file is missing, empty or malformed; raised before any episode begins."""


class Lost(WorldError):
    """A session's engine was lost and cannot be brought back as it was: the episode begins anew."""


@dataclass(frozen=True, slots=True)
class Task:
    """One row of a data set.

    `id` is unique within its world and never depends on order or shuffling. `input` is the text of the
    question, claim or instruction; `target` what a right answer is (JSON); `metadata` the rest of the row.
    """

    id: str
    input: str
    target: Any = None
    split: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a world says to an action: text for the prompt, the reward of this step, whether it ended."""

    text: str
    reward: float = 0.0
    done: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended: its answer (None without one), the reward of each action of its last attempt, in order,
    whether the world said that it is over, and a judge's replies to `World.to_judge`."""

    answer: str | None = None
    rewards: tuple[float, ...] = ()
    done: bool = False
    verdicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One worked example, from which each prompting style takes its part (ReAct paper, section 3.2).

    `steps` are (thought, action, observation); the last one is the finishing action, whose observation
    is not shown.
    """

    input: str
    answer: str
    reasoning: str = ""
    steps: tuple[tuple[str, str, str], ...] = ()


class Session:
    """One episode's place in a world. Used by one task at a time: reset, then step until done, then close."""

    answer: str | None = None
    """What a finishing action answered; None until then."""

    async def reset(self) -> str:
        """Begin (again); returns the first observation, "" if there is none."""
        return ""

    async def step(self, action: str) -> Observation:
        """Apply one action, e.g. `search[Marie Curie]`. An action that the world does not know is answered
        with an observation that says so; raising ends the episode as an error."""
        raise NotImplementedError

    def snapshot(self) -> Any:
        """The state after the last step as JSON, from which `restore` continues; None if there is none.
        Needed by worlds that declare `replay = "pure"` and remember something between steps."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from a state that `snapshot` gave."""

    async def close(self) -> None:
        """Free what the session holds. Called once, also after an error."""


class World(BaseModel):
    """Base of all worlds. Subclasses set the class variables, add settings as fields, and override methods.

    Settings of a job's `[envs.NAME]` table become fields; unknown keys are refused by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    """The word used in job files."""
    version: ClassVar[str] = "1"
    """Changes when the world's behaviour does; part of each row's `config`."""
    replay: ClassVar[Replay] = "rebuild"
    """How an interrupted episode comes back: `pure` reads recorded observations, `rebuild` replays the
    actions into a fresh session and compares, `none` starts the episode again."""
    acts: ClassVar[bool] = False
    """Whether episodes can act here (so that `act` and `react` make sense)."""
    label: ClassVar[str] = "Question"
    """How a task is introduced in prompts: `Question: ...`, `Claim: ...`."""
    steps: ClassVar[int] = 7
    """The default step limit of acting methods (7 for HotpotQA, 5 for FEVER: ReAct paper, section 3.2)."""

    sparse: ClassVar[bool] = False
    """Whether episodes are written as one line a turn, an action or a thought (ReAct paper, section 4), and not as
    `Thought 1: ... Action 1: ...`. Such a world gives `shots`, and may change `cue`, `turn`, `thought`."""
    cue: ClassVar[str] = "\n>"
    """What asks for the next line, in worlds with sparse thoughts."""
    nod: ClassVar[str] = "OK."
    """The observation that a thought gets."""
    judged: ClassVar[bool] = False
    """Whether a judge may have to be asked how an episode ended (see `to_judge`)."""
    last: ClassVar[str | None] = None
    """The action that ends an episode whose steps are used up, where the world looks at how things stand then."""

    paths: ClassVar[tuple[str, ...]] = ()
    """Text settings that may hold a path: found beside the job file, too, as `Path` settings are."""
    manners: ClassVar[tuple[str, ...]] = ("prompts", "prompt_keys")
    """Settings that shape no episode, and so may change on resume. (Prompts are hashed by their text.)"""

    split: str = Field("", description="Part of the data set; written to each row.")
    prompts: list[Path] = Field(
        default_factory=list,
        description="Prompt files in the public ReAct repository's JSON format, used as they are.",
    )
    prompt_keys: dict[str, str] = Field(
        default_factory=dict,
        description="Which key of those files serves a style, e.g. {react = 'webthink_simple6'}.",
    )

    @cached_property
    def made(self) -> dict[str, Any]:
        """What is made once from this world and kept with it, such as its prompts."""
        return {}

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """All tasks in the data set's own order, read lazily. Raises DataError."""
        raise NotImplementedError

    @property
    def source_version(self) -> str:
        """What observations depend on beside code and settings: a digest of pages, "live"; "" where nothing
        does. Part of each row's `config`, so it must not need `open`."""
        return ""

    @property
    def streams(self) -> bool:
        """Whether rows come while the run goes on (standard input), so that nobody should wait for the last."""
        return False

    # -- prompt material -------------------------------------------------------------------------------
    @property
    def introduction(self) -> str:
        """The word before the colon; `label` unless a setting changes it."""
        return self.label

    def introduce(self, task: Task) -> str:
        """The line(s) that put the task before the model, without a trailing newline."""
        return f"{self.introduction}: {task.input}"

    def instruction(self, style: str) -> str:
        """Text before the examples for a style (`standard`, `cot`, `act`, `react`); may be empty."""
        return ""

    def exemplars(self) -> Sequence[Exemplar]:
        """Worked examples in prompt order; may be empty."""
        return ()

    # -- sparse thoughts -------------------------------------------------------------------------------
    @property
    def material(self) -> str:
        """All texts that `shots` are made of: a change of them is one of the episodes' prompts."""
        return ""

    def shots(self, style: str, task: Task) -> str:
        """All that stands before a task's first observation, in a style: `act` (no thoughts), `react`, `react_im`.
        Tasks of one kind share it. Raises DataError for a style that there is not."""
        raise DataError(f"world {self.name!r} has no examples with sparse thoughts")

    def begin(self, seen: str) -> str:
        """The first observation, as it stands in the prompt."""
        return seen

    def turn(self, line: str, observation: str) -> str:
        """How a line and what it led to are written down, the next cue included."""
        return f" {line}\n{observation}{self.cue}"

    def thought(self, line: str) -> str | None:
        """The thought that a line is (`think: ...`, `think[...]`); None for an action."""
        for opens, closes in (("think:", ""), ("think[", "]")):
            if line.startswith(opens):
                return line[len(opens) :].removesuffix(closes).strip()
        return None

    def window(self, prompt: str) -> str | None:
        """What of a prompt that has grown is sent; None for all of it."""
        return None

    # -- answers ---------------------------------------------------------------------------------------
    def extract(self, task: Task, text: str) -> str | None:
        """The answer span in a free-form reply, None if there is none."""
        return text.strip() or None

    def canonical(self, task: Task, answer: str | None) -> str | None:
        """The form in which two answers are the same vote; None for an answer that is not one."""
        return answer

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        """Named scores of a final answer, each finite; a missing answer scores 0. Must hold `em` or `reward`."""
        raise NotImplementedError

    def to_judge(self, task: Task, outcome: Outcome) -> Sequence[str]:
        """What a judge, a model, is to be asked of how an episode ended; its replies are in the outcome that
        `score_outcome` gets. None for worlds that need no judge."""
        return ()

    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        """As `score`, for worlds in which what was done counts, not what was said: these need no `score` of their
        own. Called anew by `rescore`, from the record."""
        return self.score(task, outcome.answer)

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> Session:
        """A fresh session for one episode of `task`."""
        raise WorldError(
            f"world {self.name!r} takes no actions; use a method that only answers (cot, cot_sc)"
        )

    # -- resources -------------------------------------------------------------------------------------
    def check(self) -> None:
        """Raise WorldError, in one line that says what to install, where the world cannot be opened on this machine.
        Called before anything of a run is written."""

    async def open(self, cache: Path) -> None:
        """Get ready (open a database, a client). `cache` is a folder that outlives runs. Called once."""

    async def close(self) -> None:
        """Give back what `open` took."""
