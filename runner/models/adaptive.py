"""What moves a gate's bounds where nobody told them: the policy to `gate.py`'s mechanism.

**Rate.** It starts small and doubles as long as it is used and nothing is refused; the longer calls take, the
slower, as all that is in the air when a limit is reached is refused. The first refusal begins an episode of
congestion: the gate pauses (as long as the server says, else longer each time), and one call tries if that was
enough. When it is let in, the server's window is found: its length is how long it took until there was room
again, its limit what was let in meanwhile. From then on the gate keeps to that window as to one that it was told,
so it is refused nothing more, and tries a little more only after many calls went well: in steps that double,
until they are refused, which costs a call or two, or the new room is found. However many calls are refused within
an episode, there is one change.

**Concurrency.** It doubles as long as all places are used. If calls take longer for it and hardly more of them end
in a second, it goes back and waits before it tries again; if they take much longer, it is halved.
"""

from __future__ import annotations

import random
import statistics

from runner.models.gate import Gate

START_RATE = 4.0
"""Calls a second to begin with."""
START_IN_FLIGHT = 8
"""Calls at once to begin with."""
MOST_IN_FLIGHT = 4096
"""Calls at once where the job sets no ceiling."""
ROUNDS, ROUNDS_OF_REFUSALS = 8.0, 20.0
"""Doubling takes as long as so many calls one after another. If r is the time until a refusal is heard and d that
of a doubling, 0.7 r / d of a window's calls are in the air, and refused, when its limit is reached: so d is at
least 20 r, where r is no longer than a call and hardly ever longer than AT_ONCE."""
AT_ONCE = 0.05
"""Seconds in which servers refuse."""
FASTEST, SLOWEST = 0.5, 15.0
"""Seconds that a doubling takes at least and at most."""
HEADROOM = 1.25
"""Calls may come so much faster than a window found by trying allows on average, so that none of it is lost after
a pause. The window itself holds."""
CALM = 150
"""Calls that must go well after a refusal before more is tried. Each try costs a refusal or two: 1 %."""
CALMEST = 1200
"""The same after many tries that found nothing."""
CALM_FOR_PAUSE = 5.0
"""Calm lasts at least so many times as long as the pause that a try cost."""
STEP = 0.01
"""The first try of more, as a share; each further one is twice as large."""
LARGEST_STEP = 0.5
LESS = 0.99
"""What is kept of a window that turned out too large, beside what was refused."""
MINUTE = 60.0
"""Seconds. Nearly all windows are of this length; longer ones are not looked for."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds of a pause where the server says nothing; each that was too short is followed by a double one."""
CEILING = 3600.0
"""Seconds. A Retry-After beyond is not believed."""
LONGER, MUCH_LONGER = 1.5, 3.0
"""A call that takes so many times as long as at best: more at once must have been worth it; fewer at once."""
WORTH = 0.25
"""Share of further places that must show as further answers a second, where calls take longer for them."""
FORGET = 2 ** (1 / 600)
"""How much longer calls may be at best, a second later: prompts grow as episodes do."""
TROUBLE = 10.0
"""Seconds without growth after a server error."""


class Controller:
    """Moves one gate's rate and concurrency. `most`: calls at once that are never exceeded."""

    def __init__(self, gate: Gate, most: int = MOST_IN_FLIGHT) -> None:
        self.gate = gate
        gate.most = most
        self.rate: float | None = None
        """Calls a second; None while limits that are known do."""
        self.window: tuple[float, float, float] | None = None
        """What was found by trying: seconds, requests, tokens."""
        self._seconds = 0.0
        """How long a call takes, a fading mean."""
        self._congested_at: float | None = None
        self._pause = FIRST_PAUSE
        self._calm = CALM
        self._calm_from = 0
        self._found = 0.0
        self._step = STEP
        self._period_from = 0.0
        self._period_begun = 0
        self._trouble_until = 0.0
        self._round = _Round()
        self._best, self._best_at = 0.0, 0.0
        self._settling = False
        self._grown_from: tuple[int, float] | None = None
        self._careful = False
        self._wait, self._wait_until = 15.0, 0.0
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
    def answered(self, sent: float, tokens: float = 0.0) -> None:
        """A call that was sent at a time was answered with so many tokens."""
        now = self.gate.clock()
        seconds = now - sent
        self._seconds = seconds if not self._seconds else 0.9 * self._seconds + 0.1 * seconds
        if self._congested_at is None:
            self._grow(now)
            self._concurrency(now, seconds, tokens)

    def refused(self, sent: float, retry_after: float | None) -> None:
        """A rate limit refused a call that was sent at a time."""
        now = self.gate.clock()
        self.gate.patience = min(max(0.5, 3 * (now - sent)), 5.0)
        if self._congested_at is not None and sent < self.gate.paused_until and self.gate.probing:
            if retry_after is not None and retry_after <= CEILING:  # it was in the air: not a new episode
                self.gate.pause(_upwards(retry_after), "429 again: the server says how long")
            return
        least = 0.0
        if self._congested_at is None:
            self._congested_at = now
        else:  # the call that went alone was refused: what the server said was too short
            least, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        if retry_after is not None and retry_after <= CEILING:
            self.gate.pause(_upwards(max(retry_after, least)), "429: the server says how long")
        else:
            self.gate.pause(_upwards(max(FIRST_PAUSE, least)), "429: the server does not say how long")

    def troubled(self) -> None:
        """The server failed (5xx): nothing grows for a while."""
        self._trouble_until = self.gate.clock() + TROUBLE
        self._step = STEP

    # -- rate ------------------------------------------------------------------------------------------
    def _recovered(self, sent: float) -> None:
        """The first call after a congestion was let in: what does the server allow?"""
        began, self._congested_at = self._congested_at, None
        now = self.gate.clock()
        self._pause = FIRST_PAUSE
        self._period_from, self._period_begun = now, self.gate.begun
        if began is None:
            return
        let_in = self.gate.limits.let_in
        seconds = MINUTE if self.window is None else self.window[0]
        if self.window is None or sent - began > seconds:
            first = let_in(sent - MINUTE, began)[2]
            seconds = min(max(sent - first, 1.0), MINUTE)
        requests, tokens, _ = let_in(sent - seconds, sent)
        if sent - began > 0.9 * seconds:  # all had left the window: only what was in it at the refusal tells
            requests, tokens, _ = let_in(began - seconds, began)
        if requests < 2:  # it let nothing in for as long as is remembered: that says nothing of its limits
            self._restart("429: nothing was let in, and now is")
            return
        if self.window is not None:  # one too many by our count: theirs may be a little ahead of ours
            requests, tokens = LESS * requests, LESS * tokens
        self._set(
            seconds, max(requests, 1.0), max(tokens, 1.0), "429: what was let in within so many seconds"
        )
        near = abs(requests - self._found) <= 0.1 * self._found
        self._calm = min(2 * self._calm, CALMEST) if near else CALM
        self._calm = max(self._calm, int(CALM_FOR_PAUSE * (sent - began) * requests / seconds))
        self._found, self._step, self._calm_from = requests, STEP, self.gate.begun

    def _restart(self, why: str) -> None:
        self.window, self._found, self._calm = None, 0.0, CALM
        self.gate.limits.forget_guess()
        self.gate.note("rate", self.rate, START_RATE, why)
        self.rate = START_RATE
        self.gate.limits.rate(self.rate)

    def _set(self, seconds: float, requests: float, tokens: float, why: str) -> None:
        old = None if self.window is None else self.window[1] / self.window[0] * MINUTE
        self.window = (seconds, requests, tokens)
        self.rate = HEADROOM * requests / seconds
        self.gate.note("requests a minute", old, round(requests / seconds * MINUTE, 3), why)
        self.gate.limits.guess(seconds, requests, tokens, self.gate.clock())
        self.gate.limits.rate(self.rate)

    def _grow(self, now: float) -> None:
        if self.rate is None:
            return
        if self.window is None and self.gate.limits.known:  # the server has told: no need to try
            self.gate.note("rate", self.rate, None, "the limits are known now")
            self.rate = None
            self.gate.limits.rate(None)
            self.gate.set_in_flight(
                min(self.gate.most, max(self.gate.in_flight, 64)), "the limits are known now"
            )
            return
        period = now - self._period_from
        heard = ROUNDS_OF_REFUSALS * min(self._seconds, AT_ONCE)
        doubling = min(max(ROUNDS * self._seconds, heard, FASTEST), SLOWEST)
        if period < (doubling / 4 if self.window is None else max(self.window[0] / 20, 0.25)):
            return
        used = (self.gate.begun - self._period_begun) / period
        first = not self._period_from
        self._period_from, self._period_begun = now, self.gate.begun
        if first or now < self._trouble_until:
            return
        if self.window is None:
            if used >= 0.7 * self.rate:
                self.gate.note("rate", self.rate, self.rate * 2**0.25, "all went well and it was used")
                self.rate *= 2**0.25
                self.gate.limits.rate(self.rate)
            return
        seconds, requests, tokens = self.window
        if self.gate.begun - self._calm_from >= self._calm and used >= 0.8 * requests / seconds:
            more = 1 + self._step
            self._step = min(2 * self._step, LARGEST_STEP)
            self._set(seconds, requests * more, tokens * more, "all went well for long: a little more")

    # -- concurrency -----------------------------------------------------------------------------------
    def _concurrency(self, now: float, seconds: float, tokens: float) -> None:
        this, gate = self._round, self.gate
        this.add(now, seconds, tokens)
        if len(this.relative) < max(gate.in_flight, 4) or now - this.began < self._seconds:
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
        if self._grown_from is not None:
            old, before = self._grown_from
            self._grown_from = None
            if longer > LONGER and ended / before - 1 < WORTH * (gate.in_flight / old - 1):
                self._wait, self._careful = min(2 * self._wait, 1800.0), True
                self._in_flight(
                    now, old, f"calls took {longer:.1f} times as long as at best for no more a second"
                )
                return
        if longer > MUCH_LONGER and gate.in_flight > START_IN_FLIGHT and now >= self._wait_until:
            self._best, self._careful = took, True  # if it is no better with fewer, that is how it is now
            fewer = max(int(gate.in_flight / 2), START_IN_FLIGHT)
            self._in_flight(now, fewer, f"calls take {longer:.1f} times as long as at best")
        elif full and now >= max(self._wait_until, self._trouble_until) and gate.in_flight < gate.most:
            more = gate.in_flight + max(1, gate.in_flight // 4) if self._careful else 2 * gate.in_flight
            old = gate.in_flight
            self._in_flight(now, min(more, gate.most), "all places were used and calls went well")
            self._grown_from, self._wait_until = (old, ended), now

    def _in_flight(self, now: float, most: int, why: str) -> None:
        self._settling, self._wait_until = True, now + self._wait
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


def _upwards(seconds: float) -> float:
    """A pause with jitter, never shorter: not all who share an account come back in one moment."""
    return seconds + random.uniform(0, min(1.0, 0.02 * seconds + 0.01))
