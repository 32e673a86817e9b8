"""What moves a gate's bounds where nobody told them: the policy to `gate.py`'s mechanism.

**Rate.** It starts small and doubles every second or two, as long as it is used and nothing is refused. That takes
no whole replies: servers refuse at once, so what was not refused for a moment was let in. The doubling is as slow as
it is because all that is in the air when a limit is reached is refused. The first refusal begins an episode of
congestion: the gate pauses (as long as the server says, else for longer each time), and one call tries if that was
enough. When it is let in, the server's window is found: its length is how long it took until there was room
again, its limit what was let in meanwhile. From then on the gate keeps to that window as to one that it was told,
and tries for more now and then, in steps that double until one is refused, which costs a call or two, or until
the new room is found. However many calls are refused within an episode, there is one change.

**What trying costs.** Each refusal puts the next try off by CALM calls, so that hardly more than one answer in CALM
is a refusal; and a try comes a sixth of a window after the last one at the soonest, so that new room is found in time.

How many calls may be in flight is `concurrency.py`'s.
"""

from __future__ import annotations

import math
import random
from collections import deque

from runner.models.concurrency import MOST_IN_FLIGHT, START_IN_FLIGHT, Concurrency
from runner.models.gate import Gate
from runner.models.limits import REMEMBERED

START_RATE = 8.0
"""Calls a second to begin with."""
AT_ONCE = 0.05
"""Seconds in which servers refuse, unless their replies come sooner."""
REFUSALS_A_DOUBLING = 40.0
"""A doubling of the rate takes as long as so many refusals one after another, d = 40 r. Of a window's calls,
r ln 2 / d = 1.7 % are in the air, and refused, when its limit is reached: once."""
FASTEST = 1.0
"""Seconds that a doubling takes at least."""
HEADROOM, LEAST_HEADROOM = 2.0, 1.1
"""Calls may come so much faster than a window found by trying allows on average: what it let in came in a bunch.
With each window half of that is given up, so that they spread evenly; a little stays to catch up after pauses."""
TRIES = 1.5
"""The same while more is tried."""
CALM = 80
"""Calls by which each refusal puts off the next try of more: trying costs one answer in so many."""
BETWEEN = 1 / 6
"""Tries are at least this part of a window apart: more room is found, and used, within a third of one."""
CALM_FOR_PAUSE = 5.0
"""And at least so many times as long as the pause that a try cost."""
STEP, LARGEST_STEP = 0.02, 0.5
"""The first step of a try and the largest, as shares of the window. The next one comes when the last is used up."""
FULL = 0.97
"""Share of a window that must be used before more is tried."""
UNSURE = 0.03
"""If there is room again after this part of the time since the first call, or sooner, the window is shorter
than that time: the first calls had left it before the refusal. Then more is tried at once."""
LESS = 0.99
"""What is kept of a window that turned out too large, beside what was refused."""
MINUTE = 60.0
"""Seconds. Nearly all windows are of this length; longer ones are not looked for."""
LENGTHS = (30.0, 15.0, 10.0, 5.0, 2.0, 1.0)
"""Seconds. Shorter windows that there are."""
ALIKE, UNLIKE = 0.02, 0.1
"""Counts at refusals that differ by such a share are taken for the same limit's; that cannot be."""
FIRST_PAUSE, SECOND_PAUSE, LONGEST_PAUSE = 1.0, 5.0, 120.0
"""Seconds of a pause where the server says nothing: these, then until the first call of the last minute is a minute
old, then each twice as long as the one before. Where a window was found, the first one lasts until a call leaves it,
and none is longer than BETWEEN until a whole window has passed: a limit that was lowered is met again within one."""
CEILING = 3600.0
"""Seconds. A Retry-After beyond is not believed."""
TROUBLE = 10.0
"""Seconds without growth after a server error."""


class Controller:
    """Moves one gate's rate and concurrency. `most`: calls at once that are never exceeded."""

    def __init__(self, gate: Gate, most: int = MOST_IN_FLIGHT) -> None:
        self.gate = gate
        gate.most = most
        self.concurrency = Concurrency(gate)
        self.rate: float | None = None
        """Calls a second; None while limits that are known do."""
        self.window: tuple[float, float, float] | None = None
        """What was found by trying: seconds, requests, tokens."""
        self._quickest = AT_ONCE
        self._congested_at: float | None = None
        self._pauses = 0
        self._pause = 0.0
        self._next_try, self._next_try_at = 0, -math.inf
        self._step, self._trying = STEP, False
        self._headroom, self._spread_at = HEADROOM, math.inf
        self._refused_at = -math.inf
        self._longest_pause = 0.0
        self._refusals: deque[float] = deque(maxlen=3)
        self._period_from: float | None = None
        self._period_begun = 0
        self._trouble_until = -math.inf
        gate.on_proved = self._recovered
        if gate.limits.known:
            limit = gate.limits.pace()
            ten_seconds = 64.0 if limit is None else 10 * limit[0] / limit[1]
            gate.in_flight = min(most, int(max(64.0, ten_seconds)))
        else:
            gate.in_flight = min(most, START_IN_FLIGHT)
            self.rate = START_RATE
            gate.limits.rate(self.rate)

    # -- what happens ----------------------------------------------------------------------------------
    def sent(self, now: float) -> None:
        """A call is sent."""
        if self.rate is not None and self._congested_at is None:
            self._grow(now)

    def answered(self, sent: float, tokens: float = 0.0) -> None:
        """A call that was sent at a time was answered with so many tokens."""
        now = self.gate.clock()
        self._quickest = min(self._quickest, now - sent)
        if self._congested_at is None:
            if self.rate is not None and self.window is None and self.gate.limits.known:
                self._told()
            self.concurrency.answered(now, now - sent, tokens, grows=now >= self._trouble_until)

    def refused(self, sent: float, retry_after: float | None) -> None:
        """A rate limit refused a call that was sent at a time."""
        now = self.gate.clock()
        self.gate.patience = min(max(0.2, 4 * (now - sent)), 5.0)
        if self.window is not None:
            self._next_try = max(self._next_try, self.gate.begun) + CALM
        told = retry_after is not None and retry_after <= CEILING
        if self._congested_at is not None and sent < self.gate.paused_until and self.gate.probing:
            if told:  # it was in the air: not a new episode
                self.gate.pause(_upwards(retry_after or 0.0), "429 again: the server says how long")
            return
        self._refused_at = sent
        least = 0.0
        if self._congested_at is None:
            self._congested_at, self._pauses, self._pause = now, 0, 0.0
        else:  # the call that went alone was refused: what the server said was too short
            least = self._longer_pause(now)
        if told:
            self.gate.pause(_upwards(max(retry_after or 0.0, least)), "429: the server says how long")
        else:
            least = least or self._longer_pause(now)
            self.gate.pause(_upwards(least), "429: the server does not say how long")

    def troubled(self) -> None:
        """The server failed (5xx): nothing grows for a while."""
        self._trouble_until = self.gate.clock() + TROUBLE
        self._step, self._trying = STEP, False

    # -- congestion ------------------------------------------------------------------------------------
    def _longer_pause(self, now: float) -> float:
        """The next of an episode's pauses, where the server says nothing or too little."""
        self._pauses += 1
        seconds = MINUTE if self.window is None else self.window[0]
        left = self.gate.limits.let_in(now - seconds, now)[2] + seconds - now
        if self._pauses == 1:
            self._pause = FIRST_PAUSE if self.window is None else max(FIRST_PAUSE, left)
        elif self._pauses == 2:
            self._pause = SECOND_PAUSE
        elif self.window is None:
            self._pause = max(2 * self._pause, left)
        elif self._congested_at is not None and now - self._congested_at < seconds:  # the limit was lowered
            self._pause = min(2 * self._pause, max(BETWEEN * seconds, FIRST_PAUSE))
        else:
            self._pause *= 2
        self._pause = min(self._pause, LONGEST_PAUSE)
        return self._pause

    def _recovered(self, sent: float) -> None:
        """The first call after a congestion was let in: what does the server allow?"""
        began, self._congested_at = self._congested_at, None
        now = self.gate.clock()
        self._period_from = None
        if began is None:
            return
        let_in = self.gate.limits.let_in
        seconds, unsure, calm = MINUTE if self.window is None else self.window[0], False, 0.0
        if self.window is None or self._refused_at - began > seconds:  # it is longer than was thought
            first = let_in(sent - MINUTE, began)[2]
            seconds = min(max(sent - first, 1.0), MINUTE)
            unsure = sent - began < UNSURE * seconds
        if self._refused_at < began:  # by the first refusal, not by those of calls that went alone
            self._refusals.append(self._refused_at)
            self._longest_pause = max(self._longest_pause, sent - began)
            seconds = self._length(seconds)
        requests, tokens, _ = let_in(self._refused_at - seconds, self._refused_at)
        if requests < 2:  # it let nothing in for as long as is remembered: that says nothing of its limits
            self._restart("429: nothing was let in, and now is")
            return
        if not self._trying:  # found for the first time, or lowered: what was let in came in a bunch
            self._headroom, self._spread_at = HEADROOM, now + seconds
        if self.window is not None:  # one too many by our count: theirs may be a little ahead of ours
            requests, tokens = math.ceil(LESS * requests), LESS * tokens
            calm = CALM_FOR_PAUSE * (sent - began)
        self._step, self._trying = STEP, False
        self._set(
            seconds, max(requests, 1.0), max(tokens, 1.0), "429: what was let in within so many seconds"
        )
        if unsure:
            self._next_try, self._next_try_at = self.gate.begun, now
        else:
            self._next_try = max(self._next_try, self.gate.begun + CALM)
            self._next_try_at = now + max(BETWEEN * seconds, calm)

    def _length(self, seconds: float) -> float:
        """A window's length, as the last refusals tell it: each came when as many calls had been let in within it,
        and there was room again before it was over. `seconds` if they do not tell better: where calls come evenly,
        all lengths fit."""
        moments = [at for at in self._refusals if at - seconds > self.gate.clock() - REMEMBERED]
        if len(moments) < 2:
            return seconds
        lengths = (seconds, *(each for each in LENGTHS if self._longest_pause < each < seconds))
        counts = self.gate.limits.let_in_before(moments, lengths)
        spread = [1 - min(each) / max(*each, 1) for each in counts]
        if spread[0] <= UNLIKE:
            return seconds
        return next((each for each, how in zip(lengths, spread, strict=True) if how <= ALIKE), seconds)

    def _restart(self, why: str) -> None:
        self.window, self._next_try = None, self.gate.begun
        self.gate.limits.forget_guess()
        self.gate.note("rate", self.rate, START_RATE, why)
        self.rate = START_RATE
        self.gate.limits.rate(self.rate)

    # -- growth ----------------------------------------------------------------------------------------
    def _told(self) -> None:
        """The server has told its limits: no need to try."""
        why = "the limits are known now"
        self.gate.note("rate", self.rate, None, why)
        self.rate = None
        self.gate.limits.rate(None)
        self.gate.set_in_flight(min(self.gate.most, max(self.gate.in_flight, 64)), why)

    def _grow(self, now: float) -> None:
        """If all that is allowed is used, allow more: four times in each doubling, or a step of a try."""
        assert self.rate is not None
        if self._period_from is None:
            self._period_from, self._period_begun = now, self.gate.begun
            return
        if now < self._trouble_until:
            return
        if self.window is None:
            period = now - self._period_from
            if period < max(REFUSALS_A_DOUBLING * self._quickest, FASTEST) / 4:
                return
            used = (self.gate.begun - self._period_begun) / period
            self._period_from, self._period_begun = now, self.gate.begun
            if used >= 0.7 * self.rate:
                self.gate.note("rate", self.rate, self.rate * 2**0.25, "all went well and it was used")
                self.rate *= 2**0.25
                self.gate.limits.rate(self.rate)
            return
        seconds, requests, tokens = self.window
        if now >= self._spread_at:
            self._headroom = max(1 + (self._headroom - 1) / 2, LEAST_HEADROOM)
            self._spread_at = now + seconds
            self._set(seconds, requests, tokens, "calls spread over the window")
        calm = now >= self._next_try_at and self.gate.begun >= self._next_try
        if calm and self.gate.limits.guess_full(now, FULL):
            more = 1 + self._step
            self._step, self._trying = min(2 * self._step, LARGEST_STEP), True
            self._set(seconds, requests * more, tokens * more, "all went well for long: a little more")

    def _set(self, seconds: float, requests: float, tokens: float, why: str) -> None:
        """Keep to a window that was found by trying."""
        old = None if self.window is None else self.window[1] / self.window[0] * MINUTE
        self.window = (seconds, requests, tokens)
        self.rate = max(self._headroom, TRIES if self._trying else 0.0) * requests / seconds
        if old is None or requests / seconds * MINUTE != old:
            self.gate.note("requests a minute", old, round(requests / seconds * MINUTE, 3), why)
        self.gate.limits.guess(seconds, requests, tokens, self.gate.clock())
        self.gate.limits.rate(self.rate)


def _upwards(seconds: float) -> float:
    """A pause with jitter, never shorter: not all who share an account come back in one moment."""
    return seconds + random.uniform(0, min(1.0, 0.02 * seconds + 0.01))
