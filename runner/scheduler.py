"""Admits episodes as places come free, oldest first, and drains in order when told to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from time import monotonic

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

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
        self.draining = False
        self.moved: Callable[[], None] = lambda: None
        """Told when `busy` or `full` has changed."""
        self._fed = False
        self._workers = 0
        self._idle = 0
        self._batch = 1
        self._feeding = anyio.CancelScope()
        self._plan_error: Exception | None = None

    @property
    def busy(self) -> int:
        """Episodes that were handed out and have not ended."""
        return self._workers - self._idle

    @property
    def full(self) -> bool:
        """Whether no episode begins before another one ends: all places are taken, or the plan is at its end."""
        return self._fed or self.busy >= self.max_episodes

    async def run(self, plan: Iterator[Planned]) -> None:
        """Until the plan is exhausted, or drained: then until those in flight have ended."""
        async with anyio.create_task_group() as tasks:
            with self._feeding:
                await self._feed(plan, tasks)
            self._fed = True
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
        send, receive = anyio.create_memory_object_stream[Planned]()
        with send, receive:
            while not self.draining and self._plan_error is None:
                batch = await to_thread.run_sync(self._take, plan, abandon_on_cancel=True)
                if not batch and self._plan_error is None:
                    break
                for planned in batch:
                    if not self._idle and self._workers < self.max_episodes:
                        self._workers += 1
                        tasks.start_soon(self._work, receive.clone())
                    await send.send(planned)
                    self._idle -= 1  # here, as the worker that took it has not run yet
                    self.moved()

    def _take(self, plan: Iterator[Planned]) -> list[Planned]:
        batch: list[Planned] = []
        began = monotonic()
        try:
            batch += islice(plan, self._batch)
        except Exception as error:
            self._plan_error = error
        self._batch = min(BATCH, 2 * self._batch) if monotonic() - began < BATCH_SECONDS else 1
        return batch

    async def _work(self, plan: MemoryObjectReceiveStream[Planned]) -> None:
        with plan:
            while True:
                self._idle += 1
                self.moved()
                try:
                    planned = await plan.receive()
                except anyio.EndOfStream:
                    return
                self.in_flight += 1
                try:
                    await self.solve(planned)
                finally:
                    self.in_flight -= 1
