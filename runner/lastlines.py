"""The trajectories of a run by their ids: of several lines with one id the last counts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from runner.compact import Numbers
from runner.jsonl import scan

_MASK = (1 << 64) - 1
_OWED = 0
"""In place of a config: the episode ended in an error, so that it is run again."""


class LastLines:
    """Where the last line of each id stands, its place in plan order, and its config. Some fifty bytes an episode.

    `moved` gives episodes another place in plan order than their line says.
    """

    def __init__(self, path: Path, moved: Numbers | None = None) -> None:
        self.path = path
        self.damaged: list[tuple[int, int]] = []
        """(offset, length) of lines that are no trajectory."""
        self.superseded = 0
        """Lines that a later one with the same id replaces."""
        self._slots = Numbers()
        self._offsets, self._indices, self._configs = array("Q"), array("q"), array("Q")
        for offset, length, row in scan(path):
            if row is None or "id" not in row:
                self.damaged.append((offset, length))
                continue
            name = str(row["id"])
            index = None if moved is None else moved.get(name)
            index = row.get("index", 0) if index is None else index
            config = _OWED if row.get("status") == "error" else _digest(row.get("config", ""))
            slot = self._slots.put(name, len(self._offsets))
            if slot is not None:
                self._slots.put(name, slot)
                self.superseded += 1
                self._offsets[slot], self._indices[slot], self._configs[slot] = offset, index, config
            else:
                self._offsets.append(offset)
                self._indices.append(index)
                self._configs.append(config)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, episode: object) -> bool:
        return isinstance(episode, str) and self._slots.get(episode) is not None

    def done(self, episode: str) -> int | None:
        """The number, for `index` and `has_config`, of an episode that ended other than in an error; else None."""
        slot = self._slots.get(episode)
        return None if slot is None or self._configs[slot] == _OWED else slot

    def index(self, slot: int) -> int:
        """An episode's place in plan order."""
        return self._indices[slot]

    def has_config(self, slot: int, config: str) -> bool:
        """Whether an episode ended with this config."""
        return self._configs[slot] == _digest(config)

    def row(self, episode: str) -> dict[str, Any] | None:
        """An episode's last line; None where it has none, or it can no longer be read."""
        slot = self._slots.get(episode)
        if slot is None:
            return None
        with self.path.open("rb") as file:
            file.seek(self._offsets[slot])
            try:
                row = orjson.loads(file.readline())
            except orjson.JSONDecodeError:
                return None
        return row if isinstance(row, dict) else None

    def in_order(self) -> Iterator[tuple[int, int]]:
        """(index, offset) of all, in plan order."""
        indices, offsets = self._indices, self._offsets
        for slot in sorted(range(len(offsets)), key=lambda slot: indices[slot] << 64 | offsets[slot]):
            yield indices[slot], offsets[slot]

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows in plan order."""
        if not len(self):
            return
        with self.path.open("rb") as file:
            for _, offset in self.in_order():
                file.seek(offset)
                yield orjson.loads(file.readline())


def _digest(config: Any) -> int:
    return hash(str(config)) & _MASK or 1
