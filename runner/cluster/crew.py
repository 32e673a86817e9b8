"""A worker as the coordinator knows it, and how it is known to be no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio

from runner.cluster.engine import Engine, Handle
from runner.cluster.link import SocketLink


@dataclass(eq=False)
class Worker:
    """Who works on a shard now. Its key is its own: the next worker of the shard has another."""

    shard: int
    key: int
    handle: Handle | None = None
    link: SocketLink | None = None
    pid: int = 0
    beaten: float = field(default_factory=monotonic)
    """When its heart last beat."""
    state: dict[str, Any] = field(default_factory=dict)
    """What it last told of itself."""
    over: bool = False
    """Whether it has said that it is done, or leaves."""
    retiring: bool = False
    """Whether it was told to leave, for it takes too much memory."""
    silent: anyio.Event = field(default_factory=anyio.Event)
    """Its connection is closed."""
    given_up: anyio.Event = field(default_factory=anyio.Event)
    """Its heart has not beaten for too long."""
    beating: SocketLink | None = None

    def post(self, *message: Any) -> None:
        if self.link is not None:
            self.link.post(*message)


async def end_of(worker: Worker, engine: Engine, lost_after: float) -> str:
    """Until a worker is no more, and all that it said was heard; how it ended."""
    found: list[str] = []
    handle = worker.handle
    assert handle is not None

    async def ends() -> None:
        found.append(await handle.wait())
        if not engine.sees_the_end and worker.link is not None and not worker.over:
            await worker.silent.wait()
            if worker.beating is not None and not worker.beating.closed:
                await worker.given_up.wait()
        tasks.cancel_scope.cancel()

    async def is_given_up() -> None:
        await worker.given_up.wait()
        found.append(f"nothing was heard of it for {lost_after:g} s")
        handle.kill()
        if engine.sees_the_end:
            await handle.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends)
        tasks.start_soon(is_given_up)
    if worker.link is not None:
        with anyio.move_on_after(5):
            await worker.silent.wait()
        worker.link.close()
    return found[0]
