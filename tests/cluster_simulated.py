"""Many workers before one limit, in virtual time: the real desk and leases, the real passages of workers, links that
take time, and workers that are lost at random."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import orjson

from runner.cluster.account import Account, Accounts
from runner.cluster.calls import ABOUT_CALLS, Calls
from runner.cluster.leased import LeasedPassage
from runner.cluster.leases import Leases, Owed
from runner.cluster.link import MemoryLink, Message
from runner.cluster.permits import Desk
from runner.models.base import Call, Model, Params, Reply, Request, Text, Turn
from runner.models.queue import Ticket
from tests.simulated import Server, Simulated
from tests.virtual_time import run

REQUEST = Request("m", (Turn("prompt", Text("x" * 400)),), Params(max_tokens=100))


class Counted(Simulated):
    """Counts how often each task was asked for."""

    _asked: Counter[str]

    async def call(self, call: Call) -> Reply:
        self._asked[call.scope] += 1
        return await super().call(call)


@dataclass
class Company:
    """A coordinator's room without its process: a desk, a book of leases, and workers that come and go."""

    model: Model
    workers: int
    tasks: int
    places: int
    chance: random.Random
    detection: float = 1.0
    """Seconds until a lost worker is known to be lost."""
    links: dict[int, MemoryLink] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    cut_off: set[str] = field(default_factory=set)
    """Tasks that lost workers had asked for."""
    losses: int = 0
    _scopes: dict[int, anyio.CancelScope] = field(default_factory=dict)
    _keys: int = 0

    def __post_init__(self) -> None:
        self.desk = Desk("m", self.model, self._post, self._tell)
        self.accounts = Accounts(Account())
        self.calls = Calls({"m": self.desk}, self.accounts)
        self.leases = Leases(self._owed(), self.workers)
        self.leases.left = self.tasks

    def _owed(self) -> Iterator[Owed]:
        for k in range(self.tasks):
            yield Owed("w", k, k, f"t{k}")

    def _post(self, key: int, *message: Any) -> None:
        if (link := self.links.get(key)) is not None:
            link.post(*message)

    def _tell(self, *message: Any) -> None:
        for link in self.links.values():
            link.post(*message)

    async def work(self, lose_every: float | None = None) -> None:
        """Until all tasks have ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.desk.serve)
            if lose_every is not None:
                tasks.start_soon(self._lose, lose_every)
            async with anyio.create_task_group() as crew:
                for shard in range(self.workers):
                    crew.start_soon(self._tend, shard)
            tasks.cancel_scope.cancel()

    async def _lose(self, every: float) -> None:
        while True:
            await anyio.sleep(self.chance.expovariate(1 / every))
            if self._scopes:
                self.losses += 1
                self.chance.choice(list(self._scopes.values())).cancel()

    async def _tend(self, shard: int) -> None:
        while not self.leases.exhausted or self.leases.held(shard):
            self._keys += 1
            key = self._keys
            ours, theirs = MemoryLink.pair(lambda: self.chance.uniform(0.0002, 0.02))
            self.links[key] = ours
            ours.taken = partial(self._take, key, shard)
            self.desk.greet(key)
            with anyio.CancelScope() as scope:
                self._scopes[shard] = scope
                await Worker(self, theirs).work()
            del self._scopes[shard]
            theirs.closed = True
            if scope.cancelled_caught:
                await anyio.sleep(self.detection)
            del self.links[key]
            self.calls.lost(key)
            self.leases.lost(shard)

    def _take(self, key: int, shard: int, messages: list[Message], late: float) -> None:
        for message in messages:
            if message[0] in ABOUT_CALLS:
                self.calls.take(key, shard, message, late)
            elif message[0] == "ended":
                self.leases.ended(shard, message[1])
            else:
                self.leases.read(message[1])
                self._post(
                    key,
                    "lease",
                    [lease.owed.packed(lease.number) for lease in self.leases.take(shard, message[1])],
                )


class Worker:
    """One worker: as many episodes at once as it has places, each of one call."""

    def __init__(self, company: Company, link: MemoryLink) -> None:
        self.company, self.link = company, link
        self.passage = LeasedPassage("m", company.model, link.post)
        link.taken = self._take
        self._ready: list[list[Any]] = []
        self._asking: anyio.Event | None = None
        self._over = False
        self._flying: set[str] = set()

    def _take(self, messages: list[Message], late: float) -> None:
        for message in messages:
            if message[0] == "lease":
                self._ready += message[1]
                self._over = not message[1]
                assert self._asking is not None
                self._asking.set()
                self._asking = None
            else:
                self.passage.take(message, late)

    async def work(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self.company.places):
                    tasks.start_soon(self._episodes)
        except BaseException:
            self.company.cut_off |= self._flying
            raise
        await anyio.sleep(0.1)  # what was said last is on its way

    async def _episodes(self) -> None:
        while True:
            while not self._ready and not self._over:
                if self._asking is None:
                    self._asking = anyio.Event()
                    self.link.post("lease", self.company.places)
                await self._asking.wait()
            if not self._ready:
                return
            number, _, _, index, task, _ = self._ready.pop(0)
            if task not in self.company.ended:
                self._flying.add(task)
                await self.passage.ask(Call(REQUEST, scope=task), Ticket(index))
                self._flying.discard(task)
                self.company.ended.add(task)
            self.link.post("ended", [number])


def simulate(
    workers: int,
    episodes: int,
    per_minute: int,
    places: int,
    *,
    lose_every: float | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """`workers` x `episodes` calls against a limit; figures of what the server saw."""
    chance = random.Random(seed)
    server = Server(requests=per_minute, takes=lambda flying: chance.uniform(0.5, 3.0))
    settings = {"requests_per_minute": per_minute, "in_flight": workers * places}
    model = Counted.model_validate(settings).at(server)
    object.__setattr__(model, "_asked", Counter())
    company = Company(model, workers, workers * episodes, places, chance)
    took = 0.0

    async def main() -> None:
        nonlocal took
        began = anyio.current_time()
        await company.work(lose_every)
        took = anyio.current_time() - began

    cpu = time.process_time()
    run(main)
    cpu = time.process_time() - cpu
    asked: Counter[str] = model._asked
    twice = {task for task, count in asked.items() if count > 1}
    first, last = server.let_in[0][0], server.let_in[-1][0]
    whole = (last - first) // server.seconds * server.seconds
    return {
        "workers": workers,
        "episodes": workers * episodes,
        "requests_per_minute": per_minute,
        "workers_lost": company.losses,
        "virtual_seconds": round(took, 1),
        "calls": sum(asked.values()),
        "ended": len(company.ended),
        "asked_twice": len(twice),
        "asked_twice_and_not_in_flight_at_a_loss": len(twice - company.cut_off),
        "refused": len(server.refused),
        "most_in_a_minute": server.most_let_in()[0],
        "use_of_the_limit": round(server.use(first, first + whole), 4),
        "left_in_flight": company.desk.flying,
        "cpu_us_a_call": round(cpu / sum(asked.values()) * 1e6, 1),
    }


def full() -> dict[str, Any]:
    """For `tests.full`: 100 workers with 10,000 episodes each before 60,000 requests a minute, one of them lost every
    twenty seconds; and a tenth of that without a loss."""
    found = {}
    for name, episodes, per_minute, lose_every in (
        ("none lost", 1_000, 20_000, None),
        ("one lost every 20 s", 10_000, 60_000, 20.0),
    ):
        found[name] = simulate(100, episodes, per_minute, 100, lose_every=lose_every)
        sys.stdout.buffer.write(orjson.dumps(found[name]) + b"\n")
        sys.stdout.flush()
    return found
