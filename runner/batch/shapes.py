"""The file shapes of those who eat batches of requests: OpenAI's, vLLM's, Mistral's, Gemini's, Anthropic's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import orjson

from runner.batch import anthropic, openai
from runner.batch.api import Result, row_of
from runner.errors import CellStopped, JobError
from runner.models.bodies import count, status_within
from runner.models.http import HttpModel
from runner.models.wire import Prepared

Shape: TypeAlias = Literal["openai", "vllm", "mistral", "gemini", "anthropic"]


def shape_for(model: HttpModel, wanted: str | None) -> Shape:
    """The shape in which a model's requests are written. Raises JobError where they have none such."""
    able: tuple[Shape, ...] = (
        ("anthropic",) if model.batches == "anthropic" else ("openai", "vllm", "mistral", "gemini")
    )
    for shape in able:
        if wanted in (None, shape):
            return shape
    raise JobError(
        f"requests of provider {model.provider!r} have the shape {' or '.join(able)}, not {wanted}"
    )


def line_in(shape: Shape, key: str, asked: Prepared) -> bytes:
    """A request as a line of the shape."""
    return _LINES[shape](key, asked)


def _mistral(key: str, asked: Prepared) -> bytes:
    return orjson.dumps({"custom_id": key, "body": asked.body}, option=orjson.OPT_APPEND_NEWLINE)


def _anthropic(key: str, asked: Prepared) -> bytes:
    return orjson.dumps({"custom_id": key, "params": asked.body}, option=orjson.OPT_APPEND_NEWLINE)


_GENERATION = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "stop": "stopSequences",
    "seed": "seed",
    "n": "candidateCount",
    "logprobs": "responseLogprobs",
}


def _gemini(key: str, asked: Prepared) -> bytes:
    """A GenerateContentRequest with the same messages and parameters."""
    if "messages" not in asked.body:
        raise CellStopped("Gemini has no raw completions; set api = 'chat' in the job")
    system, contents = [], []
    for message in asked.body["messages"]:
        part = {"text": message["content"]}
        if message["role"] == "system":
            system.append(part)
        else:
            contents.append({"role": "model" if message["role"] == "assistant" else "user", "parts": [part]})
    request: dict[str, Any] = {
        "contents": contents,
        "generationConfig": {
            name: asked.body[field] for field, name in _GENERATION.items() if field in asked.body
        },
    }
    if system:
        request["systemInstruction"] = {"parts": system}
    return orjson.dumps({"key": key, "request": request}, option=orjson.OPT_APPEND_NEWLINE)


_LINES: Mapping[Shape, Callable[[str, Prepared], bytes]] = {
    "openai": openai.openai_line,
    "vllm": openai.openai_line,
    "mistral": _mistral,
    "gemini": _gemini,
    "anthropic": _anthropic,
}


def result_in(line: bytes) -> Result | None:
    """What a line of results says, of whatever shape; None if it is none of them."""
    row = row_of(line)
    if row is None:
        return None
    if "key" in row:
        return _gemini_result(row)
    if "result" in row:
        return anthropic.result_of(row)
    return openai.result_of(row)


def _gemini_result(row: Mapping[str, Any]) -> Result | None:
    """Gemini's line: `response`, or a status or error object. Its body becomes what the same reply would be in
    OpenAI's words, which is what the model that asked reads."""
    key, response = row["key"], row.get("response")
    if not isinstance(key, str) or not {"response", "error", "status"} & row.keys():
        return None
    error = row.get("error") or row.get("status")
    if not isinstance(response, Mapping):
        return Result(key, status_within(error) if error else 500, error)
    usage = response.get("usageMetadata") or {}
    choices = []
    for k, candidate in enumerate(response.get("candidates") or []):
        parts = (candidate.get("content") or {}).get("parts") or []
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        thoughts = "".join(part.get("text", "") for part in parts if part.get("thought"))
        message = {"role": "assistant", "content": text, "reasoning_content": thoughts or None}
        finish = str(candidate.get("finishReason", "")).lower()
        choices.append({"index": k, "message": message, "finish_reason": finish})
    if not choices and (blocked := (response.get("promptFeedback") or {}).get("blockReason")):
        return Result(key, 400, {"code": "content_filter", "message": f"blocked: {blocked}"})
    thinking = count(usage.get("thoughtsTokenCount"))
    body = {
        "id": response.get("responseId"),
        "choices": choices,
        "usage": {
            "prompt_tokens": count(usage.get("promptTokenCount")),
            "completion_tokens": count(usage.get("candidatesTokenCount")) + thinking,
            "prompt_tokens_details": {"cached_tokens": count(usage.get("cachedContentTokenCount"))},
            "completion_tokens_details": {"reasoning_tokens": thinking},
        },
    }
    return Result(key, 200, body)
