"""Sums over rows: what each row would say is said of all, and none of them is kept."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import summing
from runner.summing import Summing, Values, interval

FINITE = st.floats(-1e6, 1e6)


@given(
    st.lists(st.one_of(FINITE, st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=40), st.integers(0, 9)
)
def test_values_are_summed_as_if_all_were_at_hand(values: list[float], zeros: int) -> None:
    found = Values()
    for value in values:
        found.add(value)
    found.add(0.0, zeros)
    values = values + [0.0] * zeros
    n, mean = len(values), statistics.fmean(values)
    if {*values} <= {0.0, 1.0}:
        z = 1.959964
        middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
        wanted = [mean, max(0.0, middle - half), min(1.0, middle + half)]
    else:
        half = 1.959964 * math.sqrt(statistics.variance(values) / n) if n > 1 else 0.0
        wanted = [mean, mean - half, mean + half]
        if min(values) >= 0 and max(values) <= 1:
            wanted = [mean, max(0.0, mean - half), min(1.0, mean + half)]
    assert list(found.interval().values()) == pytest.approx(wanted, rel=1e-6, abs=2e-6)


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1))
def test_an_interval_is_that_of_its_values(values: list[float]) -> None:
    assert interval(values)["mean"] == round(sum(values) / len(values), 6)
    assert interval(values)["low"] <= interval(values)["mean"] <= interval(values)["high"]


def row(k: int, **fields: Any) -> dict[str, Any]:
    return {
        "env": "e", "method": "m", "model": "x", "index": k, "task_id": f"t{k}", "trial": 0, "status": "finished",
        "flags": [], "error": None, "usage": {"prompt": 3, "completion": 4, "calls": 1, "cached": 0, "reasoning": 0},
        "cost_usd": 0.5, "n_steps": 0, "steps": [], "seconds": 1.0, "scores": {"em": float(k % 2), "f1": k % 4 / 4},
        "votes": None, **fields,
    }  # fmt: skip


def held(add: Callable[[int], None], first: int, last: int) -> float:
    """Bytes that each step from `first` to `last` leaves behind."""
    import tracemalloc

    for k in range(first):
        add(k)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for k in range(first, last):
            add(k)
        return (tracemalloc.get_traced_memory()[0] - before) / (last - first)
    finally:
        tracemalloc.stop()


def test_a_row_leaves_nothing_behind_and_one_with_chains_fifty_bytes() -> None:
    sums, voted = Summing(), Summing()
    votes = {"n": 5, "n_drawn": 3, "stopped_by": "all", "chains": [{"text": "a"}]}
    assert held(lambda k: sums.add(row(k)), 500, 1500) < 5
    assert held(lambda k: voted.add(row(k, votes=votes)), 2000, 12000) < 64
    assert voted.as_dict()["chains"] == {
        "n": 60_000,
        "drawn": 36_000,
        "saved": 24_000,
        "tokens_saved": 32_000,
    }


def test_chains_of_a_question_count_once_however_many_methods_voted_on_them() -> None:
    sums = Summing()
    for method, n, drawn in (("a", 5, 5), ("b", 21, 4), ("c", 5, 3)):
        votes = {"n": n, "n_drawn": drawn, "stopped_by": "all", "chains": []}
        for k in range(2):
            sums.add(row(k, method=method, votes=votes))
    found = sums.as_dict()["chains"]
    assert (found["n"], found["drawn"]) == (42, 10)


def test_of_very_many_texts_of_errors_those_that_came_often_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summing, "MOST_ERRORS", 20)
    sums = Summing()
    for k in range(500):
        for message in ("the same", f"number {k}"):
            sums.add(row(k, status="error", scores={}, error={"type": "E", "message": message}))
    (cell,) = sums.as_dict()["cells"]
    assert cell["errors"]["E: the same"] == 500
    assert len(next(iter(sums._cells.values())).errors) <= 40
