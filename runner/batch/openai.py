"""OpenAI's batches: a file of requests, a batch of the file, a file of replies and one of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from runner.batch.api import MB, Look, Result, counted, row_of
from runner.batch.log import Batch
from runner.models.bodies import status_within
from runner.models.http import HttpModel
from runner.models.wire import Prepared

NONCE = "overnight"
"""The batch's metadata field with our nonce."""
ENDED = {"completed", "failed", "expired", "cancelled", "canceled"}
FULL = {"token_limit_exceeded", "request_limit_exceeded", "enqueued_token_limit_exceeded"}
"""Codes of a batch that failed because too much of ours is queued."""
AGAIN = {"batch_expired", "batch_cancelled", "request_timeout"}
"""Codes of requests that were never answered."""
EARLIER = 86400.0
"""Seconds by which the provider's clock may lag ours: a day, as the nonce tells without doubt."""
MOST_PAGES = 200


class OpenAIBatches:
    """At OpenAI and those who copied it (Groq, Together, Fireworks, ...)."""

    most_requests = 50_000
    most_bytes = 200 * MB
    names = True

    def __init__(self, model: HttpModel) -> None:
        from runner.batch.desk import Desk  # httpx takes 0.1 s of CPU

        self.desk = Desk(model)

    async def close(self) -> None:
        await self.desk.close()

    def line(self, key: str, asked: Prepared) -> bytes:
        return openai_line(key, asked)

    async def upload(self, batch: Batch, file: Path) -> str | None:
        with file.open("rb") as content:
            made = await self.desk.ask(
                "POST",
                "/files",
                data={"purpose": "batch"},
                files={"file": (file.name, content, "application/jsonl")},
            )
        return str(made["id"])

    async def submit(self, batch: Batch, file: Path) -> Look:
        made = await self.desk.ask(
            "POST",
            "/batches",
            json={
                "input_file_id": batch.file,
                "endpoint": f"/v1{batch.path}",
                "completion_window": "24h",
                "metadata": {NONCE: batch.nonce},
            },
        )
        return look_of(made)

    async def find(self, batch: Batch) -> list[Look]:
        """The batch with our nonce, or of our file: one at most, in any page."""
        after: str | None = None
        for _ in range(MOST_PAGES):
            page = await self.desk.ask(
                "GET", "/batches", params={"limit": 100, **({"after": after} if after else {})}
            )
            looks = [look_of(raw) for raw in page.get("data") or [] if isinstance(raw, dict)]
            for look in looks:
                ours = look.nonce == batch.nonce or (batch.file and look.input_file == batch.file)
                if ours and look.id not in batch.strangers:
                    return [look]
            older = [look.created for look in looks if look.created is not None]
            if not page.get("has_more") or not looks or (older and max(older) < batch.made - EARLIER):
                break
            after = looks[-1].id
        return []

    async def look(self, id: str) -> Look:
        return look_of(await self.desk.ask("GET", f"/batches/{id}"))

    async def results(self, look: Look) -> AsyncIterator[Result | None]:
        for file in look.files:
            async for line in self.desk.lines(f"/files/{file}/content"):
                yield result_of(row_of(line))


def openai_line(key: str, asked: Prepared) -> bytes:
    """OpenAI's request line, which vLLM's run-batch and many others read as well."""
    row = {"custom_id": key, "method": "POST", "url": f"/v1{asked.path}", "body": asked.body}
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def look_of(raw: Mapping[str, Any]) -> Look:
    """A batch object. Files that are null or "" are none (an all-failed batch has no output, a clean one no
    errors)."""
    status = str(raw.get("status") or "").lower()
    errors = raw.get("errors")
    data = errors.get("data") if isinstance(errors, Mapping) else None
    faults = [fault for fault in data or [] if isinstance(fault, Mapping)]
    metadata = raw.get("metadata")
    counts = raw.get("request_counts")
    created = raw.get("created_at")
    return Look(
        id=str(raw["id"]),
        status=status,
        ended=status in ENDED,
        counts={
            "total": counted(counts, "total"),
            "done": counted(counts, "completed"),
            "failed": counted(counts, "failed"),
        },
        created=float(created) if isinstance(created, int | float) else None,
        nonce=metadata.get(NONCE) if isinstance(metadata, Mapping) else None,
        input_file=raw.get("input_file_id"),
        files=tuple(
            file
            for name in ("output_file_id", "error_file_id")
            if isinstance(file := raw.get(name), str) and file
        ),
        fault=_fault(faults) if status == "failed" else None,
        full=any(fault.get("code") in FULL for fault in faults),
    )


def _fault(faults: list[Mapping[str, Any]]) -> str:
    if not faults:
        return "no reason was given"
    first = faults[0]
    line = f"line {first['line']}: " if first.get("line") is not None else ""
    code = f" ({first['code']})" if first.get("code") else ""
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{line}{first.get('message') or 'no message'}{code}{more}"


def result_of(row: Mapping[str, Any] | None) -> Result | None:
    """A result line of OpenAI, vLLM or Mistral. A rejected request has `error: null` and a status of 4xx in its
    `response`; a failed one of vLLM has both; one that was never answered has an `error` and no response."""
    key = None if row is None else row.get("custom_id")
    if row is None or not isinstance(key, str):
        return None
    if not {"response", "error"} & row.keys():
        return None  # a request's line, say
    response, error = row.get("response"), row.get("error")
    status = response.get("status_code") if isinstance(response, Mapping) else None
    body = response.get("body") if isinstance(response, Mapping) else None
    if isinstance(body, str) and (inner := row_of(body.encode())) is not None:
        body = inner
    if isinstance(error, Mapping) and str(error.get("code")) in AGAIN:
        return Result(key, 0, error, str(error["code"]))
    if isinstance(status, int) and status != 200:
        return Result(key, status, body or error)
    if error:
        return Result(key, status_within(error), error)
    if not isinstance(body, Mapping):
        return Result(key, 0, None, "no body")
    return Result(key, 200, body)


def words_of(kind: str) -> str:
    """What an ending without an answer is called in a message."""
    word = kind.removeprefix("batch_")
    return {
        "expired": "the batch expired before it was answered",
        "cancelled": "the batch was cancelled before it was answered",
        "canceled": "the batch was cancelled before it was answered",
        "request_timeout": "the provider gave it up",
    }.get(word, "the results do not have it")
