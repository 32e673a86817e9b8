"""The gate: what a model call must pass. The only place where calls wait.

It bounds calls in flight and requests per minute, and serves the oldest episode first, so that runs end
episodes rather than begin them. Nothing ever queues inside the HTTP client, whose pool is larger.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

import anyio
from aiolimiter import AsyncLimiter


@dataclass(eq=False)
class Ticket:
    """A place in the queue. `priority` is an episode's plan order: smaller goes first. It may be lowered
    while the ticket waits (an older episode came to need the same draw)."""

    priority: int
    granted: anyio.Event = field(default_factory=anyio.Event)
    queued: bool = False
    flying: bool = False


class Gate:
    """Limits of one account and model.

    `in_flight`: calls at once. `requests_per_minute`: never more calls begun in any 60 s (see `limiter`).
    """

    def __init__(self, in_flight: int, requests_per_minute: float | None = None) -> None:
        self.in_flight = in_flight
        self.flying = 0
        self._queue: list[tuple[int, int, Ticket]] = []
        self._order = itertools.count()
        self._limiter = None if requests_per_minute is None else limiter(requests_per_minute)
        self._change = anyio.Event()
        self._shut = False

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len({id(ticket) for _, _, ticket in self._queue if ticket.queued})

    def lend(self, ticket: Ticket, priority: int) -> None:
        """Let a ticket be served as if it belonged to an older episode, now or when it next waits."""
        if priority < ticket.priority:
            ticket.priority = priority
            if ticket.queued:
                heapq.heappush(self._queue, (priority, next(self._order), ticket))

    @asynccontextmanager
    async def passing(self, ticket: Ticket) -> AsyncIterator[float]:
        """Wait for a place, hold it inside the block; yields the seconds waited."""
        began = monotonic()
        ticket.queued, ticket.granted = True, anyio.Event()
        heapq.heappush(self._queue, (ticket.priority, next(self._order), ticket))
        if self._shut:
            self.shut()
        self._changed()
        try:
            await ticket.granted.wait()
            yield monotonic() - began
        finally:
            ticket.queued = False
            if ticket.flying:
                ticket.flying = False
                self.flying -= 1
                self._changed()

    def shut(self) -> None:
        """Let all who wait, and whoever comes, through at once and without a place. They are to find out that
        no call will be made any more: thousands would else be paced through only to hear it."""
        self._shut = True
        for _, _, ticket in self._queue:
            ticket.queued = False
            ticket.granted.set()
        self._queue.clear()

    async def serve(self) -> None:
        """The dispatcher, which paces requests per minute; runs as long as the run does. Without such a
        limit places are granted as they come free and this returns at once."""
        if self._limiter is None:
            return
        while True:
            while self._oldest() is None or self.flying >= self.in_flight:
                self._change = anyio.Event()
                await self._change.wait()
            await self._limiter.acquire()
            self._grant_one()

    def _changed(self) -> None:
        if self._limiter is None:
            while self.flying < self.in_flight and self._grant_one():
                pass
        else:
            self._change.set()

    def _oldest(self) -> Ticket | None:
        while self._queue:
            ticket = self._queue[0][2]
            if ticket.queued:
                return ticket
            heapq.heappop(self._queue)
        return None

    def _grant_one(self) -> bool:
        ticket = self._oldest()
        if ticket is None:
            return False
        heapq.heappop(self._queue)
        self.flying += 1
        ticket.queued, ticket.flying = False, True
        ticket.granted.set()
        return True


def limiter(requests_per_minute: float) -> AsyncLimiter:
    """An aiolimiter bucket that keeps any 60 s window within the limit at about 98.5 % use.

    aiolimiter's bucket starts full, so one of b admits b and the leak of a minute in the first one: together
    they are 99 % of the limit. The rest is for the network: the server counts arrivals, and calls that left
    within 60.6 s may arrive within 60. Below 200 a minute the bucket holds a single request.
    """
    most = 0.99 * requests_per_minute
    if requests_per_minute < 200:
        return AsyncLimiter(1, 60 / most)
    burst = requests_per_minute // 200
    return AsyncLimiter(burst, burst * 60 / (most - burst))
