"""OpenAI-compatible servers: what is sent, and everything they are known to answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from runner.errors import CellStopped, ContextOverflow, Filtered, ModelError, Transient, Unsupported
from runner.models.base import Call, Choice, Params, Reply, Request, Text, Turn
from runner.models.openai import OpenAI
from runner.testing import Drip, Drop, FakeOpenAI, completion

COMPLETION = (Turn("prompt", Text("Question: why?\n", "Thought 1:")),)
CHAT = (Turn("system", Text("Be brief.")), Turn("user", Text("Why?")))


def request(turns: tuple[Turn, ...] = CHAT, **params: Any) -> Request:
    return Request("m", turns, Params(**params))


@asynccontextmanager
async def opened(
    script: Callable[[dict[str, Any], int], Any], tmp: Path, **settings: Any
) -> AsyncIterator[tuple[OpenAI, FakeOpenAI]]:
    async with FakeOpenAI(script) as server:
        model = OpenAI(model="m", base_url=server.url, **settings)
        await model.open(tmp)
        try:
            yield model, server
        finally:
            await model.close()


async def reply_to(
    answer: Any, tmp: Path, *, n: int = 1, turns: tuple[Turn, ...] = CHAT, **params: Any
) -> Reply:
    async with opened(lambda body, k: answer, tmp) as (model, _):
        return await model.call(Call(request(turns, **params), n=n))


def chat(**choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": {"prompt_tokens": 5}}


async def test_a_raw_prompt_goes_to_completions(tmp_path: Path) -> None:
    async with opened(lambda body, k: " because", tmp_path) as (model, server):
        reply = await model.call(
            Call(
                request(COMPLETION, temperature=0.7, stop=("\nObservation 1:",), max_tokens=9), seed=2**40 + 3
            )
        )
    assert server.requests[0].path == "/v1/completions"
    assert server.requests[0].body == {
        "model": "m",
        "prompt": "Question: why?\nThought 1:",
        "temperature": 0.7,
        "max_tokens": 9,
        "stop": ["\nObservation 1:"],
        "seed": 3,
    }
    assert reply.choices == [Choice(" because")]
    assert reply.sent == {"temperature": 0.7, "max_tokens": 9, "stop": ["\nObservation 1:"]}
    assert (reply.usage.calls, reply.endpoint, reply.provider_id) == (1, server.url, "fake-0")


async def test_messages_go_to_chat_with_n_and_without_a_seed_that_was_not_given(tmp_path: Path) -> None:
    async with opened(lambda body, k: ["a", "b", "c"], tmp_path) as (model, server):
        reply = await model.call(Call(request(top_p=0.9, logprobs=True, extra=(("think", False),)), n=3))
    assert server.requests[0].path == "/v1/chat/completions"
    body = server.requests[0].body
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    assert (body["n"], body["top_p"], body["logprobs"], body["think"]) == (3, 0.9, True, False)
    assert "seed" not in body
    assert [choice.text for choice in reply.choices] == ["a", "b", "c"]


async def test_what_differs_between_calls_of_one_request_is_not_in_sent(tmp_path: Path) -> None:
    async with opened(lambda body, k: "x", tmp_path) as (model, _):
        one = await model.call(Call(request(), n=1, seed=1))
        two = await model.call(Call(request(), n=2, seed=2))
    assert one.sent == two.sent


async def test_only_so_many_stops_are_sent_but_all_are_applied(tmp_path: Path) -> None:
    stops = ("a1", "b2", "c3", "d4", "e5")
    async with opened(lambda body, k: "text e5 more", tmp_path) as (model, server):
        reply = await model.call(Call(request(stop=stops)))
    assert server.requests[0].body["stop"] == ["a1", "b2", "c3", "d4"]
    assert reply.choices == [Choice("text ")]


async def test_fewer_choices_than_asked_for_are_returned_as_they_are(tmp_path: Path) -> None:
    assert len((await reply_to(["only"], tmp_path, n=21)).choices) == 1


async def test_choices_come_in_order_of_their_index(tmp_path: Path) -> None:
    body = {"choices": [{"index": i, "message": {"content": str(i)}} for i in (2, 0, 1)]}
    assert [choice.text for choice in (await reply_to(body, tmp_path, n=3)).choices] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (
            {"finish_reason": "length", "message": {"content": None, "reasoning_content": "hmm"}},
            Choice("", "length", "hmm"),
        ),
        ({"message": {"content": "x", "reasoning": "hmm"}}, Choice("x", "stop", "hmm")),
        (
            {"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}},
            Choice("ab"),
        ),
        (
            {
                "message": {
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]},
                        {"type": "text", "text": "a"},
                    ]
                }
            },
            Choice("a", "stop", "hmm"),
        ),
        (
            {"message": {"content": "<think>\nQuestion: hmm\n</think>\n\nyes"}},
            Choice("yes", "stop", "\nQuestion: hmm"),
        ),
        ({"message": {"content": "hmm</think>yes"}}, Choice("yes", "stop", "hmm")),
        ({"finish_reason": "length", "message": {"content": "<think>hmm"}}, Choice("", "length", "hmm")),
        ({"message": {"content": None, "refusal": "I can't"}}, Choice("I can't", "refusal")),
        ({"finish_reason": "content_filter", "message": {"content": None}}, Choice("", "filter")),
        ({"finish_reason": "tool_calls", "message": {"content": None}}, Choice("", "other")),
        ({"finish_reason": None, "message": {"content": "x"}}, Choice("x", "other")),
        ({"finish_reason": "length", "message": {"content": "a\nQuestion: b"}}, Choice("a", "stop")),
        ({"text": "raw"}, Choice("raw")),
    ],
)
async def test_every_shape_of_a_choice(choice: dict[str, Any], expected: Choice, tmp_path: Path) -> None:
    reply = await reply_to(chat(**choice), tmp_path, stop=("\nQuestion:",))
    got = reply.choices[0]
    assert (got.text, got.finish, (got.reasoning or "").strip()) == (
        expected.text,
        expected.finish,
        (expected.reasoning or "").strip(),
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"error": {"code": 502, "message": "upstream"}}, Transient),
        ({"error": {"message": "slow down", "type": "rate_limit_error"}}, Transient),
        ({"error": {"message": "no", "code": "insufficient_quota"}}, CellStopped),
        ({"error": "model runner has unexpectedly stopped"}, Transient),
        ({"choices": None}, Transient),
        ({"choices": []}, Transient),
        ({"choices": [None]}, Transient),
        ({"choices": [{"error": {"code": 502, "message": "upstream"}, "finish_reason": "error"}]}, Transient),
        ({"choices": [{"error": {"code": 402, "message": "Insufficient credits"}}]}, CellStopped),
        ({"choices": [{"error": {"code": 403, "message": "flagged by moderation"}}]}, Filtered),
        ({"choices": [{"error": {"code": 400, "message": "'temperature' is not supported"}}]}, Transient),
        ({"choices": [{"error": "upstream"}]}, Transient),
        ({"choices": [{"finish_reason": "error", "message": {"content": "half a"}}]}, Transient),
        ({"choices": [{"finish_reason": "abort", "text": ""}]}, Transient),
        ({"object": "error", "message": "The model `x` does not exist.", "code": 404}, CellStopped),
        ({"error": {"type": "billing_error", "message": "x"}}, CellStopped),
        ({"error": {"type": "permission_error", "message": "x"}}, CellStopped),
        ({"error": {"type": "not_found_error", "message": "x"}}, CellStopped),
        ({"error": "Rate limit exceeded"}, Transient),
        ((200, {}, b'data: {"choices": []}\n\ndata: [DONE]\n'), Transient),
        ((200, {}, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n'), Transient),
        (
            (200, {}, b'data: {"choices": []}\n\ndata: {"error":{"type":"authentication_error"}}\n\n'),
            CellStopped,
        ),
        ({}, Transient),
        ((200, {}, b"<!doctype html><title>x</title>"), Transient),
        ((200, {}, b'{"choices": ['), Transient),
        ((200, {}, b"[" * 100_000), Transient),
        ((200, {}, b""), Transient),
        ((200, {}, b"[]"), Transient),
        ((429, {}, b'{"error":{"type":"insufficient_quota"}}'), CellStopped),
        ((400, {}, b'{"error":{"code":"context_length_exceeded","message":"x"}}'), ContextOverflow),
        (Drop("body"), Transient),
    ],
)
async def test_a_bad_reply_is_classed_and_never_crashes(
    answer: Any, kind: type[ModelError], tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        await reply_to(answer, tmp_path)
    assert type(caught.value) is kind, caught.value
    assert "m at http://127.0.0.1" in str(caught.value) or isinstance(answer, Drop)


async def test_one_broken_choice_among_good_ones_is_left_out(tmp_path: Path) -> None:
    body = {"choices": [{"error": {"message": "x"}}, {"message": {"content": "good"}}]}
    assert [choice.text for choice in (await reply_to(body, tmp_path, n=2)).choices] == ["good"]


async def test_a_reply_after_blank_lines_is_read(tmp_path: Path) -> None:
    assert (await reply_to(Drip(0.0, 3, "late"), tmp_path)).choices[0].text == "late"


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"message":{"content":"\\ud835 x"},"finish_reason":"stop"}]}',
        b'{"choices":[{"message":{"content":"\xff x"},"finish_reason":"stop"}], "z": NaN}',
    ],
)
async def test_text_that_no_json_reader_would_load_becomes_a_replacement_character(
    body: bytes, tmp_path: Path
) -> None:
    text = (await reply_to((200, {}, body), tmp_path)).choices[0].text
    assert text == "\ufffd x"
    text.encode()


async def test_usage_in_full(tmp_path: Path) -> None:
    body = chat(message={"content": "x"}) | {
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 40},
            "cost": 0.25,
        }
    }
    reply = await reply_to(body, tmp_path)
    assert reply.usage.as_dict() == {
        "prompt": 100,
        "completion": 50,
        "cached": 64,
        "reasoning": 40,
        "calls": 1,
        "written": 0,
    }
    assert reply.cost_usd == 0.25


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": "x"}]
)
async def test_a_count_that_is_missing_or_nought_is_never_free(usage: Any, tmp_path: Path) -> None:
    reply = await reply_to({**chat(message={"content": "twelve chars"}), "usage": usage}, tmp_path)
    assert reply.usage.completion == 3
    assert reply.usage.prompt > 0


@pytest.mark.parametrize("told", [1e308, -5, 1e10])
async def test_a_count_that_cannot_be_true_is_estimated(told: float, tmp_path: Path) -> None:
    body = chat(message={"content": "x" * 8}) | {"usage": {"prompt_tokens": told, "completion_tokens": told}}
    reply = await reply_to(body, tmp_path)
    assert 0 < reply.usage.prompt < 100 and reply.usage.completion == 2


async def test_llama_cpp_counts_one_choice_of_n_and_is_corrected(tmp_path: Path) -> None:
    body = completion(["one two three"] * 4, {"prompt": "p"}, chat=False)
    body["usage"]["completion_tokens"] = 3
    assert (await reply_to(body, tmp_path, n=4, turns=COMPLETION)).usage.completion == 4
    assert (await reply_to({**body, "timings": {}}, tmp_path, n=4, turns=COMPLETION)).usage.completion == 12


async def test_log_probabilities_of_chat_and_of_completions(tmp_path: Path) -> None:
    tokens = [
        {"token": "ye", "logprob": -0.5},
        {"token": "s", "logprob": -1},
        {"token": "\nQ", "logprob": -2},
    ]
    new = await reply_to(
        chat(message={"content": "yes\nQ"}, logprobs={"content": tokens}),
        tmp_path,
        stop=("\nQ",),
        logprobs=True,
    )
    assert (new.choices[0].text, new.choices[0].logprobs, new.choices[0].tokens) == ("yes", (-0.5, -1.0), 3)
    old = await reply_to(
        chat(text="yes", logprobs={"tokens": ["ye", "s"], "token_logprobs": [None, -1]}),
        tmp_path,
        turns=COMPLETION,
    )
    assert (old.choices[0].logprobs, old.choices[0].tokens) == ((-1.0,), 2)


def refusing(*names: str) -> Callable[[dict[str, Any], int], Any]:
    """A server that refuses the first of `names` that it is sent."""

    def script(body: dict[str, Any], k: int) -> Any:
        for name in names:
            if name in body:
                text = (
                    f'{{"error":{{"message":"no {name}","param":"{name}","code":"unsupported_parameter"}}}}'
                )
                return 400, {}, text.encode()
        return ["ok"] * int(body.get("n", 1))

    return script


async def test_a_refused_parameter_is_left_out_from_then_on_and_sent_says_so(tmp_path: Path) -> None:
    async with opened(refusing("temperature", "n", "seed"), tmp_path) as (model, server):
        call = Call(request(temperature=0.7), n=3, seed=5)
        for name in ("temperature", "n", "seed"):
            with pytest.raises(Unsupported) as caught:
                await model.call(call)
            assert caught.value.parameter == name
        reply = await model.call(call)
        await model.call(call)
    assert len(reply.choices) == 1
    assert "temperature" not in reply.sent
    assert [sorted({"temperature", "n", "seed"} & set(r.body)) for r in server.requests] == [
        ["n", "seed", "temperature"],
        ["n", "seed"],
        ["seed"],
        [],
        [],
    ]


async def test_calls_that_were_refused_together_all_try_again(tmp_path: Path) -> None:
    async with opened(refusing("max_tokens"), tmp_path) as (model, _):
        call = Call(request(max_tokens=7))
        body, _sent = model.body(call)
        assert model.adapt("max_tokens", body)
        assert model.adapt("max_tokens", body), "a call sent before the first refusal came back"
        reply = await model.call(call)
    assert reply.sent["max_tokens"] == 7


async def test_the_token_limit_changes_its_name_but_is_never_dropped(tmp_path: Path) -> None:
    async with opened(refusing("max_tokens"), tmp_path) as (model, server):
        with pytest.raises(Unsupported):
            await model.call(Call(request(max_tokens=7)))
        await model.call(Call(request(max_tokens=7)))
        assert server.requests[-1].body["max_completion_tokens"] == 7
    async with opened(refusing("max_tokens", "max_completion_tokens"), tmp_path) as (model, server):
        with pytest.raises(Unsupported):
            await model.call(Call(request()))
        with pytest.raises(CellStopped):
            await model.call(Call(request()))


def test_openai_itself_gets_the_new_name_of_the_token_limit() -> None:
    body, _ = OpenAI(model="m").body(Call(request()))
    assert "max_completion_tokens" in body
    body, _ = OpenAI(model="m").body(Call(request(COMPLETION)))
    assert "max_tokens" in body


async def test_what_the_job_asks_for_by_name_is_never_dropped(tmp_path: Path) -> None:
    async with opened(refusing("effort"), tmp_path, extra_body={"effort": "low"}) as (model, _):
        with pytest.raises(CellStopped, match="effort"):
            await model.call(Call(request()))
    async with opened(refusing("seed"), tmp_path) as (model, _):
        with pytest.raises(CellStopped, match="seed"):
            await model.call(Call(request(extra=(("seed", 1),))))


async def test_the_key_is_sent_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-hidden-1234")
    caplog.set_level(logging.DEBUG)

    def script(body: dict[str, Any], k: int) -> Any:
        return 401, {}, b'{"error":{"message":"Incorrect API key provided: sk-hidden-1234"}}'

    async with opened(script, tmp_path, key_env="MY_KEY") as (model, server):
        with pytest.raises(CellStopped) as caught:
            await model.call(Call(request()))
        shown = repr(model) + str(caught.value) + model.model_dump_json() + caplog.text
    assert server.requests[0].headers["authorization"] == "Bearer sk-hidden-1234"
    assert "hidden" not in shown
    assert "MY_KEY" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["", "  ", "two words", "schl\u00fcssel"])
async def test_a_key_that_cannot_work_is_named_by_its_variable(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(CellStopped, match="MY_KEY") as caught:
        await OpenAI(model="m", key_env="MY_KEY", base_url="https://api.test/v1").open(tmp_path)
    assert "words" not in str(caught.value) and "without a key" not in str(caught.value)


async def test_a_local_server_gets_no_key_that_the_job_did_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    async with opened(lambda body, k: "x", tmp_path) as (model, server):
        await model.call(Call(request()))
    assert "authorization" not in server.requests[0].headers


async def test_a_local_server_that_wants_the_key_of_an_unset_variable_is_told_of_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    refusal = (401, {}, b'{"error":{"message":"Unauthorized"}}')
    async with opened(lambda body, k: refusal, tmp_path, key_env="MY_KEY") as (model, _):
        with pytest.raises(CellStopped, match="without a key as MY_KEY is not set: the key was refused"):
            await model.call(Call(request()))


def test_further_body_fields_are_part_of_the_identity_but_the_address_is_not() -> None:
    assert OpenAI(model="m", base_url="http://a.test/v1").identity == OpenAI(model="m").identity == "m"
    assert OpenAI(model="m", extra_body={"effort": "low"}).identity != "m"


@pytest.mark.parametrize("address", ["api.openai.com/v1", "ftp://x/v1", "http://", "http://x:port/v1", ""])
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(ValidationError, match="base_url"):
        OpenAI(model="m", base_url=address)


async def test_a_query_in_the_address_stays_at_the_end_and_out_of_rows(tmp_path: Path) -> None:
    async with FakeOpenAI() as server:
        model = OpenAI(model="m", base_url=f"{server.url}/?api-version=1")
        await model.open(tmp_path)
        reply = await model.call(Call(request()))
        await model.close()
    assert server.requests[0].path == "/v1/chat/completions"
    assert reply.endpoint == server.url
