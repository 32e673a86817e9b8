"""What a call costs: a job's own price, or genai-prices' list price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from runner.models.base import Usage

MILLION = 1e6


class Price(BaseModel):
    """USD per million tokens, as `[models.NAME.price]` sets them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    input: float = Field(ge=0, description="USD per million prompt tokens.")
    output: float = Field(
        ge=0, description="USD per million generated tokens, a reasoning model's own among them."
    )
    cached: float | None = Field(
        None, ge=0, description="USD per million prompt tokens read from the cache; unset: as `input`."
    )
    written: float | None = Field(
        None, ge=0, description="USD per million prompt tokens put into the cache; unset: as `input`."
    )

    def of(self, usage: Usage) -> float:
        """What `usage` costs, in USD. Its cached and written tokens are part of its prompt, its reasoning ones of
        its completion."""
        cached = min(usage.cached, usage.prompt)
        written = min(usage.written, usage.prompt - cached)
        total = (
            (usage.prompt - cached - written) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.written is None else self.written)
            + usage.completion * self.output
        )
        return total / MILLION


def listed(usage: Usage, model: str, provider: str) -> float | None:
    """The list price of `usage` in USD at a provider (by genai-prices' name), None where it has none.

    Standard prices of now, by context tier and time of day; from the data in the package, never the network.
    """
    import genai_prices  # 0.25 s of CPU, so only once it is needed

    tokens = genai_prices.Usage(
        input_tokens=usage.prompt,
        cache_read_tokens=min(usage.cached, usage.prompt),
        cache_write_tokens=min(usage.written, max(usage.prompt - usage.cached, 0)),
        output_tokens=usage.completion,
    )
    try:
        return float(genai_prices.calc_price(tokens, model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None
