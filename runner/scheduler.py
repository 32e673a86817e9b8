"""Admits episodes as places come free, oldest first, and drains in order when told to stop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from time import monotonic

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from runner.job import Planned

Solve = Callable[[Planned], Awaitable[None]]

BATCH = 64
"""Most episodes that are read from the plan at a time, in a thread: the data may be a slow disk or a pipe."""
BATCH_SECONDS = 0.02
"""A batch that took longer than this is followed by one of a single episode, a faster one by twice as many."""


class Scheduler:
    """Runs planned episodes, `max_episodes` at a time, reading the plan as it goes, off the event loop.

    `solve` must keep an episode's own failure to itself; what it raises ends the run. If the plan itself
    fails (a bad row far down in the data), the episodes before it end normally, then the error is raised.
    """

    def __init__(self, max_episodes: int, solve: Solve) -> None:
        self.max_episodes = max_episodes
        self.solve = solve
        self.in_flight = 0
        """Episodes that were handed out and have not ended."""
        self.draining = False
        self.begun = asyncio.Event()
        """Set when the first episode was read."""
        self.moved: Callable[[], None] = lambda: None
        """Told when `in_flight` or `full` has changed."""
        self._fed = False
        self._workers = 0
        self._idle: list[asyncio.Future[Planned | None]] = []
        """Workers that wait for an episode."""
        self._ready: deque[Planned] = deque()
        """Episodes that were read and wait for a worker."""
        self._taken = asyncio.Event()
        """Set when none of those is left."""
        self._batch = 1
        self._feeding = anyio.CancelScope()
        self._plan_error: Exception | None = None

    @property
    def full(self) -> bool:
        """Whether no episode begins before another one ends: all places are taken, or the plan is at its end."""
        return self._fed or self.in_flight >= self.max_episodes

    async def run(self, plan: Iterator[Planned]) -> None:
        """Until the plan is exhausted, or drained: then until those in flight have ended."""
        async with anyio.create_task_group() as tasks:
            with self._feeding:
                await self._feed(plan, tasks)
            self._fed = True
            self._ready.clear()  # of a plan that is not followed to its end
            for waiting in self._idle:
                if not waiting.done():
                    waiting.set_result(None)
            self._idle.clear()
            self.moved()
        if self._plan_error is not None:
            raise self._plan_error

    def drain(self) -> None:
        """Begin no new episode; those in flight go on to their end."""
        self.draining = True
        self._feeding.cancel()

    def fail(self, error: Exception) -> None:
        """The plan is known to fail further on: drain, and then raise that."""
        self._plan_error = error
        self.drain()

    async def _feed(self, plan: Iterator[Planned], tasks: TaskGroup) -> None:
        while not self.draining and self._plan_error is None:
            batch = await to_thread.run_sync(self._take, plan, abandon_on_cancel=True)
            if not batch and self._plan_error is None:
                break
            self._ready.extend(batch)
            self.begun.set()
            while self._ready:
                if self._idle:
                    self._hand_out()
                elif self._workers < self.max_episodes:
                    self._workers += 1
                    self.in_flight += 1
                    tasks.start_soon(self._work, self._ready.popleft())
                else:
                    self._taken = asyncio.Event()
                    await self._taken.wait()
            self.moved()

    def _hand_out(self) -> None:
        waiting = self._idle.pop()
        if not waiting.done():
            self.in_flight += 1
            waiting.set_result(self._ready.popleft())

    def _take(self, plan: Iterator[Planned]) -> list[Planned]:
        batch: list[Planned] = []
        began = monotonic()
        try:
            batch += islice(plan, self._batch)
        except Exception as error:
            self._plan_error = error
        self._batch = min(BATCH, 2 * self._batch) if monotonic() - began < BATCH_SECONDS else 1
        return batch

    async def _work(self, planned: Planned | None) -> None:
        while planned is not None:
            try:
                await self.solve(planned)
            finally:
                self.in_flight -= 1
                self.moved()
            planned = self._next()
            if planned is None and not self._fed:
                waiting: asyncio.Future[Planned | None] = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                self.moved()
                planned = await waiting

    def _next(self) -> Planned | None:
        """What was read already and waits for a place. Nothing while draining."""
        if self.draining or not self._ready:
            return None
        self.in_flight += 1
        planned = self._ready.popleft()
        if not self._ready:
            self._taken.set()
        return planned
