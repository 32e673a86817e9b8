"""Draws of earlier runs: taken at no cost, counted apart, and refused in words where they cannot be."""

from __future__ import annotations

import fcntl
import os
import shutil

import orjson
import pytest

from runner import library
from runner.draws import PastDraws
from runner.errors import RunError
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot import Cot
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.models.base import Choice, Reply, Usage
from runner.models.scripted import Scripted
from tests.echo import Echo, right
from tests.echo import run as run_of


class Priced(Scripted):
    """The scripted model for a dollar a call."""

    async def call(self, call):
        self._calls.append(call)
        answers = right(call)
        texts = [answers] if isinstance(answers, str) else answers
        return Reply(
            [Choice(text) for text in texts],
            Usage(prompt=10, completion=5 * len(texts), calls=1),
            cost_usd=1.0,
        )


def draws(run):
    return [row for row in rows(run.path / "ledger.jsonl") if row["kind"] == "draw"]


def drawn(run):
    return {(row["scope"], row["hash"], row["i"]): row["text"] for row in draws(run)}


async def test_draws_of_an_earlier_run_are_taken_and_not_paid_for(tmp_path):
    first = await run_of(tmp_path, Echo(count=3), CotSC(samples=5, until="all"), Priced())
    model = Priced()
    second = await run_of(
        tmp_path, Echo(count=4), CotSC(samples=7, until="all"), model, reuse=[str(first.path)]
    )
    asked = sorted((call.scope, call.first) for call in model.calls)
    assert asked == sorted(
        [(f"echo/t{k}#0", i) for k in range(3) for i in (5, 6)] + [("echo/t3#0", i) for i in range(7)]
    )
    totals = second.manifest["totals"]
    assert totals["taken_from_earlier_runs"] == 15 and totals["calls"] == 13 and totals["paid_usd"] == 13.0
    taken = [row for row in draws(second) if row["from"]]
    assert {row["from"] for row in taken} == {first.path.name} and all(row["reply"] is None for row in taken)
    assert drawn(first).items() <= drawn(second).items()
    row = next(second.trajectories)
    assert row["cost_usd"] == 7.0 and row["usage"]["calls"] == 7, "an episode's own is the list price of all"


async def test_the_requests_of_taken_draws_come_with_them(tmp_path):
    first = await run_of(tmp_path, Echo(count=2), React(), Priced())
    second = await run_of(tmp_path, Echo(count=2), React(), Priced(), reuse=[str(first.path)])
    third = await run_of(tmp_path, Echo(count=2), React(), Priced(), reuse=[str(second.path)])

    def prompts(run):
        parts, found = {}, {}
        for row in rows(run.path / "ledger.jsonl"):
            parts |= row.get("parts", {})
            if row["kind"] == "request":
                found[row["hash"]] = "".join(parts[name] for _, names in row["turns"] for name in names)
        return found

    assert prompts(first) == prompts(second) == prompts(third) and len(prompts(first)) == 2
    assert {row["from"] for row in draws(third)} == {second.path.name}


async def test_a_changed_list_is_allowed_on_resume_and_taken_draws_stay_counted_once(tmp_path):
    first = await run_of(tmp_path, Echo(count=2), CotSC(samples=5, until="all"), Priced())
    second = await run_of(tmp_path, Echo(count=2), CotSC(samples=2, until="all"), Priced())
    model = Priced()
    job = Job.of(Echo(count=2), CotSC(samples=5, until="all"), model, reuse=[str(first.path)])
    second = await library.resume(second.path, job=job, progress=False)
    assert model.calls == [] and second.manifest["totals"]["taken_from_earlier_runs"] == 6
    shutil.rmtree(first.path)
    job = Job.of(Echo(count=2), CotSC(samples=6, until="all"), model)
    second = await library.resume(second.path, job=job, progress=False)
    totals = second.manifest["totals"]
    assert [call.first for call in model.calls] == [5, 5]
    assert totals["taken_from_earlier_runs"] == 6 and totals["taken"]["calls"] == 6 and totals["calls"] == 6


async def test_raising_samples_from_5_to_21_draws_16_more_of_each(tmp_path):
    found = await run_of(tmp_path, Echo(count=2), CotSC(samples=5, until="all"), Priced())
    model = Priced(max_n=16)
    job = Job.of(Echo(count=2), CotSC(samples=21, until="all"), model)
    found = await library.resume(found.path, job=job, progress=False)
    assert sorted((call.scope, call.first, call.n) for call in model.calls) == [
        ("echo/t0#0", 5, 16),
        ("echo/t1#0", 5, 16),
    ]
    assert [row["votes"]["n_drawn"] for row in found.trajectories] == [21, 21]


async def test_rescoring_takes_nothing_from_earlier_runs(tmp_path):
    first = await run_of(tmp_path, Echo(count=2), Cot(), Priced())
    second = await run_of(tmp_path, Echo(count=2), Cot(), Priced(), reuse=[str(first.path)])
    shutil.rmtree(first.path)
    job = Job.of(Echo(count=2), Cot(), Priced(), reuse=[str(first.path)])
    again = await library.rescore(second.path, job=job)
    assert [row["scores"] for row in again.trajectories] == [{"em": 1.0}] * 2


@pytest.mark.parametrize(
    "harm", ["missing", "no run", "no ledger", "no manifest", "no ledger line", "locked"]
)
async def test_an_earlier_run_that_cannot_be_used_is_said_before_anything_is_asked(tmp_path, harm):
    first = await run_of(tmp_path, Echo(count=1), Cot(), Priced())
    lock = None
    if harm == "missing":
        shutil.rmtree(first.path)
    elif harm == "no run":
        (first.path / "run.json").unlink()
    elif harm == "no ledger":
        (first.path / "ledger.jsonl").unlink()
    elif harm == "no manifest":
        (first.path / "run.json").write_text("{")
    elif harm == "no ledger line":
        (first.path / "ledger.jsonl").write_bytes(b"\x00\x01\nxyz\n")
    else:
        lock = os.open(first.path / ".lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
    model = Priced()
    with pytest.raises(RunError, match=str(first.path)) as caught:
        await run_of(tmp_path / "out", Echo(count=1), Cot(), model, reuse=[str(first.path)])
    if lock is not None:
        os.close(lock)
        assert "working on that run" in str(caught.value)
    assert model.calls == []


async def test_a_run_cannot_reuse_itself(tmp_path):
    first = await run_of(tmp_path, Echo(count=1), Cot(), Priced())
    job = Job.of(Echo(count=1), Cot(), Priced(), reuse=[str(first.path)])
    with pytest.raises(RunError, match="this run itself"):
        await library.resume(first.path, job=job, progress=False)


async def test_damaged_lines_of_an_earlier_run_are_asked_for_anew(tmp_path):
    first = await run_of(tmp_path, Echo(count=2), CotSC(samples=3, until="all"), Priced())
    ledger = first.path / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    broken = next(k for k, line in enumerate(lines) if orjson.loads(line)["kind"] == "draw")
    lines[broken] = lines[broken][:20] + b"\n"
    ledger.write_bytes(b"".join(lines))
    model = Priced()
    second = await run_of(
        tmp_path, Echo(count=2), CotSC(samples=3, until="all"), model, reuse=[str(first.path)]
    )
    assert len(model.calls) == 1 and second.manifest["totals"]["taken_from_earlier_runs"] == 5


async def test_keys_with_one_digest_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("runner.draws._digest", lambda name: 7)
    found = await run_of(tmp_path, Echo(count=3), CotSC(samples=3, until="all"), Priced())
    past = PastDraws(found.path)
    for key, text in drawn(found).items():
        row = past.draw(*key)
        assert row is not None and row["text"] == text
    assert past.draw("echo/t0#0", "none", 0) is None
    past.close()
