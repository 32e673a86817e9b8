"""Self-consistency: sample chains of thought, answer with the majority (Wang et al. 2022; ReAct paper, 3.2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode
from runner.methods.base import Method
from runner.methods.cot import chains
from runner.voting import Chain, Votes, count


class CotSC(Method):
    """21 chains at temperature 0.7, majority answer. Ties go to the answer that was drawn first."""

    name: ClassVar[str] = "cot_sc"
    styles: ClassVar[tuple[str, ...]] = ("cot",)

    samples: int = Field(21, gt=0)
    temperature: float = Field(0.7, ge=0)
    max_tokens: int = Field(256, gt=0)

    async def solve(self, ep: Episode) -> None:
        ep.decide(await self.vote(ep))

    async def vote(self, ep: Episode) -> Votes:
        """Draw the chains and count their answers; an invalid chain counts in n and does not vote."""
        draws = await chains(ep, self.samples, self.temperature, self.max_tokens)
        answers = [ep.world.extract(ep.task, draw.text) for draw in draws]
        return count(
            [
                Chain(draw.i, draw.text, answer, ep.world.canonical(ep.task, answer))
                for draw, answer in zip(draws, answers, strict=True)
            ]
        )
