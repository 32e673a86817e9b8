"""Which texts were met before, of millions, at some fifteen bytes each."""

from __future__ import annotations

from array import array

_SEGMENTS = 256
_SMALLEST = 16
_MASK = (1 << 64) - 1


class Seen:
    """A set of texts that only grows; of this process alone.

    A text is kept as its 64-bit hash: two of a million are taken for one with a chance of three in a hundred million,
    so that who must be sure looks again where `add` says False. It grows in steps of a millisecond, whatever its size.
    """

    def __init__(self) -> None:
        self._segments = [array("Q", bytes(8 * _SMALLEST)) for _ in range(_SEGMENTS)]
        self._counts = [0] * _SEGMENTS

    def add(self, text: str) -> bool:
        """Whether the text is new."""
        key = hash(text) & _MASK or 1
        number = key % _SEGMENTS
        keys = self._segments[number]
        mask = len(keys) - 1
        at = key // _SEGMENTS & mask
        while there := keys[at]:
            if there == key:
                return False
            at = at + 1 & mask
        keys[at] = key
        count = self._counts[number] = self._counts[number] + 1
        if 5 * count > 3 * mask:
            self._segments[number] = _doubled(keys)
        return True

    def __len__(self) -> int:
        return sum(self._counts)


def _doubled(keys: array[int]) -> array[int]:
    new = array("Q", bytes(16 * len(keys)))
    mask = len(new) - 1
    for key in keys:
        if key:
            at = key // _SEGMENTS & mask
            while new[at]:
                at = at + 1 & mask
            new[at] = key
    return new
