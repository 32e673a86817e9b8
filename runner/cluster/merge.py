"""Shards become the run's own files: their lines are appended to its ledger and its trajectories.

A merge that dies half-way is undone and made again: `merge.json` says how long the files were before it, and is there
until the shards are set aside. Nothing else writes to these files while there are shards.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any, BinaryIO

import orjson

from runner.cluster.account import Account, Lines
from runner.errors import RunError
from runner.jsonl import dumps, mend_tail, write_atomically
from runner.ledger import Ledger
from runner.outputs import INTENT, MERGED, SHARDS

ERROR = b'"status":"error"'
"""In the line of an episode that ended in an error. (In a text its quotes would have backslashes before them.)"""
WAIT = 40.0
"""Seconds for workers of a command that died to see that and let go of their shards."""


def shard_path(run: Path, shard: int) -> Path:
    """A shard's folder: `shards/0003`."""
    return run / SHARDS / f"{shard:04}"


@dataclass
class Merged:
    """What the shards had: what was paid and tried, rows, and those of them that ended in an error."""

    account: Account = field(default_factory=Account)
    rows: int = 0
    errors: int = 0


def merge(run: Path, wait: float = WAIT) -> Merged:
    """Append all shards to the run's files, and tell what they had. The caller holds the run's lock and has
    neither file open for writing. Raises RunError where a worker still holds a shard, or a disk is full."""
    shards, aside, intent = run / SHARDS, run / MERGED, run / INTENT
    ledger, trajectories = run / "ledger.jsonl", run / "trajectories.jsonl"
    found = Merged()
    if shards.exists():
        folders = sorted(path for path in shards.iterdir() if path.is_dir())
        with _held(folders, wait):
            try:
                if intent.exists():
                    for name, size in orjson.loads(intent.read_bytes()).items():
                        _cut(run / name, size)
                mend_tail(ledger)
                mend_tail(trajectories)
                sizes = {path.name: _size(path) for path in (ledger, trajectories)}
                write_atomically(intent, orjson.dumps(sizes))
                with closing(Ledger(ledger)) as own:
                    first = own.replies
                with ledger.open("ab") as into:
                    for folder in folders:
                        mend_tail(folder / ledger.name)
                        sums, first = _append_ledger(folder / ledger.name, into, first)
                        found.account += sums
                    _sync(into)
                with trajectories.open("ab") as into:
                    for folder in folders:
                        mend_tail(folder / trajectories.name)
                        _append_rows(folder / trajectories.name, into, found)
                    _sync(into)
                for folder in folders:
                    _append_log(folder / "run.log", run / "run.log")
                shards.replace(aside)
            except OSError as error:
                raise RunError(
                    f"{run}: the workers' shards cannot be merged ({error.strerror}); nothing is lost: make room and "
                    "run `overnight resume` on this folder"
                ) from error
    with suppress(FileNotFoundError):
        shutil.rmtree(aside)
    intent.unlink(missing_ok=True)
    return found


@contextmanager
def _held(folders: list[Path], wait: float) -> Iterator[None]:
    """Hold all shards, once no worker does."""
    locks = []
    until = monotonic() + wait
    try:
        for folder in folders:
            lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
            locks.append(lock)
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if monotonic() > until:
                        raise RunError(
                            f"{folder}: a worker (process {os.read(lock, 64).decode(errors='replace').strip()}) still "
                            "works on this shard; wait for it, or end it"
                        ) from error
                    sleep(0.05)
        yield
    finally:
        for lock in locks:
            os.close(lock)


def _append_ledger(path: Path, into: BinaryIO, first: int) -> tuple[Account, int]:
    """The lines of a shard's ledger, its replies numbered on from `first`; what they sum up to, and the last number."""
    lines, last = Lines(), first
    if not path.exists():
        return lines.account, last
    with path.open("rb") as file:
        for line in file:
            row: Any = None
            if line.strip():
                with suppress(orjson.JSONDecodeError):
                    row = orjson.loads(line)
                row = row if isinstance(row, dict) else None
                lines.add(row)
            try:
                key = {"reply": "id", "draw": "reply"}.get((row or {}).get("kind", ""))
                if row is not None and key is not None and row[key] is not None:
                    number = first + int(row[key][1:])
                    last = max(last, number)
                    line = dumps({**row, key: f"r{number}"})
            except (KeyError, ValueError, TypeError):
                pass  # a damaged line stays as it is
            into.write(line)
    return lines.end(), last


def _append_rows(path: Path, into: BinaryIO, found: Merged) -> None:
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                into.write(line)
                found.rows += 1
                found.errors += ERROR in line


def _append_log(path: Path, log: Path) -> None:
    """What a worker could tell nobody."""
    with suppress(FileNotFoundError), path.open("rb") as file, log.open("ab") as into:
        shutil.copyfileobj(file, into)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cut(path: Path, size: int) -> None:
    if _size(path) > size:
        os.truncate(path, size)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
