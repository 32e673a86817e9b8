"""A model behind its gates: the one layer in which calls wait, fail and are tried again."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable

import anyio

from runner.errors import CellStopped, DailyQuota, EpisodeFailed, ModelError, Transient, Unsupported
from runner.models.base import Call, Model, Reply
from runner.models.charge import Charges
from runner.models.gate import Change, Gate
from runner.models.line import PARKED, Line
from runner.models.queue import Queue, Ticket

LONGEST_PAUSE = 60.0
"""Seconds between tries where the server does not say how long."""
UNTOLD_QUOTA = 1800.0
"""Seconds between looks if a daily quota, of which nobody says when it is renewed, is."""

OnBegin = Callable[[Call], None]
OnFailure = Callable[[Call, ModelError], None]


class Passage:
    """One model of a job: its endpoints, each behind its gate, and its retries. `name` is the model's name in
    the job.

    Each try is told to `on_begin` before it is made, and to `on_failure` where it fails or is cut off (the
    ledger keeps both, so that what a killed process had under way is known). A failure that every call would
    meet stops its endpoint, and with the last endpoint the passage: `stopped` holds it, and all waiting and
    later calls get it at once.
    """

    batched = False
    """Whether calls go by batches: then a further round of draws costs a wave."""

    def __init__(
        self,
        name: str,
        model: Model,
        on_failure: OnFailure | None = None,
        on_begin: OnBegin | None = None,
        written: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.queue = Queue()
        found = model.lines()
        self.lines = [Line(each, weight, self.queue, others=len(found) > 1) for each, weight in found]
        self.charges = Charges(
            max_tokens=model.charges_max_tokens, cached=model.charges_cached, output=model.charges_output
        )
        self.on_failure = on_failure
        self.on_begin = on_begin
        self.written = written
        """Waited for between a try's beginning and its being sent: until `on_begin`'s line is kept."""
        self.stopped: CellStopped | None = None
        self.retrying: dict[int, str] = {}
        """Calls that wait before another try, and why: what `status` shows."""
        self.under_way: dict[int, tuple[str, str, float]] = {}
        """Calls that were sent and are not answered: scope, endpoint, and since when by the queue's clock."""
        self._pauses: set[anyio.CancelScope] = set()
        self._line = {line.gate: line for line in self.lines}
        for line in self.lines:
            line.gate.on_parked = lambda seconds, why, line=line: self._parked(line, seconds, why)

    # -- what others see -------------------------------------------------------------------------------
    @property
    def gate(self) -> Gate:
        """The first endpoint's gate."""
        return self.lines[0].gate

    @property
    def flying(self) -> int:
        """Calls in flight, at all endpoints."""
        return sum(line.gate.flying for line in self.lines)

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return self.queue.waiting

    @property
    def changes(self) -> list[Change]:
        """All changes of bounds, in order of time, each with its reason."""
        return sorted((c for line in self.lines for c in line.gate.changes), key=lambda change: change.time)

    async def serve(self) -> None:
        """Run the gates' dispatchers, as long as the run does."""
        async with anyio.create_task_group() as tasks:
            for line in self.lines:
                tasks.start_soon(line.gate.serve)

    def lend(self, ticket: Ticket, priority: int) -> None:
        """See `Queue.lend`."""
        self.queue.lend(ticket, priority)

    # -- a call ----------------------------------------------------------------------------------------
    async def ask(self, call: Call, ticket: Ticket) -> Reply:
        """A reply to the call, after as many tries as the model's settings allow.

        Raises CellStopped, EpisodeFailed (with its kinds), or what it was after the last try.
        """
        waited = spent = 0.0
        tries = 0
        adapted: set[tuple[Line, str]] = set()
        first: float | None = None
        try:
            while True:
                tried: _Try = _Try()
                try:
                    reply = await self._try(call, ticket, tried)
                    assert tried.line is not None
                    endpoint = reply.endpoint or tried.line.name
                    cost = tried.line.model.cost(reply.usage) if reply.cost_usd is None else reply.cost_usd
                    return reply.settled(tried.took, waited + tried.waited, endpoint, cost)
                except ModelError as error:
                    if tried.line is None:
                        raise
                    waited += tried.waited
                    self.retrying[id(ticket)] = str(error)
                    if isinstance(error, Unsupported) and (tried.line, error.parameter) not in adapted:
                        adapted.add((tried.line, error.parameter))
                        continue
                    if self._elsewhere(tried.line, error):
                        continue
                    if not isinstance(error, Transient):
                        raise
                    first = self.queue.clock() if first is None else first
                    if tried.gate_waits and self._sits_out(tried.line, error, first):
                        waited += tried.took
                        continue
                    tries, spent = tries + 1, spent + tried.took
                    if tries >= self.model.attempts:
                        raise EpisodeFailed(
                            f"gave up after {tries} tries: {error}", status=error.status
                        ) from error
                    if tried.gate_waits:
                        continue
                    pause = self._pause_after(tries, error)
                    if spent + pause > self.model.retry_for:
                        raise EpisodeFailed(
                            f"gave up after {tries} tries, as another would go beyond retry_for = "
                            f"{self.model.retry_for:g} s: {error}",
                            status=error.status,
                        ) from error
                    await self._pause(pause)
                    waited, spent = waited + pause, spent + pause
        finally:
            if self.retrying:
                self.retrying.pop(id(ticket), None)

    def _sits_out(self, line: Line, error: Transient, first: float) -> bool:
        """Whether a call that failed, for the first time at a time, waits for the end of its endpoint's outage: up
        to `retry_for`. A connection may be waited for from the call's own first failure on; an endpoint that fails
        all for so long may well do so because of what it is asked."""
        since = line.outage.since
        if since is None or error.status == 429:
            return False
        since = max(since, first) if error.unreached else since
        return self.queue.clock() - since <= self.model.retry_for

    async def _try(self, call: Call, ticket: Ticket, this: _Try) -> Reply:
        """One attempt at whichever endpoint has room first. `this` is filled with how it went."""
        queue = self.queue
        queue.enter(ticket, self.charges.of(call))
        if ticket.queued:
            this.waited = await queue.wait(ticket)
        try:
            if self.retrying:
                self.retrying.pop(id(ticket), None)
            gate = ticket.gate
            line = await self._let_off(call, ticket)
            assert gate is not None
            this.line = line
            sent = queue.clock()
            line.sent(ticket, sent)
            self.under_way[id(ticket)] = (call.scope, line.name, sent)
            try:
                reply = await line.model.call(call)
            except ModelError as error:
                this.took = queue.clock() - sent
                line.busy += this.took
                this.gate_waits = line.failed(ticket, sent, error)
                self._tell(call, error)
                raise
            except (
                BaseException
            ) as error:  # a fault of ours, or cut off: it may have been billed all the same
                why = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "cut off"
                self._tell(call, ModelError(why, billed=True))
                raise
            finally:
                del self.under_way[id(ticket)]
            this.took = queue.clock() - sent
            line.busy += this.took
            line.answered(ticket, sent, reply, self.charges.real(call, reply.usage))
            return reply
        finally:
            queue.leave(ticket, entered=True)

    async def _let_off(self, call: Call, ticket: Ticket) -> Line:
        """Where a call that was let through goes. Raises CellStopped, or what stands in the way of beginning it; then
        it counts for no limit."""
        gate = ticket.gate
        try:
            if self.stopped is not None or gate is None:
                raise CellStopped(str(self.stopped or "the run has ended"))
            if self.on_begin is not None:
                self.on_begin(call)
        except BaseException:
            if gate is not None:
                gate.refund(ticket)
            raise
        if self.written is not None:
            try:
                await self.written()
            except BaseException as error:
                gate.refund(ticket)
                if not isinstance(error, Exception):  # cancelled: it was begun on record, and never sent
                    self._tell(call, ModelError("cut off before it was sent"))
                raise
        return self._line[gate]

    def _tell(self, call: Call, error: ModelError) -> None:
        if self.on_failure is not None:
            self.on_failure(call, error)

    # -- what ends an endpoint or all ------------------------------------------------------------------
    def _elsewhere(self, line: Line, error: ModelError) -> bool:
        """Whether a failure for good, or for hours, leaves another way: another endpoint, or patience.
        Raises CellStopped if not; False for all other failures."""
        if isinstance(error, Transient) and error.retry_after is not None and error.retry_after > PARKED:
            hours = error.retry_after / 3600
            error = DailyQuota(
                f"model {self.name!r} asks to wait {hours:.1f} h ({error}); resume the run after that time",
                retry_after=error.retry_after,
                status=error.status,
            )
        if not isinstance(error, CellStopped):
            return False
        if isinstance(error, DailyQuota) and self.model.on_daily_quota == "wait":
            line.stopped = None
            line.park(error.retry_after or UNTOLD_QUOTA, str(error))
            return True
        line.stopped = error
        if all(each.stopped is not None for each in self.lines):
            self.stop(error)
            raise error
        return True

    def _parked(self, line: Line, seconds: float, why: str) -> None:
        """The next call at an endpoint would wait for hours, as a window of a day is full."""
        if self.model.on_daily_quota == "wait":
            return
        line.stopped = DailyQuota(
            f"model {self.name!r}: all {why} are used up; resume the run in {seconds / 3600:.1f} h",
            retry_after=seconds,
        )
        if all(each.stopped is not None for each in self.lines):
            self.stop(line.stopped)

    def stop(self, error: CellStopped) -> None:
        """No call begins any more; those in flight go on. All who wait, and whoever comes, get the error."""
        self.stopped = self.stopped or error
        self.queue.shut()
        for pause in self._pauses:
            pause.cancel()

    # -- between tries ---------------------------------------------------------------------------------
    def _pause_after(self, tries: int, error: Transient) -> float:
        """Full jitter below a ceiling that doubles, on top of what the server asks for."""
        jitter = random.uniform(0, min(LONGEST_PAUSE, 0.5 * 2 ** min(tries, 10)))
        return jitter if error.retry_after is None else error.retry_after + min(jitter, 1.0)

    async def _pause(self, seconds: float) -> None:
        with anyio.CancelScope() as pause:
            self._pauses.add(pause)
            try:
                await anyio.sleep(seconds)
            finally:
                self._pauses.discard(pause)


@dataclasses.dataclass(eq=False, slots=True)
class _Try:
    """How one attempt went: where, how long it waited and took, and whether its gate waits before the next."""

    line: Line | None = None
    waited: float = 0.0
    took: float = 0.0
    gate_waits: bool = False
