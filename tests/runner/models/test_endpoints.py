"""Several endpoints for one model: one object each, everything else shared, one identity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from runner.errors import CellStopped
from runner.job import Job
from runner.models.anthropic import Anthropic
from runner.models.base import Call, Params, Request, Text, Turn, Usage
from runner.models.endpoint import Endpoint
from runner.models.openai import OpenAI
from runner.models.scripted import scripted
from runner.models.transport import Response
from runner.testing import FakeOpenAI

CALL = Call(Request("m", (Turn("user", Text("Hi")),), Params()))


def test_a_model_without_a_list_is_its_only_line() -> None:
    for model in (OpenAI(model="m"), scripted(["x"])):
        assert list(model.lines()) == [(model, 1.0)]


async def test_each_endpoint_answers_by_itself_and_all_are_opened_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_B", "b-key")
    async with FakeOpenAI() as one, FakeOpenAI() as two:
        model = OpenAI(
            model="m",
            extra_body={"x": 1},
            max_stops=2,
            endpoints=[Endpoint(base_url=one.url), Endpoint(base_url=two.url, key_env="KEY_B", weight=3)],
        )
        await model.open(tmp_path)
        lines = model.lines()
        assert [weight for _, weight in lines] == [1.0, 3.0]
        assert lines is model.lines(), "the same objects each time"
        replies = [await line.call(CALL) for line, _ in lines]
        assert [reply.endpoint for reply in replies] == [one.url, two.url]
        assert "authorization" not in one.requests[0].headers
        assert two.requests[0].headers["authorization"] == "Bearer b-key"
        assert one.requests[0].body == two.requests[0].body
        assert {line.identity for line, _ in lines} == {model.identity}
        assert (await model.call(CALL)).endpoint == one.url
        await model.close()
        for line, _ in lines:
            with pytest.raises(RuntimeError, match="open"):
                await line.call(CALL)


async def test_several_keys_of_one_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K1", "one-key")
    monkeypatch.setenv("K2", "second")
    async with FakeOpenAI() as server:
        model = OpenAI(
            model="m", base_url=server.url, endpoints=[Endpoint(key_env="K1"), Endpoint(key_env="K2")]
        )
        await model.open(tmp_path)
        replies = [await line.call(CALL) for line, _ in model.lines()]
        await model.close()
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer one-key", "Bearer second"]
    assert [reply.endpoint for reply in replies] == [f"{server.url} (K1)", f"{server.url} (K2)"]
    assert "one-key" not in repr(model) + model.model_dump_json()


async def test_a_missing_key_is_named_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K1", "one-key")
    monkeypatch.delenv("K2", raising=False)
    model = OpenAI(model="m", endpoints=[Endpoint(key_env="K1"), Endpoint(key_env="K2")])
    with pytest.raises(CellStopped, match="K2"):
        await model.open(tmp_path)
    await model.close()


def keys(model: Any) -> list[str]:
    return [line.key_env for line, _ in model.lines()]


def test_a_key_stays_with_its_own_service() -> None:
    groq, openai = Endpoint(base_url="https://api.groq.com/openai/v1"), Endpoint()
    assert keys(OpenAI(model="m", endpoints=[openai, groq])) == ["OPENAI_API_KEY", "GROQ_API_KEY"]
    elsewhere = OpenAI(model="m", base_url="https://api.openai.com/v1", endpoints=[openai, groq])
    assert keys(elsewhere) == ["OPENAI_API_KEY", "GROQ_API_KEY"]
    assert keys(OpenAI(model="m", key_env="MINE", endpoints=[openai, groq])) == ["MINE", "MINE"]
    assert [line.row.name for line, _ in elsewhere.lines()] == ["openai", "groq"]  # type: ignore[attr-defined]
    claude = Anthropic(model="m", endpoints=[Endpoint(), Endpoint(key_env="K2")])
    assert keys(claude) == ["ANTHROPIC_API_KEY", "K2"]


class Counting:
    def __init__(self) -> None:
        self.urls: list[str] = []
        self.closed = 0

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        self.urls.append(url)
        return Response(200, {}, b'{"choices": [{"message": {"content": "x"}}]}')

    async def close(self) -> None:
        self.closed += 1


async def test_a_shared_transport_serves_all_and_its_maker_closes_it(tmp_path: Path) -> None:
    shared = Counting()
    model = OpenAI(
        model="m",
        key_env="",
        endpoints=[Endpoint(base_url="https://a.test/v1"), Endpoint(base_url="https://b.test/v1")],
    )
    model.use(shared)
    await model.open(tmp_path)
    for line, _ in model.lines():
        await line.call(CALL)
    await model.close()
    assert shared.urls == ["https://a.test/v1/chat/completions", "https://b.test/v1/chat/completions"]
    assert shared.closed == 0


def test_endpoints_shape_no_episode_and_come_from_a_job_file(tmp_path: Path) -> None:
    text = '[models.big]\nprovider = "openai"\nmodel = "m"\n{}\n[envs.hotpotqa]\n[methods.standard]\n'
    many = 'endpoints = [{base_url = "http://localhost:1/v1"}, {base_url = "http://localhost:2/v1", weight = 2.5}]'
    jobs = []
    for more in ("", many):
        file = tmp_path / "job.toml"
        file.write_text(text.replace("{}", more))
        jobs.append(Job.read(file))
    assert jobs[0].shape() == jobs[1].shape()
    assert [weight for _, weight in jobs[1].models["big"].lines()] == [1.0, 2.5]
    again = Job.parse(jobs[1].raw).models["big"]
    assert again.model_dump() == jobs[1].models["big"].model_dump()


def test_a_list_of_addresses_needs_no_other_one() -> None:
    many: Any = [{"base_url": "http://gpu1:8000/v1"}, {"base_url": "http://gpu2:8000/v1"}]
    model = OpenAI(model="m", service="vllm", endpoints=many)
    assert [(line.base_url, line.row.name, line.key_env) for line, _ in model.lines()] == [  # type: ignore[attr-defined]
        ("http://gpu1:8000/v1", "vllm", ""),
        ("http://gpu2:8000/v1", "vllm", ""),
    ]
    for wrong in ([7], "x", [{"base_url": 7}]):
        with pytest.raises(ValidationError):
            OpenAI(model="m", endpoints=wrong)


@pytest.mark.parametrize(
    "wrong", [{"base_url": "localhost:8000"}, {"weight": 0}, {"url": "http://x/v1"}, {"weight": float("inf")}]
)
def test_a_wrong_endpoint_is_a_jobs_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenAI(model="m", endpoints=[wrong])  # type: ignore[list-item]


def test_the_dearest_endpoint_is_what_a_budget_reckons_with() -> None:
    here, there = Endpoint(base_url="http://localhost:8000/v1"), Endpoint()
    usage = Usage(prompt=1000, completion=100)
    assert OpenAI(model="gpt-4o-mini", endpoints=[here]).cost(usage) == 0
    assert OpenAI(model="gpt-4o-mini", endpoints=[here, there]).cost(usage) == pytest.approx(0.00021)
    assert OpenAI(model="nonesuch-9", endpoints=[here, there]).cost(usage) is None
