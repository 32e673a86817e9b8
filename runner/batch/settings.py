"""What a job says of batches: `[models.NAME.batch]`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

FACTOR = 0.5
"""Of the standard price. OpenAI, Anthropic, Gemini, Mistral and Groq all take half for batches."""
EPISODES = 10_000
"""`limits.max_episodes` where the job says nothing and a model is in batch mode: a wave should be whole."""


class BatchSettings(BaseModel):
    """How `mode = "batch"` sends."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    factor: float = Field(
        FACTOR, ge=0, description="Price of a batched call as a share of the standard price."
    )
    shortest_pause: float = Field(
        15.0, gt=0, description="Seconds between a submission and the earliest look at it."
    )
    longest_pause: float = Field(
        300.0, gt=0, description="Pauses between looks grow by half each time, up to so many seconds."
    )
    requests: int | None = Field(
        None, gt=0, description="At most this many requests a batch; never more than the provider takes."
    )
    megabytes: float | None = Field(
        None, gt=0, description="At most this size of a batch; never more than the provider takes."
    )
