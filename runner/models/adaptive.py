"""What moves a gate's bounds where nobody told them: the policy to `gate.py`'s mechanism.

**Rate.** It starts small and doubles as long as it is used and nothing is refused; the longer calls take, the
slower, as all that is in the air when a limit is reached is refused. The first refusal begins an episode of
congestion: the gate pauses (as long as the server says, else longer each time), and one call tries if that was
enough. When it is let in, the server's window is found: its length is how long it took until there was room
again, its limit what was let in meanwhile. From then on the gate keeps to that window as to one that it was told,
so it is refused nothing more, and tries a little more only after many calls went well: in steps that double,
until they are refused, which costs a call or two, or the new room is found. However many calls are refused within
an episode, there is one change.

**Concurrency.** It doubles as long as all places are used, and is cut to what the server really works on at once
when calls take twice as long as at best and no more of them end in a second.
"""

from __future__ import annotations

import random
import statistics

from runner.models.gate import Gate

START_RATE = 4.0
"""Calls a second to begin with."""
START_IN_FLIGHT = 8
"""Calls at once to begin with."""
MOST_IN_FLIGHT = 2048
"""Calls at once where the job sets no ceiling."""
ROUNDS = 20.0
"""Doubling takes as long as so many calls one after another. About 0.7 / ROUNDS of a window's calls are then in
the air, and refused, when its limit is reached."""
FASTEST, SLOWEST = 0.5, 15.0
"""Seconds that a doubling takes at least and at most."""
HEADROOM = 1.25
"""Calls may come so much faster than a window found by trying allows on average, so that none of it is lost after
a pause. The window itself holds."""
CALM = 200
"""Calls that must go well after a refusal before more is tried. Each try costs a refusal or two: 1 %."""
CALMEST = 3000
"""The same after many tries that found nothing."""
STEP = 0.01
"""The first try of more, as a share; each further one is twice as large."""
LARGEST_STEP = 0.5
MINUTE = 60.0
"""Seconds. Nearly all windows are of this length; longer ones are not looked for."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds of a pause where the server says nothing; each that was too short is followed by a double one."""
CEILING = 3600.0
"""Seconds. A Retry-After beyond is not believed."""
TROUBLE = 10.0
"""Seconds without growth after a server error."""


class Controller:
    """Moves one gate's rate and concurrency. `most`: calls at once that are never exceeded."""

    def __init__(self, gate: Gate, most: int = MOST_IN_FLIGHT) -> None:
        self.gate = gate
        self.most = most
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
        self._best = 0.0
        self._before = 0.0
        self._grown = True
        gate.on_proved = self._recovered
        if gate.limits.known:
            limit = gate.limits.pace()
            ten_seconds = 64.0 if limit is None else 10 * limit[0] / limit[1]
            gate.in_flight = min(most, int(max(64.0, min(ten_seconds, 1024.0))))
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
        if self._congested_at is None:
            self._congested_at = now
        if retry_after is not None and retry_after <= CEILING:
            self.gate.pause(_upwards(retry_after), "429: the server says how long")
        else:
            self.gate.pause(_upwards(self._pause), "429: the server does not say how long")
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

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
        self._set(
            seconds, max(requests, 1.0), max(tokens, 1.0), "429: what was let in within so many seconds"
        )
        near = abs(requests - self._found) <= 0.1 * self._found
        self._calm = min(2 * self._calm, CALMEST) if near else CALM
        self._found, self._step, self._calm_from = requests, STEP, self.gate.begun

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
            self.gate.set_in_flight(min(self.most, max(self.gate.in_flight, 64)), "the limits are known now")
            return
        period = now - self._period_from
        doubling = min(max(ROUNDS * self._seconds, FASTEST), SLOWEST)
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
        if len(this.seconds) < max(gate.in_flight, 4) or now - this.began < self._seconds:
            return
        taken, each, ended = statistics.median(this.seconds), statistics.median(this.relative), this.rate(now)
        full = gate.peak >= gate.in_flight
        self._round, gate.peak = _Round(), gate.flying
        self._best = each if not self._best else min(each, 1.02 * self._best)
        before, self._before = self._before, ended
        if each > 2 * self._best and ended < 1.1 * before:
            fits = int(1.25 * ended * taken * self._best / each) + 1
            if 4 <= fits < gate.in_flight:
                self._grown = False
                why = f"calls take {each / self._best:.1f} times as long as at best, and no more of them end"
                gate.set_in_flight(fits, why)
        elif full and now >= self._trouble_until and each <= 1.5 * self._best and gate.in_flight < self.most:
            grown = 2 * gate.in_flight if self._grown else gate.in_flight + max(1, gate.in_flight // 16)
            gate.set_in_flight(min(grown, self.most), "all places are used and calls take no longer")


class _Round:
    """As many answers as there are places."""

    def __init__(self) -> None:
        self.began = 0.0
        self.seconds: list[float] = []
        self.relative: list[float] = []

    def add(self, now: float, seconds: float, tokens: float) -> None:
        if not self.seconds:
            self.began = now
        self.seconds.append(seconds)
        self.relative.append(seconds / (32 + tokens))

    def rate(self, now: float) -> float:
        """Answers a second."""
        return len(self.seconds) / max(now - self.began, 1e-3)


def _upwards(seconds: float) -> float:
    """A pause with jitter, never shorter: not all who share an account come back in one moment."""
    return seconds + random.uniform(0, min(1.0, 0.02 * seconds + 0.01))
