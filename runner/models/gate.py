"""The gate of one account and model: what a model call must pass. The only place where calls wait.

It bounds calls in flight, and requests and tokens in all known windows (`limits.py`), and takes the oldest
episode's calls first (`queue.py`), so that runs end episodes rather than begin them. Nothing ever queues inside
the HTTP client, whose pool is larger. The gate is mechanism only; what moves its bounds where no limit is known
is `adaptive.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import time

import anyio
from aiolimiter import AsyncLimiter

from runner.models.base import Window
from runner.models.limits import Charge, Key, Limits, limiter
from runner.models.queue import Passing, Queue, Ticket

TICK = 1e-4
"""Seconds. Shorter waits are rounded up: timers are no finer, and paces catch up."""
PATIENCE = 1.0
"""Seconds. Refusals come at once: a call that was sent alone after a pause and has heard nothing for so long was
let in."""
KEPT = 2000
"""Changes of limits that are remembered; the newest."""

__all__ = ["Change", "Gate", "Queue", "Ticket"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a bound: when (epoch seconds), of what, from what to what, and why."""

    time: float
    what: str
    old: float | None
    new: float | None
    why: str
    endpoint: str = ""

    def as_dict(self) -> dict[str, object]:
        return {
            "time": round(self.time, 3),
            "what": self.what,
            "from": self.old,
            "to": self.new,
            "why": self.why,
            "endpoint": self.endpoint,
        }


class Gate:
    """Limits of one account and model.

    `in_flight`: calls at once. `requests_per_minute`: never more calls begun in any 60 s; `limits` sets further
    windows. `queue` may be shared with other gates, of which each takes its part according to `weight`.
    """

    def __init__(
        self,
        in_flight: int,
        requests_per_minute: float | None = None,
        *,
        limits: Mapping[Key, float] | None = None,
        queue: Queue | None = None,
        weight: float = 1.0,
        name: str = "",
    ) -> None:
        self.in_flight = self.most = in_flight
        """Calls at once, now and at most."""
        self.flying = 0
        self.peak = 0
        """Most calls in flight at once since somebody last set this to 0."""
        self.weight = weight
        self.name = name
        self.queue = queue or Queue()
        self.queue.gates.append(self)
        given = dict(limits or {})
        if requests_per_minute is not None:
            given[("requests", 60.0)] = requests_per_minute
        self.limits = Limits(given)
        self.changes: deque[Change] = deque(maxlen=KEPT)
        self.paused_until = -math.inf
        self.waits_for = ""
        """What the oldest call waits for at this gate, in words; empty if for nothing but a place."""
        self.on_warning: Callable[[str], None] = logging.getLogger("overnight").warning
        self.on_parked: Callable[[float, str], None] | None = None
        """Told when the next call, and so all, would wait for longer than an hour for a window."""
        self.widest = 0
        """Most calls in flight at once that there ever were."""
        self.begun = 0
        """Calls let through so far."""
        self.patience = PATIENCE
        self.on_proved: Callable[[float], None] | None = None
        """Told when the first call after a pause was let in, and when that had been sent."""
        self._probing = False
        self._patience: float | None = None
        self._probe: Ticket | None = None
        self._probe_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._pace = self.limits.pace()
        self._limiter: AsyncLimiter | None = None
        self._permit = False
        self._wanted = anyio.Event()
        self._acquiring: anyio.CancelScope | None = None
        self._warned: set[str] = set()

    # -- for callers -----------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return self.queue.waiting

    @property
    def clock(self) -> Callable[[], float]:
        return self.queue.clock

    def lend(self, ticket: Ticket, priority: int) -> None:
        """See `Queue.lend`."""
        self.queue.lend(ticket, priority)

    def passing(self, ticket: Ticket, charge: Charge | None = None) -> Passing:
        """See `Queue.passing`."""
        return self.queue.passing(ticket, charge)

    def shut(self) -> None:
        """See `Queue.shut`."""
        self.queue.shut()

    def sent(self, ticket: Ticket, now: float) -> None:
        """The call leaves now: a busy event loop may have kept it since it was let through."""
        if ticket.taken is not None:
            self.limits.sent(ticket.taken, now)

    def settle(self, ticket: Ticket, charge: Charge) -> None:
        """What the call really used takes the place of what was thought."""
        if ticket.taken is not None:
            self.limits.settle(ticket.taken, charge, self.clock())
            self.pump()

    def refund(self, ticket: Ticket, *, refused: bool = False) -> None:
        """The call was never sent. With `refused`: it was, but the server did not let it in; that counts in
        the windows that are known, not in those found by trying."""
        if ticket.taken is not None:
            self.limits.refund(ticket.taken, self.clock(), guessed_only=refused)

    def release(self, ticket: Ticket) -> None:
        """The place is free again."""
        ticket.flying = False
        self.flying -= 1
        if ticket.taken is not None:
            self.limits.over(ticket.taken)
        if self._probe is ticket:
            self._probe = None
        self.pump()

    # -- what moves its bounds -------------------------------------------------------------------------
    def note(self, what: str, old: float | None, new: float | None, why: str) -> None:
        """Keep a change and its reason."""
        self.changes.append(Change(time(), what, old, new, why, self.name))

    def cap(self, most: int, why: str) -> None:
        """Never have more than `most` in flight."""
        self.most = most
        self.set_in_flight(min(self.in_flight, most), why)

    def set_in_flight(self, most: int, why: str) -> None:
        if most != self.in_flight:
            self.note("in_flight", self.in_flight, most, why)
            self.in_flight = most
            self.pump()

    def learn(self, windows: Iterable[Window], why: str = "told by the server") -> None:
        """Follow limits that a reply's headers tell. The job's own are never exceeded."""
        if not windows:
            return
        for what, old, new in self.limits.learn(self.clock(), windows):
            self.note(what, old, new, why)
        pace = self.limits.pace()
        if pace != self._pace:
            self._pace, self._limiter = pace, None
            if self._acquiring is not None:
                self._acquiring.cancel()
        self.pump()

    def pause(self, seconds: float, why: str, patience: float | None = None) -> None:
        """Let nobody through for some time, and then one call alone, until `proved`. `patience`: after how long
        it counts as let in if it hears nothing; unset: as refusals come at once, soon."""
        now = self.clock()
        until = now + seconds
        if until > self.paused_until:
            self.note("pause", None, round(seconds, 3), why)
            self.paused_until = until
        self._probing, self._patience = True, patience
        self.waits_for = why
        self.pump()

    @property
    def probing(self) -> bool:
        """Whether one call goes alone to find out if the others may."""
        return self._probing

    def proved(self, sent: float) -> None:
        """A call that was sent at a time was let in. If that was after a pause, the others may go, too."""
        if self._probing and sent >= self.paused_until:
            self._probing, self._probe = False, None
            if self.on_proved is not None:
                self.on_proved(sent)
            self.pump()

    # -- the dispatcher --------------------------------------------------------------------------------
    async def serve(self) -> None:
        """The dispatcher, which paces requests per minute; runs as long as the run does. Without such a
        limit places are granted as they come free."""
        while True:
            if self._pace is None or self._permit:
                self._wanted = anyio.Event()
                await self._wanted.wait()
                continue
            if self._limiter is None:
                self._limiter = limiter(*self._pace)
                if self.limits.begun:  # a limit that changed half-way begins without a burst
                    await self._limiter.acquire(self._limiter.max_rate)
            current = self._limiter
            with anyio.CancelScope() as self._acquiring:
                await current.acquire()
            self._acquiring = None
            if current is self._limiter:
                self._permit = True
                self.pump()

    def pump(self) -> None:
        """Let through whom there is room for, the oldest first. Where time must pass, a timer asks again."""
        while self.queue.waiting and self.pass_one():
            pass

    def pass_one(self) -> bool:
        """Let the oldest call through, if there is room for it; whether it went."""
        ticket = self.queue.oldest()
        if ticket is None or self.flying >= self.in_flight:
            return False
        if self._probing and self._probe is not None:
            patience = self.patience if self._patience is None else self._patience
            patience += self._probe_at - self.clock()
            if patience > 0:
                self._later(patience, "one call that tries if the pause was enough")
                return False
            if self._probe_at >= self.paused_until:
                self.proved(self._probe_at)
                return False  # `proved` went on already
            self._probe = None  # sent before the pause was made longer: it tells nothing, another one tries
        seconds, why = self._wait(ticket.charge)
        if seconds > 0:
            self._later(seconds, why)
            return False
        if self._pace is not None and not self._permit:
            self._wanted.set()
            return False
        self.grant(self.queue.take())
        return True

    def _wait(self, charge: Charge) -> tuple[float, str]:
        if self.paused_until == -math.inf and self.limits.free:
            return 0.0, ""
        now = self.clock()
        if now < self.paused_until:
            return self.paused_until - now, self.waits_for
        return self.limits.wait(now, charge)

    def _later(self, seconds: float, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.waits_for = why
        self._timer = asyncio.get_running_loop().call_later(max(seconds, TICK), self._timed)
        if (
            self.on_parked is not None
            and seconds > 3600
            and not self.flying
            and self.clock() >= self.paused_until
        ):
            self.on_parked(seconds, why)

    def _timed(self) -> None:
        self._timer = None
        self.pump()

    @property
    def open(self) -> bool:
        """Whether any call may go at once: there is a place, and nothing is counted that could stand in its way."""
        return (
            self.flying < self.in_flight
            and self._pace is None
            and not self._probing
            and self.paused_until == -math.inf
            and self.limits.free
        )

    def grant(self, ticket: Ticket) -> None:
        """Let a call through."""
        if self._permit:
            self._permit = False
            self._wanted.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        large = "" if self.limits.free else self.limits.too_large(ticket.charge)
        if large and large not in self._warned:
            self._warned.add(large)
            self.on_warning(f"{self.name or 'gate'}: a call larger than a whole window goes alone: {large}")
        self.waits_for = ""
        self.flying += 1
        if self.flying > self.peak:
            self.peak = self.flying
            self.widest = max(self.widest, self.flying)
        ticket.flying, ticket.gate = True, self
        ticket.taken = self.limits.take(self.clock(), ticket.charge)
        self.begun += 1
        if self._probing:
            self._probe, self._probe_at = ticket, self.clock()
        ticket.grant()
