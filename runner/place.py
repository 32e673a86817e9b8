"""Where an episode stands in a run: its names, its cell, and what it draws from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envs.base import World
from runner.ledger import Ledger
from runner.models.passage import Passage
from runner.sampling import Sampling


@dataclass(slots=True)
class Place:
    """Where an episode stands in a run: its names, its cell and what it draws from."""

    run: str
    id: str
    index: int
    """Plan order, and so the priority of its calls."""
    config: str
    """Hash of what shapes the episode."""
    env: str
    method: str
    model: str
    trial: int
    world: World
    roles: Mapping[str, Passage]
    """Models by role; `policy` is always there."""
    sampling: Sampling
    ledger: Ledger
    most_draws: int = 2000
    """Replies and actions after which the episode is given up: a method that never ends must not run up a bill."""
    readback: bool = False
    """Whether observations may come from the ledger only."""
    seconds: float | None = None
    """How long the episode may work, its waiting for limits and between tries not counted."""
