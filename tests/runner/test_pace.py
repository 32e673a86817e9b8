"""How a run's time stands beside the shortest possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner import library
from runner.jsonl import rows
from runner.pace import Pace, told


def job(**more: Any) -> dict[str, Any]:
    model = {"provider": "scripted", "replies": ["yes"], "delay": 0.02, **more.pop("model", {})}
    return {"models": {"m": model}, "envs": {"hotpotqa": {}}, "methods": {"standard": {}}, "limit": 8, **more}


async def found(job: dict[str, Any], outputs: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run = await library.run(job, outputs=outputs, progress=False)
    replies = [row for row in rows(run.path / "ledger.jsonl") if row["kind"] == "reply"]
    return dict(run.manifest["totals"]["pace"]), replies


async def test_calls_at_once_bound_a_run(tmp_path: Path) -> None:
    pace, replies = await found(job(model={"in_flight": 2}), tmp_path)
    assert pace["bound_by"] == "2 calls of m in flight"
    assert pace["shortest_seconds"] == pytest.approx(sum(row["seconds"] for row in replies) / 2, rel=0.3)
    assert pace["ratio"] >= 1


async def test_episodes_at_once_bound_a_run(tmp_path: Path) -> None:
    pace, _ = await found(job(limits={"max_episodes": 2}), tmp_path)
    assert pace["bound_by"] == "2 episodes at once"


async def test_a_limit_bounds_a_run(tmp_path: Path) -> None:
    pace, _ = await found(job(model={"requests_per_minute": 1200, "in_flight": 64}), tmp_path)
    assert pace["bound_by"] == "1,200 requests/min of m"
    assert pace["shortest_seconds"] <= pace["seconds"]


def test_nothing_is_said_where_nothing_ended() -> None:
    assert Pace(8).as_dict([]) == {}


def test_the_longest_episode_bounds_and_what_waited_is_no_work() -> None:
    pace = Pace(8)
    pace.ended({"seconds": 50.0, "waited_seconds": 49.0})
    pace.ended({"seconds": 1e-6, "waited_seconds": 0.0})
    assert pace.as_dict([])["bound_by"] == "the longest episode"


def test_it_is_told_in_words() -> None:
    pace = {
        "seconds": 12.34,
        "ratio": 1.034,
        "shortest_seconds": 11.93,
        "bound_by": "64 calls of m in flight",
    }
    assert told(pace) == "12.3 s, 1.03 times the shortest possible (11.9 s for 64 calls of m in flight)"
