"""The table of services, row by row, and what their headers say of limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from runner.errors import CellStopped, Transient, Unsupported
from runner.models.anthropic import Anthropic
from runner.models.base import Call, Params, Request, Text, Turn, Usage, Window
from runner.models.lanes import HttpxTransport
from runner.models.openai import OpenAI
from runner.models.providers import GENERIC, TABLE, at, service_for
from runner.models.told import DAY, windows
from runner.testing import completion

NOW = 1_790_000_000.0
USER = Turn("user", Text("Question: why?"))


def request(*turns: Turn, **params: Any) -> Request:
    return Request("m", turns or (USER,), Params(**params))


class Server:
    """Answers every POST with the same; keeps what it was sent."""

    def __init__(
        self, answer: Any = None, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.answer = completion(["ok"], {}, chat=True) if answer is None else answer
        self.status, self.headers = status, headers or {}
        self.bodies: list[dict[str, Any]] = []
        self.seen: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        self.bodies.append(orjson.loads(request.content))
        return httpx.Response(self.status, json=self.answer, headers=self.headers)


async def served(
    kind: type[OpenAI] | type[Anthropic],
    server: Server,
    tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
    **its: Any,
) -> Any:
    for row in TABLE.values():
        if row.key_env:
            monkeypatch.setenv(row.key_env, f"key-of-{row.name}")
    model = kind(**{"model": "m", **its})
    model.use(HttpxTransport(transport=httpx.MockTransport(server)))
    await model.open(tmp)
    return model


# -- the table, cell by cell (PROVIDERS 1.4) -----------------------------------------------------------------
# n, seed, chat log-probabilities, stops, token limit's field, highest temperature, raw completions, continues
CELLS: dict[str, tuple[Any, ...]] = {
    "openai": (128, "seed", True, 4, "max_completion_tokens", 2.0, True, "words"),
    "azure": (128, "seed", True, 4, "max_completion_tokens", 2.0, True, "words"),
    "anthropic": (1, None, False, 64, "max_tokens", 1.0, False, "sent"),
    "gemini": (8, "seed", True, 5, "max_tokens", 2.0, False, "sent"),
    "groq": (1, "seed", False, 4, "max_completion_tokens", 2.0, False, "sent"),
    "mistral": (128, "random_seed", False, 4, "max_tokens", 1.5, False, "sent"),
    "together": (128, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
    "fireworks": (128, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
    "openrouter": (1, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
    "deepseek": (1, None, True, 4, "max_tokens", 2.0, False, "sent"),
    "vllm": (128, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
    "sglang": (128, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
    "llama.cpp": (1, "seed", True, 64, "max_tokens", 2.0, True, "sent"),
    "ollama": (1, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
    "generic": (128, "seed", True, 4, "max_tokens", 2.0, True, "sent"),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_row_has_the_cells_of_the_providers_pages(name: str) -> None:
    row = TABLE[name]
    assert CELLS[name] == (
        row.n,
        row.seed,
        bool(row.chat_logprobs),
        row.stops,
        row.max_tokens,
        row.temperatures[1],
        row.completions,
        row.prefix,
    )


@pytest.mark.parametrize("name", [name for name in TABLE if name not in ("anthropic", "generic")])
async def test_every_row_shapes_what_is_sent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, server = TABLE[name], Server()
    model = await served(
        OpenAI, server, tmp_path, monkeypatch, service=name, base_url="https://x.test/v1", max_n=50
    )
    call = Call(
        request(temperature=0.7, logprobs=True, max_tokens=9, stop=tuple(f"s{k}!" for k in range(70))),
        n=50,
        seed=5,
    )
    if not row.chat_logprobs:
        with pytest.raises(Unsupported, match=f"{name} does not take `logprobs`"):
            await model.call(call)
    reply = await model.call(call)
    (body,) = server.bodies
    assert body.get("n", 1) == min(50, row.n)
    assert ("n" in body) == (row.n > 1)
    assert {key for key in body if "seed" in key} == ({row.seed} if row.seed else set())
    assert body[row.max_tokens] == 9
    assert len(body["stop"]) == row.stops
    assert {key: body.get(key) for key, _ in row.chat_logprobs} == dict(row.chat_logprobs)
    assert row.chat_logprobs or "logprobs" not in body
    assert (reply.sent["temperature"], reply.sent["max_tokens"]) == (0.7, 9)
    assert len(reply.choices) == 1, "the sampler tops up"


def test_fields_of_a_services_own_stand_in_every_body_and_the_job_may_add_to_them() -> None:
    call = Call(request())
    plain = OpenAI(model="m", service="openrouter").body(call)
    assert plain[0]["provider"] == {"require_parameters": True}
    assert "provider" not in plain[1]
    more = OpenAI(model="m", service="openrouter", extra_body={"provider": {"order": ["a"]}}).body(call)
    assert more[0]["provider"] == {"require_parameters": True, "order": ["a"]}
    quiet = OpenAI(model="m", service="openrouter", supports={"body": []}).body(call)
    assert "provider" not in quiet[0]


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://me.openai.azure.com/openai/v1", "azure"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://API.Mistral.ai/v1", "mistral"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.deepseek.com/beta", "deepseek"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini"),
        ("https://api.together.xyz/v1", "together"),
        ("https://api.fireworks.ai/inference/v1", "fireworks"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("http://localhost:8000/v1", "generic"),
        ("https://notapi.openai.com.evil.test/v1", "generic"),
        ("https://xapi.openai.com/v1", "generic"),
    ],
)
def test_the_row_is_told_by_the_host(base_url: str, name: str) -> None:
    assert at(base_url).name == name
    assert OpenAI(model="m", base_url=base_url).row.name == name


def test_a_service_that_is_named_brings_its_address_and_key() -> None:
    model = OpenAI(model="m", service="groq")
    assert (model.base_url, model.key_env) == ("https://api.groq.com/openai/v1", "GROQ_API_KEY")
    own = OpenAI(model="m", service="groq", base_url="https://proxy.test/v1", key_env="MINE")
    assert (own.base_url, own.key_env, own.row.name) == ("https://proxy.test/v1", "MINE", "groq")
    assert OpenAI(model="m").row.name == "openai"
    assert Anthropic(model="m", base_url="https://gateway.test/v1").row.name == "anthropic"


async def test_no_services_key_goes_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    model = await served(OpenAI, server, tmp_path, monkeypatch, base_url="https://api.mistral.ai/v1")
    await model.call(Call(request()))
    assert server.seen[0].headers["authorization"] == "Bearer key-of-mistral"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"service": "grok"}, "did you mean 'groq'"),
        ({"service": "azure"}, "set base_url"),
        ({"service": "vllm"}, "set base_url"),
        ({"supports": {"max_stop": 1}}, "a service has no 'max_stop'"),
        ({"supports": {"n": "many"}}, "n: Input should be a valid integer"),
        ({"supports": {"name": "x"}}, "a service has no 'name'"),
    ],
)
def test_a_wrong_word_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        OpenAI(model="m", **settings)
    assert said in str(caught.value)


def test_a_job_may_override_single_cells() -> None:
    row = service_for("groq", "", {"n": 8, "temperatures": [0, 1], "chat_logprobs": [["logprobs", True]]})
    assert (row.n, row.temperatures, row.chat_logprobs) == (8, (0.0, 1.0), (("logprobs", True),))
    assert (row.name, row.told) == ("groq", TABLE["groq"].told)
    model = OpenAI(model="m", service="groq", supports={"n": 8})
    assert model.body(Call(request(), n=21))[0]["n"] == 8
    assert model.identity == OpenAI(model="m").identity


# -- what models of a service do without ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("service", "model", "without"),
    [
        ("openai", "o3", {"temperature", "top_p", "logprobs", "stop"}),
        ("openai", "o1-mini", {"temperature", "top_p", "logprobs"}),
        ("openai", "gpt-5", {"temperature", "top_p", "logprobs"}),
        ("openai", "gpt-5-mini", {"temperature", "top_p", "logprobs"}),
        ("openai", "gpt-5.1", set()),
        ("openai", "gpt-4o", set()),
        ("gemini", "gemini-3-pro", {"n"}),
        ("gemini", "gemini-2.5-flash", set()),
        ("deepseek", "deepseek-reasoner", {"temperature", "top_p", "logprobs"}),
        ("deepseek", "deepseek-chat", set()),
        ("anthropic", "claude-opus-4-7", {"temperature", "top_p", "prefill"}),
        ("anthropic", "claude-opus-4-20250514", set()),
        ("anthropic", "claude-opus-4-6", {"prefill"}),
        ("anthropic", "claude-sonnet-4-6-20260101", {"prefill"}),
        ("anthropic", "claude-sonnet-4-5-20250929", set()),
        ("anthropic", "claude-sonnet-4-20250514", set()),
        ("anthropic", "claude-3-5-haiku-20241022", set()),
    ],
)
def test_what_a_model_is_known_to_refuse(service: str, model: str, without: set[str]) -> None:
    assert TABLE[service].lacks(model) == without


async def test_a_known_refusal_costs_no_call_and_is_told_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    model = await served(OpenAI, server, tmp_path, monkeypatch, model="o3")
    call = Call(request(temperature=0.7, top_p=0.9, stop=("\nQ",)))
    told = set()
    for _ in range(3):
        with pytest.raises(Unsupported) as caught:
            await model.call(call)
        told.add(caught.value.parameter)
    assert told == {"temperature", "top_p", "stop"}
    assert not server.bodies
    reply = await model.call(call)
    assert set(reply.sent) == {"max_tokens"}


async def test_what_a_job_asks_for_by_name_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    model = await served(OpenAI, server, tmp_path, monkeypatch, model="o3", extra_body={"temperature": 1})
    await model.call(Call(request(temperature=0.7)))
    assert server.bodies[0]["temperature"] == 1


async def test_a_temperature_out_of_range_stops_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    model = await served(OpenAI, server, tmp_path, monkeypatch, service="mistral")
    with pytest.raises(CellStopped, match=r"temperature 1\.8 is outside of what mistral takes, 0 to 1\.5"):
        await model.call(Call(request(temperature=1.8)))
    assert not server.bodies


async def test_raw_prompts_to_chats_only_stop_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    model = await served(OpenAI, server, tmp_path, monkeypatch, service="groq", api="completions")
    with pytest.raises(CellStopped, match="groq has no raw completions; set api = 'chat'"):
        await model.call(Call(request(Turn("prompt", Text("Q")))))
    assert not server.bodies


@pytest.mark.parametrize(
    ("settings", "turn", "body"),
    [
        ({"service": "vllm", "base_url": "https://x.test/v1"}, {},
         {"continue_final_message": True, "add_generation_prompt": False}),
        ({"service": "mistral"}, {"prefix": True}, {}),
        ({"service": "deepseek", "base_url": "https://api.deepseek.com/beta"}, {"prefix": True}, {}),
        ({"base_url": "https://x.test/v1", "key_env": ""}, {}, {}),
    ],
)  # fmt: skip
async def test_a_last_assistant_turn_is_continued_in_the_services_way(
    settings: dict[str, Any],
    turn: dict[str, Any],
    body: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    model = await served(OpenAI, server, tmp_path, monkeypatch, **settings)
    await model.call(Call(request(USER, Turn("assistant", Text("Thought 1:")))))
    (sent,) = server.bodies
    assert sent["messages"][-1] == {"role": "assistant", "content": "Thought 1:", **turn}
    assert {key: sent[key] for key in body} == body


@pytest.mark.parametrize(("service", "text"), [("llama.cpp", " I see."), ("vllm", "Thought 1: I see.")])
async def test_a_prefix_that_a_service_repeats_is_taken_off(
    service: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(completion(["Thought 1: I see."], {}, chat=True))
    model = await served(OpenAI, server, tmp_path, monkeypatch, service=service, base_url="https://x.test/v1")
    reply = await model.call(Call(request(USER, Turn("assistant", Text("Thought 1:")))))
    assert reply.choices[0].text == text


@pytest.mark.parametrize(
    "settings",
    [
        {"service": "openai"},
        {"service": "deepseek"},
        {"service": "azure", "base_url": "https://a.openai.azure.com/v1"},
    ],
)
async def test_where_it_cannot_be_it_is_asked_for_in_words(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(completion(["Thought 1: I see.\nQ"], {}, chat=True))
    model = await served(OpenAI, server, tmp_path, monkeypatch, **settings)
    reply = await model.call(Call(request(USER, Turn("assistant", Text("Thought 1:")), stop=("\nQ",))))
    (message,) = server.bodies[0]["messages"]
    assert message["role"] == "user"
    assert message["content"].endswith("Thought 1:")
    assert reply.choices[0].text == " I see."
    assert reply.sent["prefill"] == "instruction"


async def test_a_prefill_that_a_server_refuses_is_asked_for_in_words_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({"error": {"message": "assistant message prefill is not supported"}}, status=400)
    model = await served(OpenAI, server, tmp_path, monkeypatch, base_url="https://x.test/v1", key_env="")
    call = Call(request(USER, Turn("assistant", Text("Thought 1:"))))
    with pytest.raises(Unsupported):
        await model.call(call)
    assert model.body(call)[1]["prefill"] == "instruction"


async def test_thoughts_that_are_only_in_the_total_are_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = completion(["ok"], {}, chat=True)
    body["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115}
    model = await served(OpenAI, Server(body), tmp_path, monkeypatch, service="gemini")
    usage = (await model.call(Call(request()))).usage
    assert (usage.prompt, usage.completion, usage.reasoning) == (10, 105, 100)


@pytest.mark.parametrize(
    ("service", "tokens"),
    [("openai", 150), ("groq", 70), ("anthropic", 70), ("gemini", 100), ("generic", 150)],
)
def test_which_tokens_count_against_a_limit(service: str, tokens: int) -> None:
    assert TABLE[service].charged(100, 50, cached=80) == tokens


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("groq", "Rate limit reached on requests per day (RPD): Limit 1000"),
        ("openai", "Rate limit reached for gpt on tokens per day (TPD)"),
        ("openrouter", "Rate limit exceeded: free-models-per-day"),
        ("mistral", "Monthly tokens exceeded"),
    ],
)
async def test_a_daily_quota_is_told_from_one_of_a_minute(
    service: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({"error": {"message": message}}, status=429)
    model = await served(OpenAI, server, tmp_path, monkeypatch, service=service)
    with pytest.raises(CellStopped, match="daily quota"):
        await model.call(Call(request()))
    server.answer = {"error": {"message": "Rate limit reached on requests per minute"}}
    with pytest.raises(Transient):
        await model.call(Call(request()))


# -- headers (PROVIDERS 1.1) ----------------------------------------------------------------------------------
def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("service", "headers", "expected"),
    [
        (
            "openai",
            {
                "x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-reset-requests": "120ms", "x-ratelimit-limit-tokens": "30000",
                "x-ratelimit-remaining-tokens": "29000", "x-ratelimit-reset-tokens": "1m30.951s",
            },
            [
                Window("requests", 60, 500, 499, 0.12),
                Window("tokens", 60, 30000, 29000, pytest.approx(90.951)),
            ],
        ),
        (
            "openai",
            {"x-ratelimit-limit-tokens_usage_based": "9", "x-ratelimit-limit-project-tokens": "8"},
            [Window("tokens", 60, 9), Window("tokens", 60, 8)],
        ),
        (  # an account's requests may be a day's: one of 200 comes back in 7m12s
            "openai",
            {
                "x-ratelimit-limit-requests": "200", "x-ratelimit-remaining-requests": "199",
                "x-ratelimit-reset-requests": "7m12s",
            },
            [Window("requests", DAY, 200, 199, 432)],
        ),
        (
            "openai",
            {
                "x-ratelimit-limit-requests": "10000", "x-ratelimit-remaining-requests": "9998",
                "x-ratelimit-reset-requests": "17.28s",
            },
            [Window("requests", DAY, 10000, 9998, 17.28)],
        ),
        (
            "openai",
            {
                "x-ratelimit-limit-requests": "10000", "x-ratelimit-remaining-requests": "9999",
                "x-ratelimit-reset-requests": "6ms",
            },
            [Window("requests", 60, 10000, 9999, 0.006)],
        ),
        (  # as in OpenAI's own example: it fits no window
            "openai",
            {
                "x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "149984",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            [Window("tokens", 60, 150000, 149984, 360)],
        ),
        (
            "openai",
            {
                "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1h0m0s",
            },
            [Window("requests", 3600, 60, 0, 3600)],
        ),
        (  # a window with a fixed end: 8.64 s of it are left, which is no day's
            "generic",
            {
                "x-ratelimit-limit-requests": "10000", "x-ratelimit-remaining-requests": "9999",
                "x-ratelimit-reset-requests": "8.64",
            },
            [Window("requests", 60, 10000, 9999, 8.64)],
        ),
        (
            "generic",
            {
                "x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14370",
                "x-ratelimit-reset-requests": "2m59.56s",
            },
            [Window("requests", DAY, 14400, 14370, pytest.approx(179.56))],
        ),
        (
            "azure",
            {
                "x-ratelimit-limit-tokens": "50000", "x-ratelimit-remaining-tokens": "49000",
                "x-ratelimit-reset-tokens": "60",
            },
            [Window("tokens", 60, 50000, 49000, 60)],
        ),
        (
            "azure",
            {
                "x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1",
                "x-ratelimit-reset-tokens": "0",
            },
            [],
        ),
        (
            "anthropic",
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": rfc3339(NOW + 12),
                "anthropic-ratelimit-input-tokens-limit": "40000",
                "anthropic-ratelimit-input-tokens-remaining": "40000",
                "anthropic-ratelimit-input-tokens-reset": rfc3339(NOW - 3),
                "anthropic-ratelimit-output-tokens-limit": "8000",
                "date": format_datetime(datetime.fromtimestamp(NOW + 2, UTC), usegmt=True),
            },
            [
                Window("requests", 60, 50, 49, 10),
                Window("input_tokens", 60, 40000, 40000, None),
                Window("output_tokens", 60, 8000),
            ],
        ),
        (
            "groq",
            {
                "X-RateLimit-Limit-Requests": "14400", "X-RateLimit-Remaining-Requests": "14370",
                "X-RateLimit-Reset-Requests": "2m59.56s", "X-RateLimit-Limit-Tokens": "18000",
                "X-RateLimit-Remaining-Tokens": "17997", "X-RateLimit-Reset-Tokens": "7.66s",
            },
            [
                Window("requests", DAY, 14400, 14370, pytest.approx(179.56)),
                Window("tokens", 60, 18000, 17997, 7.66),
            ],
        ),
        (
            "mistral",
            {
                "x-ratelimitbysize-limit-minute": "500000",
                "x-ratelimitbysize-remaining-minute": "499990", "ratelimitbysize-reset": "21",
            },
            [Window("tokens", 60, 500000, 499990, 21)],
        ),
        (
            "mistral",
            {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "59",
             "x-ratelimit-limit-tokens-minute": "50000", "x-ratelimit-remaining-tokens-minute": "47196"},
            [Window("requests", 60, 60, 59), Window("tokens", 60, 50000, 47196)],
        ),
        (
            "together",
            {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "9", "x-ratelimit-reset": "1",
             "x-tokenlimit-limit": "3000", "x-tokenlimit-remaining": "2900"},
            [Window("requests", 1, 10, 9, 1), Window("tokens", 1, 3000, 2900)],
        ),
        (
            "openrouter",
            {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0",
             "X-RateLimit-Reset": str(int((NOW + 40) * 1000))},
            [Window("requests", 60, None, 0, 40)],
        ),
        (
            "fireworks",
            {"x-ratelimit-limit-tokens-prompt": "900000", "x-ratelimit-limit-tokens-generated": "36000"},
            [Window("input_tokens", 60, 900000), Window("output_tokens", 60, 36000)],
        ),
        (
            "generic",
            {"RateLimit-Limit": "10", "RateLimit-Remaining": "3", "RateLimit-Reset": "30"},
            [Window("requests", 60, None, 3, 30)],
        ),
        (
            "generic",
            {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "3", "x-ratelimit-reset": str(int(NOW + 9))},
            [Window("requests", 60, None, 3, 9)],
        ),
        ("deepseek", {"x-ratelimit-limit-requests": "5"}, []),
        ("vllm", {"x-ratelimit-limit-requests": "5"}, []),
    ],
)  # fmt: skip
def test_what_each_services_headers_say(service: str, headers: dict[str, str], expected: Any) -> None:
    assert list(windows(headers, TABLE[service].told, NOW)) == expected


NAMES = st.sampled_from(
    sorted(
        {
            name
            for row in TABLE.values()
            for told in row.told
            for name in (told.limit, told.remaining, told.reset)
        }
        | {"Date", "date", "x"}
    )
)
VALUES = st.text(max_size=30) | st.sampled_from(
    ["-1", "0", "5", "1e999", "nan", "9" * 400, "1m30.951s", "2025-08-21T12:40:59Z", "9999-12-31T23:59:59Z",
     "0001-01-01T00:00:00+23:59", "Fri, 31 Dec 9999 23:59:59 GMT", "1790000000", "1790000000000", "-5s", "6m0s"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(NAMES, VALUES), st.sampled_from(sorted(TABLE)), st.floats(0, 4e9))
def test_no_header_makes_it_raise(headers: dict[str, str], service: str, now: float) -> None:
    for window in windows(headers, TABLE[service].told, now):
        assert window.seconds > 0
        assert window.limit is None or window.limit > 0
        assert window.remaining is None or window.remaining >= 0
        assert window.reset is None or 0 < window.reset <= 366 * 86400
        assert window.limit is not None or window.remaining is not None


HEADERS = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (None, 200),
        ({"error": {"message": "slow down"}}, 429),
        ({"error": {"code": 502, "message": "x"}}, 200),
        ({"choices": None}, 200),
    ],
)
async def test_replies_and_failures_alike_carry_what_the_headers_say(
    answer: Any, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await served(OpenAI, Server(answer, status, HEADERS), tmp_path, monkeypatch)
    try:
        found = (await model.call(Call(request()))).windows
    except Transient as error:
        found = error.windows
    assert found == (Window("requests", 60, 500, 499),)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"type": "message", "content": [{"type": "text", "text": "ok"}]}, 200),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, 429),
        ({"type": "message", "content": None}, 200),
    ],
)
async def test_anthropics_too(
    answer: Any, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"anthropic-ratelimit-output-tokens-limit": "8000", "retry-after": "3"}
    model = await served(Anthropic, Server(answer, status, headers), tmp_path, monkeypatch)
    try:
        found = (await model.call(Call(request()))).windows
    except Transient as error:
        found = error.windows
    assert found == (Window("output_tokens", 60, 8000),)


async def test_claude_from_4_6_on_gets_no_prefill_and_from_opus_4_7_on_no_temperature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({"type": "message", "content": [{"type": "text", "text": "ok"}]})
    model = await served(Anthropic, server, tmp_path, monkeypatch, model="claude-opus-4-8")
    call = Call(request(USER, Turn("assistant", Text("Thought 1:")), temperature=0.7))
    for _ in range(2):
        with pytest.raises(Unsupported):
            await model.call(call)
    reply = await model.call(call)
    assert "temperature" not in server.bodies[0]
    assert server.bodies[0]["messages"][-1]["role"] == "user"
    assert reply.sent["prefill"] == "instruction"


def test_usage_of_nothing_costs_nothing_and_a_generic_row_has_no_price() -> None:
    assert GENERIC.prices is None
    assert OpenAI(model="gpt-4o", base_url="https://x.test/v1", key_env="").cost(Usage(prompt=9)) is None
