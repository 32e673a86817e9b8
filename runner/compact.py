"""Maps from texts to numbers for millions of entries, at some thirty bytes each."""

from __future__ import annotations

from array import array

_SEGMENTS = 256
_SMALLEST = 16
_MASK = (1 << 64) - 1


class Numbers:
    """A number from 0 to 2**64 - 1 for each text that was put; of this process alone.

    A text is kept as its 64-bit hash: of a million texts two are taken for one with a chance of three in a hundred
    million. It grows in steps of a few milliseconds at most, whatever its size.
    """

    def __init__(self) -> None:
        self._segments = [_Segment() for _ in range(_SEGMENTS)]

    def put(self, text: str, number: int) -> int | None:
        """Set a text's number; gives the one it had, None if it is new."""
        key = hash(text) & _MASK or 1
        return self._segments[key % _SEGMENTS].put(key, number)

    def get(self, text: str) -> int | None:
        key = hash(text) & _MASK or 1
        return self._segments[key % _SEGMENTS].get(key)

    def __len__(self) -> int:
        return sum(segment.count for segment in self._segments)


class _Segment:
    """A part of the map: open addressing in two arrays. A key of 0 marks a free place."""

    __slots__ = ("_keys", "_mask", "_values", "count")

    def __init__(self) -> None:
        self.count = 0
        self._make(_SMALLEST)

    def _make(self, size: int) -> None:
        self._keys = array("Q", bytes(8 * size))
        self._values = array("Q", bytes(8 * size))
        self._mask = size - 1

    def put(self, key: int, number: int) -> int | None:
        at = self._place(key)
        if self._keys[at]:
            old, self._values[at] = self._values[at], number
            return old
        self._keys[at], self._values[at] = key, number
        self.count += 1
        if 5 * self.count > 3 * self._mask:
            self._grow()
        return None

    def get(self, key: int) -> int | None:
        at = self._place(key)
        return self._values[at] if self._keys[at] else None

    def _place(self, key: int) -> int:
        """Where the key is, or the free place where it belongs."""
        keys, mask = self._keys, self._mask
        at = key // _SEGMENTS & mask
        while (there := keys[at]) and there != key:
            at = at + 1 & mask
        return at

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._make(2 * len(keys))
        for key, number in zip(keys, values, strict=True):
            if key:
                at = self._place(key)
                self._keys[at], self._values[at] = key, number
