"""What starts workers: all that the coordinator asks of it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Handle(Protocol):
    """A worker that was started."""

    async def wait(self) -> str:
        """Until it has ended; how, in words."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Engine(Protocol):
    """Starts workers of one run, on this machine or on others."""

    sees_the_end: bool
    """Whether a worker that `wait` says has ended is really no more. If not (a node that cannot be reached may go
    on), its lease must have lapsed, or its connections be closed, before its shard is another's."""

    async def open(self) -> tuple[str, str]:
        """Get ready; the interface that the coordinator is to listen on, and the host by which workers find it."""
        ...

    async def start(self, address: tuple[str, int], shard: int, token: str, folder: Path) -> Handle:
        """Start the worker of a shard, whose folder is there."""
        ...

    async def close(self) -> None:
        """Give back what `open` took."""
        ...
