"""Draws of a request: looked up in the ledger first, asked for once however many want them.

The sampler owns every model call that is under way. Episodes only await them: an episode that is cancelled
cancels no call that another awaits, and an older episode that comes to need the same draw lends it its place
in the queue.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from runner.errors import EpisodeFailed
from runner.ledger import Ledger
from runner.lines import Draw
from runner.models.base import Call, Request
from runner.models.passage import Passage
from runner.models.queue import Ticket

LAST = 1 << 60
"""The priority of a call that no episode has asked for yet."""


class Sampling(Protocol):
    """What an episode draws from: the live `Sampler`, or one that only reads a ledger."""

    async def sample(
        self, passage: Passage, request: Request, scope: str, first: int, n: int, priority: int
    ) -> list[Draw]: ...


@dataclass(eq=False, slots=True)
class Flight:
    """Draws `indices` of one request, being asked for. Done when each is drawn or cannot be."""

    indices: tuple[int, ...]
    priority: int
    tickets: list[Ticket] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    cancelled: bool = False
    """Nobody waits for it any more: it ends without the draws it has not got yet."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    waiters: int = 0
    draws: dict[int, Draw] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    shared: bool = False
    """Others with the same prompt fly, too, and it is worth being put into the provider's cache."""
    after: Flight | None = None
    """The one that puts it there: this one goes when that is done."""

    def cancel(self) -> None:
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()


class Sampler:
    """Draws for all episodes of a run. Use as an async context manager: leaving it ends what it owns."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger = ledger
        self.seed = seed
        self._pending: dict[tuple[str, str, int], Flight] = {}
        self._most: dict[Passage, int] = {}
        self._tasks: TaskGroup
        self._flying: dict[asyncio.Task[None], Flight] = {}
        self.in_flight = 0
        self.flights = 0
        """Of which each has a call in flight, unless it is just beginning or ending."""
        self.asking: Counter[int] = Counter()
        """Episodes (by their priority) that await draws."""
        self.moved: Callable[[], None] = lambda: None
        """Told when one of these has changed."""
        self.drawn = 0
        """Draws that were asked for and came, in this process."""
        self.served = 0
        """Draws that the ledger had already."""

    async def __aenter__(self) -> Sampler:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        for flight in self._flying.values():
            flight.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*self._flying, return_exceptions=True)
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    def serve(self, passages: Iterable[Passage]) -> None:
        """Start the dispatchers of the passages' gates."""
        for passage in passages:
            self._tasks.start_soon(passage.serve)

    async def sample(
        self, passage: Passage, request: Request, scope: str, first: int, n: int, priority: int
    ) -> list[Draw]:
        """Draws first .. first+n-1 of the request within the scope, in order.

        `priority` is the asking episode's plan order. If a draw fails for good its error is raised (the
        first by index), and the others stay in the ledger.
        """
        have: dict[int, Draw] = {}
        flights: dict[int, Flight] = {}
        missing: list[int] = []
        for i in range(first, first + n):
            flight = self._pending.get((scope, request.hash, i))
            if flight is not None and not flight.cancelled:
                flights[i] = flight
                self._lend(passage, flight, priority)
            elif (draw := self.ledger.draw(scope, request.hash, i)) is not None:
                self.served += 1
                have[i] = draw
            else:
                missing.append(i)
        chunks = (
            [(missing[0],)] if len(missing) == 1 else list(_chunks(missing, self._most_per_call(passage)))
        )
        first_alone = len(chunks) > 1 and passage.model.warms(request)
        before: Flight | None = None
        for indices in chunks:
            flight = Flight(indices, priority, shared=first_alone, after=before)
            before = before or (flight if first_alone else None)
            for i in indices:
                self._pending[scope, request.hash, i] = flights[i] = flight
            self._start(passage, request, scope, flight)
        if flights:
            await self._await(list(dict.fromkeys(flights.values())), priority)
        for i in range(first, first + n):
            if i in have:
                continue
            flight = flights[i]
            if i not in flight.draws:
                raise _again(flight.errors.get(i))
            have[i] = flight.draws[i]
        return [have[i] for i in range(first, first + n)]

    def restore(self, passage: Passage, call: Call) -> None:
        """Await a call that an earlier process made and the passage still knows (it is in a batch): its draws are
        under way for whoever asks for them, and kept if nobody does."""
        flight = Flight(tuple(range(call.first, call.first + call.n)), LAST, waiters=1)
        for i in flight.indices:
            self._pending.setdefault((call.scope, call.request.hash, i), flight)
        self._start(passage, call.request, call.scope, flight)

    def _start(self, passage: Passage, request: Request, scope: str, flight: Flight) -> None:
        self.flights += 1
        # A bare task, at a fifth of what a task group's costs: it raises nothing, and is ended with the sampler.
        task = asyncio.get_running_loop().create_task(self._fly(passage, request, scope, flight))
        self._flying[task] = flight
        flight.task = task
        task.add_done_callback(self._flying.pop)

    async def _await(self, flights: list[Flight], priority: int) -> None:
        for flight in flights:
            flight.waiters += 1
        self.asking[priority] += 1
        self.moved()
        try:
            for flight in flights:
                await flight.done.wait()
        finally:
            self.asking[priority] -= 1
            if not self.asking[priority]:
                del self.asking[priority]
            for flight in flights:
                flight.waiters -= 1
                if not flight.waiters and not flight.done.is_set():
                    flight.cancel()

    def _lend(self, passage: Passage, flight: Flight, priority: int) -> None:
        if priority < flight.priority:
            flight.priority = priority
            for ticket in flight.tickets:
                passage.lend(ticket, priority)

    def _most_per_call(self, passage: Passage) -> int:
        return self._most.get(passage, passage.model.max_n)

    async def _fly(self, passage: Passage, request: Request, scope: str, flight: Flight) -> None:
        try:
            if flight.after is not None:
                await flight.after.done.wait()
            try:
                rest, most = await self._call(passage, request, scope, flight, flight.indices)
            except Exception as error:  # also a fault in a model: it is its askers', the sampler lives on
                flight.errors.update(dict.fromkeys(flight.indices, error))
                return
            if rest:
                await self._top_up(passage, request, scope, flight, rest, most)
        finally:
            for i in flight.indices:
                if self._pending.get((scope, request.hash, i)) is flight:
                    del self._pending[scope, request.hash, i]
            self.flights -= 1
            flight.done.set()
            self.moved()

    async def _draw(
        self, passage: Passage, request: Request, scope: str, flight: Flight, indices: Sequence[int]
    ) -> None:
        try:
            rest, most = await self._call(passage, request, scope, flight, indices)
        except Exception as error:
            flight.errors.update(dict.fromkeys(indices, error))
            return
        if rest:
            await self._top_up(passage, request, scope, flight, rest, most)

    async def _top_up(
        self,
        passage: Passage,
        request: Request,
        scope: str,
        flight: Flight,
        rest: Sequence[int],
        most: int,
    ) -> None:
        """Some servers ignore n and answer once: ask for the others by calls that they do answer."""
        async with anyio.create_task_group() as tasks:
            for chunk in _chunks(rest, most):
                tasks.start_soon(self._draw, passage, request, scope, flight, chunk)

    async def _call(
        self, passage: Passage, request: Request, scope: str, flight: Flight, indices: Sequence[int]
    ) -> tuple[Sequence[int], int]:
        """Make one call; returns the draws that it left out, and how many a call gives, if it left out any."""
        ticket = Ticket(flight.priority)
        flight.tickets.append(ticket)
        call = Call(
            request, len(indices), seed=seed_of(self.seed, scope, request.hash, indices[0]), scope=scope,
            first=indices[0], shared=flight.shared,
        )  # fmt: skip
        self.in_flight += 1
        try:
            reply = await passage.ask(call, ticket)
        finally:
            self.in_flight -= 1
            self.moved()
            flight.tickets.remove(ticket)
        draws = self.ledger.write_reply(call, indices, reply)
        await self.ledger.written()
        for draw in draws:
            flight.draws[draw.i] = draw
            self.drawn += 1
        if not reply.choices:
            raise EpisodeFailed(f"model {passage.name!r} replied without a choice")
        rest = indices[len(reply.choices) :]
        if rest:
            self._most[passage] = min(len(reply.choices), self._most_per_call(passage))
        return rest, self._most_per_call(passage) if rest else 0


class Readback:
    """Draws from the ledger only: for scoring a run anew without a call."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def sample(
        self, passage: Passage, request: Request, scope: str, first: int, n: int, priority: int
    ) -> list[Draw]:
        """The draws; raises EpisodeFailed for one that was never made."""
        draws = []
        for i in range(first, first + n):
            draw = self.ledger.draw(scope, request.hash, i)
            if draw is None:
                raise EpisodeFailed(
                    f"draw {i} of request {request.hash} was never made; resume the run for it"
                )
            draws.append(draw)
        return draws


def seed_of(job_seed: int, scope: str, request_hash: str, i: int) -> int:
    """The seed of a draw: 31 bits from (job seed, scope, hash, i), so that no two draws share one and a
    repeated run asks with the same."""
    digest = hashlib.sha256(f"{job_seed}\0{scope}\0{request_hash}\0{i}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 1


def _chunks(indices: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Runs of consecutive indices, each of at most `most`."""
    run: list[int] = []
    for i in indices:
        if run and (i != run[-1] + 1 or len(run) >= most):
            yield tuple(run)
            run = []
        run.append(i)
    if run:
        yield tuple(run)


def _again(error: Exception | None) -> Exception:
    """An error for each of several askers: the same kind, with a traceback of its own."""
    if error is None:
        return EpisodeFailed("the call was cancelled")
    try:
        copy = type(error).__new__(type(error), *error.args)
    except TypeError:  # a class that allows no copies
        return error
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy
