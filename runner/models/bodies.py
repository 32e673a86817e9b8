"""What bodies of requests and replies have in common at all services: read without ever raising."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

CHARS_PER_TOKEN = 4
"""For estimates where a server counts nothing (English text; OpenAI's rule of thumb)."""
CONTINUE = "Go on exactly from where this text ends, without repeating any of it:\n"
"""What asks for a continuation where a last assistant turn is refused (OpenAI; Claude 4.6 and later)."""


def in_words(messages: list[dict[str, Any]]) -> str:
    """Make of a last assistant message a user's, which asks for its continuation; returns its text, which the
    reply may repeat before it goes on."""
    prefix = str(messages.pop()["content"])
    ask = {"role": "user", "content": CONTINUE + prefix}
    if messages and messages[-1]["role"] == "user":
        ask["content"] = f"{messages.pop()['content']}\n\n{ask['content']}"
    messages.append(ask)
    return prefix


def without_prefix(text: str, prefix: str) -> str:
    """What follows `prefix` in a reply that repeats it; else the reply."""
    if prefix and text.lstrip().startswith(prefix.strip()):
        return text.lstrip().removeprefix(prefix.strip())
    return text


_STATUS_OF_WORD = (
    ("rate[ _]limit|quota", 429),
    ("overloaded", 529),
    ("authentication", 401),
    ("billing", 402),
    ("permission", 403),
    ("not_found", 404),
    ("invalid|content", 400),
)
MOST_COUNTED = 10**9
"""Tokens. What a server counts beyond that is no count."""


def status_within(error: Any) -> int:
    """The status that an error object inside a 200 stands for: its code, where that is one."""
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 0
    if 400 <= number < 600:
        return number
    kind = f"{code} {error.get('type', '')}" if isinstance(error, dict) else str(error)
    for words, status in _STATUS_OF_WORD:
        if re.search(words, kind, re.I):
            return status
    return 500


def error_within(data: dict[str, Any]) -> Any:
    """The error that a 200's object is about, in any of its places; None where there is none."""
    return data.get("error") or (data if data.get("object") == "error" else None)


def event_error(body: bytes) -> dict[str, Any] | None:
    """The object of an event stream's error, where a stream came although none was asked for."""
    for line in body.splitlines():
        data = load_json(line[5:]) if line.startswith(b"data:") else None
        if data is not None and error_within(data):
            return data
    return None


def load_json(body: bytes) -> dict[str, Any] | None:
    """A reply's JSON object, or None. Takes what orjson refuses and servers send: a byte order mark, NaN,
    lone surrogates (they become U+FFFD, as no JSON reader of the output would load them)."""
    try:
        data = orjson.loads(body)
    except ValueError:
        try:
            data = _mended(json.loads(body.decode("utf-8-sig", "replace")))
        except (ValueError, RecursionError):
            return None
    return data if isinstance(data, dict) else None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value


def count(data: Any, *path: str) -> int:
    """A whole number not below 0 at `path` in nested objects; 0 where there is none that can be true."""
    for name in path:
        if data is None:
            return 0
        data = data.get(name) if isinstance(data, dict) else None
    return int(data) if isinstance(data, int | float) and 0 <= data <= MOST_COUNTED else 0


def estimated(*texts: str) -> int:
    """About how many tokens the texts have, for servers that do not say."""
    return sum(-(-len(text) // CHARS_PER_TOKEN) for text in texts)
