"""Chain of thought: reason, then answer (Wei et al. 2022; ReAct paper, section 3.2, baseline b)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode, Until
from runner.lines import Draw
from runner.methods.base import Method
from runner.methods.prompts import opening


class Cot(Method):
    """One greedy chain."""

    name: ClassVar[str] = "cot"
    styles: ClassVar[tuple[str, ...]] = ("cot",)

    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(256, gt=0)

    async def solve(self, ep: Episode) -> None:
        (chain,) = await chains(ep, 1, self.temperature, self.max_tokens)
        ep.note(chain.text.strip())
        ep.answer = ep.world.extract(ep.task, chain.text)


async def chains(
    ep: Episode, n: int, temperature: float, max_tokens: int, until: Until | None = None
) -> list[Draw]:
    """`n` draws of the task's chain-of-thought prompt, which ends in `Thought:`, or fewer where `until` says so.
    All methods that sample chains ask through this, so that they share them."""
    return await ep.sample(
        opening(ep.world, "cot", ep.task) + "Thought:",
        n,
        stop=[f"\n{ep.world.introduction}:"],
        temperature=temperature,
        max_tokens=max_tokens,
        until=until,
    )
