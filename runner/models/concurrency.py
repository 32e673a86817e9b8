"""How many calls are in flight at once where the job does not say: found by trying.

It doubles with each round of answers (as many as there are places) as long as all places are used and calls take
no longer for it. From then on it grows in small steps, each looked at before the next: if calls take longer for one
and hardly more of them end in a second, it goes back and waits before it tries again. If calls take much longer than
at best, it is halved.
"""

from __future__ import annotations

import statistics

from runner.models.gate import Gate

START_IN_FLIGHT = 32
"""Calls at once to begin with."""
MOST_IN_FLIGHT = 4096
"""Calls at once where the job sets no ceiling."""
LONGER, MUCH_LONGER = 1.5, 3.0
"""A call that takes so many times as long as at best: more at once must have been worth it; fewer at once."""
WORTH = 0.25
"""Share of further places that must show as further answers a second, where calls take longer for them."""
FORGET = 2 ** (1 / 600)
"""How much longer calls may be at best, a second later: prompts grow as episodes do."""


SHORTEST = 0.001
"""Seconds. What takes less is all the same: a clock may not even tell it from nothing."""


class Concurrency:
    """Moves the number of calls that a gate lets be in flight."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._seconds = 0.0
        """How long a call takes, a fading mean."""
        self._round = _Round()
        self._best, self._best_at = 0.0, 0.0
        self._settling = False
        self._grown_from: tuple[int, float] | None = None
        self._careful = False
        """Growth has made calls take longer once: from then on in small steps."""
        self._wait, self._wait_until = 15.0, 0.0

    def answered(self, now: float, seconds: float, tokens: float, *, grows: bool = True) -> None:
        """A call was answered after so many seconds with so many tokens."""
        self._seconds = seconds if not self._seconds else 0.9 * self._seconds + 0.1 * seconds
        this, gate = self._round, self.gate
        this.add(now, max(seconds, SHORTEST), tokens)
        if len(this.relative) < max(gate.in_flight, 4):
            return
        if self._careful and now - this.began < self._seconds:
            return
        took, ended = statistics.median(this.relative), this.rate(now)
        full = gate.peak >= gate.in_flight
        self._round, gate.peak = _Round(), gate.flying
        self._best = took if not self._best else min(took, self._best * FORGET ** (now - self._best_at))
        self._best_at = now
        if self._settling:  # begun with as many in flight as before
            self._settling = False
            return
        longer = took / self._best
        if self._grown_from is not None and longer > LONGER:
            old, before = self._grown_from
            if not self._careful or ended / before - 1 < WORTH * (gate.in_flight / old - 1):
                self._wait = min(2 * self._wait, 1800.0) if self._careful else self._wait
                self._set(now, old, f"calls took {longer:.1f} times as long as at best for no more a second")
                return
        self._grown_from = None
        if longer > MUCH_LONGER and gate.in_flight > START_IN_FLIGHT and now >= self._wait_until:
            self._best = took  # if it is no better with fewer, that is how it is now
            fewer = max(int(gate.in_flight / 2), START_IN_FLIGHT)
            self._set(now, fewer, f"calls take {longer:.1f} times as long as at best")
        elif full and grows and now >= self._wait_until and gate.in_flight < gate.most:
            self._grow(now, ended)

    def _grow(self, now: float, ended: float) -> None:
        gate, old = self.gate, self.gate.in_flight
        more = old + max(1, old // 4) if self._careful else 2 * old
        gate.set_in_flight(min(more, gate.most), "all places were used and calls went well")
        self._grown_from, self._settling = (old, ended), self._careful

    def _set(self, now: float, most: int, why: str) -> None:
        """Fewer, or as many as before: it stays so for a while."""
        self._careful = self._settling = True
        self._grown_from, self._wait_until = None, now + self._wait
        self.gate.set_in_flight(most, why)


class _Round:
    """As many answers as there are places."""

    def __init__(self) -> None:
        self.began = 0.0
        self.relative: list[float] = []

    def add(self, now: float, seconds: float, tokens: float) -> None:
        if not self.relative:
            self.began = now
        self.relative.append(seconds / (32 + tokens))

    def rate(self, now: float) -> float:
        """Answers a second."""
        return len(self.relative) / max(now - self.began, 1e-3)
