"""The command's process where a run has several workers: it leases tasks and permits to them, shows one bar, and
merges their shards."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import secrets
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, cast

import anyio
from anyio import to_thread

from envs.base import DataError, WorldError
from runner.cluster import merge
from runner.cluster.account import Account, Accounts
from runner.cluster.beat import Lease
from runner.cluster.calls import ABOUT_CALLS, Calls
from runner.cluster.crew import Worker, end_of
from runner.cluster.engine import Engine
from runner.cluster.leases import Leases, owed
from runner.cluster.link import Message, SocketLink
from runner.cluster.permits import Desk
from runner.cluster.sharing import check
from runner.cluster.standing import Standing
from runner.errors import BudgetSpent, RunError
from runner.execution import Execution
from runner.job import Cell, Job, Planned
from runner.jsonl import Appender
from runner.ledger import Ledger
from runner.models.base import Model
from runner.models.passage import Passage
from runner.outputs import RunFolder

LEASE = Lease()
DEATHS = 3
"""Workers of one shard that may die one after another without anything done before the run is given up."""
HALT = 15.0
"""Seconds that workers may take to stop at once."""
FAR_OVER = 1.5
"""Times its memory limit at which a worker is ended at once; from the limit on it finishes what it has begun."""
LOOKS = 0.5
"""Seconds between two looks at how the workers stand."""


class Coordinator(Execution):
    """A run whose episodes are solved elsewhere. Raises JobError for a job that other processes cannot make."""

    ledger: Accounts  # type: ignore[assignment]

    def __init__(self, job: Job, folder: RunFolder, engine: Engine) -> None:
        check(job)
        self.crew: dict[int, Worker] = {}
        """Who is at work, by shard."""
        self._by_key: dict[int, Worker] = {}
        self._keys = itertools.count(1)
        self._token = secrets.token_hex(16)
        self._engine, self._lease = engine, LEASE
        super().__init__(job, folder)
        self.sums = None
        desks = {name: passage for name, passage in self.passages.items() if isinstance(passage, Desk)}
        self._calls = Calls(desks, self.ledger)
        self.workers = job.settings.workers
        self._leases = Leases(owed(job, self._read()), self.workers)
        self._episodes_read = 0
        self._requests: asyncio.Queue[tuple[Worker, int]] = asyncio.Queue()
        self._failure: Exception | None = None
        self._standing = Standing(self.crew)
        self._deaths: dict[int, tuple[int, tuple[int, int]]] = {}
        self._address = ("", 0)

    def _ledger(self) -> Ledger:
        ledger = Ledger(self.folder.path / "ledger.jsonl")
        own = Account.of(ledger)
        ledger.close()
        return cast(Ledger, Accounts(own))

    def _passage(self, name: str, model: Model) -> Passage:
        return Desk(name, model, self._post, self._tell, self._begin_call, lambda: self.budget.undo())

    def _begin_call(self) -> None:
        try:
            self.budget.begin()
        except BudgetSpent as error:
            self._end_of_budget(error)
            raise

    def _end_of_budget(self, error: BudgetSpent) -> None:
        if self.spent is None:
            self._tell("spent", str(error))
            self._leases.stop()
        super()._end_of_budget(error)

    # -- the run ---------------------------------------------------------------------------------------
    async def run(self, watch: Callable[[Execution], Any] | None = None) -> None:
        """See `Execution.run`. The shards are merged however it ends."""
        self._done = await to_thread.run_sync(self.folder.look)
        self._configs = await to_thread.run_sync(self.job.configs)
        await to_thread.run_sync(self._leases.read, 1)  # nothing is started where nothing is owed
        interface, host = await self._engine.open()
        server = await asyncio.get_running_loop().create_server(
            lambda: SocketLink(self._connected), interface, 0, backlog=1024
        )
        try:
            self._address = (host, server.sockets[0].getsockname()[1])
            async with anyio.create_task_group() as beside:
                for passage in self.passages.values():
                    beside.start_soon(passage.serve)
                for each in (self.lag.watch, self._count, self._keep_time, self._hand_out, self._look):
                    beside.start_soon(each)
                if watch is not None:
                    beside.start_soon(self._watched, watch)
                self.pace.start()
                try:
                    async with anyio.create_task_group() as crew:
                        for shard in range(self.workers):
                            crew.start_soon(self._tend, shard)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._dismiss()
                        self._refresh()
                    beside.cancel_scope.cancel()
        finally:
            server.close()
            with anyio.CancelScope(shield=True):
                await self._engine.close()
                await self._merge()
        if not self.scheduler.draining:
            self.counts.total = self.counts.planned
        if self._failure is not None:
            raise self._failure

    async def _merge(self) -> None:
        """Make the shards part of the run's own files."""
        self.folder.trajectories.close()
        try:
            merged = await to_thread.run_sync(merge.merge, self.folder.path)
        finally:
            self.folder.trajectories = Appender(self.folder.trajectories.path)
        self.ledger.own += merged.account
        self.ledger.shards, self.ledger.lost = {}, 0
        self.counts.done, self.counts.errors = merged.rows, merged.errors

    def interrupt(self) -> None:
        """See `Execution.interrupt`."""
        self.interrupted += 1
        self._drain()
        if self.interrupted > 1:
            self._tell("halt")
            asyncio.get_running_loop().call_later(HALT, self._kill)

    def _drain(self) -> None:
        self.scheduler.drain()
        self._leases.stop()
        self._tell("drain")

    def _fail(self, error: Exception) -> None:
        """The run cannot go on: what is in flight ends, then this is raised."""
        self._failure = self._failure or error
        self._drain()

    def _kill(self) -> None:
        for worker in self.crew.values():
            if worker.handle is not None:
                worker.handle.kill()

    async def _dismiss(self) -> None:
        """End whoever is still there, in order if that takes no longer than HALT seconds."""
        if not self.crew:
            return
        self._tell("halt")
        with anyio.move_on_after(HALT):
            async with anyio.create_task_group() as tasks:
                for worker in self.crew.values():
                    if worker.handle is not None:
                        tasks.start_soon(worker.handle.wait)
        self._kill()
        self.crew.clear()

    # -- workers ---------------------------------------------------------------------------------------
    async def _tend(self, shard: int) -> None:
        """See to it that a shard has a worker for as long as there is something to do in it."""
        while not self.scheduler.draining:
            if self._leases.exhausted and not self._leases.held(shard):
                return
            worker = self.crew[shard] = Worker(shard, next(self._keys))
            self._by_key[worker.key] = worker
            folder = merge.shard_path(self.folder.path, shard)
            folder.mkdir(parents=True, exist_ok=True)
            worker.handle = await self._engine.start(self._address, shard, self._token, folder)
            how = await end_of(worker, self._engine, self._lease.lost)
            del self.crew[shard], self._by_key[worker.key]
            self._lose(worker, how)

    def _lose(self, worker: Worker, how: str) -> None:
        """A worker is no more. What it had goes to the next one of its shard."""
        flying = self._calls.lost(worker.key)
        self._leases.lost(worker.shard)
        self._standing.left(worker)
        if not worker.over:
            who = f"worker {worker.shard} (process {worker.pid or '?'})"
            self.folder.log(f"{who} ended: {how}; {flying} calls in flight")
        done = self.ledger.shards.get(worker.shard, Account()).replies, worker.state.get("rows", 0)
        count, before = self._deaths.get(worker.shard, (0, (0, 0)))
        count = 1 if done != before else count + 1
        self._deaths[worker.shard] = count, done
        if count >= DEATHS and not self.scheduler.draining:
            why = "it takes more than worker_megabytes at once" if worker.retiring else how
            self._fail(
                RunError(
                    f"worker {worker.shard} ended {count} times without anything done ({why}); see "
                    f"{self.folder.path / 'run.log'}, mend that and resume the run"
                )
            )

    async def _look(self) -> None:
        """Look at how the workers stand, again and again."""
        while True:
            await anyio.sleep(LOOKS)
            self._refresh()
            try:
                self.folder.check_place()
            except RunError as error:
                self._fail(error)
            for worker in list(self.crew.values()):
                if worker.link is not None and monotonic() - worker.beaten > self._lease.lost:
                    worker.given_up.set()

    def _refresh(self) -> None:
        standing = self._standing
        standing.count(self.counts)
        standing.show(self.passages)
        self.scheduler.in_flight = standing.in_flight
        self.pace.together(standing.pace)

    # -- what is owed ----------------------------------------------------------------------------------
    def _read(self) -> Iterator[tuple[Planned, bool]]:
        """The plan, and of each episode whether it is owed."""
        for planned in self.job.plan():
            self._episodes_read += 1
            if self._is_done(planned):
                self.counts.already += 1
                yield planned, False
            elif planned.cell in self.stopped:
                self._standing.skipped += 1
                yield planned, False
            else:
                yield planned, True

    async def _count(self) -> None:
        try:
            self.counts.total = await to_thread.run_sync(self._planned, abandon_on_cancel=True)
            each = max(len(self.job.cells) * self.job.settings.trials // len(self.job.worlds), 1)
            self._leases.left = max(self.counts.total - self._episodes_read, 0) // each
        except WorldError as error:
            self._fail(error)

    async def _hand_out(self) -> None:
        """Answer who asks for tasks, one after another, as reading them may take long."""
        while True:
            worker, room = await self._requests.get()
            try:
                await to_thread.run_sync(self._leases.read, room)
            except Exception as error:
                self._fail(error)
            if self.crew.get(worker.shard) is not worker:
                continue  # it was lost meanwhile
            leases = self._leases.take(worker.shard, room)
            worker.post("lease", [lease.owed.packed(lease.number) for lease in leases])

    # -- what workers say ------------------------------------------------------------------------------
    def _post(self, key: int, *message: Any) -> None:
        if (worker := self._by_key.get(key)) is not None:
            worker.post(*message)

    def _tell(self, *message: Any) -> None:
        for worker in self.crew.values():
            worker.post(*message)

    def _connected(self, link: SocketLink) -> None:
        link.taken = partial(self._met, link)

    def _met(self, link: SocketLink, messages: list[Message], late: float) -> None:
        """The first that somebody says who has just connected: who it is."""
        try:
            what, token, who, *more = messages[0]
            if not hmac.compare_digest(str(token), self._token):
                raise ValueError("a stranger")
            worker = self._by_key.get(who) if what == "beat" else self.crew.get(who)
            if worker is None or (what == "hello" and worker.link is not None):
                raise ValueError("nobody who is expected")
        except (ValueError, TypeError, IndexError):
            link.abort()
            return
        worker.beaten = monotonic()
        if what == "beat":
            worker.beating = link
            link.post("ok")
            link.flush()
            return
        worker.link, (worker.pid,) = link, more
        link.taken, link.lost = partial(self._take, worker), worker.silent.set
        worker.post("welcome", self._welcome(worker))
        for cell, why in self.stopped.items():
            worker.post("cell", cell.env, cell.method, cell.model, why)
        for desk in self._calls.desks.values():
            desk.greet(worker.key)
        if self.spent is not None:
            worker.post("spent", self.spent)
        if self.scheduler.draining:
            worker.post("drain")
        if self.interrupted > 1:
            worker.post("halt")
        self._take(worker, messages[1:], late)

    def _welcome(self, worker: Worker) -> dict[str, Any]:
        return {
            "key": worker.key,
            "job": self.job.raw,
            "run": str(self.folder.path.resolve()),
            "places": -(-self._most_episodes() // self.workers),
            "lease": [self._lease.every, self._lease.lasts, self._lease.lost],
        }

    def _take(self, worker: Worker, messages: Sequence[Message], late: float) -> None:
        try:
            for message in messages:
                self._take_one(worker, message, late)
        except Exception:  # a fault of ours must not close the link in silence
            self.folder.log(
                f"worker {worker.shard}: what it said is not understood: {traceback.format_exc()}"
            )
            self._fail(RunError(f"worker {worker.shard} and its coordinator do not understand each other"))

    def _take_one(self, worker: Worker, message: Message, late: float) -> None:
        what, *more = message
        if what in ABOUT_CALLS:
            self._calls.take(worker.key, worker.shard, message, late)
        elif what == "lease":
            self._requests.put_nowait((worker, more[0]))
        elif what == "ended":
            self._leases.ended(worker.shard, more[0])
        elif what == "state":
            self._stands(worker, more[0])
        elif what == "cell":
            self._stop(Cell(*more[:3]), more[3])
        elif what == "opened":
            self.ledger.opened(worker.shard, Account.unpacked(more[0]))
        elif what == "log":
            self.folder.log(more[0])
        elif what == "notice":
            self.notices[more[0]] = None
        elif what == "bye":
            worker.over = True
        elif what == "fatal":
            kind, words, lasting = more
            if lasting:
                self._fail(
                    (DataError if kind == "DataError" else RunError)(f"worker {worker.shard}: {words}")
                )

    def _stands(self, worker: Worker, state: dict[str, Any]) -> None:
        worker.state = state
        self.ledger.shards[worker.shard] = Account.unpacked(state.pop("account"))
        most = self.job.settings.worker_megabytes
        if most is None or worker.handle is None:
            return
        megabytes = state["bytes"] / 1e6
        if megabytes > most and not worker.retiring:
            worker.retiring = True
            self.folder.log(
                f"worker {worker.shard} takes {megabytes:,.0f} MB of memory, over its {most:,}: it ends what it has "
                "begun and is replaced"
            )
            worker.post("drain")
        if megabytes > FAR_OVER * most:
            worker.handle.kill()

    def _stop(self, cell: Cell, why: str) -> None:
        if cell not in self.stopped:
            self._tell("cell", cell.env, cell.method, cell.model, why)
        super()._stop(cell, why)

    # -- for run.json ----------------------------------------------------------------------------------
    def totals(self) -> Mapping[str, Any]:
        found = self.ledger.sum
        return {
            "planned": self.counts.total,
            "seconds": round(self.budget.seconds, 1),
            "done_before": self.counts.already,
            "done": self.counts.done,
            "errors": self.counts.errors,
            "left_for_resume": self.counts.skipped,
            "calls": found.paid.calls,
            "paid": found.paid.as_dict(),
            "paid_usd": round(found.paid_usd, 6),
            "taken_from_earlier_runs": found.taken,
            "taken": found.taken_usage.as_dict(),
            "replies_without_a_price": found.unpriced,
            "failed_attempts": found.attempts_failed,
            "possibly_billed_attempts": found.possibly_billed,
            "cut_off_attempts": found.cut_off,
            "unreadable_ledger_lines": found.unreadable,
            "loop_lag_p99_ms": self.lag.quantile(0.99),
            "pace": self.pace.as_dict(list(self.passages.values())),
            "workers": self.workers,
        }
