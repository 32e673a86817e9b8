"""What a trajectory line is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1
"""Version of the trajectory line."""


@dataclass
class Step:
    """One thought, action and observation of a trajectory, and the draws that led to it."""

    n: int
    attempt: int
    thought: str | None = None
    action: str | None = None
    observation: str | None = None
    draws: list[tuple[str, int]] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "attempt": self.attempt,
            "thought": self.thought,
            "action": self.action,
            "observation": self.observation,
            "draws": [list(draw) for draw in self.draws],
            "seconds": round(self.seconds, 3),
        }
