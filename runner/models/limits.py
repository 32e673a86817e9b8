"""The windows of one account and model: requests and tokens in any minute, requests in any day.

Two things bound each. A `Sliding` log knows what was begun within the window and lets no more than the limit
in, whatever changed meanwhile. A pace spreads it over the window, as many servers look at seconds, too:
aiolimiter for requests, which it counts well, and a `Pace` of our own for tokens, where amounts differ and are
only known in the end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from aiolimiter import AsyncLimiter

from runner.models.base import Counted, Window
from runner.models.sliding import PACED, Entry, Pace, Sliding

REMEMBERED = 150.0
"""Seconds for which it is known what was let through: what limits are found from that nobody tells."""

SURE = 4.0
"""Deviations that are held back for calls in flight, whose real usage nobody knows yet."""

Key: TypeAlias = tuple[Counted, float]
"""What is counted, in how many seconds."""


@dataclass(slots=True, unsafe_hash=True)
class Charge:
    """What a call is expected to use: tokens in and out. Every call is one request."""

    input: float = 0.0
    output: float = 0.0
    input_variance: float = 0.0
    output_variance: float = 0.0
    """How far each may be off, squared."""

    def of(self, counted: Counted) -> float:
        if counted == "requests":
            return 1.0
        if counted == "tokens":
            return self.input + self.output
        return self.input if counted == "input_tokens" else self.output

    def variance_of(self, counted: Counted) -> float:
        if counted == "requests":
            return 0.0
        if counted == "tokens":
            return self.input_variance + self.output_variance
        return self.input_variance if counted == "input_tokens" else self.output_variance


@dataclass(eq=False, slots=True)
class _Bound:
    """One window in force."""

    counted: Counted
    sliding: Sliding
    pace: Pace | None = None


@dataclass(eq=False, slots=True)
class Taken:
    """What a call that was let through is charged with, until its real usage is known."""

    at: float
    charge: Charge
    parts: list[tuple[_Bound, Entry]] = field(default_factory=list)
    void: bool = False
    """It was never sent, or not let in."""
    unknown: bool = True
    """Its real usage is."""


class Limits:
    """All windows of one gate. `job` are the limits that the job sets: no other may exceed them."""

    def __init__(self, job: Mapping[Key, float] | None = None) -> None:
        self.job = dict(job or {})
        self._told: dict[Key, float] = {}
        self._bounds: dict[Key, _Bound] = {}
        self._guess: list[_Bound] = []
        self._rate: Pace | None = None
        self._recent: deque[Taken] = deque()
        self._unknown = Charge()
        """How far the calls in flight may be off, together; only kept where tokens are bounded."""
        self._counts_tokens = False
        for key, limit in self.job.items():
            self._set(key, limit, -math.inf)

    @property
    def known(self) -> bool:
        """Whether any window of a minute or so is known, from the job or the server."""
        return any(seconds <= PACED for _, seconds in self._bounds)

    def known_limits(self) -> dict[Key, float]:
        """What the job or the server says, by what is counted and in how many seconds."""
        return {key: bound.sliding.limit for key, bound in self._bounds.items()}

    @property
    def free(self) -> bool:
        """Whether nothing bounds what is begun."""
        return self._rate is None and not self._bounds and not self._guess

    @property
    def begun(self) -> bool:
        """Whether any call was let through yet."""
        return bool(self._recent)

    def wait(self, now: float, charge: Charge) -> tuple[float, str]:
        """Seconds after which it is worth asking again (0: `charge` may go), and what is waited for."""
        if self.free:
            return 0.0, ""
        longest, why = 0.0 if self._rate is None else self._rate.wait(now), "the rate"
        for bound in self._every():
            variance = self._unknown.variance_of(bound.counted) + charge.variance_of(bound.counted)
            amount = charge.of(bound.counted) + (SURE * math.sqrt(variance) if variance > 0 else 0.0)
            seconds = bound.sliding.wait(now, amount)
            if bound.pace is not None:
                seconds = max(seconds, bound.pace.wait(now))
            if seconds > longest:
                longest, why = seconds, _name(bound)
        return longest, why

    def too_large(self, charge: Charge) -> str:
        """The window that `charge` alone exceeds, in words; empty if there is none."""
        for bound in self._bounds.values():
            amount = charge.of(bound.counted)
            if bound.counted != "requests" and amount > bound.sliding.limit:
                return f"about {amount:.0f} against {_name(bound)}, {bound.sliding.limit:g}"
        return ""

    def take(self, now: float, charge: Charge) -> Taken:
        taken = Taken(now, charge)
        for bound in self._every():
            amount = charge.of(bound.counted)
            taken.parts.append((bound, bound.sliding.add(now, amount)))
            if bound.pace is not None:
                bound.pace.add(now, amount)
        if self._rate is not None:
            self._rate.add(now, 1.0)
        if self._counts_tokens:
            self._doubt(charge, 1)
        self._recent.append(taken)
        while now - self._recent[0].at > REMEMBERED:
            self._recent.popleft()
        return taken

    def sent(self, taken: Taken, now: float) -> None:
        """It left only now: the server will count it from now on, and so do the windows."""
        taken.at = now
        for _, entry in taken.parts:
            entry.at = now

    def settle(self, taken: Taken, charge: Charge, now: float) -> None:
        """The real usage of a call takes the place of what was thought."""
        self.over(taken)
        for bound, entry in taken.parts:
            if bound.counted != "requests":
                self._mend(bound, entry, charge.of(bound.counted), now)
        taken.charge = charge

    def refund(self, taken: Taken, now: float, *, guessed_only: bool = False) -> None:
        """The call was never sent (or, for what was found by trying alone: it was not let in)."""
        taken.void = True
        self.over(taken)
        for bound, entry in taken.parts:
            if not guessed_only or bound in self._guess:
                self._mend(bound, entry, 0.0, now)

    def over(self, taken: Taken) -> None:
        """The call has ended: nothing more will be learnt of it."""
        if taken.unknown:
            taken.unknown = False
            if self._counts_tokens:
                self._doubt(taken.charge, -1)

    def _count_tokens(self) -> None:
        """From now on there is a limit of tokens."""
        if not self._counts_tokens:
            self._counts_tokens = True
            for taken in self._recent:
                if taken.unknown:
                    self._doubt(taken.charge, 1)

    def _doubt(self, charge: Charge, sign: int) -> None:
        if charge.input_variance or charge.output_variance:
            was = self._unknown
            self._unknown = Charge(
                input_variance=max(was.input_variance + sign * charge.input_variance, 0.0),
                output_variance=max(was.output_variance + sign * charge.output_variance, 0.0),
            )

    def _mend(self, bound: _Bound, entry: Entry, amount: float, now: float) -> None:
        if bound.pace is not None:
            bound.pace.mend(entry.amount - amount)
        bound.sliding.mend(entry, amount, now)

    # -- what is told ----------------------------------------------------------------------------------
    def learn(self, now: float, windows: Iterable[Window]) -> Iterator[tuple[str, float | None, float]]:
        """Follow what a server tells; yields each limit that changed: its name, what it was and is."""
        for window in windows:
            if not _positive(window.seconds):
                continue
            key = (window.counted, float(window.seconds))
            if _positive(window.limit) and self._told.get(key) != window.limit:
                assert window.limit is not None
                self._told[key] = window.limit
                limit = min(window.limit, self.job.get(key, math.inf))
                old = self._bounds[key].sliding.limit if key in self._bounds else None
                if old != limit:
                    self._set(key, limit, now)
                    yield _name(self._bounds[key]), old, limit
            bound = self._bounds.get(key)
            remaining = window.remaining
            if bound is None or remaining is None or not _positive(window.reset) or not remaining >= 0:
                continue
            if window.limit is not None and _positive(window.limit):
                assert window.reset is not None
                remaining += bound.sliding.limit - window.limit  # the job's own limit may be smaller
                bound.sliding.told(now, max(remaining, 0.0), window.reset)

    def _set(self, key: Key, limit: float, now: float) -> None:
        counted, seconds = key
        if counted != "requests":
            self._count_tokens()
        bound = self._bounds.get(key)
        if bound is None:
            bound = self._bounds[key] = self._remembering(counted, limit, seconds, now)
        bound.sliding.limit = limit
        if counted != "requests" and seconds <= PACED:
            bound.pace = bound.pace or Pace(limit / seconds, seconds)
            bound.pace.rate = limit / seconds

    def _remembering(self, counted: Counted, limit: float, seconds: float, now: float) -> _Bound:
        """A window that knows what was begun before it was known itself."""
        bound = _Bound(counted, Sliding(limit, seconds))
        for taken in self._recent:
            if now - taken.at < bound.sliding.span and not taken.void:
                taken.parts.append((bound, bound.sliding.add(taken.at, taken.charge.of(counted))))
        return bound

    def pace(self) -> tuple[float, float] | None:
        """The requests window that paces: its limit and seconds."""
        paced = [
            (bound.sliding.limit, bound.sliding.seconds)
            for (counted, seconds), bound in self._bounds.items()
            if counted == "requests" and seconds <= PACED
        ]
        return min(paced, key=lambda pair: pair[0] / pair[1], default=None)

    # -- what is found by trying -----------------------------------------------------------------------
    def let_in(self, after: float, until: float) -> tuple[float, float, float]:
        """Requests and tokens that were let in between two moments of the last minute, and when the first
        of them was."""
        these = [taken for taken in self._recent if after < taken.at <= until and not taken.void]
        first = these[0].at if these else until
        return float(len(these)), sum(taken.charge.of("tokens") for taken in these), first

    def let_in_before(self, moments: Iterable[float], lengths: Iterable[float]) -> list[list[int]]:
        """For each length, in seconds: how many requests were let in so long before each moment."""
        times = sorted(taken.at for taken in self._recent if not taken.void)
        return [
            [bisect_right(times, moment) - bisect_right(times, moment - length) for moment in moments]
            for length in lengths
        ]

    def rate(self, per_second: float | None) -> None:
        """A pace for requests, beside all limits."""
        if per_second is None:
            self._rate = None
        elif self._rate is None:
            self._rate = Pace(per_second)
            self._rate._burst = 0.05
        else:
            self._rate.rate = per_second

    def guess(self, seconds: float, requests: float, tokens: float, now: float) -> None:
        """Windows whose limits were found by trying; they never widen those that are known."""
        self._count_tokens()
        if not self._guess or self._guess[0].sliding.seconds != seconds:
            self._guess = [
                self._remembering("requests", requests, seconds, now),
                self._remembering("tokens", tokens, seconds, now),
            ]
        for bound, limit in zip(self._guess, (requests, tokens), strict=True):
            bound.sliding.limit = limit

    def guess_full(self, now: float, share: float) -> bool:
        """Whether one of the windows found by trying is used to such a share, or has no room for another call
        like the last."""
        last = self._recent[-1].charge if self._recent else Charge()
        return any(
            bound.sliding.used(now)
            > min(share * bound.sliding.limit, bound.sliding.limit - last.of(bound.counted))
            for bound in self._guess
        )

    def forget_guess(self) -> None:
        self._guess = []

    # -- for people ------------------------------------------------------------------------------------
    def use(self, now: float) -> dict[str, tuple[float, float]]:
        """Of each known limit, by name: what is used of it, and the limit."""
        return {
            _name(bound): (bound.sliding.used(now), bound.sliding.limit) for bound in self._bounds.values()
        }

    def _every(self) -> Iterator[_Bound]:
        yield from self._bounds.values()
        yield from self._guess


def limiter(requests: float, seconds: float = 60.0) -> AsyncLimiter:
    """An aiolimiter bucket that keeps any window within its requests at about 98.5 % use.

    aiolimiter's bucket starts full, so one of b admits b and the leak of a window in the first one: together
    they are 99 % of the limit; the rest is for the network (see LATE). Below 200 requests the bucket holds a
    single one.
    """
    most = 0.99 * requests
    if requests < 200:
        return AsyncLimiter(1, seconds / most)
    burst = requests // 200
    return AsyncLimiter(burst, burst * seconds / (most - burst))


def _positive(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf


_SPANS = {1.0: "second", 60.0: "minute", 3600.0: "hour", 86400.0: "day"}


def _name(bound: _Bound) -> str:
    seconds = bound.sliding.seconds
    return f"{bound.counted.replace('_', ' ')} a {_SPANS.get(seconds, f'{seconds:g} s')}"
