"""ReAct -> CoT-SC: where ReAct gives no answer within its steps, the chains vote (ReAct paper, 3.2, A)."""

from __future__ import annotations

from typing import ClassVar

from runner.episode import Ended, Episode
from runner.methods.hybrid import Hybrid


class ReactThenCotSC(Hybrid):
    """ReAct, and if it gave no answer, CoT-SC."""

    name: ClassVar[str] = "react_then_cot_sc"

    async def solve(self, ep: Episode) -> None:
        try:
            await self.react.solve(ep)
        except Ended as early:  # its prompt outgrew the context, or was refused: no answer either
            ep.end(early.status)
        if not ep.answered:
            await self.cot_sc.solve(ep)
