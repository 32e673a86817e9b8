"""One run being executed: a job, its folder and ledger, and everything opened for them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
from anyio import to_thread

from envs.base import WorldError
from envs.data import cache_folder
from runner import openfiles
from runner.episode import Ended, Episode, Place, Restart
from runner.errors import CellStopped, ModelError, OvernightError
from runner.job import Cell, Job, Planned
from runner.ledger import Ledger
from runner.models.base import Call
from runner.models.passage import Passage
from runner.outputs import RunFolder
from runner.sampling import Readback, Sampler, Sampling
from runner.scheduler import Scheduler

SYNC_EVERY = 1.0
"""Seconds between forcing the ledger to the disk: what a crash of the machine (not of the process) may cost."""
MOST_LIVES = 10
"""Restarts of one episode in one process before it is given up."""


@dataclass
class Counts:
    """What a run has done so far; progress, `status` and the end's message read it."""

    total: int | None = None
    """Planned episodes; None while they are still being counted."""
    already: int = 0
    """Episodes that were done before this process began."""
    done: int = 0
    errors: int = 0
    skipped: int = 0
    """Episodes of stopped cells, left for a resume."""
    began: float = field(default_factory=monotonic)


class Execution:
    """Runs the episodes of a job that are not done yet, into a folder that it holds.

    `readback`: take draws and observations from the ledger only and run every episode (for `rescore`).
    """

    def __init__(self, job: Job, folder: RunFolder, *, readback: bool = False) -> None:
        self.job = job
        self.folder = folder
        self.readback = readback
        self.counts = Counts()
        self.stopped: dict[Cell, str] = {}
        """Cells that ended early, and the one line that says why and what to do."""
        self.ledger = Ledger(folder.path / "ledger.jsonl")
        self.passages = {
            name: Passage(name, model, self._failed, self.ledger.write_begin)
            for name, model in job.models.items()
        }
        self.sampler: Sampling
        self._configs: Any = None
        self._done: dict[str, str] = {}
        self._cancel = anyio.CancelScope()
        self.scheduler = Scheduler(job.settings.limits.max_episodes, self._solve)
        self.interrupted = 0
        """How many times the run was asked to stop."""

    def interrupt(self) -> None:
        """Once: no new episodes, those in flight finish. Again: stop now. Both leave a run that resumes."""
        self.interrupted += 1
        self.scheduler.drain()
        if self.interrupted > 1:
            self._cancel.cancel()

    async def run(self, watch: Callable[[Execution], Any] | None = None) -> None:
        """Run to the end. `watch(self)`, if given, is an async function that runs beside it, to show it."""
        self._done = {} if self.readback else self.folder.done()
        if line := openfiles.fit([line.gate for p in self.passages.values() for line in p.lines]):
            self.folder.log(line)
            sys.stderr.write(f"overnight: {line}\n")
        async with AsyncExitStack() as stack:
            self.sampler = await stack.enter_async_context(self._open())
            self._configs = await to_thread.run_sync(self.job.configs)
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._keep_synced)
                beside.start_soon(self._count)
                if watch is not None:
                    beside.start_soon(watch, self)
                try:
                    with self._cancel:
                        await self.scheduler.run(self._owed())
                finally:
                    beside.cancel_scope.cancel()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Sampling]:
        """Worlds, models and the sampler, opened and in the end closed, whatever happens."""
        async with AsyncExitStack() as stack:
            stack.callback(self.ledger.close)
            if self.readback:
                yield Readback(self.ledger)
                return
            cache = cache_folder()
            for world in self.job.worlds.values():
                stack.push_async_callback(_shielded, world.close)
                await world.open(cache)
            for name, model in self.job.models.items():
                stack.push_async_callback(_shielded, model.close)
                try:
                    await model.open(cache)
                except CellStopped as error:  # no key, no weights: the other models' cells run on
                    self._without(name, error)
            async with Sampler(self.ledger, self.job.settings.seed) as sampler:
                sampler.serve(self.passages.values())
                yield sampler

    # -- what is owed ----------------------------------------------------------------------------------
    def _owed(self) -> Iterator[Planned]:
        """The episodes that are not done, without those of stopped cells."""
        for planned in self.job.plan():
            if self._done.get(planned.id) == self._configs.of(planned):
                self.counts.already += 1
            elif planned.cell in self.stopped:
                self.counts.skipped += 1
            else:
                yield planned

    async def _count(self) -> None:
        def count() -> int:
            return sum(1 for _ in self.job.plan())

        try:
            self.counts.total = await to_thread.run_sync(count, abandon_on_cancel=True)
        except WorldError:
            return  # the scheduler meets the same error and says it

    # -- one episode -----------------------------------------------------------------------------------
    async def _solve(self, planned: Planned) -> None:
        method = self.job.methods[planned.cell.method]
        place = self._place(planned)
        life = self.ledger.last_life(planned.id) or 0
        for attempt in range(MOST_LIVES):
            episode = Episode(planned.task, place, life + attempt)
            error: BaseException | None = None
            status = None
            try:
                with episode.time_limit:
                    episode.start_clock()
                    await method.solve(episode)
                if episode.time_limit.cancelled_caught:
                    status = "time_limit"
            except Ended as ended:
                status = ended.status
            except Restart:
                continue
            except (CellStopped, ModelError) as failure:
                error = failure
                if isinstance(failure, CellStopped):
                    self._stop(planned.cell, str(failure))
            except OvernightError:
                raise  # the run itself cannot go on: a full disk, a damaged folder
            except Exception as failure:
                error = failure
                self.folder.log(f"{planned.id}: {traceback.format_exc()}")
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(10, shield=True):
                    await self._close_episode(episode)
            self._write(episode, error, status)
            return
        self._write(episode, WorldError(f"the episode had to restart {MOST_LIVES} times"), None)

    async def _close_episode(self, episode: Episode) -> None:
        try:
            await episode.close()
        except Exception:
            self.folder.log(f"{episode.place.id}: closing the world failed: {traceback.format_exc()}")

    def _write(self, episode: Episode, error: BaseException | None, status: str | None) -> None:
        if self.readback and error is not None:
            self.counts.skipped += 1  # not all of it is on record: its row stays as it is
            return
        try:
            row = episode.record(error, status)
        except Exception as failure:  # a world's scoring failed: the episode is an error row, too
            self.folder.log(f"{episode.place.id}: {traceback.format_exc()}")
            error = failure
            row = episode.record(failure, None)
        if self.readback:
            row |= self.folder.timing(row["id"])
        self.folder.write_trajectory(row)
        self.counts.done += 1
        self.counts.errors += error is not None

    def _place(self, planned: Planned) -> Place:
        cell = planned.cell
        roles = {role: self.passages[model] for role, model in self.job.settings.roles.items()}
        return Place(
            run=self.folder.path.name,
            id=planned.id,
            index=planned.index,
            config=self._configs.of(planned),
            env=cell.env,
            method=cell.method,
            model=cell.model,
            trial=planned.trial,
            world=self.job.worlds[cell.env],
            roles={**roles, "policy": self.passages[cell.model]},
            sampling=self.sampler,
            ledger=self.ledger,
            readback=self.readback,
            seconds=None if self.readback else self.job.settings.limits.episode_seconds,
        )

    def _stop(self, cell: Cell, why: str) -> None:
        if cell not in self.stopped:
            self.stopped[cell] = why
            self.folder.log(f"cell {cell.env}/{cell.method}/{cell.model} stopped: {why}")

    def _without(self, model: str, error: CellStopped) -> None:
        """A model that could not be opened: its cells stop before they begin."""
        self.passages[model].stopped = error
        roles = self.job.settings.roles.values()
        for cell in self.job.cells:
            if cell.model == model or model in roles:
                self._stop(cell, str(error))

    def _failed(self, call: Call, error: ModelError) -> None:
        self.ledger.write_attempt(call, error, possible_cost=error.billed)
        self.folder.log(f"{call.scope}: {type(error).__name__}: {error}")

    async def _keep_synced(self) -> None:
        while True:
            await anyio.sleep(SYNC_EVERY)
            await to_thread.run_sync(self.ledger.sync)
            await to_thread.run_sync(self.folder.trajectories.sync)

    # -- for run.json ----------------------------------------------------------------------------------
    def totals(self) -> Mapping[str, Any]:
        """Episodes and what was paid, over all processes that worked on this run."""
        return {
            "planned": self.counts.total,
            "done_before": self.counts.already,
            "done": self.counts.done,
            "errors": self.counts.errors,
            "left_for_resume": self.counts.skipped,
            "calls": self.ledger.paid.calls,
            "paid": self.ledger.paid.as_dict(),
            "paid_usd": round(self.ledger.paid_usd, 6),
            "replies_without_a_price": self.ledger.unpriced,
            "failed_attempts": self.ledger.attempts_failed,
            "possibly_billed_attempts": self.ledger.possibly_billed,
            "cut_off_attempts": self.ledger.cut_off,
            "unreadable_ledger_lines": self.ledger.unreadable,
        }


async def _shielded(close: Callable[[], Any]) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(20):
        await close()


def now() -> str:
    """The time for `run.json`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_path(path: str | Path) -> Path:
    """A run's folder from what a person types: the folder, or a file in it."""
    path = Path(path)
    return path.parent if path.is_file() else path
