"""ReAct -> CoT-SC: where ReAct gives no answer within its steps, the chains vote (ReAct paper, 3.2, A)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Ended, Episode
from runner.methods.base import Method
from runner.methods.cot_sc import CotSC
from runner.methods.react import React


class ReactThenCotSC(Method):
    """ReAct, and if it gave no answer, CoT-SC. Draws are shared with `react` and `cot_sc` of the same job."""

    name: ClassVar[str] = "react_then_cot_sc"
    acts: ClassVar[bool] = True
    styles: ClassVar[tuple[str, ...]] = ("react", "cot")

    steps: int | None = Field(None, gt=0, description="ReAct's step limit; unset: the world's own.")
    samples: int = Field(21, gt=0)
    temperature: float = Field(0.7, ge=0, description="Of the chains; ReAct is greedy.")
    max_tokens: int = Field(256, gt=0, description="Of a chain.")
    step_tokens: int = Field(100, gt=0, description="Of one ReAct step.")

    async def solve(self, ep: Episode) -> None:
        react = React(steps=self.steps, max_tokens=self.step_tokens, compat=self.compat)
        chains = CotSC(samples=self.samples, temperature=self.temperature, max_tokens=self.max_tokens)
        try:
            await react.solve(ep)
        except Ended as early:  # its prompt outgrew the context, or was refused: no answer either
            ep.end(early.status)
        if not ep.answered:
            await chains.solve(ep)
