"""Engines that block, leak or crash, in worker processes of their own, beside the event loop.

An engine is a plain synchronous class:

    class Engine:
        many = True                                        # whether one object may hold several episodes
        def __init__(self, **settings): ...                # once a process; may be slow
        def begin(self, episode: str, task: dict) -> str   # the first observation
        def step(self, episode: str, action: str) -> tuple[str, float, bool, dict]   # text, reward, done, more
        def end(self, episode: str) -> None
        def close(self) -> None: ...

A worker that hangs, crashes or outgrows its memory is replaced. Its episodes are brought back by taking their actions
again in a fresh engine; where that shows anything else than before, `Lost` is raised and the episode begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from envs.base import Lost, Observation, Session, World, WorldError
from envs.processes import MANY, Gone, Worker

TRIES = 3
"""Workers that one action may cost before its episode is given up."""
PATIENCE = 20
"""Workers that may be lost before one action is answered, through whatever."""
SHARE = 0.6
"""Of the machine's memory, for all workers of a world together."""


class HostedWorld(World):
    """What worlds share whose engine runs in worker processes."""

    manners: ClassVar[tuple[str, ...]] = (
        *World.manners,
        "workers",
        "per_worker",
        "memory_mb",
        "step_seconds",
    )

    workers: int | None = Field(None, gt=0, description="Worker processes; unset: one a core.")
    per_worker: int | None = Field(
        None, gt=0, description=f"Episodes to a worker; unset: {MANY} where the engine holds several, else 1."
    )
    memory_mb: int | None = Field(
        None,
        gt=0,
        description="Megabytes that a worker may hold before it is replaced; unset: its share of 60 % of the "
        "machine's.",
    )
    step_seconds: float = Field(
        60.0, gt=0, description="What one action may take before its worker counts as hanging."
    )

    def host(self, engine: str, settings: Mapping[str, Any]) -> Host:
        """Workers for an engine, by the settings above. Close it in `close`."""
        return Host(
            engine,
            settings,
            workers=self.workers,
            per_worker=self.per_worker,
            memory_mb=self.memory_mb,
            step_seconds=self.step_seconds,
        )


class Host:
    """The workers of one engine (`module:Class`, or `file.py:Class`). Started as they are needed, ended by `close`."""

    def __init__(
        self,
        engine: str,
        settings: Mapping[str, Any],
        *,
        workers: int | None = None,
        per_worker: int | None = None,
        memory_mb: float | None = None,
        step_seconds: float = 60.0,
    ) -> None:
        self.engine = engine
        self.settings = dict(settings)
        self.workers = workers or os.cpu_count() or 1
        self.per_worker = per_worker
        self.memory_mb = memory_mb or _memory() * SHARE / self.workers
        self.step_seconds = step_seconds
        self.replaced = 0
        """Workers that were lost, and others started for them."""
        self._all: list[Worker] = []
        self._starting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._names = itertools.count()
        self._closed = False
        self._failed = 0
        """How many engines in a row could not be made."""
        self._killed = 0
        """How many in a row were killed from outside while they were made."""
        self._failure = ""

    def session(self, task: Mapping[str, Any]) -> HostedSession:
        """A session for a task, which is the engine's own plain dictionary."""
        return HostedSession(self, dict(task), f"e{next(self._names)}")

    async def close(self) -> None:
        self._closed = True
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
        workers, self._all = self._all, []
        for worker in workers:
            await worker.stop()

    # -- places ----------------------------------------------------------------------------------------
    async def place(self) -> Worker:
        """A worker with room for one more episode, which is counted there; who came first is served first. Raises
        WorldError where no engine can be made."""
        while not self._closed:
            if self._failed >= TRIES:
                raise WorldError(self._failure)
            free = [worker for worker in self._all if worker.open and worker.episodes < worker.room]
            if free:
                worker = min(free, key=lambda worker: worker.episodes)
                worker.episodes += 1
                return worker
            if len(self._all) + self._starting < self.workers:
                await self._start()
                continue
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled():
                    self._wake()  # the place was offered to one who is gone
                raise
        raise WorldError(f"{self.engine}: its workers are closed")

    async def _start(self) -> None:
        self._starting += 1
        try:
            worker = await Worker.start(self)
        except Gone as error:
            self._killed += not error.working
            if not error.working and self._killed < PATIENCE:
                return  # from outside, as by a system without memory: another one is tried
            self._failed += 1
            self._failure = f"{self.engine}: no engine could be made: {error}"
            if (
                self._failed >= TRIES
            ):  # so that a thousand episodes do not start a thousand processes to hear it
                self._wake(len(self._waiting))
            raise WorldError(self._failure) from error
        finally:
            self._starting -= 1
            self._wake()
        self._failed = self._killed = 0
        if self._closed:
            await worker.stop()
        else:
            self._all.append(worker)
            self._wake(worker.room)

    def _wake(self, count: int = 1) -> None:
        """There may be room."""
        while count and self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                count -= 1

    def free(self, worker: Worker) -> None:
        """An episode has left a worker."""
        worker.episodes -= 1
        if not worker.episodes and worker.full and worker in self._all:
            worker.kill(f"it holds more than {self.memory_mb:,.0f} MB")
        self._wake()

    def lost(self, worker: Worker) -> None:
        """A worker has ended."""
        if worker in self._all:
            self._all.remove(worker)
            self.replaced += 1
            self._wake(max(worker.room, 1))  # one that is full has no room: who comes first starts another


class HostedSession(Session):
    """One episode in a worker. `more` is what the engine said beside the last observation."""

    def __init__(self, host: Host, task: dict[str, Any], name: str) -> None:
        self._host = host
        self._task = task
        self._name = name
        self._worker: Worker | None = None
        self._first = ""
        self._taken: list[tuple[str, str, bool]] = []
        """Actions so far, each with what it gave."""
        self._at = 0
        """Which action is being taken, from 1; 0 for the beginning."""
        self._costs: Counter[int] = Counter()
        """Workers that each action has cost."""
        self.more: dict[str, Any] = {}

    async def reset(self) -> str:
        await self._leave()
        self._taken.clear()
        self._costs.clear()
        self._first = await self._surely(self._begin)
        return self._first

    async def step(self, action: str) -> Observation:
        text, reward, done, more = await self._surely(self._step, action)
        self._taken.append((action, text, done))
        self.more = more if isinstance(more, dict) else {}
        return Observation(text, reward, done)

    async def close(self) -> None:
        await self._leave()

    # -- through workers that are lost -----------------------------------------------------------------
    async def _surely(self, what: Any, *arguments: Any) -> Any:
        """Do it, in another worker where this one is lost meanwhile. An action is given up when it has cost `TRIES`
        workers itself; those that were lost by others' actions, or from outside, are not its fault."""
        for lost in itertools.count(1):
            try:
                if self._worker is None and what != self._begin:
                    await self._bring_back()
                return await what(*arguments)
            except Gone as error:
                self._forget()
                self._costs[self._at] += error.working
                if (cost := self._costs[self._at]) >= TRIES or lost >= PATIENCE:
                    actions = [action for action, _, _ in self._taken] + list(arguments)
                    doing = f"action {actions[self._at - 1]!r:.80}" if self._at else "the beginning"
                    what_happened = f"cost {cost} workers" if cost >= TRIES else f"saw {lost} workers end"
                    raise WorldError(
                        f"{self._host.engine}: {doing} {what_happened}, the last one as {error}"
                    ) from error
        raise AssertionError

    async def _begin(self) -> Any:
        self._worker = await self._host.place()
        self._at = 0
        return await self._worker.ask("begin", self._name, self._task)

    async def _step(self, action: str) -> Any:
        assert self._worker is not None
        self._at += 1
        return await self._worker.ask("step", self._name, action)

    async def _bring_back(self) -> None:
        """Take all actions again in a fresh engine. Raises Lost where they give anything else than before."""
        text = await self._begin()
        if text != self._first:
            raise Lost(f"{self._host.engine}: the same task began otherwise in another worker")
        for action, before, done in self._taken:
            text, _, over, _ = await self._step(action)
            if (text, over) != (before, done):
                raise Lost(
                    f"{self._host.engine}: action {action!r:.80} gave something else in another worker"
                )

    def _forget(self) -> None:
        if self._worker is not None:
            self._host.free(self._worker)
            self._worker = None

    async def _leave(self) -> None:
        worker = self._worker
        if worker is None:
            return
        try:
            if worker.open:
                with contextlib.suppress(Gone, WorldError):
                    await worker.ask("end", self._name)
        finally:
            self._forget()


def _memory() -> float:
    """Megabytes of this machine, or of what its cgroup allows."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    with contextlib.suppress(OSError, ValueError):
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()) / 2**20)
    return whole
