"""What calls cost: the job's price, the list's, nothing on this machine, or unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from runner.job import Job
from runner.models.anthropic import Anthropic
from runner.models.base import Call, Params, Request, Text, Turn, Usage
from runner.models.local import Local
from runner.models.openai import OpenAI
from runner.models.prices import Price, listed
from runner.models.scripted import scripted
from runner.testing import FakeOpenAI, completion

USAGE = Usage(prompt=1000, completion=100, cached=400, reasoning=60, calls=1)
PRICE: dict[str, Any] = {"input": 0.15, "output": 0.6, "cached": 0.075}


def test_a_jobs_price_counts_cached_tokens_apart_and_thoughts_as_generated() -> None:
    assert Price(**PRICE).of(USAGE) == pytest.approx((600 * 0.15 + 400 * 0.075 + 100 * 0.6) / 1e6)
    assert Price(input=1, output=0).of(USAGE) == pytest.approx(1000 / 1e6)


@given(*[st.integers(0, 10**7)] * 3)
def test_cached_tokens_are_never_dearer_than_the_prompt(prompt: int, cached: int, completion: int) -> None:
    usage = Usage(prompt=prompt, cached=cached, completion=completion)
    assert 0 <= Price(**PRICE).of(usage) <= Price(input=0.15, output=0.6).of(usage) + 1e-12


@pytest.mark.parametrize(
    "wrong", [{"input": 1}, {"input": -1, "output": 1}, {"input": 1, "output": 1, "x": 1}]
)
def test_a_wrong_price_is_a_jobs_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Price(**wrong)


@pytest.mark.parametrize(
    "model",
    [
        OpenAI(model="gpt-4o-mini"),
        OpenAI(model="llama-3.3-70b-versatile", service="groq"),
        OpenAI(model="mistral-small-latest", service="mistral"),
        OpenAI(model="gemini-2.5-flash", service="gemini"),
        OpenAI(model="deepseek-chat", service="deepseek"),
        OpenAI(model="openai/gpt-4o-mini", service="openrouter"),
        OpenAI(model="meta-llama/Llama-3.3-70B-Instruct-Turbo", service="together"),
        OpenAI(model="gpt-4o", base_url="https://me.openai.azure.com/openai/v1"),
        Anthropic(model="claude-sonnet-4-5"),
    ],
    ids=lambda model: model.row.name,
)
def test_services_have_list_prices(model: Any) -> None:
    cost = model.cost(USAGE)
    assert cost is not None
    assert 0 < cost < 0.1
    assert model.cost(Usage(prompt=2000, completion=100, cached=400)) > cost
    assert model.cost(Usage()) == 0


def test_the_list_price_takes_cached_tokens_for_less() -> None:
    fresh = Usage(prompt=1000, completion=100)
    assert listed(USAGE, "gpt-4o-mini", "openai") == pytest.approx(Price(**PRICE).of(USAGE))
    assert (listed(fresh, "gpt-4o-mini", "openai") or 0) > (listed(USAGE, "gpt-4o-mini", "openai") or 0)


def test_what_is_not_listed_is_unknown_until_the_job_says() -> None:
    assert OpenAI(model="nonesuch-9").cost(USAGE) is None
    assert OpenAI(model="nonesuch-9", price=Price(**PRICE)).cost(USAGE) is not None
    assert listed(USAGE, "gpt-4o", "nonesuch") is None
    assert OpenAI(model="gpt-4o-mini", price=Price(input=1, output=1)).cost(USAGE) == pytest.approx(0.0011)


@pytest.mark.parametrize(
    "model",
    [
        OpenAI(model="gpt-4o", base_url="http://localhost:8000/v1"),
        OpenAI(model="gpt-4o", base_url="http://127.0.0.2/v1"),
        OpenAI(model="m", service="ollama"),
        OpenAI(model="m", service="vllm", base_url="http://gpu-7.lan:8000/v1"),
        Local(),
        scripted(["x"]),
    ],
)
def test_ones_own_machine_costs_nothing(model: Any) -> None:
    assert model.cost(USAGE) == 0


async def test_a_reply_says_what_it_cost(tmp_path: Path) -> None:
    body = completion(["ok"], {}, chat=True)
    body["usage"] = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 400},
    }
    call = Call(Request("m", (Turn("user", Text("Hi")),), Params()))
    async with FakeOpenAI(lambda _body, k: body) as server:
        for settings, expected in (({}, 0.0), ({"price": Price(**PRICE)}, 0.00018)):
            model = OpenAI(model="m", base_url=server.url, **settings)
            await model.open(tmp_path)
            assert (await model.call(call)).cost_usd == pytest.approx(expected)
            await model.close()


def test_a_job_file_sets_a_price_and_it_shapes_no_episode(tmp_path: Path) -> None:
    text = """
[models.big]
provider = "openai"
model = "m"
PRICE
[envs.hotpotqa]
[methods.standard]
"""
    shapes = []
    for price in ("", "price = {input = 0.15, output = 0.6, cached = 0.075}"):
        file = tmp_path / "job.toml"
        file.write_text(text.replace("PRICE", price))
        job = Job.read(file)
        shapes.append(job.shape())
    assert job.models["big"].price == Price(**PRICE)
    assert shapes[0] == shapes[1]
