"""A JSON-lines file that survives being killed: whole lines are appended, a torn tail is mended on opening.

Lines are split on b"\\n" only (never on U+2028 and kin), written by one `os.write` each, and made of strict
JSON: lone surrogates become U+FFFD, integers beyond 64 bits become strings, and so do NaN and the infinities
(`float` takes "nan" and "-inf" back; as null they would be lost in silence). Keys become strings by `str`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
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
        self._synced = self.size
        self._torn = False

    def append(self, *values: Any) -> list[tuple[int, int]]:
        """Write the values as consecutive lines in one write; returns (offset, length) of each.

        The lines are in the kernel's hands when this returns, so they survive `kill -9`; `sync` makes them
        survive the machine. Raises RunError when the disk is full, leaving no partial line behind.
        """
        lines = [dumps(value) for value in values]
        spans, at = [], self.size
        for line in lines:
            spans.append((at, len(line)))
            at += len(line)
        self.write(b"".join(lines))
        return spans

    def write(self, data: bytes) -> None:
        """Append whole lines that are bytes already. Raises RunError as `append` does."""
        start, view = self.size, memoryview(data)
        try:
            if self._torn:
                self._cut(start)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._torn = True
            with contextlib.suppress(OSError):
                self._cut(start)
            raise _no_room(self.path, error) from error
        self.size = start + len(data)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._torn = False

    def read(self, offset: int, length: int) -> Any:
        """The value of one line, by the span that `append` or `scan` gave."""
        return orjson.loads(os.pread(self._fd, length, offset))

    def sync(self) -> None:
        """Force what was appended to the disk. Blocks: call it off the event loop. Raises RunError."""
        if self._synced != self.size:
            size = self.size
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise _no_room(self.path, error) from error
            self._synced = size

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(RunError):
                self.sync()
            os.close(self._fd)
            self._fd = -1


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


def scan(path: Path) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """(offset, length, row) of each line; row is None where a line is no JSON object. Missing file: none."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = 0
        for line in file:
            row: Any = None
            if line.strip():
                with contextlib.suppress(orjson.JSONDecodeError):
                    row = orjson.loads(line)
                yield offset, len(line), row if isinstance(row, dict) else None
            offset += len(line)


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
        f"{path}: cannot write ({error.strerror}); nothing answered is lost: "
        "make room and run `overnight resume` on this folder"
    )
