"""Servers that misbehave on purpose, for tests of this project and of yours: scripts for `FakeOpenAI`.

faults = Faults(pure_answer, share=0.2, seed=1)      # one answer in five is a fault, of every kind
async with FakeOpenAI(faults) as server: ...
assert faults.served["drop amid body"] > 0

limited = Limited(pure_answer, requests=100, window=5.0)    # 429 beyond 100 requests in any 5 s
async with FakeOpenAI(limited) as server: ...
assert limited.refused == 0 and limited.largest_requests >= 97
"""

from __future__ import annotations

import inspect
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, TypeAlias

import orjson

from runner.testing import Answer, Delay, Drip, Drop, Hang, Script, completion, prompt_of, pure_answer

Headers: TypeAlias = Mapping[str, str]
Make: TypeAlias = Callable[["Faults", dict[str, Any], Answer], Answer | None]
"""From the body of a request and its right answer to a faulty one; None where the request cannot have it."""


def error(status: int, message: str, code: Any = None, headers: Headers | None = None, **more: Any) -> Answer:
    """A failure as OpenAI words it."""
    body = {"error": {"message": message, "code": code, "type": code, **more}}
    return status, {"content-type": "application/json", **(headers or {})}, orjson.dumps(body)


def whole(answer: Answer, body: Mapping[str, Any], k: int = 0) -> dict[str, Any]:
    """A script's texts as a whole reply's JSON."""
    if isinstance(answer, dict):
        return answer
    texts = [answer] * int(body.get("n") or 1) if isinstance(answer, str) else list(answer)
    return completion(texts, body, chat="messages" in body, k=k)


def _waits(wait: float, now: float) -> dict[str, Answer]:
    """429 with each form in which services say how long to wait: `wait` seconds, or as near as the form can."""
    slow, ms = "Rate limit reached", max(round(wait * 1000), 1)

    def date(at: float) -> str:
        return format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True)

    def told(value: str) -> dict[str, str]:
        return {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": value}

    anthropic = datetime.fromtimestamp(now + wait, UTC).isoformat().replace("+00:00", "Z")
    retry_info = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"}]
    return {
        "nothing said": error(429, slow),
        "seconds": error(429, slow, headers={"Retry-After": str(round(wait))}),
        "a fraction": error(429, slow, headers={"retry-after": f"{wait:.3f}"}),
        "milliseconds": error(429, slow, headers={"retry-after-ms": f"{ms}.0", "retry-after": "99999"}),
        "a date": error(429, slow, headers={"Retry-After": date(now + wait), "Date": date(now)}),
        "a date gone by": error(429, slow, headers={"Retry-After": date(now - 3600)}),
        "nonsense": error(429, slow, headers={"retry-after": "soon"}),
        "less than nothing": error(429, slow, headers={"retry-after": "-1"}),
        "words": error(429, f"{slow}. Please try again in {ms}ms.", "rate_limit_exceeded"),
        "RetryInfo": error(429, "Resource exhausted", "RESOURCE_EXHAUSTED", details=retry_info),
        "a reset, in Go's way": error(429, slow, headers=told(f"{ms}ms")),
        "a reset, in seconds": error(429, slow, headers=told(f"{wait:g}")),
        "a reset, RFC 3339": error(
            429, slow, "rate_limit_error",
            {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": anthropic},
        ),
        "a reset, epoch seconds": error(429, slow, headers={"X-RateLimit-Reset": str(int(now + wait))}),
        "a reset, epoch milliseconds": error(
            429, slow, headers={"X-RateLimit-Reset": str(int((now + wait) * 1000))}
        ),
        "unknown limits": error(
            429, slow,
            headers={f"x-ratelimit-{what}-requests": v for what, v in
                     (("limit", "-1"), ("remaining", "-1"), ("reset", "0"))},
        ),
    }  # fmt: skip


WAITS = tuple(_waits(0, 0))
"""The ways of saying how long to wait."""


def _refusing(parameter: str) -> Make:
    def make(faults: Faults, body: dict[str, Any], answer: Answer) -> Answer | None:
        if parameter not in body or (parameter == "max_tokens" and "messages" not in body):
            return None  # raw completions have no other name for it
        return error(400, f"Unsupported parameter: '{parameter}' is not supported.", "unsupported_parameter",
                     param=parameter)  # fmt: skip

    return make


def _waiting(name: str) -> Make:
    return lambda faults, body, answer: _waits(faults.wait, time.time())[name]


def _always(answer: Answer) -> Make:
    return lambda faults, body, right: answer


def _page(status: int, title: str) -> Answer:
    return status, {"content-type": "text/html"}, f"<html><title>{title}</title></html>".encode()


def _changed(change: Callable[[dict[str, Any]], Any]) -> Make:
    """A fault made of the right answer's JSON."""

    def make(faults: Faults, body: dict[str, Any], answer: Answer) -> Answer:
        reply = whole(answer, body)
        return change(reply) or reply

    return make


def _bytes(change: Callable[[bytes], bytes], headers: Headers | None = None) -> Make:
    return lambda faults, body, answer: (200, headers or {}, change(orjson.dumps(whole(answer, body))))


PASSING: Mapping[str, Make] = {
    **{f"429, {name}": _waiting(name)
       for name in WAITS},
    **{f"{status}": _always(error(status, "The server had an error"))
       for status in (408, 409, 425, 500, 503)},
    **{f"{status}, a web page": _always(_page(status, "Bad gateway"))
       for status in (502, 504, 520, 521, 522, 523, 524)},
    "529, overloaded": _always(error(529, "Overloaded", "overloaded_error")),
    "402, in flight": _always(
        error(402, "Wait", metadata={"limit_source": "openrouter_in_flight_budget"},
              headers={"retry-after": "0"})
    ),
    "drop before an answer": _always(Drop("request")),
    "drop after the headers": _always(Drop("headers")),
    "drop amid body": _always(Drop("body")),
    "hang": _always(Hang()),
    "blank lines for ever": _always(Drip(0.05, None)),
    "200, error inside": _always({"error": {"code": 502, "message": "upstream failed"}}),
    "200, rate limit inside": _always({"error": {"type": "rate_limit_error", "message": "slow down"}}),
    "200, choices null": _changed(lambda reply: {**reply, "choices": None}),
    "200, no choices": _changed(lambda reply: {**reply, "choices": []}),
    "200, error in the choice": _changed(
        lambda reply: {**reply, "choices": [{"error": {"code": 502, "message": "x"}}]}
    ),
    "200, a web page": _always(_page(200, "Welcome")),
    "200, nothing": _always((200, {}, b"")),
    "200, JSON cut short": _bytes(lambda whole: whole[: len(whole) // 2]),
    "200, not the packing it says": _bytes(lambda whole: whole, {"content-encoding": "gzip"}),
    "200, an event stream's error": _always(
        (200, {"content-type": "text/event-stream"}, b'event: error\ndata: {"type":"overloaded_error"}\n\n')
    ),
}  # fmt: skip
"""Faults that a second try gets past. `hang` and `blank lines for ever` last until the client's time-out."""

HARMLESS: Mapping[str, Make] = {
    "blank lines, then the answer": lambda faults, body, answer: Drip(0.005, 4, whole(answer, body)),
    "no usage": _changed(lambda reply: reply.pop("usage", None) and None),
    "usage null": _changed(lambda reply: {**reply, "usage": None}),
    "usage of nothing": _changed(
        lambda reply: {**reply, "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    ),
    "byte order mark": _bytes(lambda whole: b"\xef\xbb\xbf" + whole),
    "NaN": _bytes(lambda whole: whole[:-1] + b',"score":NaN}'),
    "limits of -1": _bytes(
        lambda whole: whole,
        {"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1",
         "x-ratelimit-reset-requests": "0"},
    ),
    "slow": lambda faults, body, answer: Delay(faults.wait, answer),
}  # fmt: skip
"""Oddities around a right answer, which is to be used."""

ADAPTING: Mapping[str, Make] = {
    "refuses temperature": _refusing("temperature"),
    "refuses top_p": _refusing("top_p"),
    "refuses max_tokens": _refusing("max_tokens"),
    "refuses stop": _refusing("stop"),
}
"""Parameters that are refused, once for all; none that changes what `pure_answer` says."""

STOPPING: Mapping[str, Make] = {
    "insufficient_quota": _always(
        error(429, "You exceeded your current quota, please check your plan", "insufficient_quota")
    ),
    "spend limit": _always(
        error(429, "Spend limit", details={"error_code": "enforced_spend_limit_reached"})
    ),
    "no credit": _always(error(400, "Your credit balance is too low to access the API.")),
    "402": _always(error(402, "Insufficient Balance")),
    "daily quota": _always(error(429, "Rate limit reached on requests per day (RPD)")),
    "wrong key": _always(error(401, "Incorrect API key provided", "invalid_api_key")),
    "unknown model": _always(error(404, "The model `x` does not exist", "model_not_found")),
}  # fmt: skip
"""Failures that end a cell until a person acts; only served where `kinds` names them."""

FAULTS: Mapping[str, Make] = {**PASSING, **HARMLESS, **ADAPTING, **STOPPING}
"""Every fault by its name."""


@dataclass
class Faults:
    """A script that gives another one's answers, and in a share of the cases a fault instead.

    Which requests meet which fault depends on `seed` and the request's number alone; each kind is as likely
    as any other. `kinds`: those of `FAULTS` to serve; unset: all but what stops a cell. `wait`: how long the
    429s ask to wait, in seconds. `served` counts faults by kind, `answered` right answers (odd ones too).
    """

    script: Script = pure_answer
    share: float = 0.2
    seed: int = 0
    kinds: Collection[str] = tuple(FAULTS.keys() - STOPPING.keys())
    wait: float = 0.02
    served: Counter[str] = field(default_factory=Counter)
    answered: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.kinds) - FAULTS.keys()
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; known: {', '.join(FAULTS)}")
        self._kinds = sorted(self.kinds)

    def __call__(self, body: dict[str, Any], k: int) -> Answer:
        answer = self.script(body, k)
        if inspect.isawaitable(answer):
            return self._later(answer, body, k)
        return self._spoilt(answer, body, k)

    async def _later(self, answer: Awaitable[Answer], body: dict[str, Any], k: int) -> Answer:
        return self._spoilt(await answer, body, k)

    def _spoilt(self, answer: Answer, body: dict[str, Any], k: int) -> Answer:
        chance = random.Random(f"{self.seed}/{k}")
        if self._kinds and chance.random() < self.share:
            for kind in chance.sample(self._kinds, len(self._kinds)):
                faulty = FAULTS[kind](self, body, answer)
                if faulty is not None:
                    self.served[kind] += 1
                    self.answered += kind in HARMLESS
                    return faulty
        self.answered += 1
        return answer


@dataclass
class Limited:
    """A script that enforces limits over a sliding window and gives another one's answers below them.

    At most `requests` and `tokens` in any `window` seconds, counted as requests arrive; 429 beyond. Both may be
    changed at any time, None lifts one. A call's tokens are its prompt's and its answer's, or, with
    `reserves`, its prompt's and n x max_tokens (OpenAI). `headers`: tell the limits, scaled to a minute, in
    OpenAI's headers. `retry_after`: say with a 429 when there is room again. `counts_refused`: a refused
    request counts as one (OpenAI).
    """

    script: Script = pure_answer
    requests: float | None = None
    tokens: float | None = None
    window: float = 60.0
    headers: bool = False
    retry_after: bool = True
    reserves: bool = False
    counts_refused: bool = False
    clock: Callable[[], float] = time.monotonic
    answered: int = 0
    refused: int = 0
    answered_tokens: int = 0
    largest_requests: int = 0
    """The most requests that were answered of any window."""
    largest_tokens: int = 0
    arrivals: list[tuple[float, int, bool]] = field(default_factory=list)
    """Each request: when, its tokens, whether it was answered."""
    _counted: deque[tuple[float, int, int]] = field(default_factory=deque)
    _used: tuple[int, int] = (0, 0)
    """Requests and tokens of the window."""

    def __call__(self, body: dict[str, Any], k: int) -> Answer:
        answer = self.script(body, k)
        if inspect.isawaitable(answer):
            return self._later(answer, body, k)
        return self._judged(answer, body, k)

    async def _later(self, answer: Awaitable[Answer], body: dict[str, Any], k: int) -> Answer:
        return self._judged(await answer, body, k)

    def _judged(self, answer: Answer, body: dict[str, Any], k: int) -> Answer:
        seconds = 0.0
        while isinstance(answer, Delay):
            seconds, answer = seconds + answer.seconds, answer.then
        fine = isinstance(answer, str | list | dict)
        reply = whole(answer, body, k) if fine else {}
        now, tokens = self.clock(), self._tokens(body, reply)
        self._forget(now)
        used, used_tokens = self._used
        ok = (self.requests is None or used + 1 <= self.requests) and (
            self.tokens is None or used_tokens + tokens <= self.tokens or (not used_tokens and used == 0)
        )
        self.arrivals.append((now, tokens, ok))
        if not ok:
            self.refused += 1
            if self.counts_refused:
                self._count(now, 0)
            told = self._told(now, tokens)
            if self.retry_after:
                told["retry-after"] = f"{self._room_in(now, tokens):.3f}"
            return error(429, "Rate limit reached", "rate_limit_exceeded", told)
        self._count(now, tokens)
        self.answered += 1
        self.answered_tokens += tokens
        self.largest_requests = max(self.largest_requests, used + 1)
        self.largest_tokens = max(self.largest_tokens, used_tokens + tokens)
        if not fine:
            return answer
        triple = 200, self._told(now, 0), orjson.dumps(reply)
        return Delay(seconds, triple) if seconds else triple

    def _tokens(self, body: Mapping[str, Any], reply: Mapping[str, Any]) -> int:
        prompt = len(prompt_of(body, whole=True).split())
        if self.reserves:
            most = body.get("max_completion_tokens", body.get("max_tokens", 0))
            return prompt + int(most) * int(body.get("n") or 1)
        return int(reply.get("usage", {}).get("total_tokens", prompt))

    def _forget(self, now: float) -> None:
        while self._counted and self._counted[0][0] <= now - self.window:
            _, n, tokens = self._counted.popleft()
            self._used = (self._used[0] - n, self._used[1] - tokens)

    def _count(self, now: float, tokens: int) -> None:
        self._counted.append((now, 1, tokens))
        self._used = (self._used[0] + 1, self._used[1] + tokens)

    def _room_in(self, now: float, tokens: int) -> float:
        """Seconds until such a request would be answered, if none came between."""
        used, used_tokens = self._used
        for at, n, its in self._counted:
            used, used_tokens = used - n, used_tokens - its
            if (self.requests is None or used + 1 <= self.requests) and (
                self.tokens is None or used_tokens + tokens <= self.tokens
            ):
                return max(at + self.window - now, 0.0)
        return self.window

    def _told(self, now: float, tokens: int) -> dict[str, str]:
        if not self.headers:
            return {}
        told: dict[str, str] = {}
        used, used_tokens = self._used
        for name, limit, spent in (("requests", self.requests, used), ("tokens", self.tokens, used_tokens)):
            if limit is not None:
                minute = 60.0 / self.window
                told[f"x-ratelimit-limit-{name}"] = str(int(limit * minute))
                told[f"x-ratelimit-remaining-{name}"] = str(max(int((limit - spent) * minute), 0))
                first = self._counted[0][0] if self._counted else now - self.window
                told[f"x-ratelimit-reset-{name}"] = f"{max(first + self.window - now, 0.0):.3f}s"
        return told
