"""A Ray cluster of two nodes on this machine, one of which is killed half-way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import sleep_forever, to_thread

from runner import library
from runner.cluster import coordinator
from runner.cluster.beat import Lease
from tests import killing
from tests.cluster import job, told, unexplained, when

TASKS = 16


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two nodes that take one worker each: this process's, and another."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'overnight[ray]'")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    cluster.add_node(**small)
    yield cluster
    cluster.shutdown()


async def test_a_node_that_is_lost_costs_nothing_but_its_calls_in_flight(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "LEASE", Lease(every=0.3, lasts=3.0, lost=5.0))
    with killing.server(tmp_path / "alone") as url:
        alone = await library.run(job(url, TASKS, 1), outputs=tmp_path, progress=False)
    requests = killing.lines(tmp_path / "alone")
    pids: set[int] = set()

    async def watch(execution: coordinator.Coordinator) -> None:
        await when(tmp_path / "log", requests // 3)
        pids.update(worker.pid for worker in execution.crew.values())
        await to_thread.run_sync(
            lambda: nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        )
        await sleep_forever()

    with killing.server(tmp_path / "log", delay=0.1) as url:
        what = job(url, TASKS, 2, engine="ray", address=nodes.address)
        run = await library.run(what, outputs=tmp_path, progress=watch)
    assert run.status == "finished" and told(run) == told(alone)
    assert len(pids) == 2 and os.getpid() not in pids
    assert "ended: " in (run.path / "run.log").read_text()
    assert unexplained(tmp_path / "log", run) == []
