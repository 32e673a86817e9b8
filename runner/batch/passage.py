"""A model in batch mode: calls are collected, go out as a batch when the run is at rest, and come back by it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from runner.batch.api import MB, Api, Form
from runner.batch.courier import Courier
from runner.batch.held import Chunk, Held, place_of
from runner.batch.log import Batch, BatchLog, Place
from runner.batch.manner import Hooks, Manner
from runner.batch.reading import Outcome
from runner.batch.rest import Rest
from runner.budget import Cost
from runner.errors import CellStopped, EpisodeFailed, ModelError, RunEnds, Transient, Unsupported
from runner.ledger import Ledger
from runner.models.base import Call, Reply, Usage
from runner.models.http import HttpModel
from runner.models.passage import OnFailure, Passage
from runner.models.queue import Ticket
from runner.models.wire import Prepared


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
        self.form: Form
        self.courier: Courier | None = None
        """Who brings batches to their end; None where they become files, and before the run begins."""
        self._submitted: dict[Place, Held] = {}
        self._tasks: TaskGroup

    def take_up(self, rest: Rest, form: Form, api: Api | None) -> list[Call]:
        """Get ready to serve. Gives the calls of earlier processes' open batches that are not answered yet: they
        are to be awaited as if they had been made here."""
        self.rest, self.form = rest, form
        if api is not None:
            self.courier = Courier(self.http, api, self.log, self, self.manner, self.hooks.note)
        return self._recover()

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
        return self.courier is None or all(batch.nonce in self.courier.resting for batch in self.batches)

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

    def owed(self, batch: Batch) -> list[Held]:
        """The calls in a batch that have no outcome yet."""
        return [held for held in self._submitted.values() if held.batch is batch]

    def settle(self, held: Held, outcome: Outcome) -> None:
        """The outcome goes to whoever awaits it, else to the ledger."""
        held.outcome = outcome
        if self._submitted.get(held.place) is held:
            del self._submitted[held.place]
            self.hooks.release(held.cost, True)
        if isinstance(outcome, ModelError) and not isinstance(outcome, RunEnds):
            outcome.batch = held.batch.id or held.batch.nonce if held.batch is not None else None
            self._tell(held.call, outcome)
        if isinstance(outcome, Reply):  # so that the next calls' estimates are better
            self.charges.real(held.call, outcome.usage)
        if held.waiting:
            self.still -= 1
        elif isinstance(outcome, Reply):
            self.keep(held.call, outcome)
        held.done.set()

    def again(self, held: Held) -> None:
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
        if self.courier is not None:
            self.courier.hurry()

    # -- what an earlier process left --------------------------------------------------------------------
    def _recover(self) -> list[Call]:
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
            for batch in self.batches if self.courier is not None else ():
                self._begin(batch)
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
        assert self.courier is not None
        self._tasks.start_soon(self.courier.bring, batch)

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
        self.settle(held, error)
        if isinstance(error, CellStopped):
            self.stop(error)

    def _chunks(self, calls: Iterator[tuple[Held, Prepared]]) -> Iterator[Chunk]:
        """As many calls as one batch may have, all to one path."""
        settings = self.http.batch
        most = min(self.form.most_requests, settings.requests or math.inf)
        if self.courier is not None:
            most = min(most, self.courier.most)
        room = min(self.form.most_bytes, (settings.megabytes or math.inf) * MB)
        chunk = Chunk()
        for held, asked in calls:
            line = self.form.line(chunk.next_key, asked)
            if chunk.calls and (
                len(chunk.calls) >= most or chunk.size + len(line) > room or chunk.path != asked.path
            ):
                yield chunk
                chunk = Chunk()
                line = self.form.line(chunk.next_key, asked)
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

    def keep(self, call: Call, reply: Reply) -> None:
        """Write a reply that nobody awaits to the ledger."""
        self.ledger.write_reply(call, range(call.first, call.first + call.n), reply)
