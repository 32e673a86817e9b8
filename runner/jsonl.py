"""A JSON-lines file that survives being killed: whole lines are appended, a torn tail is mended on opening.

Lines are split on b"\\n" only (never on U+2028 and kin), written by one `os.write` each, and made of strict
JSON: lone surrogates become U+FFFD, integers beyond 64 bits become strings, and so do NaN and the infinities
(`float` takes "nan" and "-inf" back; as null they would be lost in silence). Keys become strings by `str`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from runner.errors import RunError

_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS


def dumps(value: Any) -> bytes:
    """One line of JSON with its newline. Raises TypeError for what has no JSON form."""
    with contextlib.suppress(TypeError):
        line = orjson.dumps(value, option=_OPTIONS)
        if b"null" not in line or _finite(value):  # else NaN may have become null
            return line
    return orjson.dumps(clean(value), option=_OPTIONS)


def plain(value: Any) -> bytes:
    """One line of what is known to hold no NaN and no objects: `dumps` without the look for them. What all the same
    has no JSON form (lone surrogates) is cleaned as there."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return dumps(value)


def _finite(value: Any) -> bool:
    """Whether no float in it is NaN or infinite. (A quick look: this runs for every line that is written.)"""
    if isinstance(value, float):
        return math.isfinite(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for item in items:
        kind = type(item)
        if kind is str or kind is int or item is None:
            continue
        if kind is float:
            if item - item != 0.0:  # infinite, or NaN
                return False
        elif not _finite(item):
            return False
    return True


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted keys, of the value as `clean` has it: what hashes are made of."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    with contextlib.suppress(TypeError):
        text = orjson.dumps(value, option=options)
        if b"null" not in text or _finite(value):
            return text
    return orjson.dumps(clean(value), option=orjson.OPT_SORT_KEYS, default=str)


def clean(value: Any) -> Any:
    """The same value in a form that every JSON reader takes (see the module's docstring).

    Raises TypeError naming the type for objects that are no data.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(clean, value), key=repr)  # in an order that other processes find, too
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: clean(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return clean(value.tolist())  # numpy
    try:
        return orjson.loads(orjson.dumps(value))  # enums, UUIDs
    except TypeError:
        raise TypeError(f"{type(value).__name__} has no JSON form: {value!r:.80}") from None


def clean_text(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot carry, replaced by U+FFFD."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Appender:
    """An open file that grows by whole lines. One writer at a time (the run's lock sees to that).

    `append` writes at once. `put` takes lines that are written together with all others of this turn of the event
    loop, in one write; `written` waits for that. What was put can be read at once.

    Raises RunError where the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.mended = mend_tail(path)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise RunError(f"{path}: cannot be opened for writing ({error.strerror})") from error
        self.size = os.fstat(self._fd).st_size
        """Bytes, what was put and is not written yet among them."""
        self._there = self._synced = self.size
        self._torn = False
        self._put: list[bytes] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._failure: RunError | None = None
        """Why lines that were put could not be written, or lines not be forced to the disk: nothing is taken any more,
        as later places would be wrong."""
        self._told = False
        """Whether anybody has heard of it."""

    def append(self, *values: Any) -> list[tuple[int, int]]:
        """Write the values as consecutive lines in one write; returns (offset, length) of each.

        The lines are in the kernel's hands when this returns, so they survive `kill -9`; `sync` makes them
        survive the machine. Raises RunError when the disk is full, leaving no partial line behind.
        """
        return self.write([dumps(value) for value in values])

    def write(self, lines: Sequence[bytes]) -> list[tuple[int, int]]:
        """Append lines that are bytes already, as `append` does."""
        self.flush()
        spans = self._spans(lines)
        self._write(b"".join(lines))
        return spans

    def put(self, lines: Sequence[bytes]) -> list[tuple[int, int]]:
        """Take lines, to be written at the end of this turn of the event loop (at once where none runs); returns
        (offset, length) of each. Raises RunError where lines that were put before could not be written."""
        if not self._put:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return self.write(lines)
            loop.call_soon(self._flush)
        self._check()
        spans = self._spans(lines)
        self._put += lines
        return spans

    async def written(self) -> None:
        """Until all that was put is in the kernel's hands. Raises RunError where it cannot be written."""
        if self._put:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        self._check()

    def flush(self) -> None:
        """Write what was put now. Raises RunError where that failed, now or before."""
        self._flush()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            self._told = True
            raise RunError(*self._failure.args) from self._failure

    def _flush(self) -> None:
        if not self._put:
            return
        lines, self._put = self._put, []
        waiters, self._waiters = self._waiters, []
        try:
            self._write(b"".join(lines))
        except RunError as error:
            self.size, self._failure = self._there, error
        for waiter in waiters:
            if not waiter.done():  # else cancelled
                waiter.set_result(None)

    def _spans(self, lines: Sequence[bytes]) -> list[tuple[int, int]]:
        """Where the lines will stand; the file is as long as if they stood there."""
        spans, at = [], self.size
        for line in lines:
            spans.append((at, len(line)))
            at += len(line)
        self.size = at
        return spans

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            if self._torn:
                self._cut(self._there)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.size, self._torn = self._there, True
            with contextlib.suppress(OSError):
                self._cut(self._there)
            raise _no_room(self.path, error) from error
        self._there += len(data)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._torn = False

    def read(self, offset: int, length: int) -> Any:
        """The value of one line, by the span that `append`, `put` or `scan` gave."""
        if offset + length > self._there:
            self.flush()
        return orjson.loads(os.pread(self._fd, length, offset))

    @property
    def whole(self) -> bool:
        """Whether all that was put is written; it is written for that."""
        self._flush()
        return self._failure is None

    @property
    def changed(self) -> int:
        """When it was written to, in nanoseconds since 1970, by the file system's clock."""
        return os.fstat(self._fd).st_mtime_ns

    def tail(self, length: int) -> bytes:
        """The last bytes of what is written."""
        start = max(self._there - length, 0)
        return os.pread(self._fd, self._there - start, start)

    def sync(self) -> None:
        """Force what was written to the disk. Blocks: call it off the event loop. Raises RunError, also where what
        was put could not be written."""
        self._check()
        self._force()
        self._check()

    def _force(self) -> None:
        if self._synced != self._there:
            size = self._there
            try:
                os.fsync(self._fd)
                self._synced = size
            except OSError as error:  # for good: another try would succeed without what this one lost
                self._failure = self._failure or _no_room(self.path, error)

    def close(self) -> None:
        """Raises RunError where something cannot be written or forced to the disk and nobody has heard of it."""
        if self._fd < 0:
            return
        self._flush()
        self._force()
        os.close(self._fd)
        self._fd = -1
        if not self._told:
            self._check()


def mend_tail(path: Path) -> int:
    """Make the file end with a newline after a writer was killed in mid-line.

    A whole but unterminated last row is kept; a torn one is cut off. Returns the number of bytes cut.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    if size == 0:
        return 0
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return 0
        start = _line_start(file, size)
        file.seek(start)
        try:
            row = orjson.loads(file.read())
        except orjson.JSONDecodeError:
            row = None
        if isinstance(row, dict):
            file.write(b"\n")
            return 0
        file.truncate(start)
        return size - start


def _line_start(file: Any, size: int) -> int:
    at = size
    while at > 0:
        step = min(1 << 16, at)
        at -= step
        file.seek(at)
        found = file.read(step).rfind(b"\n")
        if found >= 0:
            return int(at + found + 1)
    return 0


def scan(path: Path, start: int = 0) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """(offset, length, row) of each line from `start` on; row is None where a line is no JSON object. Missing file:
    none."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = file.seek(start)
        for line in file:
            length = len(line)
            try:
                row: Any = orjson.loads(line)
            except orjson.JSONDecodeError:
                row = None
            if type(row) is dict:
                yield offset, length, row
            elif not line.isspace():
                yield offset, length, None
            offset += length


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The readable rows of a file."""
    for _, _, row in scan(path):
        if row is not None:
            yield row


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's content so that readers see the old or the new, never a part. Raises RunError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _no_room(path, error) from error


def _no_room(path: Path, error: OSError) -> RunError:
    return RunError(
        f"{path}: cannot write ({error.strerror}); what was written before is whole: "
        "make room and run `overnight resume` on this folder"
    )
