"""The one gate of each model, kept by the coordinator for all workers: they ask here for every call, and tell here
what became of it.

A desk is a passage whose calls are made elsewhere. Its gates, controllers, outages and what stops an endpoint are the
same as in one process, so limits hold over all workers as they hold in one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.cluster import wire
from runner.errors import BudgetSpent, CellStopped, ModelError
from runner.models.base import Model, Reply, Window
from runner.models.limits import Charge
from runner.models.line import Line
from runner.models.passage import Passage
from runner.models.queue import Ticket

Post = Callable[..., None]
"""Sends a message to one worker, by its key."""


@dataclass(eq=False, slots=True)
class Remote(Ticket):
    """A worker's place in the queue. Tries of one call are equal, so that an outage is told by different calls."""

    worker: int = 0
    number: int = 0
    call: int = 0
    desk: Desk | None = None
    begun: bool = False
    """Whether the budget counts it as under way."""
    sent: float | None = None
    refunded: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and (self.worker, self.call) == (other.worker, other.call)

    def __hash__(self) -> int:
        return hash((self.worker, self.call))

    def grant(self) -> None:
        """Let through; with no gate where the queue was shut."""
        assert self.desk is not None
        self.desk.granted(self)


class Desk(Passage):
    """One model of a job, before which workers wait.

    `begin` is called for each call that is let through and raises BudgetSpent where none may be made any more;
    `unbegin` takes it back. `post(worker, ...)` sends to a worker, `tell(...)` to all.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        post: Post,
        tell: Post,
        begin: Callable[[], None] = lambda: None,
        unbegin: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name, model)
        self._post, self._tell_all = post, tell
        self._begin, self._unbegin = begin, unbegin
        self._open: defaultdict[int, dict[int, Remote]] = defaultdict(dict)
        self._told: list[tuple[Any, ...]] = [() for _ in self.lines]

    # -- what workers say ------------------------------------------------------------------------------
    def want(self, worker: int, number: int, call: int, priority: int, *charge: float) -> None:
        """A call waits; `charge` as in `Charge`."""
        ticket = Remote(priority, worker=worker, number=number, call=call, desk=self)
        self._open[worker][number] = ticket
        self.queue.enter(ticket, Charge(*charge))

    def granted(self, ticket: Remote) -> None:
        """Tell a worker that its call may go, and where; None: nowhere, nothing is asked any more."""
        gate = ticket.gate
        if gate is not None:
            try:
                self._begin()
                ticket.begun = True
            except BudgetSpent:  # by now all desks are closed
                gate.refund(ticket)
                gate.release(ticket)
                gate = ticket.gate = None
        if gate is None:
            self._open[ticket.worker].pop(ticket.number, None)
        line = None if gate is None else self.lines.index(self._line[gate])
        self._post(ticket.worker, "grant", self.name, ticket.number, line)

    def lent(self, worker: int, number: int, priority: int) -> None:
        """An older episode came to need it."""
        if (ticket := self._open[worker].get(number)) is not None:
            self.queue.lend(ticket, priority)

    def sent(self, worker: int, number: int, at: float) -> None:
        """It left, at a time by our clock."""
        ticket = self._open[worker].get(number)
        if ticket is not None and ticket.flying:
            ticket.sent = at
            self._at(ticket).sent(ticket, at)

    def answered(
        self, worker: int, number: int, sent: float, took: float, real: Charge, told: Sequence[Sequence[Any]]
    ) -> None:
        """It was answered, and so has left. `real`: what it used; `told`: what the reply says of limits."""
        ticket = self._open[worker].pop(number, None)
        if ticket is None:
            return
        line = self._at(ticket)
        line.busy += took
        line.answered(ticket, sent, Reply((), windows=tuple(Window(*each) for each in told)), real)
        self.queue.leave(ticket, entered=True)
        self._tell_state()

    def failed(self, worker: int, number: int, sent: float, took: float, error: ModelError) -> None:
        """It failed, and so has left. What every call would meet stops its endpoint, or all."""
        ticket = self._open[worker].pop(number, None)
        if ticket is None:
            return
        line = self._at(ticket)
        line.busy += took
        line.failed(ticket, sent, error)
        self.queue.leave(ticket, entered=True)
        try:
            self._elsewhere(line, error)
        except CellStopped:
            pass  # `stop` has told all
        self._tell_state()

    def refunded(self, worker: int, number: int) -> None:
        """It was let through, and will not be sent."""
        ticket = self._open[worker].get(number)
        if ticket is not None and ticket.gate is not None:
            ticket.refunded = True
            ticket.gate.refund(ticket)

    def left(self, worker: int, number: int) -> bool:
        """It is not waited for any more, or was cut off. Whether it had been sent, so that it may be billed."""
        ticket = self._open[worker].pop(number, None)
        return ticket is not None and self._leaves(ticket)

    def _leaves(self, ticket: Remote) -> bool:
        unsent = ticket.sent is None or ticket.refunded
        if ticket.flying and unsent and ticket.begun:
            self._unbegin()
        cut_off = ticket.flying and not unsent
        self.queue.leave(ticket, entered=cut_off or ticket.refunded)
        return cut_off

    def lost(self, worker: int) -> int:
        """A worker is no more: its places are free again. How many of its calls were, or may have been, sent: they
        stay counted in the windows."""
        flying = 0
        for ticket in self._open.pop(worker, {}).values():
            flying += ticket.flying
            self.queue.leave(ticket, entered=True)
        return flying

    def _at(self, ticket: Remote) -> Line:
        assert ticket.gate is not None
        return self._line[ticket.gate]

    # -- what workers are told -------------------------------------------------------------------------
    def stop(self, error: CellStopped) -> None:
        """See `Passage.stop`; all workers hear of it."""
        first = self.stopped is None
        if first:
            self._tell_all("stopped", self.name, wire.packed(error))
        super().stop(error)

    def greet(self, worker: int) -> None:
        """Tell a worker that has just come how things stand."""
        if self.stopped is not None:
            self._post(worker, "stopped", self.name, wire.packed(self.stopped))
        for k, line in enumerate(self.lines):
            self._post(worker, "line", self.name, k, *self._state(line))

    def _tell_state(self) -> None:
        """Tell all workers what has changed of an endpoint: whether its gate does the waiting after a failure."""
        for k, line in enumerate(self.lines):
            now = (line.controller is not None, line.outage.since)
            if now != self._told[k]:
                self._told[k] = now
                self._tell_all("line", self.name, k, *self._state(line))

    def _state(self, line: Line) -> tuple[bool, float | None, str]:
        return line.controller is not None, line.outage.since, line.outage.words
