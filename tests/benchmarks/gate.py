"""The gate under load, in virtual time: `python -m tests.benchmarks.gate`.

Prints, for limits that are known and for ones that must be found, the share of them that was used and the share
of answers that were 429; and the CPU that a grant costs with few and with very many calls waiting.
"""

from __future__ import annotations

import random
import sys
import time

import anyio
import anyio.lowlevel

from runner.models.gate import Gate, Ticket
from runner.models.limits import Charge, Key
from tests.simulated import Server, load, model
from tests.virtual_time import run

WAITERS = (10, 1000, 10_000)
GRANTS = 20_000


def shares(known: bool, requests: int, minutes: float, takes: float) -> tuple[float, float, float]:
    """Share used in all, share used after the first minute, share of 429s."""
    random.seed(7)
    server = Server(requests=requests, takes=lambda flying: takes)

    async def main() -> float:
        began = anyio.current_time()
        settings = {"requests_per_minute": requests} if known else {}
        await load(model(server, **settings), 60 * minutes, max(200, int(requests / 10 * takes)))
        return began

    began = run(main)
    end = began + 60 * minutes
    return server.use(began, end), server.use(began + 60, end), server.share_refused


def following(requests: int, factor: float) -> tuple[float, float]:
    """A hidden limit that changes by a factor after 90 s: share used of the new one, from a third of a window later
    in the next one after a rise, two thirds later in the next two after a fall (until then a server whose window is
    too full lets nothing in); share of 429s."""
    random.seed(7)
    server = Server(requests=requests)
    begin, end = (110.0, 170.0) if factor > 1 else (130.0, 250.0)

    async def main() -> float:
        began = anyio.current_time()
        later = [(90.0, lambda: setattr(server, "requests", requests * factor))]
        await load(model(server), end, max(200, requests // 5), later=later)
        return began

    began = run(main)
    return server.use(began + begin, began + end), server.share_refused


def grant(waiters: int, rate: float | None, limits: dict[Key, float]) -> float:
    """CPU seconds of one grant, its caller's turn and its return to the queue included."""

    async def main() -> float:
        gate = Gate(5, rate, limits=limits)
        left = GRANTS
        done = anyio.Event()

        async def ask(k: int) -> None:
            nonlocal left
            while left > 0:
                k += waiters
                async with gate.passing(Ticket(k), Charge(100, 20)):
                    left -= 1
                    await anyio.lowlevel.checkpoint()
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.serve)
            for k in range(waiters):
                tasks.start_soon(ask, k)
            await anyio.lowlevel.checkpoint()
            began = time.process_time()
            await done.wait()
            spent = time.process_time() - began
            tasks.cancel_scope.cancel()
        return spent

    return run(main) / GRANTS


def main() -> None:
    say = sys.stdout.write
    say("limit                        takes   used in all   after 1st minute   429s\n")
    for known in (True, False):
        for requests, minutes in ((60, 5), (600, 5), (10_000, 3), (30_000, 2)):
            for takes in (0.5, 5.0):
                used, later, refused = shares(known, requests, minutes, takes)
                name = f"{requests} a minute, {'known' if known else 'hidden'}"
                say(f"{name:28} {takes:4} s   {used:10.1%}   {later:16.1%}   {refused:.2%}\n")
    say("\nhidden limit that changes   used then   429s\n")
    for requests in (300, 600, 2400):
        for factor in (2.0, 0.5):
            used, refused = following(requests, factor)
            say(f"{requests:6} a minute, times {factor:3} {used:13.1%}   {refused:.2%}\n")
    minute: dict[Key, float] = {("tokens", 60.0): 1e9}
    say("\nwaiting   CPU of a grant: free   with tokens a minute   with both limits (microseconds)\n")
    for waiters in WAITERS:
        costs = (grant(waiters, None, {}), grant(waiters, None, minute), grant(waiters, 3e6, minute))
        say(f"{waiters:7}   {costs[0] * 1e6:20.0f}   {costs[1] * 1e6:20.0f}   {costs[2] * 1e6:16.0f}\n")


if __name__ == "__main__":
    main()
