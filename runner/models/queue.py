"""The queue before one or more gates: the oldest episode's calls first, whichever gate they pass."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from runner.models.limits import Charge, Taken

if TYPE_CHECKING:
    from runner.models.gate import Gate


NOTHING = Charge()


class Clock:
    """The event loop's clock. (anyio's needs a task, and timers have none.)"""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: Callable[[], float] | None = None

    def __call__(self) -> float:
        read = self._read
        if read is None:
            loop = asyncio.get_running_loop()
            # uvloop's own is that of the turn's beginning, in milliseconds: a call could leave before it came
            read = self._read = monotonic if type(loop).__module__.startswith("uvloop") else loop.time
        return read()


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in the queue. `priority` is an episode's plan order: smaller goes first. It may be lowered
    while the ticket waits (an older episode came to need the same draw)."""

    priority: int
    granted: asyncio.Event | None = None
    """Set when it is let through; only there while somebody waits for it."""
    queued: bool = False
    flying: bool = False
    charge: Charge = NOTHING
    gate: Gate | None = None
    """The gate that let it through last; None if nobody will make the call."""
    taken: Taken | None = None
    """What it was charged with at that gate."""

    def grant(self) -> None:
        """It need not wait any longer."""
        if self.granted is not None:
            self.granted.set()


class Queue:
    """Who waits, in order of age; equals in order of arrival. `gates` take from it as they have room."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or Clock()
        self.waiting = 0
        """Calls in the queue."""
        self.gates: list[Gate] = []
        self._heap: list[tuple[int, int, Ticket]] = []
        self._order = itertools.count()
        self._shut = False

    def lend(self, ticket: Ticket, priority: int) -> None:
        """Let a ticket be served as if it belonged to an older episode, now or when it next waits."""
        if priority < ticket.priority:
            ticket.priority = priority
            if ticket.queued:
                heapq.heappush(self._heap, (priority, next(self._order), ticket))
                if self.oldest() is ticket:
                    self.pump()

    def passing(self, ticket: Ticket, charge: Charge | None = None) -> Passing:
        """Wait for a place at a gate, hold it inside the block; yields the seconds waited. `ticket.gate` tells
        which gate it is, and None that the queue was shut."""
        return Passing(self, ticket, charge or NOTHING)

    async def wait(self, ticket: Ticket) -> float:
        """Until one who stands in the queue is let through; returns the seconds that took. Leaves the queue if it is
        cancelled."""
        began = self.clock()
        ticket.granted = asyncio.Event()
        try:
            await ticket.granted.wait()
        except BaseException:
            self.leave(ticket, entered=False)
            raise
        finally:
            ticket.granted = None
        return self.clock() - began

    def enter(self, ticket: Ticket, charge: Charge) -> None:
        """Stand in the queue, and go at once where there is room."""
        ticket.charge = charge
        ticket.gate = None
        if not self.waiting and len(self.gates) == 1 and not self._shut and self.gates[0].open:
            self.gates[0].grant(ticket)
            return
        ticket.queued = True
        self.waiting += 1
        heapq.heappush(self._heap, (ticket.priority, next(self._order), ticket))
        if self._shut:
            self.shut()
        elif self.oldest() is ticket:
            self.pump()

    def leave(self, ticket: Ticket, entered: bool) -> None:
        if ticket.queued:
            first = self.oldest() is ticket
            self._unqueue(ticket)
            if first:
                self.pump()
        elif ticket.flying and ticket.gate is not None:
            if not entered:
                ticket.gate.refund(ticket)
            ticket.gate.release(ticket)

    def _unqueue(self, ticket: Ticket) -> None:
        ticket.queued = False
        self.waiting -= 1

    def oldest(self) -> Ticket | None:
        """Who goes next."""
        while self._heap:
            ticket = self._heap[0][2]
            if ticket.queued:
                return ticket
            heapq.heappop(self._heap)
        return None

    def take(self) -> Ticket:
        """The oldest leaves the queue: a gate lets it through."""
        ticket = heapq.heappop(self._heap)[2]
        self._unqueue(ticket)
        return ticket

    def pump(self) -> None:
        """Let through whom the gates have room for, the least loaded gate first."""
        if len(self.gates) == 1:
            self.gates[0].pump()
            return
        while self.waiting:
            gates = sorted(self.gates, key=lambda gate: (gate.flying + 1) / gate.weight)
            if not any(gate.pass_one() for gate in gates):
                return

    def shut(self) -> None:
        """Let all who wait, and whoever comes, through at once and without a place. They are to find out that
        no call will be made any more: thousands would else be paced through only to hear it."""
        self._shut = True
        for _, _, ticket in self._heap:
            if ticket.queued:
                self._unqueue(ticket)
                ticket.grant()
        self._heap.clear()


class Passing:
    """One passage of a ticket through a gate: the block in which it holds its place."""

    __slots__ = ("_charge", "_queue", "_ticket")

    def __init__(self, queue: Queue, ticket: Ticket, charge: Charge) -> None:
        self._queue, self._ticket, self._charge = queue, ticket, charge

    async def __aenter__(self) -> float:
        queue, ticket = self._queue, self._ticket
        queue.enter(ticket, self._charge)
        return await queue.wait(ticket) if ticket.queued else 0.0

    async def __aexit__(self, *_: object) -> None:
        self._queue.leave(self._ticket, entered=True)
