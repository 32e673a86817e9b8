"""A worker's heartbeat: how a coordinator knows that it lives, and how it knows itself that its lease has lapsed.

It beats from a thread, with a connection of its own, so that a world that computes for long in the event loop is not
taken for dead. A worker that was not answered for as long as its lease lasts ends itself at once: its shard will be
given to another.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from runner.cluster.link import framed

LAPSED = 75
"""Exit code of a worker that ended itself."""


@dataclass(frozen=True, slots=True)
class Lease:
    """`lasts`: seconds that a worker may go on without an answer. `lost`: seconds of silence after which the
    coordinator gives its shard away. `every`: seconds between beats."""

    every: float = 2.0
    lasts: float = 20.0
    lost: float = 30.0


class Beat:
    """Beats for the worker with a key until it is closed."""

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        key: int,
        lease: Lease,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._address, self._token, self._key, self._lease, self._end = address, token, key, lease, end
        self._until = monotonic() + lease.lasts
        self._over = threading.Event()
        threading.Thread(target=self._beat, name="overnight-beat", daemon=True).start()
        threading.Thread(target=self._guard, name="overnight-lease", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _beat(self) -> None:
        line: socket.socket | None = None
        while not self._over.is_set():
            try:
                if line is None:
                    line = socket.create_connection(self._address, timeout=self._lease.every)
                began = monotonic()
                line.sendall(framed([0, [["beat", self._token, self._key]]]))
                size = int.from_bytes(_exactly(line, 4), "big")
                _exactly(line, size)
                self._until = began + self._lease.lasts
            except OSError:
                if line is not None:
                    line.close()
                line = None
            self._over.wait(self._lease.every)
        if line is not None:
            line.close()

    def _guard(self) -> None:
        while not self._over.wait(min(self._lease.every, 1.0) / 2):
            if monotonic() > self._until:
                self._end(LAPSED)


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise ConnectionError("the coordinator has closed the connection")
        data += more
    return data
