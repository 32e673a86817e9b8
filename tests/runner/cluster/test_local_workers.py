"""Processes of this machine that share a run: what they leave is what one process leaves, whoever dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from runner import library
from runner.cluster import coordinator
from runner.cluster.beat import Lease
from runner.errors import JobError, RunError
from runner.faults import Limited
from runner.job import Job
from runner.jsonl import rows
from runner.methods.standard import Standard
from runner.models.scripted import scripted
from runner.testing import FakeOpenAI
from tests import killing
from tests.cluster import job, run_and, told, unexplained
from tests.echo import Echo

TASKS = 16


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The rows of the job in one process."""
    import anyio

    folder = tmp_path_factory.mktemp("alone")
    with killing.server(folder / "log") as url:
        run = anyio.run(lambda: library.run(job(url, TASKS, 1), outputs=folder, progress=False))
    return told(run), killing.lines(folder / "log")


async def test_a_worker_that_is_killed_costs_nothing_but_its_calls_in_flight(tmp_path: Path, alone) -> None:
    rows_alone, requests = alone
    killed = []

    def kill(coordinator):
        killed.append(coordinator.crew[1].pid)
        os.kill(killed[0], signal.SIGKILL)

    with killing.server(tmp_path / "log") as url:
        run = await run_and(tmp_path, job(url, TASKS, 2), tmp_path / "log", requests // 2, kill)
    assert run.status == "finished"
    assert told(run) == rows_alone
    assert unexplained(tmp_path / "log", run) == []
    assert f"(process {killed[0]}) ended: signal 9" in (run.path / "run.log").read_text()
    totals = run.manifest["totals"]
    assert (totals["done"], totals["errors"], totals["planned"]) == (3 * TASKS, 0, 3 * TASKS)
    assert totals["calls"] == requests
    replies = [row["id"] for row in rows(run.path / "ledger.jsonl") if row["kind"] == "reply"]
    assert len(set(replies)) == len(replies) == requests
    assert not (run.path / "shards").exists()


async def test_ctrl_c_and_resume_with_another_number_of_workers(tmp_path: Path, alone) -> None:
    rows_alone, requests = alone
    with killing.server(tmp_path / "log") as url:
        what = job(url, TASKS, 2)
        run = await run_and(tmp_path, what, tmp_path / "log", requests // 4, lambda c: c.interrupt())
        assert run.status == "interrupted"
        left = 3 * TASKS - len(told(run))
        assert left > 0
        run = await library.resume(run.path, overrides=["workers=3"], progress=False)
    assert run.status == "finished" and told(run) == rows_alone
    assert run.manifest["totals"]["done"] == left
    assert killing.lines(tmp_path / "log") == requests


async def test_workers_whose_command_dies_end_themselves_and_are_merged_by_the_next(
    tmp_path: Path, alone
) -> None:
    import orjson

    rows_alone, requests = alone
    log = tmp_path / "log"
    with killing.server(log) as url:
        file = tmp_path / "job.toml"
        file.write_text(
            killing.JOB.format(tasks=TASKS, url=url, max_n=1, in_flight=8, seed=killing.SEED).replace(
                'name = "killed"', 'name = "killed"\nworkers = 2'
            )
        )
        process = killing.overnight("run", str(file), "--outputs", "out", "--quiet", cwd=tmp_path)
        killing.wait_for_lines(log, requests // 3, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (folder,) = (tmp_path / "out").iterdir()
        assert (folder / "shards").exists()
        assert library.load(folder).status == "died"
        run = await library.resume(folder, overrides=["workers=1"], progress=False)
    assert run.status == "finished" and not (folder / "shards").exists()
    kept = {orjson.dumps({**row, "index": 0}) for row in told(run)}
    assert kept == {orjson.dumps({**row, "index": 0}) for row in rows_alone}
    assert unexplained(log, run) == []


async def test_a_budget_holds_for_all_workers(tmp_path: Path) -> None:
    with killing.server(tmp_path / "log") as url:
        run = await library.run(
            job(url, TASKS, 2, limits={"max_calls": 40}), outputs=tmp_path, progress=False
        )
        calls = run.manifest["totals"]["calls"]
        assert run.status == "budget"
        assert 40 - 8 <= calls <= 40, "those that were let through at the end are not made any more"
        assert killing.lines(tmp_path / "log") == calls
        assert run.manifest["totals"]["errors"] == 0


async def test_a_key_that_is_refused_stops_the_cells_of_all_workers(tmp_path: Path) -> None:
    def script(body, k):
        return "Answer: yes" if k < 6 else (401, {}, b'{"error": {"message": "bad key"}}')

    async with FakeOpenAI(script) as server:
        what = job(server.url, TASKS, 2, methods={"cot": {}, "standard": {}})
        run = await library.run(what, outputs=tmp_path, progress=False)
    assert run.status == "stopped"
    assert set(run.manifest["stopped_cells"]) == {"hotpotqa/cot/policy", "hotpotqa/standard/policy"}
    assert len(server.requests) <= 6 + 8  # those that were in flight when the first was refused


async def test_a_worker_that_takes_too_much_memory_is_replaced(tmp_path: Path) -> None:
    what = {
        "name": "hungry",
        "workers": 2,
        "worker_megabytes": 350,
        "models": {"policy": {"provider": "scripted", "replies": ["Answer: yes"], "delay": 0.3}},
        "envs": {"hungry": {"world": "tests.cluster:Hungry", "marker": str(tmp_path / "eaten")}},
        "methods": {"standard": {}},
        "limits": {"max_episodes": 4},
    }
    run = await library.run(what, outputs=tmp_path, progress=False)
    assert run.status == "finished" and run.manifest["totals"]["done"] == 30
    assert len({row["id"] for row in run.trajectories}) == 30
    assert "MB of memory, over its 350" in (run.path / "run.log").read_text()


async def test_a_worker_that_is_not_heard_of_is_ended_and_replaced(
    tmp_path: Path, alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_alone, requests = alone
    monkeypatch.setattr(coordinator, "LEASE", Lease(every=0.2, lasts=20.0, lost=2.0))
    with killing.server(tmp_path / "log") as url:
        stopped = lambda c: os.kill(c.crew[0].pid, signal.SIGSTOP)  # noqa: E731
        run = await run_and(tmp_path, job(url, TASKS, 2), tmp_path / "log", requests // 3, stopped)
    assert run.status == "finished" and told(run) == rows_alone
    assert "nothing was heard of it for 2 s" in (run.path / "run.log").read_text()
    assert unexplained(tmp_path / "log", run) == []


async def test_workers_that_only_die_end_the_run(tmp_path: Path) -> None:
    what = job("http://127.0.0.1:9/v1", 4, 1, engine="local")
    what |= {"workers": 2, "envs": {"deadly": {"world": "tests.cluster:Deadly"}}, "methods": {"standard": {}}}
    with pytest.raises(RunError, match=r"ended 3 times without anything done \(exit code 3"):
        await library.run(what, outputs=tmp_path, progress=False)
    (path,) = tmp_path.iterdir()
    assert library.load(path).status == "failed" and not (path / "shards").exists()


async def test_what_other_processes_cannot_make_is_said(tmp_path: Path) -> None:
    given = Job.of(Echo(), Standard(), scripted(lambda call: "Answer: x"), workers=2)
    with pytest.raises(JobError, match="scripted by a function of this process"):
        await library.run(given, outputs=tmp_path, progress=False)


async def test_a_limit_holds_over_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.models.line.limits_of", lambda model: {("requests", 2.0): 40.0})
    limited = Limited(requests=40, window=2.0)
    async with FakeOpenAI(limited) as server:
        what = job(server.url, 1, 3, methods={"standard": {}}, model={"in_flight": 60})
        what |= {"envs": {"many": {"world": "tests.cluster:Many", "count": 100}}, "limit": 100}
        what["limits"]["max_episodes"] = 120
        run = await library.run(what, outputs=tmp_path, progress=False)
    assert run.status == "finished" and run.manifest["totals"]["done"] == 100
    assert limited.answered == 100
    assert limited.refused <= 10, "each by itself would meet two refusals for an answer"
