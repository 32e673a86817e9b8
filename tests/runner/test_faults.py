"""The servers that misbehave on purpose, and that whole runs against them end as if they had behaved."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from envs.base import Observation, Session, Task, World
from runner import library, loop
from runner.errors import CellStopped, ModelError, Transient, Unsupported
from runner.faults import ADAPTING, FAULTS, HARMLESS, PASSING, STOPPING, Faults, Limited
from runner.job import Job
from runner.jsonl import rows
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.methods.standard import Standard
from runner.models.base import Call, Params, Request, Text, Turn
from runner.models.openai import OpenAI
from runner.testing import Delay, FakeOpenAI, pure_answer

SHARE = 0.2
CALL = Call(Request("m", (Turn("user", Text("Why?")),), Params(top_p=0.9, stop=("\nQ",))), seed=7)


class Numbers(World):
    """Questions answered by a number, with something to search in."""

    name = "numbers"
    acts = True
    count: int = 100

    def tasks(self) -> Any:
        for k in range(self.count):
            yield Task(id=f"t{k}", input=f"Which number is {k}?", target=str(k % 5))

    def extract(self, task: Task, text: str) -> str | None:
        return text.split("Answer:")[-1].strip() or None

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": float(answer == task.target)}

    def session(self, task: Task) -> Session:
        return Searching()


class Searching(Session):
    async def step(self, action: str) -> Observation:
        if action.lower().startswith("finish["):
            self.answer = action[7:-1]
            return Observation("Done.", 1.0, True)
        return Observation(f"Nothing on {action}.")


def job(url: str, api: Any, count: int) -> Job:
    model = OpenAI(model="m", base_url=url, api=api, attempts=14, timeout=0.8, in_flight=64, top_p=0.9)
    methods = {"standard": Standard(), "cot_sc": CotSC(samples=3), "react": React(steps=5)}
    return Job.of(Numbers(count=count), methods, model, seed=5)


def told(run: Any) -> dict[str, Any]:
    """What episodes came to, without times, usage and flags."""
    return {
        row["id"]: (
            row["status"],
            row["answer"],
            row["scores"],
            [(s["thought"], s["action"], s["observation"], s["draws"]) for s in row["steps"]],
            row["votes"] and row["votes"]["chains"],
        )
        for row in run.trajectories
    }


async def spoilt_run(
    folder: Path, api: str, episodes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A run without faults and one with: the same episodes, and a ledger that accounts for every try."""
    monkeypatch.setattr(random, "uniform", lambda low, high: low + 0.01 * (high - low))
    async with FakeOpenAI(pure_answer) as server:
        right = await library.run(
            job(server.url, api, episodes // 3), outputs=folder / "right", progress=False
        )
    faults = Faults(share=SHARE, seed=seed)
    async with FakeOpenAI(faults) as server:
        run = await library.run(job(server.url, api, episodes // 3), outputs=folder / "wrong", progress=False)
    assert run.status == right.status == "finished", run.manifest["stopped_cells"]
    assert len(told(run)) == episodes
    assert told(run) == told(right)

    kinds = Counter(row["kind"] for row in rows(run.path / "ledger.jsonl"))
    attempts = [row for row in rows(run.path / "ledger.jsonl") if row["kind"] == "attempt"]
    begun = [row for row in attempts if row["error"] is None]
    failed = [row for row in attempts if row["error"] is not None]
    assert len(begun) == kinds["reply"] + len(failed) == len(server.requests)
    assert kinds["reply"] == faults.answered
    assert len(failed) == sum(n for kind, n in faults.served.items() if kind not in HARMLESS)
    totals = run.manifest["totals"]
    assert (totals["failed_attempts"], totals["cut_off_attempts"]) == (len(failed), 0)
    assert totals["possibly_billed_attempts"] == sum(row["possible_cost"] for row in failed)

    drawn = Counter(
        (row["scope"], row["hash"], row["i"])
        for row in rows(run.path / "ledger.jsonl")
        if row["kind"] == "draw"
    )
    assert set(drawn.values()) == {1}, "no draw twice"
    wanted = {
        (r["scope"], r["hash"], r["i"]) for r in rows(right.path / "ledger.jsonl") if r["kind"] == "draw"
    }
    assert set(drawn) == wanted, "none lost"
    assert sum(faults.served.values()) == pytest.approx(SHARE * len(server.requests), rel=0.25)
    assert len(faults.served) > 0.8 * len(faults.kinds), "nearly every kind was met"
    return {
        "episodes": episodes,
        "tries": len(begun),
        "replies": kinds["reply"],
        "failed": len(failed),
        "kinds_met": len(faults.served),
        "faults": dict(faults.served.most_common()),
    }


def full(episodes: int = 2001) -> dict[str, Any]:
    """The long proof: `python -m tests.full faults`."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        return loop.run(partial(spoilt_run, Path(folder), "completions", episodes, 11, patch))


@pytest.mark.parametrize(("api", "seed"), [("completions", 3), ("chat", 4)])
async def test_a_run_at_twenty_percent_faults_ends_as_a_faultless_one(
    api: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(50):
        await spoilt_run(tmp_path, api, 300, seed, monkeypatch)


async def reply_to(kind: str, tmp: Path) -> ModelError | str:
    """What a model makes of one fault."""
    async with FakeOpenAI(Faults(lambda body, k: " because", share=1.0, kinds=[kind])) as server:
        model = OpenAI(model="m", base_url=server.url, timeout=0.3)
        await model.open(tmp)
        try:
            return (await model.call(CALL)).choices[0].text
        except ModelError as error:
            return error
        finally:
            await model.close()


@pytest.mark.parametrize("kind", FAULTS)
async def test_every_fault_is_what_it_says(kind: str, tmp_path: Path) -> None:
    found = await reply_to(kind, tmp_path)
    if kind in HARMLESS:
        assert found == " because"
    else:
        expected = Transient if kind in PASSING else Unsupported if kind in ADAPTING else CellStopped
        assert isinstance(found, expected), found
    if kind.startswith("429, ") and kind in PASSING:
        assert isinstance(found, Transient)
        silent = {"nothing said", "nonsense", "less than nothing", "unknown limits"}
        if "epoch" not in kind:  # whole seconds: gone by when they arrive
            assert (found.retry_after is None) == (kind.removeprefix("429, ") in silent)
        assert found.retry_after is None or 0 <= found.retry_after < 1.5


def test_faults_depend_on_seed_and_number_alone() -> None:
    body = {"prompt": "p"}
    first, again, other = (Faults(seed=seed) for seed in (1, 1, 2))
    for faults in (first, again, other):
        for k in range(200):
            faults(body, k)
    assert first.served == again.served != other.served
    assert not (first.served.keys() & STOPPING.keys())
    with pytest.raises(ValueError, match="no such fault: nonesuch"):
        Faults(kinds=["nonesuch"])


async def test_a_script_that_waits_may_be_spoilt_and_limited() -> None:
    async def slow(body: dict[str, Any], k: int) -> str:
        return "x"

    assert await Faults(slow, share=0.0)({}, 0) == "x"
    assert (await Limited(slow)({"prompt": "p"}, 0))[0] == 200


# -- limits ---------------------------------------------------------------------------------------------------
class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def statuses(limited: Limited, times: list[float], **body: Any) -> list[int]:
    assert isinstance(limited.clock, Clock)
    found = []
    for k, at in enumerate(times):
        limited.clock.now = at
        found.append(limited({"prompt": "one two", **body}, k)[0])
    return found


def test_requests_are_limited_over_a_sliding_window() -> None:
    limited = Limited(lambda body, k: "yes", requests=3, window=5.0, clock=Clock())
    assert statuses(limited, [0, 1, 2, 3, 4.9, 5, 5.5, 6, 7, 7.1]) == [
        200, 200, 200, 429, 429, 200, 429, 200, 200, 429,
    ]  # fmt: skip
    assert (limited.answered, limited.refused, limited.largest_requests) == (6, 4, 3)
    assert [ok for _, _, ok in limited.arrivals].count(False) == 4


def test_tokens_are_limited_by_use_or_by_what_is_reserved() -> None:
    by_use = Limited(lambda body, k: "a b c", tokens=10, window=5.0, clock=Clock())
    assert statuses(by_use, [0, 0, 0, 5]) == [200, 200, 429, 200]
    assert (by_use.largest_tokens, by_use.answered_tokens) == (10, 15)
    reserved = Limited(lambda body, k: "a b c", tokens=10, window=5.0, reserves=True, clock=Clock())
    assert statuses(reserved, [0, 0], max_tokens=4, n=2) == [200, 429]
    assert statuses(reserved, [10, 10], max_tokens=400) == [200, 429], "one too large for all goes alone"


def test_limits_change_while_it_runs() -> None:
    limited = Limited(lambda body, k: "yes", requests=1, window=5.0, clock=Clock())
    assert statuses(limited, [0, 1]) == [200, 429]
    limited.requests = 2
    assert statuses(limited, [2, 3]) == [200, 429]
    limited.requests = None
    assert statuses(limited, [3] * 9) == [200] * 9


def test_refused_requests_count_where_they_do() -> None:
    limited = Limited(lambda body, k: "yes", requests=1, window=5.0, counts_refused=True, clock=Clock())
    assert statuses(limited, [0, 4, 5, 9, 14.1]) == [200, 429, 429, 429, 200]


def test_what_it_tells() -> None:
    limited = Limited(lambda body, k: "yes", requests=2, tokens=100, window=5.0, headers=True, clock=Clock())
    status, headers, _ = limited({"prompt": "one two"}, 0)
    assert (status, headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == (
        200,
        "24",
        "12",
    )
    assert headers["x-ratelimit-remaining-tokens"] == str((100 - 3) * 12)
    statuses(limited, [1.0])
    limited.clock.now = 2.0  # type: ignore[attr-defined]
    status, headers, _ = limited({"prompt": "one two"}, 2)
    assert (status, headers["retry-after"]) == (429, "3.000")
    limited.retry_after = limited.headers = False
    assert set(limited({"prompt": "one two"}, 3)[1]) == {"content-type"}


async def test_over_real_sockets_none_pass_the_limit(tmp_path: Path) -> None:
    limited = Limited(lambda body, k: Delay(0.001, "yes"), requests=5, window=30.0)
    async with FakeOpenAI(limited) as server:
        model = OpenAI(model="m", base_url=server.url)
        await model.open(tmp_path)
        failed = 0
        for _ in range(8):
            try:
                assert (await model.call(CALL)).choices[0].text == "yes"
            except Transient as error:
                failed += 1
                assert error.status == 429
                assert error.retry_after == pytest.approx(30, abs=5)
        await model.close()
    assert (limited.answered, limited.refused, failed) == (5, 3, 3)
