"""Anthropic's Messages API, with its replies and refusals as published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from pydantic import ValidationError

from runner.errors import CellStopped, Transient, Unsupported
from runner.models.anthropic import Anthropic
from runner.models.base import Call, Params, Request, Text, Turn, Usage
from runner.models.lanes import HttpxTransport

USER = Turn("user", Text("Question: why?"))
PREFILL = Turn("assistant", Text("Thought 1: "))


class Server:
    """Answers in turn, keeps what it was sent."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status, body = self.answers.pop(0)
        return httpx.Response(status, content=orjson.dumps(body))

    def body(self, k: int = -1) -> dict[str, Any]:
        return dict(orjson.loads(self.requests[k].content))


def said(text: str = "ok", **fields: Any) -> tuple[int, dict[str, Any]]:
    return 200, {
        "id": "msg_1",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 4},
        **fields,
    }


def refused(
    message: str, status: int = 400, kind: str = "invalid_request_error"
) -> tuple[int, dict[str, Any]]:
    return status, {"type": "error", "error": {"type": kind, "message": message}}


async def model_for(server: Server, tmp: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Anthropic:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-hidden")
    model = Anthropic(model="claude-x", **settings)
    model.use(HttpxTransport(transport=httpx.MockTransport(server)))
    await model.open(tmp)
    return model


def request(*turns: Turn, **params: Any) -> Request:
    return Request("m", turns or (USER,), Params(**params))


async def test_what_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(said())
    model = await model_for(server, tmp_path, monkeypatch)
    turns = (Turn("system", Text("Be brief.")), USER, PREFILL)
    params = {"temperature": 1.3, "max_tokens": 9, "stop": ("\nObservation 1:", "\n\n"), "logprobs": True}
    reply = await model.call(Call(request(*turns, **params), n=5, seed=3))
    assert server.body() == {
        "model": "claude-x",
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Question: why?"},
            {"role": "assistant", "content": "Thought 1:"},
        ],
        "max_tokens": 9,
        "temperature": 1.0,
        "stop_sequences": ["\nObservation 1:"],
    }
    assert str(server.requests[0].url) == "https://api.anthropic.com/v1/messages"
    assert server.requests[0].headers["x-api-key"] == "sk-ant-hidden"
    assert server.requests[0].headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in server.requests[0].headers
    assert reply.sent == {"max_tokens": 9, "temperature": 1.0, "stop_sequences": ["\nObservation 1:"]}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "other"),
        (None, "other"),
    ],
)
async def test_every_stop_reason(
    reason: str | None, finish: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await model_for(Server(said(stop_reason=reason)), tmp_path, monkeypatch)
    assert (await model.call(Call(request()))).choices[0].finish == finish


async def test_thoughts_are_kept_apart_and_usage_counts_what_was_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
    }
    content = [
        {"type": "thinking", "thinking": "hmm", "signature": "x"},
        {"type": "text", "text": "yes\n\nno"},
    ]
    model = await model_for(Server(said(content=content, usage=usage)), tmp_path, monkeypatch)
    reply = await model.call(Call(request(stop=("\n\n",))))
    assert (reply.choices[0].text, reply.choices[0].reasoning) == ("yes", "hmm")
    assert reply.usage.as_dict() == {
        "prompt": 130,
        "completion": 7,
        "cached": 100,
        "reasoning": 0,
        "calls": 1,
        "written": 20,
    }


async def test_an_empty_content_is_a_draw_but_none_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await model_for(Server(said(content=[]), said(content=None)), tmp_path, monkeypatch)
    assert (await model.call(Call(request()))).choices[0].text == ""
    with pytest.raises(Transient):
        await model.call(Call(request()))


async def test_a_refused_temperature_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(refused("`temperature` is deprecated for this model."), said())
    model = await model_for(server, tmp_path, monkeypatch)
    with pytest.raises(Unsupported) as caught:
        await model.call(Call(request(temperature=0.7)))
    assert caught.value.parameter == "temperature"
    reply = await model.call(Call(request(temperature=0.7)))
    assert "temperature" not in server.body()
    assert "temperature" not in reply.sent


async def test_a_refused_prefill_is_asked_for_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "This model does not support assistant message prefill. The conversation must end with a user message."
    server = Server(refused(message), said("Thought 1: I must search."), said())
    model = await model_for(server, tmp_path, monkeypatch)
    call = Call(request(USER, PREFILL))
    with pytest.raises(Unsupported) as caught:
        await model.call(call)
    assert caught.value.parameter == "prefill"
    reply = await model.call(call)
    (turn,) = server.body()["messages"]
    assert turn["role"] == "user"
    assert turn["content"].startswith("Question: why?\n\n")
    assert turn["content"].endswith("\nThought 1:")
    assert reply.choices[0].text == " I must search.", "what it repeats of the prefill is taken off"
    assert reply.sent["prefill"] == "instruction"
    assert "prefill" not in (await model.call(Call(request(USER)))).sent


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused("Overloaded", 529, "overloaded_error"), Transient),
        (refused("Number of requests has exceeded your rate limit", 429, "rate_limit_error"), Transient),
        (refused("Your credit balance is too low to access the Anthropic API."), CellStopped),
        (refused("invalid x-api-key", 401, "authentication_error"), CellStopped),
        (refused("model: claude-x", 404, "not_found_error"), CellStopped),
        ((200, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), Transient),
    ],
)
async def test_its_error_bodies(
    answer: tuple[int, dict[str, Any]], kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await model_for(Server(answer), tmp_path, monkeypatch)
    with pytest.raises(kind) as caught:
        await model.call(Call(request()))
    assert "claude-x" in str(caught.value)
    assert "sk-ant-hidden" not in str(caught.value)


async def test_raw_prompts_are_refused_with_the_setting_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValidationError):
        Anthropic(model="claude-x", api="completions")  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        Anthropic(model="claude-x", max_n=5)  # type: ignore[arg-type]
    model = await model_for(Server(), tmp_path, monkeypatch)
    with pytest.raises(CellStopped, match="api"):
        await model.call(Call(request(Turn("prompt", Text("x")))))


async def test_a_long_prompt_that_is_asked_again_at_once_is_put_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(said(), said(), said(), said())
    model = await model_for(server, tmp_path, monkeypatch)
    long = Request("claude-x", (Turn("user", Text("word " * 1000)), PREFILL), Params())
    assert model.warms(long) and not model.warms(request())
    await model.call(Call(long, shared=True))
    assert server.body()["messages"][0]["content"] == [
        {"type": "text", "text": "word " * 1000, "cache_control": {"type": "ephemeral"}}
    ]
    for call in (Call(long), Call(request(), shared=True)):
        await model.call(call)
        assert isinstance(server.body()["messages"][0]["content"], str)
    model = await model_for(server, tmp_path, monkeypatch, prompt_cache=False)
    await model.call(Call(long, shared=True))
    assert isinstance(server.body()["messages"][0]["content"], str)


def test_what_is_put_into_the_cache_costs_more_and_what_is_read_less() -> None:
    model = Anthropic(model="claude-sonnet-4-5")
    plain, written, read = (
        model.cost(usage)
        for usage in (
            Usage(prompt=10_000, calls=1),
            Usage(prompt=10_000, calls=1, written=10_000),
            Usage(prompt=10_000, calls=1, cached=10_000),
        )
    )
    assert plain is not None
    assert (written, read) == (pytest.approx(1.25 * plain), pytest.approx(0.1 * plain))
