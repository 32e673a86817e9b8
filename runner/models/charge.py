"""What calls will use, before they are made: learnt from what calls like them used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from runner.models.base import Call, Usage
from runner.models.limits import Charge

CHARACTERS = 4.0
"""Characters of a token, until replies tell better."""
MEMORY = 0.98
"""How much of what was learnt stays with each further reply: about fifty replies count."""
ENOUGH = 10.0
"""Replies before a reply's expected length is believed; until then the call's token limit stands for it."""

Like: TypeAlias = tuple[str, int, tuple[str, ...], float]


@dataclass(eq=False, slots=True)
class _Lengths:
    """Of the replies to one kind of request: a fading count, sum and sum of squares of their tokens."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, tokens: float) -> None:
        self.count = self.count * MEMORY + 1
        self.total = self.total * MEMORY + tokens
        self.squares = self.squares * MEMORY + tokens * tokens

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def variance(self) -> float:
        """Of further replies, the doubt about the mean included."""
        mean = self.total / self.count
        spread = self.squares / self.count - mean * mean
        return (1 + ENOUGH / self.count) * spread if spread > 0 else 0.0


class Charges:
    """Estimates for one model.

    `max_tokens`: the provider charges a call's token limit when the call begins, and keeps it.
    `cached`: prompt tokens that it had in its cache count like others. `output`: generated tokens count.
    """

    def __init__(self, *, max_tokens: bool = False, cached: bool = True, output: bool = True) -> None:
        self.max_tokens = max_tokens
        self.cached = cached
        self.output = output
        self._characters = 0.0
        self._tokens = 0.0
        self._off = _Lengths()
        """Prompts' real tokens, relative to what was thought."""
        self._lengths: dict[Like, _Lengths] = {}

    def of(self, call: Call) -> Charge:
        """What a call will probably use."""
        limit = call.request.params.max_tokens
        lengths = None if self.max_tokens else self._lengths.get(_like(call))
        each, variance = float(limit), 0.0
        if lengths is not None and lengths.count >= ENOUGH:
            each, variance = min(lengths.mean, each), lengths.variance
        n = max(call.n, 1) if self.output else 0
        prompt = call.request.characters / self._ratio
        off = self._off.variance if self._off.count else 0.0
        return Charge(prompt, n * each, prompt * prompt * off, n * variance)

    @property
    def _ratio(self) -> float:
        return CHARACTERS if self._tokens <= 0 else self._characters / self._tokens

    def real(self, call: Call, usage: Usage) -> Charge:
        """What a reply really cost its limits; later estimates are the better for it."""
        if usage.prompt > 0 and call.request.characters > 0:
            if self._tokens > 0:
                self._off.add(usage.prompt * self._ratio / call.request.characters)
            self._characters = self._characters * MEMORY + call.request.characters
            self._tokens = self._tokens * MEMORY + usage.prompt
        n = max(call.n, 1)
        if usage.completion > 0:
            lengths = self._lengths.setdefault(_like(call), _Lengths())
            lengths.add(usage.completion / n)
        prompt = usage.prompt if self.cached else max(usage.prompt - usage.cached, 0)
        output = float(n * call.request.params.max_tokens if self.max_tokens else usage.completion)
        return Charge(float(prompt), output if self.output else 0.0)


def _like(call: Call) -> Like:
    """Requests of one kind get replies of like lengths."""
    params = call.request.params
    return call.request.kind, params.max_tokens, params.stop, params.temperature
