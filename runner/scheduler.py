"""Admits episodes as places come free, oldest first, and drains in order when told to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import anyio
from anyio.lowlevel import checkpoint

from runner.job import Planned

Solve = Callable[[Planned], Awaitable[None]]


class Scheduler:
    """Runs planned episodes, `max_episodes` at a time, pulling them from the plan as it goes.

    `solve` must keep an episode's own failure to itself; what it raises ends the run. If the plan itself
    fails (a bad row far down in the data), the episodes before it end normally, then the error is raised.
    """

    def __init__(self, max_episodes: int, solve: Solve) -> None:
        self.max_episodes = max_episodes
        self.solve = solve
        self.in_flight = 0
        self.admitted = 0
        self.draining = False
        self._plan_error: Exception | None = None

    async def run(self, plan: Iterator[Planned]) -> None:
        """Until the plan is exhausted, or drained: then until those in flight have ended."""
        async with anyio.create_task_group() as workers:
            for _ in range(self.max_episodes):
                planned = self._next(plan)
                if planned is None:
                    break
                workers.start_soon(self._work, planned, plan)
                await checkpoint()
        if self._plan_error is not None:
            raise self._plan_error

    async def _work(self, planned: Planned | None, plan: Iterator[Planned]) -> None:
        while planned is not None:
            self.in_flight += 1
            try:
                await self.solve(planned)
            finally:
                self.in_flight -= 1
            planned = self._next(plan)

    def _next(self, plan: Iterator[Planned]) -> Planned | None:
        if self.draining:
            return None
        try:
            planned = next(plan, None)
        except Exception as error:
            self._plan_error = error
            self.draining = True
            return None
        self.admitted += planned is not None
        return planned

    def drain(self) -> None:
        """Begin no new episode; those in flight go on to their end."""
        self.draining = True
