"""What a provider's failure means: one total function, `classify`.

The kinds and the words that tell them apart come from the providers' own pages and from public reports of
failures that were retried for a night, or given up at once, wrongly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
from runner.models.waits import lowered, retry_after

PARKED = 3600.0
"""Seconds. A limit that asks for a longer wait is a daily quota: stop and resume rather than sit it out."""
LEFT_OUT = " It is left out."
"""What is done about a refused parameter."""
SHOWN = 300
"""Characters of a provider's own words that a message quotes."""

_CHECK = "Check `model` and `base_url` in the job, then resume."
_TRANSIENT = {408, 409, 425, 429}
_MAYBE_BILLED = {408, 504, 524}
"""The model may have worked on the request when the gateway gave up."""

_NO_CREDIT = re.compile(
    r"insufficient_quota|enforced_spend_limit|credit balance is too low|billing_not_active|billing_hard_limit"
    r"|insufficient[ _](balance|credits?|funds)|spend(ing)?[ _]limit|payment[ _]required|out of credits"
    r"|specified API usage limits",
    re.I,
)
_PLAN = re.compile(r"exceeded your current quota", re.I)
"""OpenAI's words for no credit; Gemini's for any limit, but Gemini adds how long to wait."""
_DAILY = re.compile(r"\bper[ -]?day\b|per_?day|\b[RT]PD\b|\bdaily\b|\bper[ -]month\b|\bmonthly\b", re.I)
"""Quotas that are renewed in a day or a month: in neither case while a run waits."""
_DAILY_QUOTA_ID = re.compile(r"PerDay")
_NO_QUOTA = re.compile(r"\blimit: 0\b(?!\.)")
_CONTEXT = re.compile(
    r"context_length|exceed_context_size|context[ _](length|size|window)|prompt is too long"
    r"|too many (input )?tokens"
    r"|maximum (context|prompt|input) length|input (is )?too long|please reduce the length"
    r"|exceeds? the (maximum|available) (number of )?(input )?(tokens|context)",
    re.I,
)
_FILTER = re.compile(
    r"content[ _]?filter|content[ _](management )?policy|responsibleaipolicy|moderation|flagged|safety system"
    r"|invalid_prompt|output blocked|usage polic(y|ies)",
    re.I,
)
_KEY = re.compile(
    r"(invalid|incorrect)[ _]api[ _]key|api key not valid|authentication|unauthori[sz]ed"
    r"|location is not supported",
    re.I,
)
_MODEL = re.compile(
    r"model_not_found|invalid_model|model [`'\"]?[^ ]+ (does not exist|not found|is not found)"
    r"|(unknown|invalid|no such) model|not a valid model|model .{0,80}(deprecated|decommissioned|retired)",
    re.I,
)
_NO_PROVIDER = re.compile(r"no endpoints? found.{0,60}parameters", re.I)
_TOO_LARGE = re.compile(r"request too large", re.I)
_PREFILL = re.compile(r"prefill|conversation must end with a user message|must end with a user", re.I)
_REFUSED = re.compile(
    r"unsupported|not support|n't support|deprecated|unrecognized|unknown|unexpected|extra (inputs|fields)"
    r"|not permitted|not allowed|only the default|not enabled|cannot find field|instead|not available"
    r"|cannot both|not compatible|no longer",
    re.I,
)
_PARAMETERS = (
    "max_completion_tokens", "max_tokens", "temperature", "top_p", "top_logprobs", "logprobs",
    "stop_sequences", "stop", "seed", "random_seed", "n",
)  # fmt: skip
_SAME = {"top_logprobs": "logprobs", "stop_sequences": "stop", "random_seed": "seed"}
_CONTENT = {"messages", "prompt", "input", "system", "model", "body", ""}
"""What no request can do without."""
_SHAPING = {"max_completion_tokens", "max_tokens", "temperature", "top_p"}
"""Parameters whose *value* the job must mend: dropping them would run another experiment."""


@dataclass(frozen=True, slots=True)
class Said:
    """What an error body says: the sentence for people, all codes and types in it, the parameter named."""

    message: str = ""
    codes: str = ""
    parameter: str | None = None

    @property
    def all(self) -> str:
        return f"{self.codes} {self.message}"


def classify(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    *,
    where: str = "the model",
    secret: str = "",
    daily: str = "",
    asked: Collection[str] = (),
) -> ModelError:
    """The error that a reply with `status` stands for.

    `now` is the time in epoch seconds; `where` names model and endpoint for the message; `secret` never
    appears in it. `daily` is the service's own pattern of a daily quota's words. `asked` are the fields of the
    request, of which one may be what is refused.
    """
    said = read(body)
    wait = retry_after(headers, body, now)

    def text(what: str, then: str) -> str:
        quoted = said.message.replace(secret, "[key]") if secret else said.message
        quoted = quoted if len(quoted) <= SHOWN else quoted[: SHOWN - 3] + "..."
        return f"{where}: {what} (HTTP {status}{': ' + quoted if quoted else ''}). {then}".rstrip()

    def stopped(what: str, then: str) -> CellStopped:
        return CellStopped(text(what, then), status=status)

    if status == 402 and (wait is not None or "in_flight" in said.codes):
        return Transient(text("no room in the budget just now", ""), retry_after=wait, status=status)
    if status == 402 or (status < 500 and _NO_CREDIT.search(said.all)):
        return stopped(
            "no credit left, or a spending limit reached", "Add credit or raise the limit, then resume."
        )
    if status == 429:
        return _too_many(said, wait, text, daily)
    if _CONTEXT.search(said.all):
        return ContextOverflow(text("the prompt does not fit the model's context", ""), status=status)
    if status in {400, 403, 422, 451} and _FILTER.search(said.all):
        return Filtered(text("the provider's filter refused the prompt", ""), status=status)
    if status in {401, 403} or (status == 400 and _KEY.search(said.all)):
        return stopped("the key was refused", "Check the key and what it may do, then resume.")
    if status == 404 and _NO_PROVIDER.search(said.message):
        return stopped(
            "no provider behind it takes all that is asked for",
            "Name another model, or let it drop what a provider does not take (`supports = {body = []}`), then resume.",
        )
    if status in {404, 410}:
        return stopped("no such model or address", _CHECK)
    if 300 <= status < 400:
        to = lowered(headers).get("location", "elsewhere")
        return stopped(f"the endpoint has moved to {to.split('?', 1)[0]}", "Correct `base_url`, then resume.")
    if status in {405, 501}:
        return stopped("the endpoint cannot do this", "Check `base_url` and `api` in the job, then resume.")
    if status in {400, 422}:
        return _bad_request(status, headers, said, wait, text, asked)
    if status in _TRANSIENT or status >= 500 or status < 400:
        return Transient(
            text("the server failed", ""), retry_after=wait, billed=status in _MAYBE_BILLED, status=status
        )
    return EpisodeFailed(text("the request was refused", ""), status=status)


def _too_many(said: Said, wait: float | None, text: Callable[[str, str], str], daily: str = "") -> ModelError:
    """429 is three things: wait a little, wait for hours, or never."""
    if _NO_QUOTA.search(said.message):
        message = text(
            "this account has no quota for this model", "Choose another model or plan, then resume."
        )
        return CellStopped(message, status=429)
    if _PLAN.search(said.message) and wait is None and not _DAILY_QUOTA_ID.search(said.codes):
        message = text("no quota left", "Check plan and billing with the provider, then resume.")
        return CellStopped(message, status=429)
    if _TOO_LARGE.search(said.message):
        return EpisodeFailed(text("one request is larger than the limit for a minute", ""), status=429)
    long = wait is not None and wait > PARKED
    if (
        long
        or _DAILY_QUOTA_ID.search(said.codes)
        or (wait is None and (_DAILY.search(said.all) or (daily and re.search(daily, said.all, re.I))))
    ):
        when = f"in {wait / 3600:.1f} h" if long and wait is not None else "when it is renewed"
        return DailyQuota(text("a daily quota is used up", f"Resume {when}."), retry_after=wait, status=429)
    return Transient(text("too many requests", ""), retry_after=wait, status=429)


def _bad_request(
    status: int,
    headers: Mapping[str, str],
    said: Said,
    wait: float | None,
    text: Callable[[str, str], str],
    asked: Collection[str] = (),
) -> ModelError:
    """400 and 422: a parameter that can be left out, a value the job must mend, or a bad request."""
    if _PREFILL.search(said.message):
        return Unsupported(text("the model continues no assistant turn", ""), "prefill", status=status)
    named = _named(said) or _asked(said, asked)
    if named is not None:
        if named not in _SHAPING or _REFUSED.search(said.all):
            return Unsupported(text(f"the model refuses `{named}`", LEFT_OUT.strip()), named, status=status)
        message = text(f"the value of `{named}` is out of range", "Correct it in the job, then resume.")
        return CellStopped(message, status=status)
    if _MODEL.search(said.all):
        return CellStopped(text("no such model", _CHECK), status=status)
    if lowered(headers).get("x-should-retry", "").lower() == "true":
        return Transient(text("the server asks to try again", ""), retry_after=wait, status=status)
    return EpisodeFailed(text("the request was refused", ""), status=status)


def _named(said: Said) -> str | None:
    """The request parameter that an error names: in its own field, or quoted in its text."""
    if said.parameter is not None:
        name = re.split(r"[.\[]", said.parameter, maxsplit=1)[0]
        if name in _PARAMETERS:
            return _SAME.get(name, name)
        if name not in _CONTENT and _REFUSED.search(said.all):
            return name
        return None
    if "multiple candidates" in said.message.lower():
        return "n"
    quoted = {name for name in _PARAMETERS if re.search(rf"[`'\"]{name}[`'\"]", said.message)}
    quoted |= {
        name
        for name in _PARAMETERS
        if len(name) > 1
        and re.search(rf"^{name}: |\b{name}\b:?( \w+)? (is|are|must|does|should)\b", said.message)
    }
    if {"temperature", "top_p"} <= quoted and "both" in said.message:
        return "top_p"
    first = min(quoted, key=lambda name: said.message.find(name), default=None)
    return None if first is None else _SAME.get(first, first)


def _asked(said: Said, fields: Collection[str]) -> str | None:
    """The field of the request that a message quotes and refuses: one that a job's `extra_body` brought, or that
    nothing but "supplied: seed" names."""
    if said.parameter is not None or not _REFUSED.search(said.all):
        return None
    for name in sorted({*fields, *_PARAMETERS} - _CONTENT):
        if re.search(rf"[`'\"]{re.escape(name)}[`'\"]|supplied: {re.escape(name)}\b", said.message):
            return _SAME.get(name, name)
    return None


def read(body: bytes) -> Said:
    """What an error body says, in any of the shapes that are about: `{"error": {...}}`, `{"error": "..."}`,
    a list of these, `{"message": ...}`, FastAPI's `{"detail": [...]}`, a web page, plain text, nothing."""
    try:
        data = json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return Said(message=_plain(body))
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return Said(message=_plain(body))
    error = data.get("error")
    inner = error if isinstance(error, dict) else data
    message = error if isinstance(error, str) else _first(inner, "message", "detail", "msg")
    parameter = inner.get("param")
    detail = data.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        message = message or _first(detail[0], "msg")
        place = detail[0].get("loc")
        if isinstance(place, list) and place and isinstance(place[-1], str):
            parameter = parameter or place[-1]
    metadata = inner.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        message = f"{message} {metadata['raw']}"
    return Said(
        message=" ".join(_clean(message or _plain(body)).split()),
        codes=_clean(" ".join(_codes(inner))),
        parameter=_clean(parameter) if isinstance(parameter, str) and parameter else None,
    )


def _first(data: Mapping[str, Any], *names: str) -> str:
    return next((data[name] for name in names if isinstance(data.get(name), str) and data[name]), "")


def _codes(data: Any, depth: int = 0) -> Iterator[str]:
    """Every short machine word in an error object: types, codes, statuses, reasons, quota ids."""
    if depth > 6:
        return
    if isinstance(data, dict):
        for name, value in data.items():
            if isinstance(value, dict | list):
                yield from _codes(value, depth + 1)
            elif name in {
                "type",
                "code",
                "status",
                "reason",
                "error_code",
                "quotaId",
                "limit_source",
                "error_type",
            }:
                yield str(value)
    elif isinstance(data, list):
        for value in data:
            yield from _codes(value, depth + 1)


def _plain(body: bytes) -> str:
    """A body that is no JSON object, as one line: a web page's title, or its text."""
    text = body[:4000].decode("utf-8", "replace")
    title = re.search(r"<title[^>]*>(.*?)</title", text, re.I | re.S)
    return " ".join((title.group(1) if title else re.sub(r"<[^>]*>", " ", text)).split())[: 2 * SHOWN]


def _clean(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
