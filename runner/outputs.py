"""The folder of a run: its lock, `run.json`, `trajectories.jsonl`, `summary.json` and `run.log`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from runner.errors import RunError
from runner.jsonl import Appender, clean, dumps, plain, rows, scan, write_atomically

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
        self._merge()
        self.trajectories = Appender(path / "trajectories.jsonl")
        self.fresh = self.trajectories.size == 0
        """Whether it began without a row: then each id is there once, as an episode is written once by a process."""
        self._rows: dict[str, tuple[int, int]] | None = None

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

            try:
                merge(self.path)
            except BaseException:
                self._let_go()
                raise

    @property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    def update(self, **fields: Any) -> None:
        """Set fields of `run.json`, atomically."""
        path = self.path / "run.json"
        current = read_manifest(self.path) if path.exists() else {}
        write_atomically(path, orjson.dumps(clean({**current, **fields}), option=INDENT))

    def done(self) -> dict[str, tuple[str, int]]:
        """id -> (config, index) of the episodes that ended other than in an error (the last line counts)."""
        found: dict[str, tuple[str, int]] = {}
        for row in rows(self.trajectories.path):
            if "id" not in row:
                continue
            if row.get("status") == "error":
                found.pop(row["id"], None)
            else:
                found[row["id"]] = (row.get("config", ""), row.get("index", 0))
        return found

    def timing(self, episode: str) -> dict[str, Any]:
        """`seconds` and `waited_seconds` of an episode's row as it stands; nothing where it has none."""
        if self._rows is None:
            path = self.trajectories.path
            self._rows = {row["id"]: (at, n) for at, n, row in scan(path) if row is not None and "id" in row}
        if episode not in self._rows:
            return {}
        row = self.trajectories.read(*self._rows[episode])
        return {key: row[key] for key in ("seconds", "waited_seconds")}

    def write_trajectory(self, row: Mapping[str, Any]) -> None:
        """Keep a row, at the end of this turn of the event loop. Raises RunError where one could not be kept."""
        known = isinstance(row["target"], str)  # else it may hold anything; all other numbers were looked at
        self.trajectories.put([plain(row) if known else dumps(row)])

    def compact(self, moved: Mapping[str, int]) -> int:
        """Leave the last line of each id, in plan order, by replacing the file at once. `moved` gives episodes
        another `index`. Lines that are no trajectory go to `damaged.jsonl`; returns how many."""
        self.trajectories.flush()
        if self.fresh and not moved:
            return 0
        path = self.trajectories.path
        last: dict[str, tuple[int, int, int]] = {}
        damaged: list[tuple[int, int]] = []
        stale = bool(moved)
        for offset, length, row in scan(path):
            if row is None or "id" not in row:
                damaged.append((offset, length))
            else:
                stale = stale or row["id"] in last
                last[row["id"]] = (moved.get(row["id"], row.get("index", 0)), offset, length)
        if not stale and not damaged:
            return 0
        temporary = path.with_name(path.name + ".tmp")
        try:
            with path.open("rb") as old, temporary.open("wb") as new:
                if damaged:
                    self._set_aside(old, damaged)
                for index, offset, length in sorted(last.values()):
                    old.seek(offset)
                    line = old.read(length)
                    kept = orjson.loads(line) if moved else {}
                    if moved and kept.get("index") != index:
                        line = dumps({**kept, "index": index})
                    new.write(line if line.endswith(b"\n") else line + b"\n")
                new.flush()
                os.fsync(new.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise RunError(
                f"{path}: cannot be tidied ({error.strerror}); nothing is lost: make room and resume the run"
            ) from error
        self.trajectories.close()
        self.trajectories = Appender(path)
        return len(damaged)

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
        self.trajectories.close()
        self._let_go()

    def _let_go(self) -> None:
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
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


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
    files = [path / "trajectories.jsonl", *sorted(path.glob("shards/*/trajectories.jsonl"))]
    last: dict[str, tuple[int, int, int, int]] = {}
    for k, file in enumerate(files):
        for offset, length, row in scan(file):
            if row is not None and "id" in row:
                last[row["id"]] = (row.get("index", 0), k, offset, length)
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(file.open("rb")) if file.exists() else None for file in files]
        for _, k, offset, length in sorted(last.values()):
            found = lines[k]
            if found is not None:  # else it was merged meanwhile
                found.seek(offset)
                yield orjson.loads(found.read(length))


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
