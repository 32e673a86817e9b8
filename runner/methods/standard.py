"""Standard prompting: question in, answer out (ReAct paper, section 3.2, baseline a)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode
from runner.methods.base import Method
from runner.methods.prompts import opening


class Standard(Method):
    """One greedy reply after `Answer:`."""

    name: ClassVar[str] = "standard"
    styles: ClassVar[tuple[str, ...]] = ("standard",)

    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(64, gt=0)

    async def solve(self, ep: Episode) -> None:
        prompt = opening(ep.world, "standard", ep.task) + "Answer:"
        (reply,) = await ep.sample(
            prompt,
            stop=[f"\n{ep.world.introduction}:"],
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )
        ep.answer = ep.world.extract(ep.task, "Answer:" + reply.text)
