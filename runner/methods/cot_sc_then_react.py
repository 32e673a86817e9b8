"""CoT-SC -> ReAct: where fewer than half of the chains agree, ReAct answers (ReAct paper, 3.2, B)."""

from __future__ import annotations

from typing import ClassVar

from runner.episode import Episode
from runner.methods.hybrid import Hybrid


class CotSCThenReact(Hybrid):
    """CoT-SC; if its majority answer has fewer than n/2 of the n chains, ReAct."""

    name: ClassVar[str] = "cot_sc_then_react"

    async def solve(self, ep: Episode) -> None:
        votes = await self.cot_sc.vote(ep, halves=True)
        ep.decide(votes)
        if not votes.agreed:
            await self.react.solve(ep)
