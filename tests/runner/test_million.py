"""What a run of very many episodes rests on, in small: an ended episode leaves next to nothing in memory, and the
ledger's index may go. How long anything takes is seen in `python -m tests.full million`."""

from __future__ import annotations

import gc
import tracemalloc
from functools import lru_cache
from pathlib import Path

import anyio
import pytest

from runner import library, places
from runner.execution import Execution
from runner.job import Job
from runner.ledger import Ledger
from runner.models import base, limits
from runner.outputs import RunFolder
from tests.killing import timeless
from tests.million import JOB, Answers, rss_mb, started, write_rows

EPISODES = 1400
ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SMALL": 300, "KEPT": 100, "PARTS": 16, "STEP": 16, "EVERY": 0.2}.items():
        monkeypatch.setattr(places, name, value)
    monkeypatch.setattr(limits, "REMEMBERED", 0.0)  # what began within minutes is kept; here all did
    for module, name in ((base, "part_name"), (places, "_digest")):
        monkeypatch.setattr(module, name, lru_cache(50)(getattr(module, name).__wrapped__))


def job(folder: Path, episodes: int = EPISODES) -> Job:
    if not (folder / "rows.jsonl").exists():
        write_rows(folder / "rows.jsonl", episodes)
        (folder / "job.toml").write_text(JOB.format(url="http://127.0.0.1:9/v1", at_once=4))
    made = Job.read(folder / "job.toml")
    made.models["policy"].use(Answers())  # type: ignore[attr-defined]
    return made


def held_by_us() -> int:
    """Bytes that our lines made and that are still there: modules that are imported late are others'."""
    ours = [tracemalloc.Filter(True, str(ROOT / room / "*")) for room in ("runner", "envs")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


async def test_an_episode_that_ended_leaves_next_to_nothing_behind(tmp_path: Path, small: None) -> None:
    held: dict[int, int] = {}

    async def watch(execution: Execution) -> None:
        for at in (400, 1300):
            while execution.counts.done < at:
                await anyio.sleep(0.01)
            execution.ledger._file.flush()  # lines that wait to be written
            execution.folder.trajectories.flush()
            gc.collect()
            held[execution.counts.done] = held_by_us()

    tracemalloc.start()
    try:
        run = await library.run(job(tmp_path), outputs=tmp_path, progress=watch)
    finally:
        tracemalloc.stop()
    assert run.status == "finished" and run.manifest["totals"]["done"] == EPISODES
    (first, before), (last, after) = held.items()
    print(f"{(after - before) / (last - first):.0f} bytes an episode")
    assert after - before < 150 * (last - first)


async def test_a_resume_without_the_index_is_as_one_with_it(tmp_path: Path, small: None) -> None:
    run = await library.run(job(tmp_path), outputs=tmp_path, progress=False)
    whole = [timeless(row) for row in run.trajectories]
    rows = (run.path / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    asked = run.manifest["totals"]["calls"]
    for gone in ("", "ledger.index"):
        (run.path / "trajectories.jsonl").write_bytes(b"".join(rows[:-100]))
        if gone:
            (run.path / gone).unlink()
        again = await library.resume(run.path, job=job(tmp_path), progress=False)
        totals = again.manifest["totals"]
        assert (totals["done_before"], totals["done"], totals["calls"]) == (EPISODES - 100, 100, asked)
        assert [timeless(row) for row in again.trajectories] == whole
        assert (run.path / "ledger.index").exists()
    ledger = Ledger(run.path / "ledger.jsonl")
    assert (ledger.paid.calls, ledger.cut_off, ledger.unreadable) == (asked, 0, 0)
    ledger.close()


def test_the_full_proof_in_small(tmp_path: Path) -> None:
    """A process that kills itself, and one that resumes its run."""
    job(tmp_path, 300)
    marks = started(tmp_path, kill_at=200, every=100)["marks"]
    assert [mark["done"] // 100 for mark in marks][:1] == [1] and marks[0]["rss_mb"] > 10
    found = started(tmp_path)
    assert found["status"] == "finished" and found["calls"] - found["cut_off"] <= 300
    assert 0 < found["done"] <= 100 and found["first_request_s"] > 0 and rss_mb() > 10
    (run,) = (tmp_path / "outputs").iterdir()
    assert len(list(RunFolder(run).look().rows())) == 300
