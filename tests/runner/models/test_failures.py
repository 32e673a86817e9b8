"""What providers' failures mean: their own words, as published or reported, and every waiting time they send."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.errors import (
    CellStopped,
    ContextOverflow,
    DailyQuota,
    EpisodeFailed,
    Filtered,
    ModelError,
    Transient,
    Unsupported,
)
from runner.models.failures import classify, retry_after

NOW = 1_790_000_000.0


def openai(
    message: str, *, code: Any = None, type: str = "invalid_request_error", param: Any = None
) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": type, "param": param, "code": code}})


QUOTA = openai("You exceeded your current quota", code="insufficient_quota", type="insufficient_quota")
GEMINI_MINUTE = orjson.dumps(
    [
        {
            "error": {
                "code": 429,
                "message": "You exceeded your current quota, please check your plan and billing details.",
                "status": "RESOURCE_EXHAUSTED",
                "details": [
                    {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},
                    {"retryDelay": "46s"},
                ],
            }
        }
    ]
)
GEMINI_DAY = GEMINI_MINUTE.replace(b"PerMinute", b"PerDay")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, QUOTA, CellStopped),
        (
            429,
            openai("Rate limit reached. Please try again in 5.289s.", code="rate_limit_exceeded"),
            Transient,
        ),
        (
            429,
            openai("Request too large for gpt-4o on tokens per min (TPM): Limit 9, Requested 10"),
            EpisodeFailed,
        ),
        (429, GEMINI_MINUTE, Transient),
        (429, GEMINI_DAY, DailyQuota),
        (429, openai("Quota exceeded for metric: x, limit: 0, model: y"), CellStopped),
        (429, openai("Rate limit on requests per day (RPD). Please try again in 7m12s."), Transient),
        (429, openai("Rate limit on requests per day (RPD). Please try again in 9h54m."), DailyQuota),
        (429, openai("Rate limit exceeded: free-models-per-day"), DailyQuota),
        (429, openai("Monthly quota exceeded"), DailyQuota),
        (429, b'{"error":{"details":{"error_code":"enforced_spend_limit_reached"}}}', CellStopped),
        (400, openai("Your credit balance is too low to access the Anthropic API."), CellStopped),
        (
            400,
            openai("You have reached your specified API usage limits. You will regain access"),
            CellStopped,
        ),
        (402, b'{"error":{"message":"Insufficient Balance"}}', CellStopped),
        (402, b'{"error":{"metadata":{"limit_source":"openrouter_in_flight_budget"}}}', Transient),
        (401, openai("Incorrect API key provided"), CellStopped),
        (400, openai("API key not valid. Please pass a valid API key."), CellStopped),
        (403, b"<html><title>Forbidden</title></html>", CellStopped),
        (404, openai("The model `x` does not exist", code="model_not_found"), CellStopped),
        (400, openai("Invalid model: x"), CellStopped),
        (410, b"", CellStopped),
        (400, openai("User location is not supported for the API use."), CellStopped),
        (301, b"", CellStopped),
        (405, b"", CellStopped),
        (
            400,
            openai("maximum context length is 4097 tokens", code="context_length_exceeded"),
            ContextOverflow,
        ),
        (400, b'{"error":{"type":"exceed_context_size_error","message":"x"}}', ContextOverflow),
        (
            400,
            b'{"type":"error","error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}',
            ContextOverflow,
        ),
        (400, b'{"error":{"code":"content_filter","message":"triggered"}}', Filtered),
        (403, openai("Your input was flagged by moderation"), Filtered),
        (413, openai("too big"), EpisodeFailed),
        (400, openai("Invalid 'messages[0].content'", param="messages.[0].content"), EpisodeFailed),
        (409, b"", Transient),
        (500, b"not json", Transient),
        (503, b'{"error":{"message":"Loading model"}}', Transient),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', Transient),
        (524, b"<html><title>A timeout occurred</title></html>", Transient),
    ],
)
def test_the_kind_of_each_reported_failure(status: int, body: bytes, kind: type[ModelError]) -> None:
    error = classify(status, {}, body, NOW)
    assert type(error) is kind, error
    assert error.status == status


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        (
            openai("'temperature' does not support 0.7", param="temperature", code="unsupported_value"),
            "temperature",
        ),
        (openai("`temperature` is deprecated for this model."), "temperature"),
        (openai("`temperature` and `top_p` cannot both be specified for this model."), "top_p"),
        (
            openai(
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                code="unsupported_parameter",
            ),
            "max_tokens",
        ),
        (openai("'n' : number must be at most 1"), "n"),
        (openai("Multiple candidates is not enabled for this model"), "n"),
        (openai('Invalid JSON payload received. Unknown name "seed": Cannot find field.'), "seed"),
        (openai("logprobs is not supported with this model"), "logprobs"),
        (openai("Not supported with this model", param="stop", code="unsupported_parameter"), "stop"),
        (b'{"detail":[{"loc":["body","seed"],"msg":"Extra inputs are not permitted"}]}', "seed"),
        (openai("Unknown parameter: 'thinking'", param="thinking", code="unknown_parameter"), "thinking"),
        (openai("This model does not support assistant message prefill."), "prefill"),
        (openai("Unrecognized request argument supplied: seed"), "seed"),
        (openai("property 'top_k' is unsupported"), "top_k"),
    ],
)
def test_a_refused_parameter_is_named(body: bytes, parameter: str) -> None:
    error = classify(400, {}, body, NOW, asked=("model", "messages", "top_k"))
    assert isinstance(error, Unsupported)
    assert error.parameter == parameter


def test_a_quoted_word_that_is_no_field_of_the_request_refuses_none() -> None:
    body = openai("role 'tool' is not supported in 'messages'")
    assert type(classify(400, {}, body, NOW, asked=("model", "messages", "top_k"))) is EpisodeFailed


def test_a_value_out_of_range_is_the_jobs_to_mend_not_dropped() -> None:
    error = classify(400, {}, openai("Invalid 'temperature': must be <= 2", param="temperature"), NOW)
    assert isinstance(error, CellStopped)
    assert "temperature" in str(error)


def test_a_message_says_where_what_and_what_next_but_never_the_key() -> None:
    body = openai("Incorrect API key provided: sk-very-secret")
    error = str(classify(401, {}, body, NOW, where="gpt-x at https://api.test", secret="sk-very-secret"))
    assert "gpt-x at https://api.test" in error
    assert "401" in error
    assert "resume" in error
    assert "sk-very-secret" not in error


def test_gateway_time_outs_may_have_been_billed() -> None:
    assert classify(504, {}, b"", NOW).billed
    assert not classify(503, {}, b"", NOW).billed


def http_date(at: float) -> str:
    return format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "7"}, b"", 7.0),
        ({"retry-after": "0.503"}, b"", 0.503),
        ({"Retry-After-Ms": "1500", "Retry-After": "9"}, b"", 1.5),
        ({"retry-after": http_date(NOW + 30)}, b"", 30.0),
        ({"retry-after": http_date(NOW + 30), "date": http_date(NOW + 10)}, b"", 20.0),
        ({"retry-after": http_date(NOW - 30)}, b"", 0.0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, b"", 366 * 86400.0),
        ({"retry-after": "-1"}, b"", None),
        ({"retry-after": "nan"}, b"", None),
        ({"retry-after": "inf"}, b"", None),
        ({"retry-after": "soon"}, b"Please try again in 5.289s.", 5.289),
        ({}, b'{"retryDelay": "46s"}', 46.0),
        ({}, b"Please retry in 10h17m5.72s.", 37025.72),
        ({}, b"Please try again in 120ms", 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m30.5s"}, b"", 90.5),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s"}, b"", None),
        (
            {
                "x-ratelimit-limit-requests": "-1",
                "x-ratelimit-remaining-requests": "-1",
                "x-ratelimit-reset-requests": "0",
            },
            b"",
            None,
        ),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": datetime.fromtimestamp(NOW + 12, UTC).isoformat(),
            },
            b"",
            12.0,
        ),
        ({"x-ratelimitbysize-remaining-minute": "0", "ratelimitbysize-reset": "21"}, b"", 21.0),
        ({"X-RateLimit-Reset": str(int(NOW + 40))}, b"", 40.0),
        ({"X-RateLimit-Reset": str(int((NOW + 40) * 1000))}, b"", 40.0),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": str(int(NOW + 1800)),
                "anthropic-ratelimit-unified-7d-status": "allowed",
                "anthropic-ratelimit-unified-7d-reset": str(int(NOW + 80000)),
            },
            b"",
            1800.0,
        ),
        (
            {
                "anthropic-ratelimit-unified-status": "allowed",
                "anthropic-ratelimit-unified-reset": str(int(NOW + 1800)),
            },
            b"",
            None,
        ),
        ({}, b"", None),
    ],
)
def test_every_form_of_waiting_time(headers: dict[str, str], body: bytes, seconds: float | None) -> None:
    found = retry_after(headers, body, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


TEXTS = st.text(max_size=40) | st.sampled_from(
    ["1s", "6m0s", "1m30.951s", "nan", "-inf", "1e999", "9" * 400, "Wed, 32 Oct", "0001-01-01T00:00:00+23:59"]
)
NAMES = st.sampled_from(
    ["retry-after", "Retry-After-Ms", "date", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "x"]
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # its tables of letters are made on first use
@given(st.dictionaries(NAMES, TEXTS), st.binary(max_size=200), st.floats(0, 4e9))
def test_no_header_makes_it_raise_or_wait_for_ever(headers: dict[str, str], body: bytes, now: float) -> None:
    found = retry_after(headers, body, now)
    assert found is None or 0 <= found <= 366 * 86400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "detail", "loc", "param", "code", "metadata", "raw", "msg"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(
    st.integers(100, 599),
    st.one_of(st.binary(max_size=100), JSON.map(lambda v: json.dumps(v).encode())),
)
def test_no_body_makes_it_raise(status: int, body: bytes) -> None:
    error = classify(status, {}, body, NOW)
    assert isinstance(error, ModelError)
    str(error).encode()


@given(st.integers(1, 10**6))
def test_a_go_duration_reads_back(ms: int) -> None:
    minutes, rest = divmod(ms, 60_000)
    text = (f"{minutes}m" if minutes else "") + f"{rest / 1000:.3f}s"
    assert retry_after({"retry-after": text}, b"", NOW) == pytest.approx(ms / 1000)
