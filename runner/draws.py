"""The draws of a run that is over (or goes on elsewhere): found by their key, read one by one, never written.

Analysis reads chains through this, and a job's `reuse` takes the draws of earlier runs.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from runner.errors import RunError
from runner.jsonl import scan
from runner.outputs import read_manifest, unmerged


class PastDraws:
    """One run's draws, of two lines with one key the first, as for the run itself.

    In memory a draw is 16 bytes: a 64-bit digest of its key and its line's place in the file. Lines that cannot
    be read are passed over and counted (`unreadable`). Raises RunError for a folder that holds no run, and for a
    ledger that is missing or has no readable line.
    """

    def __init__(self, run: Path) -> None:
        read_manifest(run)
        if unmerged(run):
            raise RunError(
                f"{run}: its workers' shards are not merged, as it goes on or its command died; first let it end: "
                f"overnight resume {run}"
            )
        self.run = run
        self.unreadable = 0
        self._path = run / "ledger.jsonl"
        self._file: BinaryIO | None = None
        if not self._path.is_file():
            raise RunError(f"{run}: there is no ledger.jsonl in it, and so no draw to read")
        found = sorted(self._scanned())
        self._keys = array("Q", (key for key, _ in found))
        self._places = array("Q", (place for _, place in found))
        if self.unreadable and not found:
            raise RunError(f"{self._path}: no line of it can be read; it is damaged, or no ledger")

    def _scanned(self) -> Iterator[tuple[int, int]]:
        for offset, _, row in scan(self._path):
            try:
                for name in _names(row or {}):
                    yield _digest(name), offset
            except (KeyError, TypeError, AttributeError):
                self.unreadable += 1

    def draw(self, scope: str, request_hash: str, i: int) -> Mapping[str, Any] | None:
        """The ledger's line of a draw; None where the run has none."""
        for row in self._lines(_draw_name(scope, request_hash, i)):
            if (row["kind"], row.get("scope"), row.get("hash"), row.get("i")) == (
                "draw",
                scope,
                request_hash,
                i,
            ):
                return row
        return None

    def request(self, request_hash: str) -> Mapping[str, Any] | None:
        """The line of a request, its `parts` with all texts that its turns name; None where it is not there."""
        for row in self._lines(f"request {request_hash}"):
            if row["kind"] == "request" and row["hash"] == request_hash:
                names = [name for _, part_names in row["turns"] for name in part_names]
                parts = {name: self._part(name) for name in names}
                if None not in parts.values():
                    return {**row, "parts": parts}
        return None

    def _part(self, name: str) -> str | None:
        for row in self._lines(f"part {name}"):
            text = row.get("parts", {}).get(name)
            if isinstance(text, str):
                return text
        return None

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The lines that a name may stand for, in the file's order."""
        digest = _digest(name)
        at = bisect_left(self._keys, digest)
        while at < len(self._keys) and self._keys[at] == digest:
            if self._file is None:
                self._file = self._path.open("rb")
            self._file.seek(self._places[at])
            try:
                row = orjson.loads(self._file.readline())
            except orjson.JSONDecodeError:  # cut off since
                row = None
            if isinstance(row, dict) and "kind" in row:
                yield row
            at += 1

    def __len__(self) -> int:
        """Lines that can be found."""
        return len(self._keys)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    """What a line can be found by. Raises KeyError where it is no line of a ledger."""
    kind = row["kind"]
    if kind == "draw":
        yield _draw_name(row["scope"], row["hash"], row["i"])
    elif kind == "request":
        yield f"request {row['hash']}"
    if kind in ("request", "observation"):
        yield from (f"part {name}" for name in row["parts"])


def _draw_name(scope: str, request_hash: str, i: int) -> str:
    return f"draw {request_hash} {i} {scope}"


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())
