"""Self-consistency: sample chains of thought, answer with the majority (Wang et al. 2022; ReAct paper, 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from runner.episode import Episode
from runner.lines import Draw
from runner.methods.base import Method
from runner.methods.cot import chains
from runner.stopping import WORDS, parse
from runner.voting import Chain, Votes, count


class CotSC(Method):
    """21 chains at temperature 0.7, majority answer; those that could not change it are not drawn. Ties go to
    the answer that was drawn first."""

    name: ClassVar[str] = "cot_sc"
    styles: ClassVar[tuple[str, ...]] = ("cot",)

    samples: int = Field(21, gt=0, description="Chains, at most.")
    until: str = Field(
        "lossless", description=f"When to stop before that: {WORDS}; in batch mode 'all' where unset."
    )
    weights: Literal["none", "logprob"] = Field(
        "none",
        description="What a vote counts: 1, or exp of the chain's mean log-probability (`logprobs = true` in the "
        "model's table).",
    )
    temperature: float = Field(0.7, ge=0)
    max_tokens: int = Field(256, gt=0)

    @field_validator("until")
    @classmethod
    def _known(cls, word: str) -> str:
        parse(word)
        return word

    async def solve(self, ep: Episode) -> None:
        ep.decide(await self.vote(ep))

    async def vote(self, ep: Episode, *, halves: bool = False) -> Votes:
        """Draw the chains and count their answers; an invalid chain counts in n and does not vote. `halves`:
        whether the winner has half of all chains is part of the verdict."""
        stopping = parse(self.until, halves=halves)

        found: list[Chain] = []

        def votes(draws: Sequence[Draw], stopped_by: str = "") -> Votes:
            found.extend(self.chain(ep, draw) for draw in draws[len(found) :])
            return count(found, self.samples, stopped_by)

        def until(draws: Sequence[Draw], left: int) -> int:
            return stopping.more(votes(draws), left)

        draws = await chains(ep, self.samples, self.temperature, self.max_tokens, until)
        return votes(draws, "all" if len(draws) == self.samples else stopping.word)

    def chain(self, ep: Episode, draw: Draw) -> Chain:
        """What a draw votes for."""
        answer = ep.world.extract(ep.task, draw.text)
        return Chain(draw.i, draw.text, answer, ep.world.canonical(ep.task, answer), self._weight(ep, draw))

    def _weight(self, ep: Episode, draw: Draw) -> float | None:
        """exp of the mean log-probability, above 0 and at most 1; 1 where the provider gives none."""
        if self.weights == "none":
            return None
        if not draw.logprobs:
            ep.flags.add("weight_missing")
            return 1.0
        mean = math.fsum(draw.logprobs) / len(draw.logprobs)
        return math.exp(min(max(mean, -700.0), 0.0)) if math.isfinite(mean) else 1.0
