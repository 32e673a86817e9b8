"""What a line of results is for its call: a reply, or the failure that it would be by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson

from runner.batch.api import Result, error_body
from runner.batch.log import Batch, BatchLog
from runner.batch.openai import words_of
from runner.errors import ModelError, Transient
from runner.models.base import Call, Reply
from runner.models.http import HttpModel
from runner.models.transport import Response

Outcome: TypeAlias = Reply | ModelError


def outcome(model: HttpModel, log: BatchLog, batch: Batch, result: Result, call: Call) -> Outcome:
    """What a result of the batch is for its call. A parameter that is refused in it is left out from now on."""
    entry = batch.entries[result.key]
    if result.kind:
        return Transient(f"{model.where}: {words_of(result.kind)}")
    try:
        if result.status != 200:
            failed = Response(result.status, {}, error_body(result.body))
            model.read(failed, _body(log.line_of(batch, result.key)))
        if not isinstance(result.body, Mapping):
            raise Transient(f"{model.where}: a result without a body", status=result.status)
        reply = model.reply(result.body, call, batch.sents[entry.sent])
    except ModelError as error:
        return error
    return dataclasses.replace(reply, batch=batch.id or batch.nonce)


def _body(line: bytes) -> dict[str, Any]:
    """What was sent, as a refused parameter is looked for in it."""
    try:
        row = orjson.loads(line or b"{}")
    except ValueError:
        return {}
    found = row.get("body", row.get("params"))
    return found if isinstance(found, dict) else {}
