"""Budgets: which one ends a run, in what order, what it leaves, and how it goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from envs.base import Task, World
from runner import budget, library
from runner.budget import Budget, Limits
from runner.cli import main
from runner.errors import BudgetSpent, JobError, Transient
from runner.job import Job
from runner.jsonl import rows
from runner.ledger import Ledger
from runner.methods.cot_sc import CotSC
from runner.methods.standard import Standard
from runner.models.base import Call, Choice, Model, Params, Reply, Request, Text, Turn, Usage
from runner.models.openai import OpenAI
from runner.models.prices import Price
from runner.testing import Delay, FakeOpenAI, completion

CALL = Call(Request("m", (Turn("prompt", Text("Q?")),), Params()), scope="t#0")
PRICE = Price(input=1000, output=1000)
"""A tenth of a cent a token: a call of `answer` costs 10 cents."""


class Sums(World):
    name = "sums"
    count: int = 20

    def tasks(self) -> Any:
        for k in range(self.count):
            yield Task(id=f"t{k}", input=f"{k} + 0?", target=str(k))

    def extract(self, task: Task, text: str) -> str | None:
        return text.strip() or None

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": float(answer == task.target)}


def answer(body: dict[str, Any], k: int) -> Any:
    """Every call has 90 prompt tokens and 10 generated ones."""
    whole = completion(["yes"] * int(body.get("n") or 1), body, chat=True, k=k)
    return whole | {"usage": {"prompt_tokens": 90, "completion_tokens": 10}}


def job(server: FakeOpenAI, method: Any = None, *, price: Any = PRICE, count: int = 20, **limits: Any) -> Job:
    model = OpenAI(model="m", base_url=server.url, in_flight=4, price=price)
    return Job.of(Sums(count=count), method or Standard(), model, limits=limits)


def lines(path: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in rows(path / "ledger.jsonl") if row["kind"] == kind]


@pytest.mark.parametrize(
    ("limits", "most", "said"),
    [
        ({"max_usd": 1.0}, 10, "of $1"),
        ({"max_tokens": 1000}, 10, "of 1,000 tokens"),
        ({"max_calls": 7}, 7, "of 7 calls"),
    ],
)
async def test_a_budget_ends_the_run_in_order(
    limits: dict[str, Any], most: int, said: str, tmp_path: Path
) -> None:
    async with FakeOpenAI(answer) as server:
        run = await library.run(job(server, **limits), outputs=tmp_path, progress=False)
        assert run.status == "budget"
        assert said in run.manifest["budget"]
        assert f"raise limits.{next(iter(limits))} to go on" in run.manifest["budget"]
        written = list(run.trajectories)
        assert len(written) == len(server.requests) == most, "all that were paid for are whole"
        assert {row["status"] for row in written} == {"finished"}
        assert run.manifest["totals"]["errors"] == 0
        assert run.manifest["stopped_cells"] == {}
        assert len(lines(run.path, "attempt")) == most, "no try was begun that was not made"

        # the same budget again: nothing is paid for
        run = await library.resume(run.path, job=job(server, **limits), progress=False)
        assert (run.status, len(server.requests)) == ("budget", most)
        # a raised one counts what was paid before
        raised = {name: 2 * value for name, value in limits.items()}
        run = await library.resume(run.path, job=job(server, **raised), progress=False)
        assert (run.status, len(server.requests)) == (
            "budget" if 2 * most < 20 else "finished",
            min(2 * most, 20),
        )
        run = await library.resume(run.path, job=job(server), progress=False)
        assert run.status == "finished"
        assert len(list(run.trajectories)) == len(server.requests) == 20
        assert run.manifest["budget"] is None


async def test_calls_in_flight_finish_and_an_episode_that_is_not_whole_is_left_for_the_resume(
    tmp_path: Path,
) -> None:
    async with FakeOpenAI(lambda body, k: Delay(0.02, answer(body, k))) as server:
        run = await library.run(
            job(server, CotSC(samples=5, until="all"), count=3, max_calls=7), outputs=tmp_path, progress=False
        )
        assert len(server.requests) == len(lines(run.path, "reply")) == 7
        assert [row["votes"]["n_drawn"] for row in run.trajectories] == [5]
        assert run.manifest["totals"]["left_for_resume"] >= 1
        run = await library.resume(
            run.path, job=job(server, CotSC(samples=5, until="all"), count=3), progress=False
        )
        assert len(server.requests) == 15, "no draw is paid for twice"
        assert len(list(run.trajectories)) == 3


async def test_a_budget_that_is_just_enough_ends_nothing(tmp_path: Path) -> None:
    async with FakeOpenAI(answer) as server:
        enough = {"max_usd": 2.0001, "max_tokens": 2001, "max_calls": 20, "max_hours": 1.0}
        run = await library.run(job(server, **enough), outputs=tmp_path, progress=False)
    assert (run.status, run.manifest["totals"]["paid_usd"]) == ("finished", pytest.approx(2.0))


async def test_hours_end_a_run_in_which_everything_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = lambda body, k: answer(body, k) if k < 2 else (429, {"retry-after": "3000"}, b"{}")  # noqa: E731
    async with FakeOpenAI(script) as server:
        with anyio.fail_after(20):
            run = await library.run(job(server, max_hours=1.5 / 3600), outputs=tmp_path, progress=False)
        assert run.status == "budget"
        assert "max_hours" in run.manifest["budget"]
        assert run.manifest["totals"]["done"] == 2
        assert run.manifest["totals"]["seconds"] >= 1.5
        server.script = lambda body, k: Delay(0.2, answer(body, k))
        before = run.manifest["totals"]["seconds"]
        run = await library.resume(run.path, job=job(server, max_hours=1.0), progress=False)
        assert run.status == "finished"
        assert run.manifest["totals"]["seconds"] > before, "hours of all processes"


async def test_tries_that_may_have_been_billed_are_counted_apart(tmp_path: Path) -> None:
    async with FakeOpenAI(lambda body, k: (504, {}, b"{}") if k == 0 else answer(body, k)) as server:
        run = await library.run(job(server, count=3, max_calls=3), outputs=tmp_path, progress=False)
    totals = run.manifest["totals"]
    assert (totals["calls"], totals["failed_attempts"], totals["possibly_billed_attempts"]) == (3, 1, 1)
    assert len(list(run.trajectories)) == 3


async def test_a_budget_in_dollars_needs_prices_before_the_first_call(tmp_path: Path) -> None:
    model = OpenAI(model="nonesuch-9", base_url="https://x.test/v1", key_env="")
    wanted = Job.of(Sums(), Standard(), model, limits={"max_usd": 1.0})
    with pytest.raises(
        JobError, match=r"models\.policy \(nonesuch-9\) is not known.*\[models\.policy\.price\]"
    ):
        await library.run(wanted, outputs=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())
    budget.check_prices(Limits(), {"policy": model})
    budget.check_prices(Limits(max_usd=1.0), {"p": OpenAI(model="gpt-4o-mini")})
    with pytest.raises(JobError, match=r"models\.own"):
        budget.check_prices(Limits(max_usd=1.0), {"own": Unpriced()})


class Unpriced(Model):
    provider = "unpriced"

    async def call(self, call: Call) -> Reply:
        return Reply([Choice("yes")])


class Pricey(Unpriced):
    """Has a price, and forgets to put it on its replies."""

    provider = "pricey"


async def test_a_model_that_forgets_its_price_is_reckoned_at_the_jobs(tmp_path: Path) -> None:
    model = Pricey(price=PRICE, in_flight=1)
    wanted = Job.of(Sums(), Standard(), model, limits={"max_usd": 1.0})
    run = await library.run(wanted, outputs=tmp_path, progress=False)
    assert run.status == "finished"
    totals = run.manifest["totals"]
    assert totals["replies_without_a_price"] == 0


def test_the_command_says_which_budget_and_exits_with_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(
        'limit = 4\n[models.policy]\nprovider = "scripted"\nreplies = ["yes"]\n'
        "[envs.hotpotqa]\n[methods.standard]\n[limits]\nmax_calls = 2\n"
    )
    result = CliRunner().invoke(main, ["run", "job.toml", "--quiet"])
    assert result.exit_code == 5, result.output
    said = r"the budget is spent: (2 of 2 calls|[01] of 2 calls and [12] calls in flight)"
    assert re.search(said + "; raise limits.max_calls to go on: overnight resume", result.stderr)
    (folder,) = Path("outputs").iterdir()
    shown = CliRunner().invoke(main, ["status", str(folder)]).stdout
    assert re.search(said, shown)
    assert "overnight resume" in shown
    result = CliRunner().invoke(main, ["resume", str(folder), "--quiet", "--set", "limits.max_calls=9"])
    assert result.exit_code == 0, result.output


# -- the sums -------------------------------------------------------------------------------------------------
@given(
    most=st.integers(1, 40),
    ends=st.lists(st.sampled_from(["begin", "reply", "failure"]), max_size=120),
)
def test_calls_never_pass_their_limit_whatever_comes_in_which_order(most: int, ends: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.jsonl")
        found = Budget(Limits(max_calls=most), ledger)
        i = 0
        for what in ends:
            if what == "begin":
                try:
                    found.begin()
                except BudgetSpent:
                    assert ledger.replies + found.in_flight == most
            elif found.in_flight and what == "reply":
                ledger.write_reply(CALL, [i], Reply([Choice("x")], Usage(9, 1, calls=1), cost_usd=0.1))
                i += 1
            elif found.in_flight:
                ledger.write_attempt(CALL, Transient("503"), possible_cost=False)
            assert ledger.replies + found.in_flight <= most
        ledger.close()


def test_calls_in_flight_are_expected_to_cost_what_others_did(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    found = Budget(Limits(max_usd=1.0), ledger)
    for i in range(2):
        found.begin()
        ledger.write_reply(CALL, [i], Reply([Choice("x")], Usage(9, 1, calls=1), cost_usd=0.1))
    for _ in range(8):
        found.begin()
    with pytest.raises(BudgetSpent, match=r"\$0\.2000 of \$1 and 8 calls in flight"):
        found.begin()
    ledger.close()


def test_what_earlier_processes_paid_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write_begin(CALL)
    ledger.write_reply(CALL, [0], Reply([Choice("x")], Usage(90, 10, calls=1), cost_usd=0.1))
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    for limits in (Limits(max_calls=1), Limits(max_tokens=100), Limits(max_usd=0.1)):
        with pytest.raises(BudgetSpent):
            Budget(limits, again).begin()
    with pytest.raises(BudgetSpent):
        Budget(Limits(max_hours=1.0), again, earlier=3600.0).begin()
    again.close()
