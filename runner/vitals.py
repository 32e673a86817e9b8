"""What a run is doing right now: rates, the use of each limit, what is waited for, which calls take longest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.execution import Execution

OVER = 10.0
"""Seconds over which rates are taken."""
LONGEST = 5
"""Calls under way that are named, the longest first."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call under way: of which task (its scope), where, since how many seconds."""

    scope: str
    endpoint: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Vitals:
    """A reading. `limits` are (endpoint, what, used, most); `waits` are sentences."""

    calls_per_second: float
    tokens_per_second: float
    limits: tuple[tuple[str, str, float, float], ...]
    waits: tuple[str, ...]
    spent: tuple[str, ...]
    longest: tuple[Call, ...]

    def words(self) -> list[str]:
        """Rates, use of limits and spend, as parts of a progress line; none for what is nothing."""
        said = []
        if self.calls_per_second:
            said.append(f"{self.calls_per_second:.1f} calls/s")
            said.append(f"{self.tokens_per_second:,.0f} tokens/s")
        said += [f"{used / most:.0%} of {most:,.0f} {what}" for _, what, used, most in self.limits if most]
        return [*said, *self.spent]

    def as_dict(self) -> dict[str, Any]:
        """For `run.json`, which `overnight status` reads."""
        return {
            "calls_per_second": round(self.calls_per_second, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "limits": [
                {"endpoint": endpoint, "what": what, "used": round(used, 1), "limit": most}
                for endpoint, what, used, most in self.limits
            ],
            "waits": list(self.waits),
            "spent": list(self.spent),
            "longest_calls": [
                {"scope": call.scope, "endpoint": call.endpoint, "seconds": round(call.seconds, 1)}
                for call in self.longest
            ],
        }


class Pulse:
    """Takes readings of one execution. Rates are over the last seconds before each."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._seen: deque[tuple[float, int, int]] = deque()

    def take(self) -> Vitals:
        """A reading of now."""
        ledger, now = self._execution.ledger, monotonic()
        self._seen.append((now, ledger.paid.calls, ledger.paid.prompt + ledger.paid.completion))
        while len(self._seen) > 2 and now - self._seen[0][0] > OVER:
            self._seen.popleft()
        (then, calls, tokens), (_, calls_now, tokens_now) = self._seen[0], self._seen[-1]
        took = max(now - then, 1e-9)
        return Vitals(
            calls_per_second=(calls_now - calls) / took if len(self._seen) > 1 else 0.0,
            tokens_per_second=(tokens_now - tokens) / took if len(self._seen) > 1 else 0.0,
            limits=tuple(self._limits()),
            waits=tuple(self._waits()),
            spent=tuple(self._spent()),
            longest=tuple(self._longest()),
        )

    def _limits(self) -> Iterator[tuple[str, str, float, float]]:
        for passage in self._execution.passages.values():
            for line in passage.lines:
                for what, (used, most) in line.gate.limits.use(line.gate.clock()).items():
                    yield line.name, what, used, most

    def _waits(self) -> Iterator[str]:
        for passage in self._execution.passages.values():
            for line in passage.lines:
                where = passage.name if len(passage.lines) == 1 else line.name
                left = line.gate.paused_until - line.gate.clock()
                if left > 0:
                    why = line.gate.waits_for or "a pause"
                    yield f"{where}: waiting {left:.0f} s ({why}), {passage.waiting} calls"
                elif line.outage.since is not None:
                    yield f"{where} {line.outage.words}, {passage.waiting} calls"
        if self._execution.batches is not None:
            yield from self._execution.batches.words()

    def _spent(self) -> Iterator[str]:
        limits, ledger = self._execution.job.settings.limits, self._execution.ledger
        if limits.max_usd is not None:
            yield f"${ledger.paid_usd:,.2f} of ${limits.max_usd:g}"
        if limits.max_tokens is not None:
            yield f"{ledger.paid.prompt + ledger.paid.completion:,} of {limits.max_tokens:,} tokens"
        if limits.max_calls is not None:
            yield f"{ledger.paid.calls:,} of {limits.max_calls:,} calls"

    def _longest(self) -> list[Call]:
        found = [
            Call(scope, endpoint, passage.queue.clock() - since)
            for passage in self._execution.passages.values()
            for scope, endpoint, since in passage.under_way.values()
        ]
        return sorted(found, key=lambda call: -call.seconds)[:LONGEST]
