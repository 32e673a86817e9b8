"""Disks that are full or cannot be written to, folders that are moved: a run ends in order with one clear line, and a
resume ends it as if nothing had happened."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import random
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from runner import library, places
from runner.compact import Numbers
from runner.errors import RunError
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.models.base import Call
from runner.models.scripted import Scripted, scripted
from runner.outputs import RunFolder, read_manifest
from tests.echo import Echo, right
from tests.killing import SMALL_INDEX, cut_off, timeless
from tests.troubled import EPISODES, ROOT, begun, undisturbed


class Disk:
    """Operations on files, counted: the k-th fails as on a full disk, and so do all after it until there is `room`.

    Counted are writes and syncs of lines, and the writing, syncing and replacing of whole files.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails_at: int | None = None
        self.only = ""
        """Where set: only files of this name fail."""
        for name in ("write", "pwrite", "fsync", "ftruncate"):
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
        real = Path.open

        def opened(path: Path, mode: str = "r", *args: Any, **how: Any) -> Any:
            if "w" in mode or "a" in mode:
                self.touch(path.name)
            return real(path, mode, *args, **how)

        monkeypatch.setattr(Path, "open", opened)

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(fd: int, *args: Any) -> Any:
            self.touch(Path(f"/proc/self/fd/{fd}").resolve().name if self.only else "")
            return real(fd, *args)

        return counted

    def touch(self, name: str) -> None:
        if self.only and name != self.only:
            return
        self.count += 1
        if self.fails_at is not None and self.count > self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk, in a process where threads' work is done at once, so that all comes in one order."""

    async def inline(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*args)

    monkeypatch.setattr(anyio.to_thread, "run_sync", inline)
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    monkeypatch.setattr(library, "provenance", dict)
    gc.collect()
    gc.freeze()
    yield Disk(monkeypatch)
    gc.unfreeze()


class Trial:
    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, int]] = Counter()

    def model(self) -> Scripted:
        async def script(call: Call) -> Any:
            await anyio.lowlevel.checkpoint()
            for k in range(call.n):
                self.answered[call.scope, call.request.hash, call.first + k] += 1
            return right(call)

        return scripted(script, in_flight=3)

    def job(self) -> Job:
        methods = {"react": React(), "cot_sc": CotSC(samples=2, until="all")}
        return Job.of(Echo(count=3), methods, self.model(), seed=3)

    async def run(self, outputs: Path) -> library.Run:
        return await library.run(self.job(), outputs=outputs, progress=False)

    async def resume(self, path: Path) -> library.Run:
        return await library.resume(path, job=self.job(), progress=False)


async def fails_and_resumes(folder: Path, disk: Disk, whole: list[Any]) -> bool:
    """A run that meets the full disk, and its resume with room; whether the disk was ever full."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context))
    trial = Trial()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0  # noqa: PTH208
    failed = ""
    try:
        await trial.run(folder)
    except RunError as error:
        failed = str(error)
    gc.collect()
    if Path("/proc/self/fd").exists():
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    was_full, disk.fails_at = disk.count > (disk.fails_at or 0), None
    if not was_full:
        assert not failed
        return False
    answered = Counter(trial.answered)
    paths = [path for path in folder.glob("*") if (path / "run.json").exists()]
    status = ""
    for path in paths:
        status = read_manifest(path).get("status", "")
        begun = Counter[tuple[str, str, int]]()
        kept = set[tuple[str, str, int]]()
        for row in rows(path / "ledger.jsonl"):
            if row["kind"] in ("reply", "attempt"):
                begins = row["kind"] == "attempt" and row["error"] is None
                begun[row["scope"], row["hash"], row["first"]] += 1 if begins else -1
            elif row["kind"] == "draw":
                kept.add((row["scope"], row["hash"], row["i"]))
        again = await trial.resume(path)
        assert again.status == "finished"
        assert [timeless(row) for row in again.trajectories] == whole
        twice = trial.answered - Counter(set(trial.answered))
        assert set(twice) <= set(answered) - kept, "what was kept is not paid again"
        assert all(begun[key] > 0 for key in twice), "and what is paid again was counted as possibly billed"
    if paths and not (
        disk.only == "ledger.index" and status == "finished"
    ):  # its last note is of use, not needed
        assert "No space left" in failed and "overnight resume" in failed
    assert heard == []
    return True


ONE = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells files apart by /proc")


@pytest.mark.parametrize(
    "only",
    [
        "",
        *(
            pytest.param(f"{name}", marks=ONE)
            for name in ("ledger.jsonl", "trajectories.jsonl", "ledger.index")
        ),
    ],
)
def test_a_disk_that_is_full_at_any_operation_ends_the_run_and_a_resume_ends_it_right(
    tmp_path: Path, disk: Disk, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if only in ("", "ledger.index"):
        for name, value in {"SMALL": 10, "KEPT": 2, "PARTS": 2, "STEP": 5, "EVERY": 0.0}.items():
            monkeypatch.setattr(places, name, value)
    whole = [timeless(row) for row in asyncio.run(Trial().run(tmp_path / "whole")).trajectories]
    assert len(whole) == 6 and {row["status"] for row in whole} == {"finished"}
    k, disk.only = 0, only
    while True:
        disk.count, disk.fails_at = 0, k
        if not asyncio.run(fails_and_resumes(tmp_path / str(k), disk, whole)):
            break
        k += 1
    assert k > 3


# -- by the system ------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    rows = undisturbed(tmp_path_factory.mktemp("whole"))
    assert len(rows) == EPISODES
    return rows


def one_line(said: str, *words: str) -> None:
    """One complaint, in one line, that says what to do."""
    assert said.count("overnight: ") == 1 and "Traceback" not in said and "never retrieved" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("overnight: ")]
    for word in words:
        assert word in line


def test_files_that_may_grow_no_further_end_the_run_with_one_line(tmp_path: Path, whole: list[Any]) -> None:
    """The system refuses to let a file grow: it takes the part of a write that fits, and then nothing."""
    limit = 20_000
    with begun(
        tmp_path, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    ) as trouble:
        code, said = trouble.ends()
        assert code == 3
        one_line(said, "ledger.jsonl: cannot write", "make room and run `overnight resume`")
        assert trouble.run.joinpath("ledger.jsonl").read_bytes().endswith(b"\n")
        assert read_manifest(trouble.run)["status"] == "failed"
        assert "cannot write" in read_manifest(trouble.run)["error"]
        assert trouble.resumes() == whole


def test_a_folder_that_is_moved_ends_the_run_in_order_and_resumes_where_it_is(
    tmp_path: Path, whole: list[Any]
) -> None:
    often = f"{SMALL_INDEX}\nimport runner.execution as e; e.SYNC_EVERY = 0.01; from runner.cli import main; main()"
    with begun(tmp_path, python=("-c", often)) as trouble:
        trouble.until_half()
        old = trouble.run
        moved = old.rename(tmp_path / "elsewhere")
        code, said = trouble.ends()
        assert code == 3
        one_line(said, f"{old.name}: the run's folder was moved", "overnight resume")
        assert (moved / "ledger.index").exists()
        assert not old.exists(), "nothing is written to where it was"
        assert not cut_off(moved), "what was in flight was waited for"
        assert timeless_but_run(trouble.resumes(moved)) == timeless_but_run(whole)
        again = moved.rename(tmp_path / "further")
        assert timeless_but_run(trouble.resumes(again)) == timeless_but_run(whole)


def timeless_but_run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "run"} for row in rows]


def test_a_folder_that_is_replaced_by_another_leaves_that_alone(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    folder.update(job={})
    folder.path.rename(tmp_path / "moved")
    folder.path.mkdir()
    for attempt in (lambda: folder.update(status="finished"), lambda: folder.compact(Numbers())):
        with pytest.raises(RunError, match="moved or removed while the run went on"):
            attempt()
    folder.close()
    assert list(folder.path.iterdir()) == []
    assert read_manifest(tmp_path / "moved") == {"job": {}}


def without_override() -> None:
    """Take the right to write where the file's mode forbids it from this process (root has it) and its children."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


@pytest.mark.skipif(sys.platform != "linux" and os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folders_are_refused_in_one_line_before_a_call_is_made(
    tmp_path: Path, whole: list[Any]
) -> None:
    (tmp_path / "outputs").mkdir(mode=0o555)
    with begun(tmp_path, prepare=without_override) as trouble:
        code, said = trouble.ends()
        assert code == 3 and not trouble.server.asked
        one_line(said, "cannot make the run's folder (Permission denied)", "--outputs")
        (tmp_path / "outputs").chmod(0o755)

    with begun(tmp_path) as trouble:
        trouble.until_half()
        trouble.process.kill()
        trouble.ends()
        asked = sum(trouble.server.asked.values())
        files = [trouble.run, *trouble.run.iterdir()]
        for file in files:
            file.chmod(0o555 if file.is_dir() else 0o444)
        again = subprocess.run(
            [sys.executable, "-m", "runner", "resume", str(trouble.run), "--quiet"],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, preexec_fn=without_override,
            text=True, check=False,
        )  # fmt: skip
        assert again.returncode == 3 and sum(trouble.server.asked.values()) == asked
        one_line(again.stderr, f"{trouble.run}: cannot be written to (Permission denied)")
        for file in files:
            file.chmod(0o755 if file.is_dir() else 0o644)
        assert trouble.resumes() == whole
