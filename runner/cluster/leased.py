"""A worker's side of the gates: a passage whose queue is the coordinator's.

Tries, retries and what a failure means for an episode are the passage's as ever. Where a call would wait at a gate, it
is asked for; what a gate would be told of it, the coordinator is told.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from runner.cluster import wire
from runner.errors import CellStopped, ModelError, Transient
from runner.models.base import Call, Model, Reply
from runner.models.gate import Gate
from runner.models.limits import Charge
from runner.models.line import PARKED, Line
from runner.models.passage import OnFailure, Passage
from runner.models.queue import Queue, Ticket

Post = Callable[..., None]


class LeasedQueue(Queue):
    """Who waits in this process. Of them no more are asked for at once than this process could have in flight."""

    def __init__(self, model: str, post: Post) -> None:
        super().__init__()
        self.model = model
        self._post = post
        self._asked: dict[int, Ticket] = {}
        """By number: asked for and not let through yet."""
        self._numbers: dict[int, int] = {}
        """The number of a ticket (by its `id`) that was asked for and has not ended."""
        self._next = itertools.count(1)

    def tell(self, what: str, ticket: Ticket, *more: Any) -> None:
        """Tell the coordinator something of a call that it knows."""
        number = self._numbers.get(id(ticket))
        if number is not None:
            self._post(what, self.model, number, *more)

    def ended(self, what: str, ticket: Ticket, *more: Any) -> None:
        """Tell the coordinator how a call ended: it has left there with that."""
        self.tell(what, ticket, *more)
        self._numbers.pop(id(ticket), None)

    @property
    def most(self) -> int:
        """Calls that this process may have asked for or in flight at once."""
        return sum(gate.most for gate in self.gates)

    def enter(self, ticket: Ticket, charge: Charge) -> None:
        """Ask for a place."""
        ticket.charge = charge
        ticket.gate = None
        if self._shut:
            return
        ticket.queued = True
        self.waiting += 1
        heapq.heappush(self._heap, (ticket.priority, next(self._order), ticket))
        self._ask()

    def _ask(self) -> None:
        while len(self._numbers) < self.most and (ticket := self.oldest()) is not None:
            heapq.heappop(self._heap)
            if id(ticket) in self._numbers:  # it is there twice, since it was lent a priority
                continue
            number = next(self._next)
            self._numbers[id(ticket)], self._asked[number] = number, ticket
            charge = ticket.charge
            self._post(
                "want", self.model, number, id(ticket), ticket.priority,
                charge.input, charge.output, charge.input_variance, charge.output_variance,
            )  # fmt: skip

    def lend(self, ticket: Ticket, priority: int) -> None:
        if priority < ticket.priority:
            ticket.priority = priority
            if id(ticket) in self._numbers:
                self.tell("lent", ticket, priority)
            elif ticket.queued:
                heapq.heappush(self._heap, (priority, next(self._order), ticket))

    def let_through(self, number: int, gate: Gate | None) -> None:
        """The coordinator lets a call through; None: no call is made any more. One that left meanwhile has said so."""
        ticket = self._asked.pop(number, None)
        if ticket is None:
            return
        self._unqueue(ticket)
        if gate is None:
            self._numbers.pop(id(ticket), None)
        else:
            ticket.gate, ticket.flying = gate, True
            gate.flying += 1
        ticket.grant()

    def leave(self, ticket: Ticket, entered: bool) -> None:
        if ticket.queued:
            self._unqueue(ticket)
            number = self._numbers.get(id(ticket))
            if number is not None:
                del self._asked[number]
                self.ended("left", ticket)
        elif ticket.flying and ticket.gate is not None:
            if not entered:
                ticket.gate.refund(ticket)
            ticket.gate.release(ticket)

    def pump(self) -> None:
        """Places are free here: ask for more."""
        self._ask()

    def shut(self) -> None:
        super().shut()
        asked, self._asked = self._asked, {}
        for ticket in asked.values():
            self.ended("left", ticket)
            self._unqueue(ticket)
            ticket.grant()


class LeasedGate(Gate):
    """Stands for a gate of the coordinator's. It only counts what this process has in flight there."""

    def __init__(self, most: int, queue: LeasedQueue, name: str) -> None:
        super().__init__(most, queue=queue, name=name)
        self._leased = queue

    def pump(self) -> None:
        self._leased.pump()

    def pass_one(self) -> bool:
        return False

    def settle(self, ticket: Ticket, charge: Charge) -> None:
        """The coordinator's does."""

    def refund(self, ticket: Ticket, *, refused: bool = False) -> None:
        self._leased.tell("refunded", ticket)

    def release(self, ticket: Ticket) -> None:
        ticket.flying = False
        self.flying -= 1
        self._leased.ended("left", ticket)  # nothing is said of one that was answered or failed
        self._leased.pump()

    async def serve(self) -> None:
        await anyio.sleep_forever()


class LeasedLine(Line):
    """One endpoint as a worker sees it: it tells how calls went, and knows what the coordinator makes of it."""

    def __init__(self, model: Model, weight: float, queue: LeasedQueue, *, others: bool) -> None:
        super().__init__(model, weight, Queue(), others=others)
        self.controlled = self.controller is not None
        """Whether the coordinator's gate finds its limits by trying, and so waits after each refusal."""
        self.controller = None
        self._leased = queue
        self.gate = LeasedGate(self.gate.most, queue, self.name)

    def sent(self, ticket: Ticket, now: float) -> None:
        self._leased.tell("sent", ticket, now)

    def answered(self, ticket: Ticket, sent: float, reply: Reply, real: Charge) -> None:
        usage = reply.usage
        cost = self.model.cost(usage) if reply.cost_usd is None else reply.cost_usd
        took = self._leased.clock() - sent
        told = wire.windows(reply.windows) if reply.windows else ()
        used = (usage.prompt, usage.completion, usage.cached, usage.reasoning, usage.calls, usage.written)
        self._leased.ended("answered", ticket, sent, took, real.input, real.output, told, used, cost)

    def failed(self, ticket: Ticket, sent: float, error: ModelError) -> bool:
        took = self._leased.clock() - sent
        self._leased.ended("failed", ticket, sent, took, wire.packed(error))
        if isinstance(error, CellStopped) or not isinstance(error, Transient):
            return isinstance(error, CellStopped)
        if error.status == 429:
            return self.controlled or error.retry_after is not None
        return self.outage.since is not None

    def park(self, seconds: float, why: str) -> None:
        """The coordinator's does."""

    def stands(self, controlled: bool, since: float | None, words: str) -> None:
        """What the coordinator tells: since when (by our clock) it answers nobody."""
        self.controlled = controlled
        self.outage.since, self.outage.words = since, words


class LeasedPassage(Passage):
    """A model of a job in a worker. `post` sends to the coordinator."""

    queue: LeasedQueue

    def __init__(
        self,
        name: str,
        model: Model,
        post: Post,
        on_failure: OnFailure | None = None,
        on_begin: Callable[[Call], None] | None = None,
        written: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(name, model, on_failure, on_begin, written)
        queue = LeasedQueue(name, post)
        found = model.lines()
        self.queue = queue
        self.lines = [LeasedLine(each, weight, queue, others=len(found) > 1) for each, weight in found]
        self._line = {line.gate: line for line in self.lines}

    def take(self, message: list[Any], late: float) -> None:
        """What the coordinator says of this model; `late` turns its times into ours."""
        what, _, *more = message
        if what == "grant":
            number, k = more
            self.queue.let_through(number, None if k is None else self.lines[k].gate)
        elif what == "line":
            k, controlled, since, words = more
            line = self.lines[k]
            assert isinstance(line, LeasedLine)
            line.stands(controlled, None if since is None else since + late, words)
        elif what == "stopped":
            error = wire.unpacked(more[0])
            assert isinstance(error, CellStopped)
            self.stop(error)

    def _elsewhere(self, line: Line, error: ModelError) -> bool:
        """What may end an endpoint, or the cell, is asked for again: the coordinator decides what comes of that."""
        return isinstance(error, CellStopped) or (
            isinstance(error, Transient) and error.retry_after is not None and error.retry_after > PARKED
        )
