"""One window and one pace: what was begun lately, and how evenly."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

LATE = 1.01
"""How much longer than its window a call is counted. The server counts arrivals: calls that left within 60.6 s
may arrive within 60."""
PACED = 600.0
"""Seconds. Longer windows (a day's) are used as fast as the shorter ones allow."""
BURST = 0.01
"""Share of a window that a pace lets through at once after a pause."""
NOISE = 0.02
"""Share of a limit by which a server's own count may differ from ours and still mean the same: it rounds."""


@dataclass(eq=False, slots=True)
class Entry:
    """Something begun at a time; `live` until it leaves its window."""

    at: float
    amount: float
    live: bool = True


class Sliding:
    """What was begun within the last `seconds` (and a little, see LATE): never more than `limit`.

    A request larger than the limit waits until nothing else is in the window, and then goes. In long windows
    neighbours are counted together, so that a day takes no more memory than a minute.
    """

    def __init__(self, limit: float, seconds: float) -> None:
        self.limit = limit
        self.seconds = seconds
        self.span = seconds * LATE
        self._grain = seconds / 5000 if seconds > PACED else 0.0
        self._entries: deque[Entry] = deque()
        self._own = 0.0
        self._others = 0.0
        self._others_until = -math.inf

    def used(self, now: float) -> float:
        """What counts against the limit now, others' use included as far as the server told it."""
        self._expire(now)
        return self._own + self._others

    def wait(self, now: float, amount: float) -> float:
        """Seconds after which it is worth asking again; 0 if `amount` may go now."""
        used = self.used(now)
        if used + amount <= self.limit + 1e-6 or used <= 1e-6:
            return 0.0
        leaves = self._entries[0].at + self.span if self._entries else math.inf
        return max(min(leaves, self._others_until if self._others else math.inf) - now, 1e-6)

    def add(self, now: float, amount: float) -> Entry:
        last = self._entries[-1] if self._entries else None
        entry = Entry(now, amount)
        if last is not None and now - last.at < self._grain:
            last.amount += amount
            entry.live = False  # counted with its neighbour; too long a window to mend it later
        else:
            self._entries.append(entry)
        self._own += amount
        return entry

    def mend(self, entry: Entry, amount: float, now: float) -> None:
        """The real amount of something counted as an estimate. What left the window already and was more
        than thought counts from now on."""
        if entry.live:
            self._own += amount - entry.amount
            entry.amount = amount
        elif not self._grain and amount > entry.amount:
            self.add(now, amount - entry.amount)

    def told(self, now: float, remaining: float, reset: float) -> None:
        """The server's own count: what it has beyond ours is others' use, until it is forgotten."""
        self._expire(now)
        more = self.limit - remaining - self._own
        if remaining <= 0 or more > NOISE * self.limit:
            self._others, self._others_until = max(more, 0.0), now + min(reset, self.span)
        else:
            self._others = 0.0

    def _expire(self, now: float) -> None:
        if self._others and now >= self._others_until:
            self._others = 0.0
        entries = self._entries
        while entries and now - entries[0].at >= self.span:
            entry = entries.popleft()
            entry.live = False
            self._own -= entry.amount
        if not entries:
            self._own = 0.0


class Pace:
    """Amounts at an even rate, with a small burst after a pause. A large amount goes at once and is waited for
    afterwards."""

    def __init__(self, rate: float, seconds: float = 60.0) -> None:
        self.rate = rate
        """Amount a second."""
        self._burst = BURST * seconds
        self._free = -math.inf

    def wait(self, now: float) -> float:
        return max(self._free - now, 0.0)

    def add(self, now: float, amount: float) -> None:
        self._free = max(self._free, now - self._burst) + amount / self.rate

    def mend(self, less: float) -> None:
        """`less` of it than thought was used."""
        self._free -= less / self.rate
