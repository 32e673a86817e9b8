"""What the batch room asks of a provider, and the few HTTP calls that this takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from runner.batch.log import Batch
from runner.models.bodies import load_json
from runner.models.wire import Prepared

MB = 1_000_000
PAUSE = 60.0
"""Seconds without a byte after which a download or an upload is given up and tried again."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a provider says of one batch. `status` is its own word; `fault` is why it failed as a whole;
    `full` that it did because too much is queued already."""

    id: str
    status: str
    ended: bool
    counts: dict[str, int] = field(default_factory=dict)
    created: float | None = None
    nonce: str | None = None
    input_file: str | None = None
    files: tuple[str, ...] = ()
    fault: str | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One line of results: which request, with which HTTP status, and the reply's body (or the error's). `kind`
    names an ending that is no answer (expired, cancelled): it is asked for again."""

    key: str
    status: int
    body: Any
    kind: str = ""


class Form(Protocol):
    """What a batch's file looks like, and how large it may be."""

    most_requests: int
    most_bytes: int

    def line(self, key: str, asked: Prepared) -> bytes:
        """A request as it stands in the file, with its newline."""
        ...


class Api(Form, Protocol):
    """A provider's batches. All of it raises what the direct calls of its model raise."""

    names: bool
    """Whether a batch carries its nonce, so that it is known again without doubt."""

    async def upload(self, batch: Batch, file: Path) -> str | None:
        """Bring the file to the provider; its name there, None where this is no step of its own."""
        ...

    async def submit(self, batch: Batch, file: Path) -> Look:
        """Begin the batch."""
        ...

    async def find(self, batch: Batch) -> list[Look]:
        """The batches at the provider that may be this one, whose submission was not confirmed."""
        ...

    async def look(self, id: str) -> Look:
        """How a batch is doing."""
        ...

    def results(self, look: Look) -> AsyncIterator[Result | None]:
        """The results of a batch that has ended, in any order; None for a line that cannot be read."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def row_of(line: bytes) -> dict[str, Any] | None:
    """A line's JSON object; None where it is none. Takes a byte order mark, NaN and lone surrogates."""
    return load_json(line)


def error_body(error: Any) -> bytes:
    """An error as the body of the reply that it would have been by itself."""
    if isinstance(error, Mapping) and "error" in error:
        return orjson.dumps(error)
    return orjson.dumps({"error": error})


def counted(raw: Any, *names: str) -> int:
    """The sum of an object's counts."""
    return sum(int(raw.get(name) or 0) for name in names) if isinstance(raw, Mapping) else 0
