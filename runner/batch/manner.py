"""How a process deals with models in batch mode, and what their passages need of a run. Light: every run imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner.models.base import Model
from runner.models.http import HttpModel

if TYPE_CHECKING:
    from runner.budget import Cost


def is_batched(model: Model) -> bool:
    """Whether a model's calls are collected."""
    return isinstance(model, HttpModel) and model.mode == "batch"


@dataclass
class Export:
    """Where the next wave is written, and in which shape (None: the model's own). `written` tells what was: a
    file for each model that had something to ask, the first one's as named."""

    to: Path
    shape: str | None = None
    written: dict[Path, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manner:
    """How this process deals with batches. `wait`: until they have ended; else it submits and leaves.

    `adopt` are batches that a person names as those whose submission was not confirmed; `resubmit` says that
    there are none, and that a batch which its provider no longer knows is given up. `export`: what would be
    submitted becomes a file.
    """

    wait: bool = True
    adopt: tuple[str, ...] = ()
    resubmit: bool = False
    export: Export | None = None


@dataclass
class Hooks:
    """What a passage needs of its run. `admit` says how many of the first calls there is budget for (or raises
    BudgetSpent), `resume` that calls are under way already, `release` that one no longer is (True: it ended, in
    a reply or a failure); `note` logs a line; `priced`: a call's dollars are asked for."""

    admit: Callable[[Sequence[Cost]], int]
    resume: Callable[[Sequence[Cost]], None]
    release: Callable[[Cost, bool], None]
    note: Callable[[str], None]
    priced: bool = False
