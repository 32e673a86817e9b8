"""ReAct-IM: acting with dense feedback-like thoughts only, the paper's ablation in the manner of Inner Monologue
(ReAct paper, section 4: what is to be reached, and what is to be done next)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode
from runner.methods.base import Method
from runner.methods.sparse import Turns, play


class ReactIM(Method):
    """As `react` in worlds with sparse thoughts, with examples that think so."""

    name: ClassVar[str] = "react_im"
    acts: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    steps: int | None = Field(None, gt=0, description="Step limit; unset: the world's own.")
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(100, gt=0)
    thoughts_cost_steps: bool = Field(True, description="Whether a thought uses a step up.")
    end_on_repeat: bool = Field(False, description="End the episode at the same action twice in a row.")

    async def solve(self, ep: Episode) -> None:
        steps = self.steps or ep.world.steps
        await play(
            ep,
            Turns(
                "react_im",
                steps,
                self.temperature,
                self.max_tokens,
                self.thoughts_cost_steps,
                self.end_on_repeat,
            ),
        )
