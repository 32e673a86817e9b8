"""A call that awaits its batch, a batch in the making, and how a process deals with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from runner.batch.log import Batch, Place, key_of, new_nonce
from runner.batch.reading import Outcome
from runner.budget import Cost
from runner.models.base import Call
from runner.models.queue import Ticket
from runner.models.wire import Prepared

HEADING = 64
"""Bytes of a batch that are none of its requests'."""


@dataclass(eq=False)
class Held:
    """A call that awaits its batch. `batch` is None until it is in one."""

    call: Call
    ticket: Ticket
    cost: Cost
    batch: Batch | None = None
    outcome: Outcome | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    waiting: bool = False
    """Whether somebody awaits it."""

    @property
    def place(self) -> Place:
        return place_of(self.call)


@dataclass(eq=False)
class Chunk:
    """A batch in the making: calls with `sent` and line, all to one path."""

    nonce: str = field(default_factory=new_nonce)
    path: str = ""
    calls: list[tuple[Held, Mapping[str, Any], bytes]] = field(default_factory=list)
    size: int = HEADING

    @property
    def next_key(self) -> str:
        return key_of(self.nonce, len(self.calls))

    def add(self, held: Held, asked: Prepared, line: bytes) -> None:
        self.path = asked.path
        self.calls.append((held, asked.sent, line))
        self.size += len(line)


def place_of(call: Call) -> Place:
    """Which draws a call is for."""
    return call.scope, call.request.hash, call.first, call.n
