"""One run being executed: a job, its folder and ledger, and everything opened for them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from envs.base import WorldError
from envs.data import cache_folder
from runner import openfiles
from runner.batch.manner import Hooks, Manner, is_batched
from runner.batch.settings import EPISODES
from runner.budget import Budget, Cost
from runner.compact import Numbers
from runner.episode import Ended, Episode, Restart
from runner.errors import (
    BudgetSpent,
    CellStopped,
    ModelError,
    OvernightError,
    RunEnds,
    RunError,
    Unsupported,
)
from runner.job import Cell, Job, Planned
from runner.jsonl import clean
from runner.lag import Lag
from runner.lastlines import LastLines
from runner.ledger import REFUSABLE, Ledger
from runner.methods.base import Method
from runner.models.base import Call, Model
from runner.models.passage import Passage
from runner.outputs import RunFolder
from runner.pace import Pace
from runner.place import Place
from runner.reuse import Earlier
from runner.sampling import Readback, Sampler, Sampling
from runner.scheduler import Scheduler
from runner.summing import Summing
from runner.vitals import Pulse

if TYPE_CHECKING:
    from runner.batch.run import Batches

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

    @property
    def planned(self) -> int:
        """Episodes that the plan has named so far and that have come to an end here."""
        return self.already + self.done + self.skipped


class Execution:
    """Runs the episodes of a job that are not done yet, into a folder that it holds.

    `readback`: take draws and observations from the ledger only and run every episode (for `rescore`).
    `batching`: how this process deals with batches.
    """

    def __init__(
        self, job: Job, folder: RunFolder, *, readback: bool = False, batching: Manner | None = None
    ) -> None:
        self.job = job
        self.folder = folder
        self.readback = readback
        self.counts = Counts()
        self.stopped: dict[Cell, str] = {}
        """Cells that ended early, and the one line that says why and what to do."""
        self.ledger = self._ledger()
        earlier = float(folder.manifest.get("totals", {}).get("seconds", 0.0))
        self.budget = Budget(job.settings.limits, self.ledger, earlier)
        self.sums = Summing() if folder.fresh else None
        """Over the rows, where all of them are of this process; else they are summed up from the file in the end."""
        self.spent: str | None = None
        """The one line that says which budget ended the run."""
        self.batches = self._batches(batching or Manner())
        self.passages = {name: self._passage(name, model) for name, model in job.models.items()}
        for passage in self.passages.values():
            for line in passage.lines:
                line.gate.on_warning = folder.log
        self.lag = Lag(folder.log)
        self.sampler: Sampling
        self._configs: Any = None
        self._done: LastLines | None = None
        """The rows that were there before; None where none of them is to be kept."""
        self.accept_changes = True
        """Whether an episode whose task has changed is run again; else the run ends where one is met."""
        self.moved = Numbers()
        """New places in plan order of episodes that were done under an older, shorter plan."""
        self.notices: dict[str, None] = {}
        """Lines that a person must see while it runs: what a model refuses that the job asks for."""
        self.pulse = Pulse(self)
        self._cancel = anyio.CancelScope()
        self.scheduler = Scheduler(self._most_episodes(), self._solve)
        self.pace = Pace(self._most_episodes())
        self.interrupted = 0
        """How many times the run was asked to stop."""

    def _ledger(self) -> Ledger:
        return Ledger(self.folder.path / "ledger.jsonl")

    # -- models in batch mode ---------------------------------------------------------------------------
    def _batches(self, manner: Manner) -> Batches | None:
        """None where no model of the job is in batch mode."""
        if self.readback or not any(map(is_batched, self.job.models.values())):
            return None
        from runner.batch.run import Batches

        hooks = Hooks(
            self._admit,
            self.budget.resume,
            lambda cost, ended: self.budget.release(cost, ended=ended),
            self.folder.log,
            priced=self.job.settings.limits.max_usd is not None,
        )
        return Batches(self.folder.path, self.ledger, hooks, manner)

    def _passage(self, name: str, model: Model) -> Passage:
        if self.batches is not None and is_batched(model):
            return self.batches.passage(name, model, self._failed)
        return Passage(name, model, self._failed, self._begin, self.ledger.written)

    def _most_episodes(self) -> int:
        limits = self.job.settings.limits
        if self.batches is None or "max_episodes" in limits.model_fields_set:
            return limits.max_episodes
        return EPISODES

    def _admit(self, costs: Sequence[Cost]) -> int:
        try:
            return self.budget.admit(costs)
        except BudgetSpent as error:
            self._end_of_budget(error)
            raise

    def hang_up(self) -> None:
        """The terminal is gone, which may be told several times: as being interrupted once."""
        if not self.interrupted:
            self.interrupt()

    def interrupt(self) -> None:
        """Once: no new episodes, those in flight finish, but for those that wait for a batch. Again: stop now. Both
        leave a run that resumes."""
        self.interrupted += 1
        self.scheduler.drain()
        if self.batches is not None:
            self.batches.interrupt()
        if self.interrupted > 1:
            self._cancel.cancel()

    def _begin(self, call: Call) -> None:
        """A try is about to be made: while there is budget for it, and not without a line in the ledger."""
        try:
            self.budget.begin()
        except BudgetSpent as error:
            self._end_of_budget(error)
            raise
        self.ledger.write_begin(call)

    def _end_of_budget(self, error: BudgetSpent) -> None:
        """No new episodes and no new calls; those in flight finish."""
        if self.spent is None:
            self.spent = str(error)
            self.folder.log(self.spent)
            self.scheduler.drain()
            for passage in self.passages.values():
                passage.stop(error)

    async def _keep_time(self) -> None:
        """The hours end the run also while nothing but waiting goes on."""
        while (left := self.budget.seconds_left) is not None:
            await anyio.sleep(min(left, 60.0))
            try:
                self.budget.check_hours()
            except BudgetSpent as error:
                self._end_of_budget(error)
                return

    async def run(self, watch: Callable[[Execution], Any] | None = None) -> None:
        """Run to the end. `watch(self)`, if given, is an async function that runs beside it, to show it."""
        if self.job.settings.limits.max_usd is not None and self.ledger.unpriced:
            self.folder.log(f"{self.ledger.unpriced} earlier replies have no price and are not in max_usd")
        if line := openfiles.fit([line.gate for p in self.passages.values() for line in p.lines]):
            self.folder.log(line)
            with suppress(OSError, ValueError):  # a closed terminal ends no run
                sys.stderr.write(f"overnight: {line}\n")
        with closing(self.ledger), self._cancel:
            self._done = None if self.readback else await to_thread.run_sync(self.folder.look)
            if not self.readback:
                reuse = self.job.settings.reuse
                self.ledger.earlier = await to_thread.run_sync(Earlier.open, reuse, self.folder.path)
                for run in self.ledger.earlier.runs if self.ledger.earlier else ():
                    if run.unreadable:
                        self.folder.log(f"reuse: {run.unreadable} lines of {run.run} cannot be read")
            self._configs = await to_thread.run_sync(self.job.configs)
            async with self._open() as self.sampler, anyio.create_task_group() as beside:
                beside.start_soon(self.lag.watch)
                beside.start_soon(self._keep_synced)
                beside.start_soon(self._count)
                if not self.readback:
                    beside.start_soon(self._keep_time)
                if watch is not None:
                    beside.start_soon(self._watched, watch)
                if self.batches is not None:
                    beside.start_soon(self.batches.leave)
                self.pace.start()
                try:
                    await self.scheduler.run(self._owed())
                    if not self.scheduler.draining:
                        self.counts.total = self.counts.planned
                finally:
                    beside.cancel_scope.cancel()

    async def _watched(self, watch: Callable[[Execution], Any]) -> None:
        """Showing a run must never end it: a closed terminal, a full disk under a log."""
        try:
            await watch(self)
        except Exception:
            self.folder.log(f"the display failed: {traceback.format_exc()}")

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Sampling]:
        """Worlds, models and the sampler, opened and in the end closed, whatever happens."""
        async with AsyncExitStack() as stack:
            if self.readback:
                yield Readback(self.ledger)
                return
            if self.batches is not None:
                stack.push_async_callback(self.batches.close)
            cache = cache_folder()
            for world in self.job.worlds.values():
                stack.push_async_callback(_shielded, world.close)
                await world.open(cache)
            for name, model in self.job.models.items():
                if self.batches is not None and self.batches.needs_no(model):
                    continue
                stack.push_async_callback(_shielded, model.close)
                try:
                    await model.open(cache)
                except CellStopped as error:  # no key, no engine: the other models' cells run on
                    self._without(name, error)
            async with Sampler(self.ledger, self.job.settings.seed) as sampler:
                if self.batches is not None:
                    self.batches.begin(self.scheduler, sampler)
                sampler.serve(self.passages.values())
                yield sampler

    # -- what is owed ----------------------------------------------------------------------------------
    def _owed(self) -> Iterator[Planned]:
        """The episodes that are not done, without those of stopped cells."""
        for planned in self.job.plan():
            if self._is_done(planned):
                self.counts.already += 1
            elif planned.cell in self.stopped:
                self.counts.skipped += 1
            else:
                yield planned

    def _is_done(self, planned: Planned) -> bool:
        """Whether it ended in an earlier process as it would now. Raises RunError where its task has changed since
        and that was not accepted."""
        lines = self._done
        slot = None if lines is None else lines.done(planned.id)
        if lines is None or slot is None:
            return False
        if not lines.has_config(slot, self._configs.of(planned)):
            if not self.accept_changes and (change := changed(planned, lines.row(planned.id))):
                raise RunError(
                    f"{self.folder.path}: {change}. Go back to what it was, or take the change on purpose with "
                    "--accept-changes (its episodes run again, with replies from the ledger where those fit)"
                )
            return False
        if lines.index(slot) != planned.index:
            self.moved.put(planned.id, planned.index)
        return True

    def _planned(self) -> int:
        return self.job.count()

    async def _count(self) -> None:
        await (
            self.scheduler.begun.wait()
        )  # what is done already is passed over sooner without a second reader beside it
        try:
            self.counts.total = await to_thread.run_sync(self._planned, abandon_on_cancel=True)
        except WorldError as error:  # far down in the data: no need to get there by paying
            self.scheduler.fail(error)

    # -- one episode -----------------------------------------------------------------------------------
    async def _solve(self, planned: Planned) -> None:
        if planned.cell in self.stopped:  # since it was read from the plan
            self.counts.skipped += 1
            return
        method = self.job.methods[planned.cell.method]
        place = self._place(planned)
        life = self.ledger.last_life(planned.id) or 0
        for attempt in range(MOST_LIVES):
            episode = Episode(planned.task, place, life + attempt)
            error: BaseException | None = None
            status = None
            try:
                if (limit := episode.time_limit) is None:
                    await _solved(method, episode)
                else:
                    with limit:
                        episode.start_clock()
                        await _solved(method, episode)
                    if limit.cancelled_caught:
                        status = "time_limit"
            except Exception as raised:
                failure = weightiest(raised)
                if isinstance(failure, Restart):
                    continue
                if isinstance(failure, OvernightError) and not isinstance(failure, ModelError):
                    raise failure from raised  # the run itself cannot go on: a full disk, a damaged folder
                if isinstance(failure, Ended):
                    status = failure.status
                else:
                    error = failure
                if isinstance(failure, RunEnds) or (failure is error and str(failure) == self.spent):
                    self.counts.skipped += 1  # not whole, and no error: a resume goes on with it
                    return
                if isinstance(failure, CellStopped):
                    self._stop(planned.cell, str(failure))
                elif not isinstance(failure, (Ended, ModelError)):
                    self.folder.log(f"{planned.id}: {traceback.format_exc()}")
            finally:
                if episode.open:
                    with anyio.move_on_after(10, shield=True):
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
        self.pace.ended(row)
        if self.sums is not None:
            self.sums.add(row)
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
            most_draws=self.job.settings.limits.episode_draws,
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
        if isinstance(error, Unsupported) and error.parameter in REFUSABLE:
            self.notices[f"warning: {error}"] = None

    async def _keep_synced(self) -> None:
        while True:
            await anyio.sleep(SYNC_EVERY)
            await to_thread.run_sync(self.ledger.sync)
            await to_thread.run_sync(self.folder.trajectories.sync)
            try:
                self.folder.check_place()
            except RunError as error:  # what is in flight still reaches the files, wherever they are
                self.scheduler.fail(error)
                return

    # -- for run.json ----------------------------------------------------------------------------------
    def limits_history(self) -> dict[str, list[dict[str, Any]]]:
        """By model: each change of a bound, with its reason."""
        return {
            name: [change.as_dict() for change in passage.changes]
            for name, passage in self.passages.items()
            if passage.changes
        }

    def totals(self) -> Mapping[str, Any]:
        """Episodes and what was paid, over all processes that worked on this run."""
        return {
            "planned": self.counts.total,
            "seconds": round(self.budget.earlier if self.readback else self.budget.seconds, 1),
            "done_before": self.counts.already,
            "done": self.counts.done,
            "errors": self.counts.errors,
            "left_for_resume": self.counts.skipped,
            "calls": self.ledger.paid.calls,
            "paid": self.ledger.paid.as_dict(),
            "paid_usd": round(self.ledger.paid_usd, 6),
            "taken_from_earlier_runs": self.ledger.taken,
            "taken": self.ledger.taken_usage.as_dict(),
            "replies_without_a_price": self.ledger.unpriced,
            "failed_attempts": self.ledger.attempts_failed,
            "possibly_billed_attempts": self.ledger.possibly_billed,
            "cut_off_attempts": self.ledger.cut_off,
            "unreadable_ledger_lines": self.ledger.unreadable,
            "loop_lag_p99_ms": self.lag.quantile(0.99),
            "pace": {} if self.readback else self.pace.as_dict(list(self.passages.values())),
        }


def changed(planned: Planned, row: Mapping[str, Any] | None) -> str:
    """How a task's text or target is no longer what it was when its episode ended with a row, in words; "" where
    it is."""
    task, keys = planned.task, ("input", "target")
    if row is None or not row.keys() >= {*keys}:
        return ""
    now = clean([task.input, task.target])
    return (
        ""
        if now == [row[key] for key in keys]
        else (f"envs.{planned.cell.env}: task {task.id}: its input or target differs")
    )


async def _solved(method: Method, episode: Episode) -> None:
    """Solve; what would end the process from within a method or a world ends the episode."""
    try:
        given: Any = await method.solve(episode)  # type: ignore[func-returns-value]
    except (SystemExit, KeyboardInterrupt) as error:
        raise WorldError(f"{type(error).__name__} was raised in the episode: {error}") from error
    if given is not None:
        raise TypeError(
            f"method {method.name!r} returned {given!r:.60}; it says its answer with ep.answer = ..."
        )
    if episode.world.judged:
        await episode.judge()


def weightiest(error: Exception) -> Exception:
    """The error itself; of a group (a method that samples side by side raises one) the one that says most of
    what is to happen: that the run, the cell, this life or the episode ends."""
    if not isinstance(error, ExceptionGroup):
        return error
    leaves = [weightiest(leaf) for leaf in error.exceptions]

    def weight(leaf: Exception) -> int:
        if isinstance(leaf, OvernightError) and not isinstance(leaf, ModelError):
            return 0
        order = (CellStopped, Restart, ModelError, Ended)
        return next((k for k, kind in enumerate(order, 1) if isinstance(leaf, kind)), 3)

    return min(leaves, key=weight)


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
