"""Where a ledger's lines stand, by what they are asked for: in memory while a run is small, else in a file beside it.

The file (`ledger.index`, SQLite) is made from the ledger and may be deleted at any time. It knows up to which byte of
the ledger it is complete, and what the ledger had counted there, so that opening a large ledger reads only what
follows. It is never believed where ledger and index do not fit together (see `load`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import orjson

from runner.errors import RunError
from runner.jsonl import clean_text, dumps

Span: TypeAlias = tuple[int, int]
Key: TypeAlias = tuple[Any, ...]

SMALL = 50_000
"""Places that are kept in memory before there is a file."""
KEPT = 20_000
"""Owners, and names, that stay in memory beside the file: the last used ones."""
STEP = 512
"""Places that are written at once, which takes a millisecond or two."""
EVERY = 5.0
"""Seconds between two notes of how far the file is complete."""
EDGE = 64
"""Bytes before the end of what is indexed by which the ledger is known again."""
VERSION = 1

_TABLES = """
CREATE TABLE owned (owner TEXT, key TEXT, at INTEGER, length INTEGER, PRIMARY KEY (owner, key)) WITHOUT ROWID;
CREATE TABLE named (name INTEGER PRIMARY KEY, at INTEGER, length INTEGER);
CREATE TABLE note (id INTEGER PRIMARY KEY CHECK (id = 0), content BLOB);
"""


class Places:
    """Places of draws and observations by their owner (a scope, an episode) and key, and of requests and parts by
    name. A key is a tuple of texts and numbers.

    `of` gives an owner's places as a dictionary that is only read. All that is put reaches the file, if there is
    one, before it leaves memory. Call `note` now and then with what is to be known again on opening.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = ledger.with_suffix(".index")
        self._disk: sqlite3.Connection | None = None
        self._owners: OrderedDict[str, dict[Key, Span]] = OrderedDict()
        self._names: OrderedDict[str, Span] = OrderedDict()
        self._waiting: list[tuple[str, Key | None, Span | None]] = []
        """What is not in the file yet: (owner, key, span), (owner, key, None) for one to be forgotten, and (name,
        None, span)."""
        self._noted = -EVERY

    # -- looking up ------------------------------------------------------------------------------------
    def of(self, owner: str) -> Mapping[Key, Span]:
        """An owner's places."""
        return self._mine(owner) if self._disk is not None else self._owners.get(owner, {})

    def _mine(self, owner: str) -> dict[Key, Span]:
        found = self._owners.get(owner)
        if found is None:
            found = self._owners[owner] = {}
            if self._disk is not None:
                rows = self._disk.execute(
                    "SELECT key, at, length FROM owned WHERE owner = ?", (_storable(owner),)
                )
                found.update((tuple(orjson.loads(key)), (at, length)) for key, at, length in rows)
        elif self._disk is not None:
            self._owners.move_to_end(owner)
        return found

    def named(self, name: str) -> Span | None:
        """The place of a request or a part."""
        found = self._names.get(name)
        if found is None and self._disk is not None:
            row = self._disk.execute(
                "SELECT at, length FROM named WHERE name = ?", (_number(name),)
            ).fetchone()
            found = None if row is None else (row[0], row[1])
        return found

    def knows(self, name: str) -> bool:
        """Whether a request or part was written lately: then it need not be written again."""
        if name not in self._names:
            return False
        if self._disk is not None:
            self._names.move_to_end(name)
        return True

    # -- putting ---------------------------------------------------------------------------------------
    def put(self, owner: str, key: Key, span: Span) -> None:
        self._mine(owner)[key] = span
        self._waiting.append((owner, key, span))

    def forget(self, owner: str, key: Key) -> None:
        if self._mine(owner).pop(key, None) is not None:
            self._waiting.append((owner, key, None))

    def name(self, name: str, span: Span) -> None:
        self._names[name] = span
        self._waiting.append((name, None, span))

    @property
    def full(self) -> bool:
        """Whether so much waits that `write` should be called, once the ledger's lines are written."""
        return len(self._waiting) >= (SMALL if self._disk is None else STEP)

    def write(self) -> None:
        """Bring some of what waits into the file. Raises RunError where that cannot be done."""
        try:
            self._write()
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> RunError:
        return RunError(
            f"{self._path}: cannot write ({error}); it is made anew from the ledger, which is whole: make room and "
            "run `overnight resume` on this folder"
        )

    def _write(self) -> None:
        if self._disk is None:
            self._create()
        assert self._disk is not None
        some, self._waiting = self._waiting[:STEP], self._waiting[STEP:]
        owned: list[tuple[str, str, int, int]] = []
        named: list[tuple[int, int, int]] = []
        with self._disk:
            for one, key, span in some:
                if key is None and span is not None:
                    named.append((_number(one), *span))
                elif key is not None and span is not None:
                    owned.append((_storable(one), _text(key), *span))
                elif key is not None:
                    self._put_down(owned, named)
                    self._disk.execute(
                        "DELETE FROM owned WHERE owner = ? AND key = ?", (_storable(one), _text(key))
                    )
            self._put_down(owned, named)
        if not self._waiting:
            for memory in (self._owners, self._names):
                while len(memory) > KEPT:
                    memory.popitem(last=False)

    def _put_down(self, owned: list[tuple[str, str, int, int]], named: list[tuple[int, int, int]]) -> None:
        assert self._disk is not None
        self._disk.executemany("INSERT OR REPLACE INTO owned VALUES (?, ?, ?, ?)", owned)
        self._disk.executemany("INSERT OR REPLACE INTO named VALUES (?, ?, ?)", named)
        owned.clear()
        named.clear()

    # -- the file --------------------------------------------------------------------------------------
    @property
    def on_disk(self) -> bool:
        """Whether there is a file."""
        return self._disk is not None

    @property
    def due(self) -> bool:
        """Whether it is time for a `note`."""
        return self._disk is not None and monotonic() - self._noted >= EVERY

    def note(self, size: int, edge: bytes, changed: int, counts: Mapping[str, Any]) -> None:
        """All places below `size` are here or in the file; `edge` is what the ledger has just before it, `changed`
        when it was written to, and `counts` what it had counted. Raises RunError where that cannot be kept."""
        if self._disk is None:
            return
        while self._waiting:
            self.write()
        note = {"version": VERSION, "size": size, "changed": changed, "edge": edge.hex(), "counts": counts}
        try:
            with self._disk:
                self._disk.execute("INSERT OR REPLACE INTO note VALUES (0, ?)", (dumps(note),))
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._noted = monotonic()

    def load(self) -> tuple[int, dict[str, Any]]:
        """Take up the file, if there is one that fits the ledger: up to which byte it knows the ledger, and what that
        had counted there. (0, {}) where all of the ledger is to be read."""
        if not self._path.exists():
            return 0, {}
        try:
            self._disk = self._open()
            row = self._disk.execute("SELECT content FROM note").fetchone()
            note = orjson.loads(row[0])
            size = int(note["size"])
            if note["version"] == VERSION and self._fits(size, note["changed"], note["edge"]):
                self._forget_from(size)
                return size, dict(note["counts"])
        except (sqlite3.Error, OSError, TypeError, KeyError, ValueError):
            pass
        self._remove()
        return 0, {}

    def _forget_from(self, size: int) -> None:
        """Places beyond what is known to be complete are read again: their lines may have been lost since."""
        assert self._disk is not None
        with self._disk:
            for table in ("owned", "named"):
                self._disk.execute(f"DELETE FROM {table} WHERE at >= ?", (size,))

    def _fits(self, size: int, changed: int, edge: str) -> bool:
        """Whether the ledger is the one that was indexed, or that one and more lines."""
        now = self._ledger.stat()
        if now.st_size < size or (now.st_size == size and now.st_mtime_ns != changed):
            return False
        with self._ledger.open("rb") as file:
            file.seek(max(size - EDGE, 0))
            return file.read(min(size, EDGE)).hex() == edge

    def _create(self) -> None:
        self._remove()
        self._disk = self._open()
        self._disk.executescript(_TABLES)

    def _open(self) -> sqlite3.Connection:
        disk = sqlite3.connect(self._path, check_same_thread=False)
        # It may be lost with the machine (then it does not fit the ledger), and is whole after a `kill -9`.
        disk.execute("PRAGMA journal_mode = WAL")
        disk.execute("PRAGMA synchronous = OFF")
        return disk

    def _remove(self) -> None:
        if self._disk is not None:
            self._disk.close()
            self._disk = None
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).unlink()

    def close(self) -> None:
        if self._disk is not None:
            self._disk.close()
            self._disk = None


def _storable(owner: str) -> str:
    """An owner as the file can hold it: lone surrogates, which ids of a world of one's own may have, replaced. (Who
    looks a place up sees in the ledger whose it is.)"""
    return owner if owner.isascii() else clean_text(owner)


def _number(name: str) -> int:
    """Of a name, which is a content hash, its first 60 bits."""
    try:
        return int(name[:15], 16)
    except ValueError:  # no name of ours: a damaged line's
        return 0


def _text(key: Key) -> str:
    return orjson.dumps(key).decode()
