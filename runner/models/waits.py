"""How long a provider asks to wait: one total function over every form in which they say so."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST = 366 * 86400.0
"""Seconds. No wait is longer, whatever a header says."""

_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_ADVICE = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+|[0-9.]+(?= ?s))", re.I
)


def retry_after(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """Seconds that a reply asks to wait, or None. Never raises, never negative.

    Looked at in turn: `retry-after-ms`; `retry-after` (seconds or a date); RetryInfo or "try again in 5.289s"
    in the body; the reset header of a dimension of which nothing remains, or that is "rejected". Dates are read
    against the reply's own `Date`, so that clocks may differ. A negative limit means "unknown" (openai-dotnet#838).
    """
    low = lowered(headers)
    clock = clock_of(low, now)
    ms = finite(low.get("retry-after-ms", ""))
    if ms is not None:
        return min(ms / 1000, LONGEST)
    for found in (
        moment(low.get("retry-after", ""), clock),
        _advised(body),
        max((s for s in _exhausted(low, clock) if s is not None), default=None),
    ):
        if found is not None:
            return found
    return None


def clock_of(low: Mapping[str, str], now: float) -> float:
    """The server's time, by its `Date` header (names in lower case), else `now`."""
    date = _date(low.get("date", ""))
    return now if date is None else date


def _exhausted(low: Mapping[str, str], clock: float) -> Iterator[float | None]:
    """The reset times of the dimensions that are used up; 0 means "unknown" there."""
    for name, value in low.items():
        if "remaining" not in name:
            continue
        remaining, limit = (
            finite(value, signed=True),
            finite(low.get(name.replace("remaining", "limit"), ""), signed=True),
        )
        if remaining is None or remaining > 0 or (limit is not None and limit <= 0):
            continue
        reset = low.get(name.replace("remaining", "reset"), "")
        if not reset and "bysize" in name:
            reset = low.get("ratelimitbysize-reset", "")
        yield moment(reset, clock) or None
    for (
        name,
        value,
    ) in low.items():  # plans whose limits have no numbers (anthropic-ratelimit-unified-5h-status)
        if name.endswith("-status") and value.lower() in {"rejected", "exceeded"} and "ratelimit" in name:
            yield moment(low.get(name.removesuffix("status") + "reset", ""), clock) or None
    if not any("remaining" in name for name in low):
        for name in ("ratelimit-reset", "x-ratelimit-reset"):
            yield moment(low.get(name, ""), clock) or None


def _advised(body: bytes) -> float | None:
    """A wait that the error body names: google.rpc.RetryInfo, or words."""
    text = body[:20_000].decode("utf-8", "replace")
    info = re.search(r'"retryDelay"\s*:\s*"([^"]{1,40})"', text)
    if info and (seconds := _duration(info.group(1))) is not None:
        return seconds
    words = _ADVICE.search(text)
    return None if words is None else _duration(words.group(1))


def moment(text: str, clock: float) -> float | None:
    """Seconds from `clock` to what `text` says: a number of seconds, a duration, an epoch time (seconds or
    milliseconds), an HTTP date or an RFC 3339 one."""
    number = finite(text)
    if number is not None:
        if number > 1e9:
            return min(max((number / 1000 if number > 1e11 else number) - clock, 0.0), LONGEST)
        return min(number, LONGEST)
    seconds = _duration(text)
    if seconds is None and (at := _date(text)) is not None:
        seconds = max(at - clock, 0.0)
    return None if seconds is None or not math.isfinite(seconds) else min(seconds, LONGEST)


def finite(text: str, *, signed: bool = False) -> float | None:
    """A finite number, not negative unless `signed`."""
    if not re.fullmatch(r"[+-]?[0-9]{0,300}\.?[0-9]{0,300}(e[+-]?[0-9]{1,3})?", text, re.I | re.A):
        return None
    try:
        number = float(text)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and (signed or number >= 0) else None


def _duration(text: str) -> float | None:
    """Go's durations: 12ms, 7.66s, 1m30.951s, 10h17m5.72s. A bare number is seconds."""
    number = finite(text)
    if number is not None:
        return min(number, LONGEST)
    if not _DURATION.fullmatch(text):
        return None
    seconds = sum(float(value) * _UNIT[unit] for value, unit in _PART.findall(text))
    return min(seconds, LONGEST) if math.isfinite(seconds) else None


def _date(text: str) -> float | None:
    """Epoch seconds of an HTTP date or an RFC 3339 one, or None."""
    if not text:
        return None
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            at = parse(text)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError, AttributeError):
            continue
    return None


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with their names in lower case and their values stripped."""
    return {str(name).lower(): str(value).strip() for name, value in headers.items()}
