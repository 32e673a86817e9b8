"""The folder of a run: its lock, `run.json`, `trajectories.jsonl`, `summary.json` and `run.log`."""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from runner.compact import Numbers
from runner.errors import RunError
from runner.jsonl import Appender, clean, dumps, plain, write_atomically
from runner.lastlines import LastLines

SCHEMA = 1
"""Version of `run.json`."""
PACKAGES = ("overnight", "anyio", "httpx", "aiolimiter", "orjson", "pydantic", "genai-prices", "xllamacpp")
SHARDS, MERGED, INTENT = "shards", "shards.merged", "merge.json"
"""What several workers write, beside the run's own files: their shards; these when they were merged; and how far that
is."""
INDENT = orjson.OPT_INDENT_2  # keys in their own order: the order of a job's tables is the plan's


class RunFolder:
    """A run's folder, held by this process alone. Close it to let go.

    The lock is the kernel's (flock), so it dies with its owner however that ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _take_lock(path)
        try:
            self._merge()
            self.trajectories = Appender(path / "trajectories.jsonl")
        except BaseException:
            os.close(self._lock)
            raise
        self.fresh = self.trajectories.size == 0
        """Whether it began without a row: then each id is there once, as an episode is written once by a process."""
        self._lines: LastLines | None = None

    @classmethod
    def create(cls, outputs: Path, name: str) -> RunFolder:
        """A new folder `<outputs>/<name>-<time>`. Raises RunError where it cannot be made."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        for k in range(1, 1000):
            path = outputs / (f"{name}-{stamp}" + (f"-{k}" if k > 1 else ""))
            try:
                path.mkdir(parents=True)
                return cls(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise RunError(
                    f"{path}: cannot make the run's folder ({error.strerror}); choose another with --outputs"
                ) from error
        raise RunError(f"{outputs}: a thousand runs named {name}-{stamp}")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run. Raises RunError where it is none, or another process has it."""
        read_manifest(path)
        return cls(path)

    def _merge(self) -> None:
        """Take in what workers of a command that died have left in shards."""
        if unmerged(self.path):
            from runner.cluster.merge import merge

            merge(self.path)

    @property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    @property
    def in_place(self) -> bool:
        """Whether the folder is still where it was; its open files are written to wherever it is."""
        lock = self.path / ".lock"
        try:
            same = os.path.samestat(os.fstat(self._lock), lock.stat())
            return same or lock.read_bytes() == _owner()  # there are file systems whose numbers change
        except OSError:
            return False

    def check_place(self) -> None:
        """Raises RunError where the folder was moved or removed."""
        if not self.in_place:
            raise RunError(
                f"{self.path}: the run's folder was moved or removed while the run went on; what was answered "
                "is in it: run `overnight resume` on it where it is now"
            )

    def update(self, **fields: Any) -> None:
        """Set fields of `run.json`, atomically. Raises RunError, also where the folder was moved."""
        self.check_place()
        path = self.path / "run.json"
        current = read_manifest(self.path) if path.exists() else {}
        write_atomically(path, orjson.dumps(clean({**current, **fields}), option=INDENT))

    def look(self) -> LastLines:
        """The rows that were there when this was first asked for."""
        if self._lines is None:
            self._lines = LastLines(self.trajectories.path)
        return self._lines

    def timing(self, episode: str) -> dict[str, Any]:
        """`seconds` and `waited_seconds` of an episode's row as it stood; nothing where it had none."""
        row = self.look().row(episode) or {}
        return {key: row[key] for key in ("seconds", "waited_seconds") if key in row}

    def write_trajectory(self, row: Mapping[str, Any]) -> None:
        """Keep a row, at the end of this turn of the event loop. Raises RunError where one could not be kept."""
        known = isinstance(row["target"], str)  # else it may hold anything; all other numbers were looked at
        self.trajectories.put([plain(row) if known else dumps(row)])

    def compact(self, moved: Numbers) -> int:
        """Leave the last line of each id, in plan order, by replacing the file at once. `moved` gives episodes
        another `index`. Lines that are no trajectory go to `damaged.jsonl`; returns how many."""
        self.trajectories.sync()
        self.check_place()
        moves = len(moved) > 0
        if self.fresh and not moves:
            return 0
        path = self.trajectories.path
        lines = LastLines(path, moved)
        if not moves and not lines.superseded and not lines.damaged:
            return 0
        temporary = path.with_name(path.name + ".tmp")
        try:
            with path.open("rb") as old, temporary.open("wb") as new:
                if lines.damaged:
                    self._set_aside(old, lines.damaged)
                for index, offset in lines.in_order():
                    old.seek(offset)
                    line = old.readline()
                    kept = orjson.loads(line) if moves else {}
                    if moves and kept.get("index") != index:
                        line = dumps({**kept, "index": index})
                    new.write(line if line.endswith(b"\n") else line + b"\n")
                new.flush()
                os.fsync(new.fileno())
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise RunError(
                f"{path}: cannot be tidied ({error.strerror}); nothing is lost: make room and resume the run"
            ) from error
        self.trajectories.close()
        self.trajectories = Appender(path)
        return len(lines.damaged)

    def _set_aside(self, file: BinaryIO, spans: list[tuple[int, int]]) -> None:
        with (self.path / "damaged.jsonl").open("ab") as aside:
            for offset, length in spans:
                file.seek(offset)
                aside.write(file.read(length))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_atomically(self.path / "summary.json", orjson.dumps(clean(dict(summary)), option=INDENT))

    def log(self, message: str) -> None:
        """One line in `run.log`, with the time."""
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError), (self.path / "run.log").open("a", encoding="utf-8") as file:
            file.write(f"{stamp} {message.encode('utf-8', 'replace').decode()}\n")

    def close(self) -> None:
        """Let go. Raises RunError where rows could not be kept and nobody has heard of it."""
        try:
            self.trajectories.close()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1


def _take_lock(path: Path) -> int:
    try:
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"{path}: cannot be written to ({error.strerror}); a run needs its folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(lock, 64).decode(errors="replace").strip()
        os.close(lock)
        raise RunError(
            f"{path}: process {owner or '?'} is working on this run; wait for it, or stop it with Ctrl-C"
        ) from error
    with contextlib.suppress(OSError):  # it holds without saying who has it
        os.ftruncate(lock, 0)
        os.write(lock, _owner())
    return lock


def _owner() -> bytes:
    """What a lock says of who has it."""
    return str(os.getpid()).encode()


def locked(path: Path) -> bool:
    """Whether some process is working on the run now."""
    try:
        probe = os.open(path / ".lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(probe)


def unmerged(path: Path) -> bool:
    """Whether a run has shards that are not merged yet, or not to the end."""
    return any((path / name).exists() for name in (SHARDS, MERGED, INTENT))


def read_manifest(path: Path) -> dict[str, Any]:
    """A run's `run.json`. Raises RunError where the folder holds no run, or the file is damaged."""
    try:
        manifest = orjson.loads((path / "run.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(
            f"{path}: no run here (there is no run.json); give the folder a run printed"
        ) from error
    except (orjson.JSONDecodeError, OSError) as error:
        raise RunError(f"{path / 'run.json'}: cannot be read ({error})") from error
    if not isinstance(manifest, dict) or "job" not in manifest:
        raise RunError(f"{path / 'run.json'}: not a run's manifest")
    return manifest


def read_trajectories(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a run in plan order, the last line of each id. A running run may be read too, also where several
    processes write it."""
    own = LastLines(path / "trajectories.jsonl")
    shards = [LastLines(file) for file in sorted(path.glob("shards/*/trajectories.jsonl"))]
    if not shards:
        yield from own.rows()
        return
    alone = (row for row in own.rows() if not any(row["id"] in shard for shard in shards))
    rows = [alone, *(shard.rows() for shard in shards)]
    yield from heapq.merge(*rows, key=lambda row: row.get("index", 0))


def provenance() -> dict[str, Any]:
    """Versions of Python, packages and, within a git checkout, its commit."""
    packages = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "git": _git_commit(),
    }


def _git_commit() -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=2, check=False
        )
        return found.stdout.strip() or None
    return None
