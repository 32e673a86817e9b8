"""A model in batch mode: calls are collected, go out as a batch when the run is at rest, and come back by it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import orjson
from anyio.abc import TaskGroup

from runner.batch.api import MB, Api, Look, Result, error_body
from runner.batch.log import Batch, BatchLog, Place, key_of, new_nonce
from runner.batch.openai import words_of
from runner.batch.rest import TURNS, Rest
from runner.budget import Cost
from runner.errors import (
    CellStopped,
    EpisodeFailed,
    ModelError,
    RunEnds,
    Transient,
    Unsupported,
)
from runner.ledger import Ledger
from runner.models.base import Call, Reply, Usage
from runner.models.http import HttpModel, Prepared
from runner.models.passage import OnFailure, Passage
from runner.models.queue import Ticket
from runner.models.transport import Response

Outcome: TypeAlias = Reply | ModelError
GROWTH = 1.5
"""Of the pauses between looks at a batch, and between tries of what failed."""
HEADING = 64
"""Bytes of a batch that are none of its requests'."""
GRACE = 30.0
"""Seconds that a submission under way gets to be confirmed when the run ends."""


@dataclass
class Export:
    """Where the next wave is written, and in which shape (None: the model's own). `written` tells what was: a
    file for each model that had something to ask, the first one's as named."""

    to: Path
    shape: str | None = None
    written: dict[Path, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manner:
    """How this process deals with batches. `wait`: until they have ended; else it submits and leaves.

    `adopt` are batches that a person names as those whose submission was not confirmed; `resubmit` says that
    there are none, and that a batch which its provider no longer knows is given up. `export`: what would be
    submitted becomes a file.
    """

    wait: bool = True
    adopt: tuple[str, ...] = ()
    resubmit: bool = False
    export: Export | None = None


@dataclass
class Hooks:
    """What a passage needs of its run. `admit` says how many of the first calls there is budget for (or raises
    BudgetSpent), `resume` that calls are under way already, `release` that one no longer is (True: it ended, in
    a reply or a failure); `note` logs a line; `priced`: a call's dollars are asked for."""

    admit: Callable[[Sequence[Cost]], int]
    resume: Callable[[Sequence[Cost]], None]
    release: Callable[[Cost, bool], None]
    note: Callable[[str], None]
    priced: bool = False


@dataclass(eq=False)
class Held:
    """A call that awaits its batch. `batch` is None until it is in one."""

    call: Call
    ticket: Ticket
    cost: Cost
    batch: Batch | None = None
    outcome: Outcome | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    waiting: bool = False
    """Whether somebody awaits it."""

    @property
    def place(self) -> Place:
        return place_of(self.call)


@dataclass(eq=False)
class Chunk:
    """A batch in the making: calls with `sent` and line, all to one path."""

    nonce: str = field(default_factory=new_nonce)
    path: str = ""
    calls: list[tuple[Held, Mapping[str, Any], bytes]] = field(default_factory=list)
    size: int = HEADING

    @property
    def next_key(self) -> str:
        return key_of(self.nonce, len(self.calls))

    def add(self, held: Held, asked: Prepared, line: bytes) -> None:
        self.path = asked.path
        self.calls.append((held, asked.sent, line))
        self.size += len(line)


class BatchPassage(Passage):
    """As `Passage`: `ask` gives a reply to a call, after as many tries as the settings allow. A try is a batch.

    Below it nothing knows of batches, and it knows nothing of episodes: that no call is missing from a wave is
    what `Rest` tells. `serve` runs as long as the run does, with a task for each open batch.
    """

    batched = True

    def __init__(
        self,
        name: str,
        model: HttpModel,
        log: BatchLog,
        ledger: Ledger,
        hooks: Hooks,
        manner: Manner,
        on_failure: OnFailure | None = None,
    ) -> None:
        super().__init__(name, model, on_failure)
        self.http = model
        self.log = log
        self.ledger = ledger
        self.hooks = hooks
        self.manner = manner
        self.parked: dict[Held, None] = {}
        """Calls that are in no batch yet, in order of arrival."""
        self.still = 0
        self.rest: Rest
        self.api: Api
        self._submitted: dict[Place, Held] = {}
        self._adopt = list(manner.adopt)
        self._most = math.inf
        self._sending = anyio.Lock()
        self._resting: set[str] = set()
        """Batches that were looked at once by a process that does not wait."""
        self._grace: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None

    # -- what others see -------------------------------------------------------------------------------
    @property
    def flying(self) -> int:
        return 0

    @property
    def waiting(self) -> int:
        return len(self.parked)

    @property
    def batches(self) -> list[Batch]:
        """Those that are open."""
        return [batch for batch in self.log.of(self.name) if batch.open]

    @property
    def left(self) -> bool:
        """Whether every open batch was submitted, and looked at as often as this process will."""
        return all(batch.nonce in self._resting for batch in self.batches)

    # -- a call ----------------------------------------------------------------------------------------
    async def ask(self, call: Call, ticket: Ticket) -> Reply:
        began, tries, adapted = self.queue.clock(), 0, set[str]()
        while True:
            outcome = await self._outcome(self._held(call, ticket))
            if isinstance(outcome, Reply):
                return dataclasses.replace(outcome, waited=self.queue.clock() - began)
            if isinstance(outcome, Unsupported) and outcome.parameter not in adapted:
                adapted.add(outcome.parameter)
                continue
            if not isinstance(outcome, (Transient, Unsupported)):
                raise outcome
            tries += 1
            if tries >= self.model.attempts:
                raise EpisodeFailed(f"gave up after {tries} batches: {outcome}", status=outcome.status)

    def _held(self, call: Call, ticket: Ticket) -> Held:
        if self.stopped is not None:
            raise type(self.stopped)(str(self.stopped))
        held = self._submitted.get(place_of(call))
        if held is None or held.done.is_set():
            held = Held(call, ticket, self._cost(call))
            self.parked[held] = None
        held.call, held.ticket = call, ticket
        return held

    async def _outcome(self, held: Held) -> Outcome:
        held.waiting = True
        self.still += 1
        self.rest.note()
        try:
            await held.done.wait()
        finally:
            if not held.done.is_set():  # nobody wants it any more; if it is in a batch its reply is kept
                held.waiting = False
                self.still -= 1
                self.parked.pop(held, None)
                self.rest.note()
        assert held.outcome is not None
        return held.outcome

    def _settle(self, held: Held, outcome: Outcome) -> None:
        """The outcome goes to whoever awaits it, else to the ledger."""
        held.outcome = outcome
        if self._submitted.get(held.place) is held:
            del self._submitted[held.place]
            self.hooks.release(held.cost, True)
        if isinstance(outcome, ModelError) and not isinstance(outcome, RunEnds):
            outcome.batch = held.batch.id or held.batch.nonce if held.batch is not None else None
            self._tell(held.call, outcome)
        if held.waiting:
            self.still -= 1
        elif isinstance(outcome, Reply):
            self._keep(held.call, outcome)
        held.done.set()

    def _again(self, held: Held) -> None:
        """Into another batch, which is nobody's failure."""
        if self._submitted.get(held.place) is held:
            del self._submitted[held.place]
            self.hooks.release(held.cost, False)
        held.batch = None
        if held.waiting and not held.done.is_set():
            self.parked[held] = None

    def _cost(self, call: Call) -> Cost:
        charge = self.charges.of(call)
        usage = Usage(prompt=round(charge.input), completion=round(charge.output), calls=1)
        return Cost(usage.prompt + usage.completion, self.model.cost(usage) if self.hooks.priced else None)

    def stop(self, error: CellStopped) -> None:
        """All who wait, and whoever comes, get the error. Submitted batches stay where they are."""
        super().stop(error)
        for held in [*self.parked, *self._submitted.values()]:
            if held.waiting and not held.done.is_set():
                held.outcome, held.waiting = type(error)(str(error)), False
                self.still -= 1
                held.done.set()
        self.parked.clear()
        if self._grace is not None:
            self._grace.deadline = anyio.current_time() + GRACE

    # -- what an earlier process left --------------------------------------------------------------------
    def recover(self) -> list[Call]:
        """The calls of the batches that are open, and not answered yet: they are awaited as if they had been
        made here."""
        calls: list[Call] = []
        for batch in self.log.of(self.name):
            if batch.stage == "exported":
                self.log.step(batch, "dropped", why="its file was not imported")
                self.hooks.note(
                    f"the results of {batch.file} were not imported: its requests are made anew "
                    "(importing them later does no harm)"
                )
            if not batch.open:
                continue
            for entry in batch.entries.values():
                scope, request_hash, first, n = entry.place
                if self.ledger.has(scope, request_hash, first):
                    continue
                request = self.ledger.request(request_hash)
                if request is not None and entry.place not in self._submitted:
                    call = Call(request, n, None, scope, first)
                    held = Held(call, Ticket(0), self._cost(call), batch)
                    self._submitted[entry.place] = held
                    calls.append(call)
            batch.unsure = batch.stage in ("intended", "uploaded")
        self.hooks.resume([held.cost for held in self._submitted.values()])
        return calls

    # -- batches ---------------------------------------------------------------------------------------
    async def serve(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            for batch in self.batches:
                self._tasks.start_soon(self._follow, batch)
            while self.stopped is None:
                await self.rest.wave(self)
                await self._wave()

    async def _wave(self) -> None:
        """Make batches of all calls that there is budget for, the oldest episodes' first."""
        waiting = sorted(self.parked, key=lambda held: held.ticket.priority)
        try:
            count = self.hooks.admit([held.cost for held in waiting])
        except RunEnds:
            return  # the run has stopped this passage
        if count < len(waiting):
            self.rest.block(self)
        for chunk in self._chunks(self._prepared(waiting[:count])):
            if self.stopped is not None:
                return
            self._begin(self._intend(chunk))
            await anyio.lowlevel.checkpoint()
        self.rest.note()

    def _begin(self, batch: Batch) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._follow, batch)

    def _prepared(self, waiting: Sequence[Held]) -> Iterator[tuple[Held, Prepared]]:
        """The calls with their bodies. What a service is known to refuse is left out here, or ends the call."""
        for held in waiting:
            while self.stopped is None and held in self.parked:
                try:
                    asked = self.http.prepare(held.call)
                except Unsupported as error:
                    self._tell(held.call, error)
                except ModelError as error:
                    self._fail(held, error)
                else:
                    yield held, asked
                    break

    def _fail(self, held: Held, error: ModelError) -> None:
        self.parked.pop(held, None)
        self.hooks.release(held.cost, True)
        self._settle(held, error)
        if isinstance(error, CellStopped):
            self.stop(error)

    def _chunks(self, calls: Iterator[tuple[Held, Prepared]]) -> Iterator[Chunk]:
        """As many calls as one batch may have, all to one path."""
        settings = self.http.batch
        most = min(self.api.most_requests, settings.requests or math.inf, self._most)
        room = min(self.api.most_bytes, (settings.megabytes or math.inf) * MB)
        chunk = Chunk()
        for held, asked in calls:
            line = self.api.line(chunk.next_key, asked)
            if chunk.calls and (
                len(chunk.calls) >= most or chunk.size + len(line) > room or chunk.path != asked.path
            ):
                yield chunk
                chunk = Chunk()
                line = self.api.line(chunk.next_key, asked)
            if len(line) > room:
                self._fail(
                    held, EpisodeFailed(f"one request is larger than a batch may be ({room:,.0f} bytes)")
                )
                continue
            chunk.add(held, asked, line)
        if chunk.calls:
            yield chunk

    def _intend(self, chunk: Chunk) -> Batch:
        for held, _, _ in chunk.calls:
            self.ledger.write_request(held.call.request)
        self.ledger.sync()
        lines = ((held.place, sent, line) for held, sent, line in chunk.calls)
        batch = self.log.intend(self.name, chunk.nonce, chunk.path, time.time(), lines)
        for held, _, _ in chunk.calls:
            self.parked.pop(held, None)
            held.batch = batch
            self._submitted[held.place] = held
        return batch

    async def _follow(self, batch: Batch) -> None:
        """A batch from whatever stage it is at to its end."""
        steps: Mapping[str, Callable[[Batch], Awaitable[None]]] = {
            "intended": self._send,
            "uploaded": self._send,
            "submitted": self._watch,
            "ended": self._collect,
        }
        try:
            while batch.open and self.stopped is None:
                await steps[batch.stage](batch)
        except CellStopped as error:
            self.stop(error)
        except ModelError as error:
            self.stop(CellStopped(f"{self.http.where}: {error}", status=error.status))
        finally:
            self.rest.unblock()

    async def _patiently(self, what: str, act: Callable[[], Awaitable[Any]]) -> Any:
        """The outcome of `act`, tried until it is no passing failure: a batch is worth waiting for."""
        pause = self.http.batch.shortest_pause
        while True:
            try:
                return await act()
            except Transient as error:
                wait = pause if error.retry_after is None else max(pause, error.retry_after)
                self.hooks.note(f"{what} failed, next try in {wait:.0f} s: {error}")
                await anyio.sleep(wait)
                pause = min(pause * GROWTH, self.http.batch.longest_pause)

    # -- its submission ----------------------------------------------------------------------------------
    async def _send(self, batch: Batch) -> None:
        """A step towards its being submitted."""
        async with self._sending:
            file = self.log.file_of(batch)
            if batch.unsure and await self._adopted(batch):
                return
            batch.unsure = False
            if not file.exists():
                self._drop(batch, "its file is gone")
            elif batch.file is None and (name := await self._uploaded(batch, file)) is not None:
                self.log.step(batch, "uploaded", file=name)
            else:
                await self._submit(batch, file)

    async def _uploaded(self, batch: Batch, file: Path) -> str | None:
        name = await self._patiently("an upload", lambda: self.api.upload(batch, file))
        return None if name is None else str(name)

    async def _submit(self, batch: Batch, file: Path) -> None:
        try:
            with anyio.CancelScope(
                shield=True
            ) as self._grace:  # the run's end leaves it time to be confirmed
                look = await self.api.submit(batch, file)
                self.log.step(batch, "submitted", id=look.id, status=look.status, counts=look.counts)
                if not self.manner.wait:
                    self._resting.add(batch.nonce)
        except Transient as error:
            batch.unsure = error.billed or (error.status or 0) >= 500
            self.hooks.note(f"a submission failed: {error}")
            await anyio.sleep(max(error.retry_after or 0.0, self.http.batch.shortest_pause))
        except ModelError as error:
            if error.status == 413 and len(batch.entries) > 1:
                self._halve(batch)
            elif error.status == 404 and batch.file is not None:
                self.log.step(batch, "intended", file_gone=True)
            elif isinstance(error, CellStopped):
                raise
            else:
                raise CellStopped(f"{self.http.where}: the batch was refused: {error}") from error
        finally:
            self._grace = None

    async def _adopted(self, batch: Batch) -> bool:
        """Whether it is known now which batch it is at the provider. Raises CellStopped where a person must say."""
        if self.api.names and batch.file is None:
            return False  # no file, no batch
        if self._adopt:
            name = self._adopt.pop(0)
            self._adopting(batch, await self._patiently("a look", lambda: self.api.look(name)))
            return True
        if self.manner.resubmit:
            return False
        looks = await self._patiently("a look for a batch", lambda: self.api.find(batch))
        known = {other.id for other in self.log.batches.values()}
        looks = [look for look in looks if look.id not in known]
        if len(looks) > 1:
            ids = ", ".join(look.id for look in looks[:5])
            raise CellStopped(
                f"{self.http.where}: a batch of {len(batch.entries)} requests may have been submitted at "
                f"{batch.since} without being confirmed, and several look like it: {ids}. Resume with --adopt ID if "
                "one is this run's, or with --resubmit if none is"
            )
        if looks:
            self._adopting(batch, looks[0])
        return bool(looks)

    def _adopting(self, batch: Batch, look: Look) -> None:
        self.hooks.note(f"batch {look.id} was submitted before this process began, and is gone on with")
        self.log.step(
            batch, "submitted", id=look.id, status=look.status, counts=look.counts, adopted=not self.api.names
        )

    def _drop(self, batch: Batch, why: str) -> None:
        """Give it up; its calls go into another one."""
        self.log.step(batch, "dropped", why=why)
        self.hooks.note(f"batch {batch.id or batch.nonce} is given up ({why}); its requests are made anew")
        for held in [held for held in self._submitted.values() if held.batch is batch]:
            self._again(held)
        self.rest.note()

    def _halve(self, batch: Batch) -> None:
        self._most = max(len(batch.entries) // 2, 1)
        self._drop(batch, f"too much at once; from now on at most {self._most:,} requests a batch")

    # -- its end -----------------------------------------------------------------------------------------
    async def _watch(self, batch: Batch) -> None:
        """Until the batch has ended, with growing pauses."""
        pause = self.http.batch.shortest_pause
        looked = batch.nonce in self._resting
        while not looked:
            if self.manner.wait:
                await anyio.sleep(pause)
                pause = min(pause * GROWTH, self.http.batch.longest_pause)
            look = await self._look(batch)
            if look is None:
                return
            if look.ended:
                if look.fault is not None:
                    await self._failed(batch, look)
                else:
                    self.log.step(batch, "ended", status=look.status, counts=look.counts)
                return
            if (look.status, look.counts) != (batch.status, batch.counts):
                self.log.step(batch, "submitted", status=look.status, counts=look.counts)
            looked = not self.manner.wait
        self._resting.add(batch.nonce)
        self.rest.note()
        await anyio.sleep_forever()

    async def _look(self, batch: Batch) -> Look | None:
        """How it is doing; None if the provider does not know it, and a person said what to do then."""
        assert batch.id is not None
        id = batch.id
        try:
            look = await self._patiently(f"a look at batch {id}", lambda: self.api.look(id))
        except ModelError as error:
            self._gone(batch, error)
            return None
        assert isinstance(look, Look)
        return look

    def _gone(self, batch: Batch, error: ModelError) -> None:
        """The provider may not know the batch any more: give it up if a person said so, else stop."""
        if error.status != 404:
            raise error
        if not self.manner.resubmit:
            raise CellStopped(
                f"{self.http.where}: batch {batch.id} or its results are not there any more; to make its "
                f"{len(batch.entries)} requests anew, resume with --resubmit ({error})",
                status=404,
            ) from error
        self._drop(batch, "the provider does not know it")

    async def _failed(self, batch: Batch, look: Look) -> None:
        """It failed as a whole, before any request was made."""
        if look.full and len(batch.entries) > 1:
            self.hooks.note(f"batch {look.id} failed: {look.fault}")
            await anyio.sleep(self.http.batch.shortest_pause)
            self._halve(batch)
            return
        self.log.step(batch, "dropped", why=look.fault, status=look.status)
        raise CellStopped(
            f"{self.http.where}: batch {look.id} failed its validation: {look.fault}. Correct the job, then resume"
        )

    async def _collect(self, batch: Batch) -> None:
        """Hand out the results; what was not answered is asked for again by whoever wants it."""
        look = await self._look(batch)
        if look is None:
            return
        owed = {held.place: held for held in self._submitted.values() if held.batch is batch}
        settled: list[Held] = []

        async def download() -> bool:
            unread = 0
            async for result in self.api.results(look):
                entry = None if result is None else batch.entries.get(result.key)
                if result is None or entry is None:
                    if result is not None and batch.adopted:
                        return False  # an adopted one is proved by its first result
                    unread += 1
                    continue
                batch.adopted = False
                if (held := owed.pop(entry.place, None)) is not None:
                    self._settle(held, self.outcome(batch, result, held.call))
                    settled.append(held)
            if unread:
                self.hooks.note(f"batch {look.id}: {unread} lines of its results are unreadable, or not ours")
            return True

        try:
            ours = not owed or await self._patiently(f"the results of batch {look.id}", download)
        except ModelError as error:
            self._gone(batch, error)
            return
        finally:
            if not owed:  # also where the run has ended on what it got: then this is the last thing done
                await self._settled(batch, settled)
        if not ours:
            self.hooks.note(f"batch {look.id} is not this run's, though it looked like it")
            self.log.step(batch, "intended", stranger=look.id)
            batch.unsure = True
        elif owed:
            for held in owed.values():
                self._settle(held, Transient(f"{self.http.where}: {words_of(look.status)}"))
            await self._settled(batch, settled)
        for held in settled:
            if isinstance(held.outcome, CellStopped):
                raise held.outcome

    async def _settled(self, batch: Batch, settled: Sequence[Held]) -> None:
        """The end of a batch, once its replies are in the ledger: whoever awaits one writes it in its turn, which
        comes next."""
        with anyio.CancelScope(shield=True):
            for _ in range(TURNS):
                await anyio.lowlevel.checkpoint()
            for held in settled:
                scope, request_hash, first, _ = held.place
                if isinstance(held.outcome, Reply) and not self.ledger.has(scope, request_hash, first):
                    self._keep(held.call, held.outcome)
            self.ledger.sync()
            self.log.step(batch, "settled")

    def _keep(self, call: Call, reply: Reply) -> None:
        self.ledger.write_reply(call, range(call.first, call.first + call.n), reply)

    def outcome(self, batch: Batch, result: Result, call: Call) -> Outcome:
        """What a result is for its call."""
        entry = batch.entries[result.key]
        if result.kind:
            return Transient(f"{self.http.where}: {words_of(result.kind)}")
        try:
            if result.status != 200:
                self.http.read(
                    Response(result.status, {}, error_body(result.body)), self._body(batch, result.key)
                )
            if not isinstance(result.body, Mapping):
                raise Transient(f"{self.http.where}: a result without a body", status=result.status)
            reply = self.http.reply(result.body, call, batch.sents[entry.sent])
        except ModelError as error:
            return error
        if self._submitted:  # of files that are read later nothing more is to be learnt
            self.charges.real(call, reply.usage)
        return dataclasses.replace(reply, batch=batch.id or batch.nonce)

    def _body(self, batch: Batch, key: str) -> dict[str, Any]:
        """What was sent, as a refused parameter is looked for in it."""
        try:
            row = orjson.loads(self.log.line_of(batch, key) or b"{}")
        except ValueError:
            row = {}
        found = row.get("body", row.get("params"))
        return found if isinstance(found, dict) else {}


def place_of(call: Call) -> Place:
    """Which draws a call is for."""
    return call.scope, call.request.hash, call.first, call.n
