"""What n draws of one prompt use, by how they are asked for: one by one, together, in windows, with a cache or not.

A call of n choices is charged its prompt once. A provider's prompt cache has an entry once the first call has
answered: so the first is made alone, and the others read. OpenAI caches prompts of 1,024 tokens or more, in steps
of 128 (its guide to prompt caching).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.models.base import Usage


@dataclass(frozen=True, slots=True)
class Cache:
    """A provider's prompt cache: prompts of at least `least` tokens are kept, in whole steps of `step` tokens."""

    least: int = 1024
    step: int = 128

    def kept(self, prompt: int) -> int:
        """How many of a prompt's tokens a later call reads from it."""
        return prompt // self.step * self.step if prompt >= self.least else 0


ANY = Cache(least=1, step=1)
"""A cache that keeps every prompt whole (vLLM's comes near it)."""


def used(windows: Sequence[int], prompt: int, chain: float, cache: Cache | None = None) -> Usage:
    """What calls of so many choices each use, one after the other, for a prompt of `prompt` tokens and chains of
    `chain` tokens in the mean. `[1] * 21` are single calls, `[21]` is one of n = 21."""
    calls = len(windows)
    kept = 0 if cache is None else cache.kept(prompt)
    return Usage(
        prompt=prompt * calls,
        completion=round(chain * sum(windows)),
        cached=kept * max(calls - 1, 0),
        calls=calls,
    )
