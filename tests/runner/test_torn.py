"""A ledger that ends anywhere, as where a machine died: what is left is used, and what is paid again is counted."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from runner import library, places
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.models.base import Call
from runner.models.scripted import Scripted, scripted
from tests.echo import Echo, right
from tests.killing import timeless


@pytest.fixture(autouse=True, params=["in memory", "on disk"])
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the ledger's index is: in a file it outlives what the ledger lost."""
    monkeypatch.setattr(library, "provenance", dict)
    if request.param == "on disk":
        for name, value in {"SMALL": 5, "KEPT": 2, "STEP": 3, "EVERY": 0.0}.items():
            monkeypatch.setattr(places, name, value)


class Trial:
    """A small job, the draws that were paid for, and by the first of them those of each call."""

    def __init__(self) -> None:
        self.paid: Counter[tuple[str, str, int]] = Counter()
        self.calls: dict[tuple[str, str, int], list[tuple[str, str, int]]] = {}

    def job(self) -> Job:
        methods = {"react": React(), "cot_sc": CotSC(samples=4, until="all")}
        return Job.of(Echo(count=2), methods, self.model(), seed=3)

    def model(self) -> Scripted:
        def script(call: Call) -> Any:
            draws = [(call.scope, call.request.hash, call.first + k) for k in range(call.n)]
            self.paid.update(draws)
            self.calls[draws[0]] = draws
            return right(call)

        return scripted(script, max_n=2)


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times, and without its share of prompts: a draw that is asked for alone has one of its own."""
    return {key: value for key, value in timeless(row).items() if key != "usage"}


def drawn(run: Path) -> set[tuple[str, str, int]]:
    return {(r["scope"], r["hash"], r["i"]) for r in rows(run / "ledger.jsonl") if r["kind"] == "draw"}


def test_a_ledger_that_is_cut_at_any_line_or_within_it_counts_what_is_paid_again(tmp_path: Path) -> None:
    first = Trial()
    run = asyncio.run(library.run(first.job(), outputs=tmp_path, progress=False))
    whole = [told(row) for row in run.trajectories]
    data = (run.path / "ledger.jsonl").read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    chance = random.Random(5)
    cuts = {0, *ends, *(end - chance.randint(2, 40) for end in ends)}
    for cut in sorted(cuts):
        (run.path / "ledger.jsonl").write_bytes(data[:cut])
        (run.path / "trajectories.jsonl").write_bytes(b"")
        shutil.copytree(run.path, torn := tmp_path / f"torn-{cut}")
        before = Trial()
        again = asyncio.run(library.resume(torn, job=before.job(), progress=False))
        assert [told(row) for row in again.trajectories] == whole
        begun = {
            (row["scope"], row["hash"], row["first"])
            for row in rows_of(data[:cut])
            if row["kind"] == "attempt" and row["error"] is None
        }
        twice = [try_ for try_ in begun if any(key in before.paid for key in first.calls[try_])]
        counted = again.manifest["totals"]["cut_off_attempts"]
        assert counted in (len(twice), len(twice) + 1), f"cut at {cut}"
        ended = [row for row in rows_of(data[:cut]) if row["kind"] == "reply"]
        assert counted == len(begun) - len(ended)
        assert set(before.paid.values()) <= {1} and drawn(torn) == first.paid.keys()


def rows_of(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
