"""What the two hybrids of ReAct and CoT-SC have in common: the settings of both (ReAct paper, section 3.2)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from runner.methods.base import Method
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.stopping import WORDS, parse


class Hybrid(Method):
    """ReAct and CoT-SC in one; which comes first is the subclass's. Draws are shared with `react` and
    `cot_sc` of the same job."""

    acts: ClassVar[bool] = True
    styles: ClassVar[tuple[str, ...]] = ("react", "cot")

    steps: int | None = Field(None, gt=0, description="ReAct's step limit; unset: the world's own.")
    samples: int = Field(21, gt=0, description="Chains, at most.")
    until: str = Field(
        "lossless", description=f"When to stop before that: {WORDS}; in batch mode 'all' where unset."
    )
    weights: Literal["none", "logprob"] = Field(
        "none", description="What a chain's vote counts, as in `cot_sc`."
    )
    temperature: float = Field(0.7, ge=0, description="Of the chains; ReAct is greedy.")
    max_tokens: int = Field(256, gt=0, description="Of a chain.")
    step_tokens: int = Field(100, gt=0, description="Of one ReAct step.")

    @field_validator("until")
    @classmethod
    def _known(cls, word: str) -> str:
        parse(word)
        return word

    @property
    def react(self) -> React:
        return React(steps=self.steps, max_tokens=self.step_tokens, compat=self.compat)

    @property
    def cot_sc(self) -> CotSC:
        return CotSC(
            samples=self.samples,
            until=self.until,
            weights=self.weights,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )
