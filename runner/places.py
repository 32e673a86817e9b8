"""Where a ledger's lines stand, by what they are asked for: in memory while a run is small, else in a file beside it.

The file (`ledger.index`) is made from the ledger and may be deleted at any time. It knows up to which byte of the
ledger it is complete, and what the ledger had counted there, so that opening a large ledger reads only what follows.
It is never believed where ledger and index do not fit together (see `load`), and a line is believed to be what it was
looked up for only as far as it says so itself.

The file: a head of 4,096 bytes (a mark, how far the ledger was written when a place was written last, and where the
two newest notes are), tables (see `Slots`), and notes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import orjson

from runner.errors import RunError
from runner.jsonl import dumps
from runner.slots import Slots, write_at

Span: TypeAlias = tuple[int, int]

SMALL = 50_000
"""Places that are kept in memory before there is a file."""
KEPT = 20_000
"""Requests and parts that are known to be written already: the last ones."""
STEP = 64
"""Places of one part that are written together."""
AT_ONCE = 8
"""Parts that are written at once, which takes a millisecond."""
EVERY = 30.0
"""Seconds between two notes of how far the file is complete."""
FILTER = 1 << 22
"""Bytes of a filter: of keys that are not there one in ten is looked for in vain when there are three millions."""
EDGE = 64
"""Bytes before the end of what is indexed by which the ledger is known again."""

PARTS = 1024
"""Tables in the file: so many that one is read, added to and written in a tenth of a millisecond while there are
millions of places."""

_MARK = int.from_bytes(b"places 2", "little")
_HEAD = 4096
_AHEAD = 8
_NOTES = (64, 128)
_NOTE = struct.Struct("=QQQ16s")
"""Of a note: its number (the newest has the largest), offset, length, digest."""
_WORD = (1 << 64) - 1
_LONG = (1 << 20) - 1
"""In place of the length of lines that are as long or longer."""
_APART = 0x9E3779B97F4A7C15
"""Odd, so that different numbers times it differ in 64 bits."""
_MOST = 1 << 20


class Places:
    """Places of a ledger's lines, and numbers, by 64-bit keys: see `of_draw`, `of_step`, `of_name`.

    Two of ten million keys are one with a chance of three in a million. What is put waits in memory until `write`,
    to be called when it is `full` and the ledger's own lines are written. Call `note` when it is `due`.
    """

    def __init__(self, ledger: Path, *, frozen: bool = False) -> None:
        self._ledger = ledger
        self.frozen = frozen
        """Whether others have the file open, too, and nobody writes to it; what it lacks stays in memory."""
        self._path = ledger.with_suffix(".index")
        self._fd = -1
        self._failure: OSError | None = None
        """Why the file cannot be used."""
        self._start(None)
        self._put = 0
        self._known: dict[str, None] = {}
        self._known_before: dict[str, None] = {}
        self._long: dict[int, int] = {}
        """Lengths of lines, by offset, that are too long for their place to tell."""
        self._noted = -EVERY
        self._note: dict[str, Any] | None = None
        """What is to be noted, when all places that were put before are written."""
        self._swept = 0
        """Parts of which they are."""
        self._number = 0
        self._rooms = [(0, 0), (0, 0)]
        """Offset and length of what is free for notes: they take turns."""

    def _start(self, slots: Slots | None) -> None:
        self._slots = slots
        self._parts = PARTS if slots is None else slots.parts
        self._waiting: list[dict[int, int]] = [{} for _ in range(self._parts)]
        self._full: list[int] = []
        self._put_here = None if slots is not None else bytearray(FILTER)
        """A bit for each key that was put, where all that is in the file was put by this process: most of what is
        looked up was not, and so needs no look into the file."""

    # -- looking up ------------------------------------------------------------------------------------
    def number(self, key: int) -> int:
        """The number that was put by a key; 0 without one. Raises RunError where the file cannot be read."""
        found = self._waiting[key % self._parts].get(key)
        if found is not None or self._slots is None:
            return found or 0
        if self._put_here is not None and not self._put_here[key >> 3 & FILTER - 1] & 1 << (key & 7):
            return 0
        try:
            return self._slots.get(key) or 0
        except OSError as error:
            raise self._failed(error) from error

    def get(self, key: int) -> Span | None:
        """The place (offset, length) of a line; None where none was put."""
        number = self.number(key)
        if not number:
            return None
        at, length = number >> 20, number & _LONG
        return at, length if length != _LONG else self._length(at)

    def _length(self, at: int) -> int:
        length = self._long.get(at)
        if length is None:
            with self._ledger.open("rb") as file:
                file.seek(at)
                length = len(file.readline())
        return length

    def knows(self, name: str) -> bool:
        """Whether a request or part was written lately: then it need not be written again."""
        if name in self._known:
            return True
        if name not in self._known_before:
            return False
        self._know(name)
        return True

    # -- putting ---------------------------------------------------------------------------------------
    def put(self, key: int, span: Span) -> None:
        at, length = span
        if length >= _LONG:
            self._long[at] = length
            length = _LONG
        self.put_number(key, at << 20 | length)

    def put_number(self, key: int, number: int) -> None:
        """Keep a number below 2**64; 0 has the key forgotten."""
        part = key % self._parts
        waiting = self._waiting[part]
        waiting[key] = number
        self._put += 1
        if len(waiting) == STEP:
            self._full.append(part)
        if self._put_here is not None:
            self._put_here[key >> 3 & FILTER - 1] |= 1 << (key & 7)

    def name(self, name: str, span: Span) -> None:
        """Keep the place of a request or part, which is known from now on."""
        self.put(of_name(name), span)
        self._know(name)

    def _know(self, name: str) -> None:
        if len(self._known) >= KEPT:
            self._known, self._known_before = {}, self._known
        self._known[name] = None

    @property
    def full(self) -> bool:
        """Whether so much waits that `write` should be called, once the ledger's lines are written."""
        if self.frozen:
            return False
        if self._slots is None:
            return self._put >= SMALL
        return self._note is not None or bool(self._full)

    def write(self, size: int) -> None:
        """Bring some of what waits into the file; `size` are the ledger's bytes, all of them written. Raises RunError
        where that cannot be done."""
        try:
            self._write(size)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> RunError:
        self.close()  # what was half done is not noted
        error = self._failure = self._failure or error
        return RunError(
            f"{self._path}: cannot be used ({error.strerror or error}); it is made anew from the ledger, which is "
            "whole: make room and run `overnight resume` on this folder"
        )

    def _write(self, size: int) -> None:
        slots = self._slots
        if slots is None:
            self._create()
            return
        os.pwrite(self._fd, size.to_bytes(8, "little"), _AHEAD)
        for _ in range(AT_ONCE):
            if self._full:
                part = self._full.pop()
            elif self._note is not None and self._swept < self._parts:
                part, self._swept = self._swept, self._swept + 1
                while not self._waiting[part] and self._swept < self._parts:
                    part, self._swept = self._swept, self._swept + 1
            else:
                break
            if self._waiting[part]:
                slots.put(part, self._waiting[part])
                self._waiting[part] = {}
        if self._note is not None and self._swept == self._parts:
            note, self._note = self._note, None
            self._write_note(note)

    # -- the file --------------------------------------------------------------------------------------
    @property
    def on_disk(self) -> bool:
        """Whether there is a file, and it is open."""
        return self._fd >= 0

    @property
    def due(self) -> bool:
        """Whether it is time for a `note`."""
        if self.frozen:
            return False
        return self._slots is not None and self._note is None and monotonic() - self._noted >= EVERY

    def note(self, size: int, edge: bytes, changed: int, counts: Mapping[str, Any]) -> None:
        """Note, when what waits now is written, that all places below `size` are in the file; `edge` is what the
        ledger has just before it, `changed` when it was written to, and `counts` what it had counted."""
        self._noted = monotonic()
        self._note = {
            "size": size, "edge": edge.hex(), "changed": changed, "counts": counts, "boot": _boot(), "clean": False,
        }  # fmt: skip
        self._swept = 0

    def finish(self, size: int, edge: bytes, changed: int, counts: Mapping[str, Any]) -> None:
        """Note that at once, as the last thing that is done, and so that it survives the machine. Raises RunError
        where it cannot be kept."""
        if self._slots is None or self.frozen:
            return
        self.note(size, edge, changed, counts)
        assert self._note is not None
        self._note["clean"] = True
        while self._note is not None:
            self.write(size)

    def _write_note(self, note: dict[str, Any]) -> None:
        assert self._slots is not None
        if note["clean"]:
            os.fsync(self._fd)
        data = dumps({**note, "directory": self._slots.directory})
        self._number += 1
        turn = self._number % 2
        offset, room = self._rooms[turn]
        if len(data) > room:
            offset, room = self._slots.end, 2 * len(data) + 15 & ~15
            self._rooms[turn] = offset, room
            self._slots.end += room
        write_at(self._fd, data, offset)
        head = _NOTE.pack(self._number, offset, len(data), _sum(self._number, data))
        write_at(self._fd, head, _NOTES[turn])
        if note["clean"]:
            os.fsync(self._fd)

    def load(self) -> tuple[int, dict[str, Any]]:
        """Take up the file, if there is one that fits the ledger: up to which byte it knows the ledger, and what that
        had counted there. (0, {}) where all of the ledger is to be read."""
        try:
            self._fd = os.open(self._path, (os.O_RDONLY if self.frozen else os.O_RDWR) | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0, {}
        except OSError:
            if not self.frozen:
                self._remove()
            return 0, {}
        try:
            note = self._newest()
            if self._fits(note):
                self._start(Slots(self._fd, os.fstat(self._fd).st_size, note["directory"]))
                if note["clean"] and not self.frozen:  # it is not, from now on
                    self._write_note({**note, "clean": False})
                    os.fsync(self._fd)
                return int(note["size"]), dict(note["counts"])
        except (OSError, TypeError, KeyError, ValueError, struct.error):
            pass
        if self.frozen:
            self.close()
        else:
            self._remove()
        return 0, {}

    def _newest(self) -> dict[str, Any]:
        """The newest note that is whole. Raises ValueError where there is none."""
        head = os.pread(self._fd, _HEAD, 0)
        if int.from_bytes(head[:8], "little") != _MARK:
            raise ValueError("not of this make")
        for number, offset, length, digest in sorted(
            (_NOTE.unpack_from(head, at) for at in _NOTES), reverse=True
        ):
            data = os.pread(self._fd, length, offset)
            if number and _sum(number, data) == digest:
                self._number = number
                found = orjson.loads(data)
                return {**found, "ahead": int.from_bytes(head[_AHEAD : _AHEAD + 8], "little")}
        raise ValueError("no whole note")

    def _fits(self, note: Mapping[str, Any]) -> bool:
        """Whether the ledger is the one that was indexed, or that one and more lines; and the file whole. (A machine
        that fails may lose lines of the one and pages of the other.)"""
        size, now = note["size"], self._ledger.stat()
        if now.st_size < max(size, note["ahead"]) or (
            now.st_size == size and now.st_mtime_ns != note["changed"]
        ):
            return False
        if not note["clean"] and (not note["boot"] or note["boot"] != _boot()):
            return False
        end = os.fstat(self._fd).st_size
        if not note["directory"] or any(at + 16 * of > end for at, of in note["directory"]):
            return False
        with self._ledger.open("rb") as file:
            file.seek(max(size - EDGE, 0))
            return bool(file.read(min(size, EDGE)).hex() == note["edge"])

    def _create(self) -> None:
        self._remove()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        head = _MARK.to_bytes(8, "little")
        write_at(self._fd, head + bytes(_HEAD - len(head)), 0)
        self._slots = Slots(self._fd, _HEAD, [(0, 0)] * self._parts)

    def _remove(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._slots is not None:
            self._slots.fd = -1


# -- keys ----------------------------------------------------------------------------------------------
def of_draw(scope: str, request_hash: str, i: int) -> int:
    """The key of a draw."""
    return (_digest(scope) ^ _of_hash(request_hash)) + i * _APART & _WORD or 1


def of_name(name: str) -> int:
    """The key of a request, or of a part: both are named by what they hold."""
    return _of_hash(name) or 1


def of_step(episode: str, life: int, attempt: int, step: int) -> int:
    """The key of an observation; with a step of -1, of how many steps the attempt has. Raises ValueError for what is
    no number of a life, an attempt or a step."""
    if not (0 <= life < _MOST and 0 <= attempt < _MOST and -1 <= step < _MOST):
        raise ValueError(f"no step of an episode: {life}, {attempt}, {step}")
    return _digest("observed " + episode) + ((life << 20 | attempt) << 21 | step + 2) * _APART & _WORD or 1


def of_lives(episode: str) -> int:
    """The key of how many lives of an episode have observations."""
    return _digest("observed " + episode) or 1


def _of_hash(name: str) -> int:
    try:
        return int(name[:16], 16)
    except ValueError:  # no hash of ours
        return _digest(name)


@lru_cache(maxsize=4096)
def _digest(text: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def _sum(number: int, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, salt=number.to_bytes(8, "little")).digest()


@lru_cache(maxsize=1)
def _boot() -> str:
    """What tells one start of the machine from another; "" where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
