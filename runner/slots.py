"""A map from 64-bit keys to 64-bit numbers in a file, of which next to nothing is in memory."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterable, Mapping

SMALLEST = 16
NEAR = 16
"""Slots that a look-up reads; in a table of which three fifths are taken it needs more once in fifty times."""
UNKNOWN = -1


class Slots:
    """The map. Keys are evenly spread numbers from 1 to 2**64 - 1, such as digests; numbers are never negative.

    Each part is an open-addressing table (key, number, key, number, …; a key of 0 is a free slot) that lies somewhere
    in the file. A table that becomes too full is written anew, twice as large, at the file's end, and what it was
    before stays there. So a map that is taken up with an older `directory` is whole as far as it went when that was
    made, and may have later entries, too.

    Raises OSError, as reading and writing do.
    """

    def __init__(self, fd: int, end: int, directory: Iterable[tuple[int, int]]) -> None:
        """`end`: from where on the file is free. `directory`: of an earlier `Slots` over this file; for each part
        (0, 0) in a new one."""
        self.fd = fd
        """The file, open to be read and written; -1 when it is closed."""
        self.end = end
        tables = list(directory)
        self._offsets, self._sizes = [at for at, _ in tables], [size for _, size in tables]
        self._counts = [UNKNOWN if size else 0 for size in self._sizes]
        self.parts = len(tables)

    @property
    def directory(self) -> list[tuple[int, int]]:
        """Offset in bytes and size in slots of each part."""
        return list(zip(self._offsets, self._sizes, strict=True))

    def get(self, key: int) -> int | None:
        """The number of a key; None where it has none."""
        part, home = key % self.parts, key // self.parts
        size = self._sizes[part]
        if not size:
            return None
        home &= size - 1
        found = os.pread(self.fd, 16 * min(NEAR, size - home), self._offsets[part] + 16 * home)
        words = memoryview(found[: len(found) // 16 * 16]).cast("Q")
        for at in range(0, len(words), 2):
            there = words[at]
            if there == key:
                return words[at + 1]
            if not there:
                return None
        table = self._table(part)
        at = _place(table, key, self.parts)
        return table[at + 1] if table[at] else None

    def put(self, part: int, entries: Mapping[int, int]) -> None:
        """Set the numbers of keys that are all of one part (key % parts)."""
        size, table = self._sizes[part], self._table(part)
        if self._counts[part] == UNKNOWN:
            self._counts[part] = size - table[::2].count(0)
        while 5 * (self._counts[part] + len(entries)) > 3 * size:
            size = max(2 * size, SMALLEST)
        count, grown = self._counts[part], size != self._sizes[part]
        if grown:
            table = _copied(table, size, self.parts)
        for key, number in entries.items():
            at = _place(table, key, self.parts)
            count += not table[at]
            table[at], table[at + 1] = key, number
        offset = self.end if grown else self._offsets[part]
        write_at(self.fd, table.tobytes(), offset)
        if grown:
            self.end += 16 * size
        self._offsets[part], self._sizes[part], self._counts[part] = offset, size, count

    def _table(self, part: int) -> array[int]:
        length = 16 * self._sizes[part]
        found = os.pread(self.fd, length, self._offsets[part])
        if len(found) != length:
            raise OSError(errno.EIO, "it is shorter than it was")
        return array("Q", found)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _place(table: array[int], key: int, parts: int) -> int:
    """Where the key is, or the free slot where it belongs."""
    last = len(table) - 1
    at = 2 * (key // parts) & last
    while (there := table[at]) and there != key:
        at = at + 2 & last
    return at


def _copied(table: array[int], size: int, parts: int) -> array[int]:
    """The same entries with more room."""
    new = array("Q", bytes(16 * size))
    for at in range(0, len(table), 2):
        if key := table[at]:
            to = _place(new, key, parts)
            new[to], new[to + 1] = key, table[at + 1]
    return new
