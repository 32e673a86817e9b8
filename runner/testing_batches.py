"""Helpers for tests, this project's and yours: batch servers that follow OpenAI's and Anthropic's documented
shapes, and do on purpose what those were reported to do by accident.

    async with FakeOpenAIBatches(lambda body, k: "Answer: Warsaw", traps=[{"expired", "shuffled"}]) as server:
        model = OpenAI(model="fake", base_url=server.url, mode="batch", batch=BatchSettings(shortest_pause=0.01))
        ...
    assert len(server.batches) == 2                      # the rest was submitted again
    assert server.answered == 21

They answer direct calls as well, from the same script. `traps[k]` is what befalls batch number k:

- `expired`, `cancelled`: every other request was answered, and the rest was not
- `all_failed`: each request failed with a 500; OpenAI's batch is `completed` with `output_file_id: null`
- `empty_error_id`: `error_file_id` is "" (OpenAI)
- `shuffled`: results come in another order than the requests
- `lines_lost`: every third result is in no file
- `download_502`: the first download of the results answers 502
- `download_cut`: the first download breaks off
- `download_short`: the first download ends in the middle of a line, as if that were all
- `poll_503`: every other look answers 503
- `invalid`: the batch fails its validation (OpenAI)
- `queue_full`: it fails as too many tokens are queued already (OpenAI)
- `answer_lost`: the submission is accepted, and the connection breaks before its answer

A script's answer that is a (status, headers, body) triple fails its request with that status.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import orjson

from runner.testing import Answer, Drop, FakeOpenAI, Recorded, completion, prompt_of

Trap: TypeAlias = Literal[
    "expired",
    "cancelled",
    "all_failed",
    "empty_error_id",
    "shuffled",
    "lines_lost",
    "download_502",
    "download_cut",
    "download_short",
    "poll_503",
    "invalid",
    "queue_full",
    "answer_lost",
]


@dataclass
class FakeBatch:
    """One batch as the server has it: its object in the API's words, and its requests by custom_id."""

    object: dict[str, Any]
    requests: dict[str, dict[str, Any]]
    traps: Collection[Trap] = ()
    looks: int = 0
    downloads: int = 0
    results: list[bytes] = field(default_factory=list)


@dataclass
class FakeBatches(FakeOpenAI):
    """What both servers share. A batch has ended when it was looked at `looks` times, and not by the time.

    `batches` are all that were submitted, in order; `answered` counts the requests in them that got an answer,
    `asked` how often each body was among them.
    """

    traps: Sequence[Iterable[Trap]] = ()
    looks: int = 2
    batches: list[FakeBatch] = field(default_factory=list)
    answered: int = 0
    asked: dict[bytes, int] = field(default_factory=dict)

    def add(self, object: dict[str, Any], requests: dict[str, dict[str, Any]]) -> FakeBatch:
        number = len(self.batches)
        traps = set(self.traps[number]) if number < len(self.traps) else set()
        batch = FakeBatch(object, requests, traps)
        self.batches.append(batch)
        return batch

    def batch(self, id: str) -> FakeBatch | None:
        return next((batch for batch in self.batches if batch.object["id"] == id), None)

    def outcomes(self, batch: FakeBatch) -> list[tuple[str, int, Any]]:
        """(custom_id, status, body) of each request, in the order of the results; status 0: not answered."""
        found: list[tuple[str, int, Any]] = []
        for k, (key, body) in enumerate(batch.requests.items()):
            if k % 3 == 2 and "lines_lost" in batch.traps:
                continue
            if k % 2 and {"expired", "cancelled"} & set(batch.traps):
                found.append((key, 0, None))
                continue
            if "all_failed" in batch.traps:
                found.append((key, 500, None))
                continue
            answer = self.script(body, self.answered)
            if isinstance(answer, tuple):
                found.append((key, answer[0], orjson.loads(answer[2])))
                continue
            self.answered += 1
            line = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
            self.asked[line] = self.asked.get(line, 0) + 1
            found.append((key, 200, self.reply(answer, body)))
        return found[::-1] if "shuffled" in batch.traps else found

    def reply(self, answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
        """A script's answer as a reply's body."""
        raise NotImplementedError

    def submitted(self, batch: FakeBatch) -> Answer:
        return Drop("headers") if "answer_lost" in batch.traps else batch.object

    def looked(self, batch: FakeBatch) -> Answer | None:
        """A fault, or None and the batch is one look older."""
        batch.looks += 1
        if batch.looks % 2 and "poll_503" in batch.traps:
            return _failed(503, "server_error", "try again")
        return None

    def downloaded(self, batch: FakeBatch, content: bytes) -> Answer:
        batch.downloads += 1
        if batch.downloads == 1 and "download_502" in batch.traps:
            return 502, {"content-type": "text/html"}, b"<html><title>502 Bad Gateway</title></html>"
        if batch.downloads == 1 and "download_cut" in batch.traps:
            return _Cut(content)
        if batch.downloads == 1 and "download_short" in batch.traps:
            content = content[: len(content) * 2 // 3]
        return 200, {"content-type": "application/octet-stream"}, content

    def answer(self, request: Recorded) -> Answer:
        try:
            answer = self.routed(request)
        except KeyError as error:
            return _failed(400, "invalid_request_error", f"missing required parameter: {error}")
        if isinstance(answer, _Cut):
            return Drop("body", answer.content)
        return answer

    def routed(self, request: Recorded) -> Answer:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Cut:
    content: bytes


@dataclass
class FakeOpenAIBatches(FakeBatches):
    """`/v1/files` and `/v1/batches`, beside what `FakeOpenAI` has. `files` holds what was uploaded and written."""

    files: dict[str, bytes] = field(default_factory=dict)

    def routed(self, request: Recorded) -> Answer:
        what = request.path.removeprefix("/v1/").split("/")
        match request.method, what:
            case "POST", ["files"]:
                return self._upload(request)
            case "GET", ["files", id, "content"]:
                return self._content(id)
            case "POST", ["batches"]:
                return self._create(request.body)
            case "GET", ["batches"]:
                return self._list(request.query)
            case "GET", ["batches", id]:
                found = self.batch(id)
                return _missing("batch", id) if found is None else self.looked(found) or self._aged(found)
            case "POST", ["batches", id, "cancel"]:
                found = self.batch(id)
                if found is None:
                    return _missing("batch", id)
                found.object["status"] = "cancelling"
                found.traps = {*found.traps, "cancelled"}
                return found.object
            case _:
                return self.script(request.body, request.k)

    def _upload(self, request: Recorded) -> Answer:
        boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
        fields: dict[str, bytes] = {}
        for part in request.raw.split(b"--" + boundary)[1:-1]:
            head, _, content = part.partition(b"\r\n\r\n")
            (name,) = re.findall(rb'[; ]name="([^"]*)"', head)
            fields[name.decode()] = content.removesuffix(b"\r\n")
        if fields.get("purpose") != b"batch":
            return _failed(400, "invalid_request_error", "'purpose' must be 'batch' here")
        id = f"file-{len(self.files)}"
        self.files[id] = fields["file"]
        return {
            "id": id,
            "object": "file",
            "bytes": len(fields["file"]),
            "created_at": int(time.time()),
            "filename": "requests.jsonl",
            "purpose": "batch",
        }

    def _create(self, body: Mapping[str, Any]) -> Answer:
        metadata = body.get("metadata") or {}
        if body["completion_window"] != "24h":
            return _failed(400, "invalid_request_error", "Invalid value for 'completion_window'")
        if len(metadata) > 16 or any(len(k) > 64 or len(str(v)) > 512 for k, v in metadata.items()):
            return _failed(400, "invalid_request_error", "Invalid 'metadata'")
        if body["input_file_id"] not in self.files:
            return _missing("file", body["input_file_id"])
        rows = [orjson.loads(line) for line in self.files[body["input_file_id"]].split(b"\n") if line]
        object = {
            "id": f"batch_{len(self.batches)}",
            "object": "batch",
            "endpoint": body["endpoint"],
            "errors": None,
            "input_file_id": body["input_file_id"],
            "completion_window": "24h",
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": int(time.time()),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": metadata or None,
        }
        batch = self.add(object, {row["custom_id"]: row["body"] for row in rows})
        fault = self._fault(batch, rows)
        if fault is not None:
            object["errors"] = {"object": "list", "data": [fault]}
        return self.submitted(batch)

    def _fault(self, batch: FakeBatch, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """What validation finds."""
        keys = [row["custom_id"] for row in rows]
        if "queue_full" in batch.traps:
            message = (
                "Enqueued token limit reached for fake in organization org. Limit: 90,000 enqueued tokens."
            )
            return {"code": "token_limit_exceeded", "line": None, "message": message, "param": None}
        if "invalid" in batch.traps:
            message = "The provided model 'fake' is not supported by the Batch API."
            return {"code": "model_not_found", "line": 1, "message": message, "param": "body.model"}
        if len(set(keys)) < len(keys):
            return {
                "code": "duplicate_custom_id",
                "line": None,
                "message": "duplicates",
                "param": "custom_id",
            }
        if len({row["body"].get("model") for row in rows}) > 1:
            return {"code": "mismatched_model", "line": None, "message": "one model a file", "param": None}
        for line, row in enumerate(rows, 1):
            if row["url"] != batch.object["endpoint"] or row["method"] != "POST":
                return {"code": "mismatched_endpoint", "line": line, "message": "another url", "param": "url"}
        return None

    def _aged(self, batch: FakeBatch) -> dict[str, Any]:
        object = batch.object
        total = len(batch.requests)
        if object["errors"] is not None:
            object["status"] = "failed"
        elif batch.looks < self.looks:
            object["status"] = "in_progress"
            object["request_counts"] = {"total": total, "completed": 0, "failed": 0}
        elif object["status"] in ("validating", "in_progress", "cancelling"):
            self._end(batch)
        return object

    def _end(self, batch: FakeBatch) -> None:
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        gave_up = "batch_cancelled" if "cancelled" in batch.traps else "batch_expired"
        for k, (key, status, body) in enumerate(self.outcomes(batch)):
            row: dict[str, Any] = {"id": f"batch_req_{k}", "custom_id": key, "response": None, "error": None}
            if status == 0:
                row["error"] = {"code": gave_up, "message": "This request could not be executed in time."}
            else:
                body = body or {"error": {"message": "internal", "type": "server_error", "code": None}}
                row["response"] = {"status_code": status, "request_id": f"req_{k}", "body": body}
            (good if status == 200 else bad).append(row)
        object = batch.object
        ended = {"cancelled", "expired"} & set(batch.traps)
        object["status"] = ended.pop() if ended else "completed"
        object["request_counts"] = {
            "total": len(batch.requests),
            "completed": len(good),
            "failed": len(batch.requests) - len(good),
        }
        for name, rows in (("output_file_id", good), ("error_file_id", bad)):
            if rows:
                object[name] = f"file-{name[:3]}-{object['id']}"
                self.files[object[name]] = b"".join(
                    orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows
                )
            elif name == "error_file_id" and "empty_error_id" in batch.traps:
                object[name] = ""

    def _content(self, id: str) -> Answer:
        if id not in self.files:
            return _missing("file", id)
        batch = next(
            (b for b in self.batches if id in (b.object["output_file_id"], b.object["error_file_id"])), None
        )
        content = self.files[id]
        return (200, {}, content) if batch is None else self.downloaded(batch, content)

    def _list(self, query: Mapping[str, str]) -> dict[str, Any]:
        newest = [batch.object for batch in reversed(self.batches)]
        return _page(newest, query.get("after"), int(query.get("limit", 20)), {"object": "list"})

    def reply(self, answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(answer, dict):
            return answer
        texts = [answer] * int(body.get("n") or 1) if isinstance(answer, str) else list(answer)
        return completion(texts, body, chat="messages" in body, k=self.answered)


@dataclass
class FakeAnthropicBatches(FakeBatches):
    """`/v1/messages/batches`, and `/v1/messages` for direct calls."""

    def routed(self, request: Recorded) -> Answer:
        what = request.path.removeprefix("/v1/").split("/")
        match request.method, what:
            case "POST", ["messages"]:
                answer = self.script(request.body, request.k)
                return answer if isinstance(answer, tuple) else self.reply(answer, request.body)
            case "POST", ["messages", "batches"]:
                return self._create(request.body)
            case "GET", ["messages", "batches"]:
                return self._list(request.query)
            case "GET", ["messages", "batches", id]:
                found = self.batch(id)
                return _missing("batch", id) if found is None else self.looked(found) or self._aged(found)
            case "GET", ["messages", "batches", id, "results"]:
                found = self.batch(id)
                if found is None or not found.object["results_url"]:
                    return _missing("batch", id)
                return self.downloaded(found, b"".join(found.results))
            case _:
                return _missing("path", request.path)

    def _create(self, body: Mapping[str, Any]) -> Answer:
        keys = [row["custom_id"] for row in body["requests"]]
        if not keys or len(set(keys)) < len(keys):
            return _failed(400, "invalid_request_error", "requests: custom_id must be unique")
        for k, key in enumerate(keys):
            if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", key) is None:
                return _failed(400, "invalid_request_error", f"requests.{k}.custom_id: String should match")
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        number = len(self.batches)
        object = {
            "id": f"msgbatch_{number}",
            "type": "message_batch",
            "processing_status": "in_progress",
            "request_counts": {
                "processing": len(keys), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0
            },
            "created_at": now,
            "expires_at": now,
            "ended_at": None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": None,
        }  # fmt: skip
        return self.submitted(self.add(object, {row["custom_id"]: row["params"] for row in body["requests"]}))

    def _aged(self, batch: FakeBatch) -> dict[str, Any]:
        object = batch.object
        if batch.looks >= self.looks and object["processing_status"] != "ended":
            counts = dict.fromkeys(object["request_counts"], 0)
            for key, status, body in self.outcomes(batch):
                result: dict[str, Any]
                if status == 0:
                    result = {"type": "canceled" if "cancelled" in batch.traps else "expired"}
                elif status == 200:
                    result = {"type": "succeeded", "message": body}
                else:
                    error = body or {"type": "error", "error": {"type": "api_error", "message": "internal"}}
                    result = {"type": "errored", "error": error}
                counts[result["type"]] += 1
                row = {"custom_id": key, "result": result}
                batch.results.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            object |= {
                "processing_status": "ended",
                "request_counts": counts,
                "ended_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
                "results_url": f"{self.url}/messages/batches/{object['id']}/results",
            }
        return object

    def _list(self, query: Mapping[str, str]) -> dict[str, Any]:
        newest = [batch.object for batch in reversed(self.batches)]
        return _page(newest, query.get("after_id"), int(query.get("limit", 20)), {})

    def reply(self, answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(answer, dict):
            return answer
        text = answer if isinstance(answer, str) else answer[0]
        return {
            "id": f"msg_{self.answered}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", ""),
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": len(prompt_of(body, whole=True).split()),
                "output_tokens": len(text.split()),
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }


def _page(
    newest: Sequence[dict[str, Any]], after: str | None, limit: int, more: Mapping[str, Any]
) -> dict[str, Any]:
    ids = [object["id"] for object in newest]
    at = ids.index(after) + 1 if after in ids else 0
    data = list(newest[at : at + limit])
    return {
        **more,
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": at + limit < len(newest),
    }


def _failed(status: int, kind: str, message: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message, "param": None, "code": None}}
    return status, {}, orjson.dumps(body)


def _missing(what: str, id: str) -> Answer:
    return _failed(404, "not_found_error", f"No {what} found with id '{id}'.")


def answers(requests: bytes, server: FakeBatches, *, shape: str = "openai") -> bytes:
    """The results of an exported file, as who eats that shape would write them: vLLM's or OpenAI's, Mistral's,
    Gemini's or Anthropic's lines, with what the server's script says."""
    lines = []
    for k, line in enumerate(requests.split(b"\n")):
        if not line.strip():
            continue
        row = orjson.loads(line)
        body = _gemini_body(row["request"]) if shape == "gemini" else row.get("body", row.get("params"))
        answer = server.script(body, k)
        status = answer[0] if isinstance(answer, tuple) else 200
        reply = orjson.loads(answer[2]) if isinstance(answer, tuple) else server.reply(answer, body)
        lines.append(orjson.dumps(_result(row, status, reply, shape, k), option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(lines)


def _gemini_body(request: Mapping[str, Any]) -> dict[str, Any]:
    """A GenerateContentRequest in the words of a script."""
    settings = request["generationConfig"]
    turns = [request["systemInstruction"]] if "systemInstruction" in request else []
    texts = [turn["parts"][0]["text"] for turn in [*turns, *request["contents"]]]
    return {
        "messages": [{"role": "user", "content": text} for text in texts],
        "seed": settings.get("seed"),
        "n": settings.get("candidateCount", 1),
    }


def _result(row: Mapping[str, Any], status: int, reply: Any, shape: str, k: int) -> dict[str, Any]:
    if shape == "anthropic":
        result = (
            {"type": "succeeded", "message": reply} if status == 200 else {"type": "errored", "error": reply}
        )
        return {"custom_id": row["custom_id"], "result": result}
    if shape == "gemini":
        if status != 200:
            return {"key": row["key"], "error": {"code": status, "message": reply["error"]["message"]}}
        usage = reply["usage"]
        candidates = [
            {
                "content": {"role": "model", "parts": [{"text": choice["message"]["content"]}]},
                "finishReason": "STOP",
            }
            for choice in reply["choices"]
        ]
        counts = {
            "promptTokenCount": usage["prompt_tokens"], "candidatesTokenCount": usage["completion_tokens"]
        }  # fmt: skip
        return {"key": row["key"], "response": {"candidates": candidates, "usageMetadata": counts}}
    failed = shape == "vllm" and status != 200
    response = {"status_code": status, "request_id": f"{shape}-{k}", "body": None if failed else reply}
    error = reply.get("error", reply) if failed else None
    return {"id": f"{shape}-{k}", "custom_id": row["custom_id"], "response": response, "error": error}
