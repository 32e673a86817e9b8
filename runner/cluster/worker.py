"""One worker: an execution whose tasks and permits are leased from the coordinator, and that writes its own shard.

`python -m runner.cluster.worker HOST PORT SHARD`; the token that opens the coordinator is in the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from anyio import to_thread
from anyio.abc import TaskGroup

from envs.base import DataError, Task
from runner import loop
from runner.cluster.account import Account
from runner.cluster.beat import Beat, Lease
from runner.cluster.leased import LeasedPassage
from runner.cluster.leases import episodes
from runner.cluster.link import Message, SocketLink
from runner.cluster.memory import resident
from runner.cluster.shard import ShardFolder, ShardLedger
from runner.episode import Episode
from runner.errors import OvernightError, RunEnds, RunError
from runner.execution import Execution
from runner.job import Cell, Job, Planned
from runner.ledger import Ledger
from runner.models.base import Model
from runner.models.passage import Passage
from runner.place import Place
from runner.scheduler import Scheduler
from runner.vitals import LONGEST

TOKEN = "OVERNIGHT_CLUSTER_TOKEN"
"""Environment variable that holds the token."""
REPORTS = 0.5
"""Seconds between a worker's reports of how it stands."""
BOUNDED = ("max_usd", "max_tokens", "max_calls", "max_hours")
"""Limits that only the coordinator keeps."""
LINGER = 5.0
"""Seconds that calls may still take when the coordinator is gone."""
FATAL = 70
"""Exit code of a worker that could not go on."""


class LeasedScheduler(Scheduler):
    """Takes tasks only when there is room for their episodes: what waits here, no other worker has."""

    def __init__(self, of: WorkerExecution, places: int) -> None:
        super().__init__(places, of._solve)
        self._of = of

    async def _feed(self, plan: Iterator[Planned], tasks: TaskGroup) -> None:
        while not self.draining:
            if self.in_flight >= self.max_episodes:
                await self._of.room()
                continue
            try:
                batch = await self._of.more(self.max_episodes - self.in_flight)
            except Exception as error:  # those in flight end, then it is raised
                self._plan_error = error
                break
            if batch is None:
                break
            self._ready.extend(batch)
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


class WorkerExecution(Execution):
    """A run's execution in one worker. `places`: episodes that it may have in flight."""

    folder: ShardFolder
    ledger: ShardLedger

    def __init__(self, job: Job, run: Path, folder: ShardFolder, link: SocketLink, places: int) -> None:
        self._run, self._link = run, link
        super().__init__(job, folder)
        self.sums = None
        self.scheduler = LeasedScheduler(self, places)
        self.scheduler.moved = self._moved
        self._room = asyncio.Event()
        self._asking: asyncio.Future[list[Any]] | None = None
        self._owing: Counter[int] = Counter()
        """Episodes that are to end, by the number of their lease."""
        self._lease_of: dict[str, int] = {}
        self._written: set[str] = set()
        self._reader = _Reader(job)
        self.ended_in_order = False
        """Whether there was nothing more to do, and it was not told to leave."""
        self.ended: dict[str, bool] = {}
        """What earlier workers of the shard have ended, and whether in an error."""

    def _ledger(self) -> Ledger:
        return ShardLedger(self.folder.path / "ledger.jsonl", self._run / "ledger.jsonl")

    def _passage(self, name: str, model: Model) -> Passage:
        return LeasedPassage(name, model, self._link.post, self._failed, self._begin, self.ledger.written)

    def _place(self, planned: Planned) -> Place:
        place = super()._place(planned)
        place.run = self._run.name
        return place

    async def _count(self) -> None:
        """The coordinator counts."""

    # -- what is owed ----------------------------------------------------------------------------------
    def _moved(self) -> None:
        self._room.set()

    async def room(self) -> None:
        """Until an episode has ended."""
        self._room.clear()
        if self.scheduler.in_flight >= self.scheduler.max_episodes:
            await self._room.wait()

    async def more(self, room: int) -> list[Planned] | None:
        """Episodes that are leased to this worker, for about so much room; None: there are no more."""
        each = max(self.job.settings.trials * len(self.job.cells) // len(self.job.worlds), 1)
        self._asking = asyncio.get_running_loop().create_future()
        self._link.post("lease", max(room // each, 1))
        leases = await self._asking
        self._asking = None
        if not leases:
            self.ended_in_order = True
            return None
        found: list[Planned] = []
        for number, env, nth, index, task_id, some in leases:
            task = await to_thread.run_sync(self._reader.find, env, nth, task_id)
            count = 0
            for planned in episodes(self.job, task, env, index, some):
                if planned.id in self.ended:
                    continue
                count += 1
                self._lease_of[planned.id] = number
                found.append(planned)
            if count:
                self._owing[number] = count
            else:
                self._link.post("ended", [number])
        return found

    async def _solve(self, planned: Planned) -> None:
        self.ledger.adopt(planned.id)
        await super()._solve(planned)
        number = self._lease_of.pop(planned.id)
        if planned.id in self._written:
            self._written.discard(planned.id)
        elif planned.cell not in self.stopped:
            return  # it is not whole: the lease stays open
        self._owing[number] -= 1
        if not self._owing[number]:
            del self._owing[number]  # told once its row is in the kernel's hands: at the end of this turn
            asyncio.get_running_loop().call_soon(self._link.post, "ended", [number])

    def _write(self, episode: Episode, error: BaseException | None, status: str | None) -> None:
        super()._write(episode, error, status)
        self._written.add(episode.place.id)

    def _stop(self, cell: Cell, why: str) -> None:
        if cell not in self.stopped:
            self._link.post("cell", cell.env, cell.method, cell.model, why)
        super()._stop(cell, why)

    # -- the link --------------------------------------------------------------------------------------
    def take(self, messages: list[Message], late: float) -> None:
        """What the coordinator says."""
        for message in messages:
            what, *more = message
            if what in ("grant", "line", "stopped"):
                passage = self.passages[message[1]]
                assert isinstance(passage, LeasedPassage)
                passage.take(message, late)
            elif what == "lease":
                if self._asking is not None and not self._asking.done():
                    self._asking.set_result(more[0])
            elif what == "cell":
                self.stopped.setdefault(Cell(*more[:3]), more[3])
            elif what == "spent":
                self.spent = more[0]
                self.scheduler.drain()
            elif what == "drain":
                self.scheduler.drain()
            elif what == "halt":
                self.interrupted = 1
                self.interrupt()

    def lost(self) -> None:
        """The coordinator is gone: what was asked for may still come for a while, nothing else is asked."""
        gone = RunEnds("the coordinator is gone; resume the run")
        self.spent = str(gone)
        self.scheduler.drain()
        for passage in self.passages.values():
            passage.stop(gone)
        asyncio.get_running_loop().call_later(LINGER, self._halt)

    def _halt(self) -> None:
        self.interrupted = 1
        self.interrupt()

    async def report(self, execution: Execution) -> None:
        """Tell how it stands, every now and then."""
        said = 0
        while True:
            for notice in list(self.notices)[said:]:
                self._link.post("notice", notice)
            said = len(self.notices)
            self.tell()
            await anyio.sleep(REPORTS)

    def tell(self) -> None:
        """Tell how it stands: all figures are those of the shard, whoever worked on it."""
        longest: list[tuple[str, str, str, float]] = [
            (name, scope, endpoint, passage.queue.clock() - since)
            for name, passage in self.passages.items()
            for scope, endpoint, since in list(passage.under_way.values())
        ]
        longest.sort(key=lambda call: -call[3])
        retrying = [
            [name, why] for name, p in self.passages.items() for why in list(p.retrying.values())[:20]
        ]
        self._link.post(
            "state",
            {
                "account": Account.of(self.ledger).packed(),
                "rows": len(self.ended) + self.counts.done,
                "errors": sum(self.ended.values()) + self.counts.errors,
                "skipped": self.counts.skipped,
                "in_flight": self.scheduler.in_flight,
                "bytes": resident(),
                "longest": longest[:LONGEST],
                "retrying": retrying,
                "pace": self.pace.sums(),
            },
        )


class _Reader:
    """A job's tasks by their place in their world's. Read in order, once, as leases go in plan order."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tasks: dict[str, Iterator[Task]] = {}
        self._nth: dict[str, int] = {}

    def find(self, env: str, nth: int, task_id: str) -> Task:
        """Raises DataError where another task is there than the coordinator has read."""
        if env not in self._tasks or self._nth[env] >= nth:
            self._tasks[env], self._nth[env] = self._job.tasks(env), -1
        for task in self._tasks[env]:
            self._nth[env] += 1
            if self._nth[env] == nth:
                if task.id != task_id:
                    raise DataError(
                        f"envs.{env}: task {nth} is {task.id!r} for this worker and {task_id!r} for the others; all "
                        "workers must read the same data in the same order"
                    )
                return task
        raise DataError(
            f"envs.{env}: there is no task {nth} ({task_id!r}) for this worker; all must read the same data"
        )


async def work(host: str, port: int, shard: int, token: str) -> int:
    """Work on a shard until there is nothing left to do; the exit code."""
    event_loop = asyncio.get_running_loop()
    first: asyncio.Future[dict[str, Any]] = event_loop.create_future()
    link = SocketLink()
    early: list[tuple[list[Message], float]] = []

    def taken(messages: list[Message], late: float) -> None:
        if messages[0][0] == "welcome" and not first.done():
            first.set_result(messages.pop(0)[1])
        early.append((messages, late))

    def lost() -> None:
        if not first.done():
            first.set_exception(RunError("the coordinator closed the connection"))

    link.taken, link.lost = taken, lost
    await event_loop.create_connection(lambda: link, host, port)
    link.post("hello", token, shard, os.getpid())
    with anyio.fail_after(60):
        welcome = await first
    beat = Beat((host, port), token, welcome["key"], Lease(*welcome["lease"]))
    try:
        return await _work(link, shard, welcome, early)
    except BaseException as error:
        failure = error
        while isinstance(failure, BaseExceptionGroup) and failure.exceptions:
            failure = failure.exceptions[0]
        if isinstance(failure, (KeyboardInterrupt, asyncio.CancelledError)):
            raise
        link.post("log", f"worker {shard}: " + "".join(traceback.format_exception(failure)))
        lasting = isinstance(failure, (OvernightError, DataError))
        link.post("fatal", type(failure).__name__, str(failure), lasting)
        return FATAL
    finally:
        link.flush()
        await anyio.lowlevel.checkpoint()
        link.close()
        beat.close()


async def _work(
    link: SocketLink, shard: int, welcome: dict[str, Any], early: list[tuple[list[Message], float]]
) -> int:
    run = Path(welcome["run"])

    def told(message: str) -> bool:
        link.post("log", message)
        return not link.closed

    job = await to_thread.run_sync(_job, welcome["job"])
    folder = await to_thread.run_sync(
        ShardFolder.take, run, shard, told, welcome["lease"][2], lambda: not link.closed
    )
    try:
        execution = WorkerExecution(job, run, folder, link, welcome["places"])
        execution.ended = await to_thread.run_sync(folder.ended)
        link.post("opened", Account.of(execution.ledger).packed())
        link.taken, link.lost = execution.take, execution.lost
        for messages, late in early:
            execution.take(messages, late)
        if link.closed:
            execution.lost()
        await execution.run(execution.report)
        execution.tell()
        link.post("bye", execution.ended_in_order and not execution.scheduler.draining)
        return 0
    finally:
        folder.close()


def _job(raw: dict[str, Any]) -> Job:
    limits = {key: value for key, value in raw.get("limits", {}).items() if key not in BOUNDED}
    return Job.parse({**raw, "limits": limits})


def main(words: Sequence[str] | None = None) -> int:
    """Run a worker in this process."""
    host, port, shard = sys.argv[1:] if words is None else words
    token = os.environ.get(TOKEN, "")
    return loop.run(lambda: work(host, int(port), int(shard), token))


if __name__ == "__main__":
    sys.exit(main())
