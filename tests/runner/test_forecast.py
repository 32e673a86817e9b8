"""What `plan` says of money and time, and what a summary says of money that was spent."""

from __future__ import annotations

import pytest

from envs.qa import QA
from runner import library
from runner.analysis.money import told as told_money
from runner.forecast import ASSUMPTION, shortest, told
from runner.job import Job
from runner.methods.cot import Cot
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.models.base import Choice, Reply, Usage
from runner.models.openai import OpenAI
from runner.models.prices import Price
from runner.models.scripted import Scripted
from tests.echo import Echo, right

PRICE = Price(input=1.0, output=4.0)


class Priced(Scripted):
    """Right answers for a thousand tokens in and ten out a chain, at a price."""

    async def call(self, call):
        self._calls.append(call)
        answers = right(call)
        texts = [answers] if isinstance(answers, str) else answers
        usage = Usage(prompt=1000, completion=10 * len(texts), calls=1)
        return Reply([Choice(text) for text in texts], usage, cost_usd=self.cost(usage))


async def test_the_price_is_that_of_the_counted_tokens_and_hybrids_wait_a_wave_longer():
    model = Priced(price=PRICE, max_n=21)
    methods = {m.name: m for m in (Cot(), CotSC(until="all"), React(), ReactThenCotSC(until="all"))}
    found = await library.plan(Job.of(Echo(count=3), methods, model))
    assert (found.calls, found.draws) == (3 * (1 + 1 + 7), 3 * (1 + 21 + 7))
    assert found.waves == {"cot": 1, "cot_sc": 1, "react": 7, "react_then_cot_sc": 8}
    of = found.forecast
    assert of is not None and of.waves == 8
    price = found.prompt_tokens * 1e-6 + found.completion_tokens * 4e-6
    assert of.usd == pytest.approx(price) and of.batch_usd == pytest.approx(price / 2)
    chains = 3 * 21 * 256 * 4e-6
    prompts = 0.49 * found.models["policy"].chain_prompt_tokens * 1e-6
    assert of.lossless_usd == pytest.approx(price - 0.43 * chains + prompts, rel=1e-3)
    text = "\n".join(told(found))
    assert "8 waves" in text and ASSUMPTION in text and "no limit is set" in text


async def test_a_plan_knows_its_models_by_the_names_that_the_job_gives_them():
    models = {
        "small": {"provider": "scripted", "model": "s", "price": {"input": 1.0, "output": 4.0}},
        "large": {"provider": "scripted", "model": "l", "price": {"input": 10.0, "output": 40.0}},
    }
    found = await library.plan(
        Job.parse({"envs": {"hotpotqa": {}}, "methods": {"cot": {}}, "models": models, "limit": 3})
    )
    assert {name: of.calls for name, of in found.models.items()} == {"small": 3, "large": 3}
    assert found.forecast is not None
    small, large = (found.forecast.models[name].usd for name in ("small", "large"))
    assert small and large == pytest.approx(10 * small)


@pytest.mark.parametrize("kind", ["number", "choice", "boolean", "text", "label"])
@pytest.mark.parametrize("until", ["lossless", "beta(0.95)", "window(5)"])
async def test_a_plan_counts_every_chain_whatever_an_answer_is_and_whichever_rule_stops(
    tmp_path, kind, until
):
    data = tmp_path / "questions.jsonl"
    gold = {"number": "7", "choice": "A", "boolean": "yes", "text": "seven", "label": "seven"}[kind]
    rest = f'"target": "{gold}", "options": ["seven", "eight"]'
    data.write_text("".join(f'{{"input": "question {k}?", {rest}}}\n' for k in range(30)))
    world = QA(data=str(data), answer=kind, labels=["seven", "eight"] if kind == "label" else [])
    found = await library.plan(Job.of(world, CotSC(until=until), Priced()))
    assert (found.calls, found.draws) == (30 * 21, 30 * 21)


@pytest.mark.parametrize(
    ("settings", "seconds", "minutes", "why"),
    [
        ({"requests_per_minute": 50}, None, 20.0, "requests_per_minute"),
        ({"requests_per_minute": 50, "tokens_per_minute": 10_000}, None, 30.0, "tokens_per_minute"),
        ({"output_tokens_per_minute": 1000}, None, 100.0, "output_tokens_per_minute"),
        ({"requests_per_day": 400}, None, 2 * 24 * 60.0, "requests_per_day"),
        ({"in_flight": 10}, None, None, ""),
        ({"in_flight": 10}, 30.0, 50.0, "in_flight"),
        ({}, 30.0, None, ""),
    ],
)
def test_the_shortest_time_is_that_of_the_tightest_limit(settings, seconds, minutes, why):
    """For 1,000 calls with 200,000 tokens in and 100,000 out."""
    usage = Usage(prompt=200_000, completion=100_000, calls=1000)
    assert shortest(Scripted(**settings), usage, seconds) == (minutes, why)


def test_limits_of_several_endpoints_add_up():
    endpoints = [{"base_url": "http://a/v1"}, {"base_url": "http://b/v1"}]
    model = OpenAI(model="m", requests_per_minute=25, endpoints=endpoints)
    assert shortest(model, Usage(calls=1000)) == (20.0, "requests_per_minute")


async def test_batch_mode_is_priced_as_such_and_compared_with_direct_calls(monkeypatch):
    table = {"model": "m", "price": PRICE, "max_n": 21, "requests_per_minute": 1}
    direct = await library.plan(Job.of(Echo(count=3), CotSC(until="all"), OpenAI(**table)))
    batch = await library.plan(Job.of(Echo(count=3), CotSC(until="all"), OpenAI(**table, mode="batch")))
    one, two = direct.forecast, batch.forecast
    assert one is not None and two is not None and one.usd is not None
    assert two.usd == pytest.approx(one.usd / 2) == pytest.approx(one.batch_usd)
    assert (two.batch_usd, two.lossless_usd) == pytest.approx((one.batch_usd, one.lossless_usd))
    assert (one.minutes, two.minutes) == (3.0, None)


async def test_an_earlier_run_tells_how_many_chains_are_spared(tmp_path):
    model = Priced(price=PRICE, max_n=21)
    run = await library.run(Job.of(Echo(count=2), CotSC(), model), outputs=tmp_path, progress=False)
    found = await library.plan(Job.of(Echo(count=2), CotSC(), model, reuse=[str(run.path)]))
    assert found.forecast is not None
    assert found.forecast.saved_share == pytest.approx(10 / 21)
    assert f"measured in {run.path.name}: 22 of 42 chains drawn" in "\n".join(told(found))


async def test_a_summary_says_where_the_money_went(tmp_path):
    model = Priced(price=PRICE, max_n=21)
    methods = {m.name: m for m in (CotSC(), React(steps=2), ReactThenCotSC(steps=2))}
    run = await library.run(Job.of(Echo(count=2), methods, model), outputs=tmp_path, progress=False)
    cells = {cell["method"]: cell for cell in run.summary["cells"]}
    call = 1000e-6 + 40e-6
    assert cells["react"]["cost_usd"] == pytest.approx(2 * call)
    assert cells["react"]["usd_per_right_answer"] == pytest.approx(call)
    assert cells["cot_sc"]["usd_per_right_answer"] == pytest.approx(1000e-6 + 440e-6)
    assert cells["cot_sc"]["chains"] == {
        "n": 42,
        "drawn": 22,
        "saved": 20,
        "tokens_saved": 200,
        "stopped_by": {"lossless": 2},
    }
    assert cells["react"]["chains"] is None
    money = run.summary["money"]
    # ReAct of the hybrid came from the ledger: two calls of 1,010 tokens.
    assert money["ledger_tokens"] == 2 * 1010 and money["used_tokens"] == money["paid_tokens"] + 2020
    assert money["list_usd"] == pytest.approx(money["paid_usd"] + 2 * call)
    text = "\n".join(told_money(money))
    assert "22 of 42 drawn" in text and "saved 20 (48 %), about 200 generated tokens" in text


async def test_chains_that_several_methods_vote_on_are_counted_once(tmp_path):
    methods = {"cot_sc": CotSC(), "all": CotSC(until="all")}
    run = await library.run(
        Job.of(Echo(count=2), methods, Priced(price=PRICE)), outputs=tmp_path, progress=False
    )
    assert run.summary["money"]["chains"] == {"n": 42, "drawn": 42, "saved": 0, "tokens_saved": 0}
