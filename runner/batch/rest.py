"""When nothing can move any more but by a batch: counted, never guessed from the time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import anyio
import anyio.lowlevel

from runner.sampling import Sampler
from runner.scheduler import Scheduler

TURNS = 12
"""Turns of the event loop for which the counts must stand still: from a reply to its episode's next call it
takes three, in which all counts look at rest."""


class Waiting(Protocol):
    """What a passage in batch mode tells: how many calls await a batch, those of them that are in none yet, and
    whether it will do no more for those that are (see `Manner.wait`)."""

    @property
    def still(self) -> int: ...

    @property
    def parked(self) -> Collection[object]: ...

    @property
    def left(self) -> bool: ...


class Rest:
    """The stillness of one run.

    It is at rest when no episode can begin, each that has begun awaits draws, and every call under way is one
    that awaits its batch. Then whatever is to be submitted has been collected. A direct model's calls, a world
    at work, a plan that is still being read all keep it from rest.
    """

    def __init__(self, scheduler: Scheduler, sampler: Sampler) -> None:
        self.scheduler = scheduler
        self.sampler = sampler
        self.passages: list[Waiting] = []
        self._blocked: set[Waiting] = set()
        self._changed = anyio.Event()
        scheduler.moved = sampler.moved = self.note

    def note(self) -> None:
        """Some count has changed."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def now(self) -> bool:
        """Whether all counts say so at this moment."""
        scheduler, sampler = self.scheduler, self.sampler
        return (
            scheduler.full
            and scheduler.in_flight <= len(sampler.asking)
            and sampler.flights <= sampler.in_flight
            and sampler.in_flight == sum(passage.still for passage in self.passages)
        )

    async def wave(self, passage: Waiting) -> None:
        """Until the run is at rest, and the passage has calls that are in no batch and may be submitted."""
        await self._until(lambda: bool(passage.parked) and passage not in self._blocked)

    async def left(self) -> None:
        """Until the run is at rest, though not at its end, and all that any passage has to do is to wait."""

        def waiting_only() -> bool:
            done = all(p.left and (not p.parked or p in self._blocked) for p in self.passages)
            return done and self.scheduler.in_flight > 0

        await self._until(waiting_only)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            changed, turns = self._changed, 0
            while turns < TURNS and condition() and self.now():
                await anyio.lowlevel.checkpoint()
                turns += 1
            if turns == TURNS:
                return
            await changed.wait()

    def block(self, passage: Waiting) -> None:
        """Nothing of this passage is to be submitted before a batch has ended: the budget has no room."""
        self._blocked.add(passage)

    def unblock(self) -> None:
        """A batch has ended."""
        self._blocked.clear()
        self.note()
