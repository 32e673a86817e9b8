"""One worker as the coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio

from runner.cluster.engine import Handle
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
