"""Anthropic's message batches: the requests go in one POST, the results come as lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from runner.batch.api import MB, Look, Result, counted, row_of
from runner.batch.log import Batch
from runner.models.http import HttpModel
from runner.models.wire import Prepared

STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status that each type of error has when it is the answer to a direct call."""
EARLIER = 300.0
"""Seconds by which the provider's clock may lag ours."""
MOST_PAGES = 200


class AnthropicBatches:
    """A batch has no field for a nonce: one whose submission was not confirmed is known by when it began and
    how many requests it has, and in the end by the custom_ids in its results."""

    most_requests = 100_000
    most_bytes = 256 * MB
    names = False

    def __init__(self, model: HttpModel) -> None:
        from runner.batch.desk import Desk  # httpx takes 0.1 s of CPU

        self.desk = Desk(model)

    async def close(self) -> None:
        await self.desk.close()

    def line(self, key: str, asked: Prepared) -> bytes:
        return orjson.dumps({"custom_id": key, "params": asked.body}, option=orjson.OPT_APPEND_NEWLINE)

    async def upload(self, batch: Batch, file: Path) -> str | None:
        return None

    async def submit(self, batch: Batch, file: Path) -> Look:
        length = len(_HEAD) + file.stat().st_size - 1 + len(_TAIL)  # a comma for each newline but the last
        made = await self.desk.ask(
            "POST",
            "/messages/batches",
            content=_content(file),
            headers={"content-type": "application/json", "content-length": str(length)},
        )
        return look_of(made)

    async def find(self, batch: Batch) -> list[Look]:
        found: list[Look] = []
        after: str | None = None
        for _ in range(MOST_PAGES):
            page = await self.desk.ask(
                "GET", "/messages/batches", params={"limit": 100, **({"after_id": after} if after else {})}
            )
            looks = [look_of(raw) for raw in page.get("data") or [] if isinstance(raw, dict)]
            new = [look for look in looks if look.created is None or look.created >= batch.made - EARLIER]
            found += [
                look
                for look in new
                if look.counts["total"] == len(batch.entries) and look.id not in batch.strangers
            ]
            if not page.get("has_more") or not looks or not new:
                break
            after = str(page.get("last_id") or looks[-1].id)
        return found

    async def look(self, id: str) -> Look:
        return look_of(await self.desk.ask("GET", f"/messages/batches/{id}"))

    async def results(self, look: Look) -> AsyncIterator[Result | None]:
        if look.files:  # the address is our own: the key goes nowhere else, whatever the object says
            async for line in self.desk.lines(f"/messages/batches/{look.id}/results"):
                yield result_of(row_of(line))


_HEAD, _TAIL = b'{"requests":[', b"]}"


async def _content(file: Path) -> AsyncIterator[bytes]:
    """The file's lines as the one JSON that is posted, without holding all of it."""
    between = _HEAD
    with file.open("rb") as lines:
        for line in lines:
            yield between + line.rstrip(b"\n")
            between = b","
    yield _TAIL


def look_of(raw: Mapping[str, Any]) -> Look:
    """A message batch object. Its counts are zero, but for `processing`, until it has ended."""
    counts = raw.get("request_counts")
    status = str(raw.get("processing_status") or "")
    created: float | None = None
    if isinstance(said := raw.get("created_at"), str):
        try:
            created = datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp()
        except ValueError:
            pass
    return Look(
        id=str(raw["id"]),
        status=status,
        ended=status == "ended",
        counts={
            "total": counted(counts, "processing", "succeeded", "errored", "canceled", "expired"),
            "done": counted(counts, "succeeded"),
            "failed": counted(counts, "errored", "canceled", "expired"),
        },
        created=created,
        files=("results",) if raw.get("results_url") else (),
    )


def result_of(row: Mapping[str, Any] | None) -> Result | None:
    """A result line: succeeded, errored, canceled or expired. Only the first was billed."""
    key = None if row is None else row.get("custom_id")
    result = None if row is None else row.get("result")
    if not isinstance(key, str) or not isinstance(result, Mapping):
        return None
    kind = result.get("type")
    if kind == "succeeded":
        return Result(key, 200, result.get("message"))
    if kind == "errored":
        error = result.get("error")
        inner = error.get("error", error) if isinstance(error, Mapping) else error
        type_ = str(inner.get("type")) if isinstance(inner, Mapping) else ""
        return Result(key, STATUS.get(type_, 500), inner)
    return Result(key, 0, None, str(kind))
