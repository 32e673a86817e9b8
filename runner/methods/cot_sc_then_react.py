"""CoT-SC -> ReAct: where fewer than half of the chains agree, ReAct answers (ReAct paper, 3.2, B)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode
from runner.methods.base import Method
from runner.methods.cot_sc import CotSC
from runner.methods.react import React


class CotSCThenReact(Method):
    """CoT-SC; if its majority answer has fewer than n/2 of the n chains, ReAct."""

    name: ClassVar[str] = "cot_sc_then_react"
    acts: ClassVar[bool] = True
    styles: ClassVar[tuple[str, ...]] = ("react", "cot")

    steps: int | None = Field(None, gt=0, description="ReAct's step limit; unset: the world's own.")
    samples: int = Field(21, gt=0)
    temperature: float = Field(0.7, ge=0, description="Of the chains; ReAct is greedy.")
    max_tokens: int = Field(256, gt=0, description="Of a chain.")
    step_tokens: int = Field(100, gt=0, description="Of one ReAct step.")

    async def solve(self, ep: Episode) -> None:
        chains = CotSC(samples=self.samples, temperature=self.temperature, max_tokens=self.max_tokens)
        votes = await chains.vote(ep)
        ep.decide(votes)
        if votes.majority < self.samples / 2:
            await React(steps=self.steps, max_tokens=self.step_tokens, compat=self.compat).solve(ep)
