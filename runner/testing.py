"""Helpers for tests, this project's and yours: a small OpenAI-compatible server that says what you tell it.

    async with FakeOpenAI(lambda body, k: "Answer: Warsaw") as server:
        model = OpenAI(model="fake", base_url=server.url)
        ...
    assert server.draws == 21

As a process of its own (for tests that kill a run): `python -m runner.testing --port 0 --log requests.jsonl`
prints its address, answers with `pure_answer` and logs each request before it answers it.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl

import orjson


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection: before a byte of the reply (`request`), after its headers, or amid its body."""

    at: Literal["request", "headers", "body"] = "request"
    content: bytes | None = None
    """The body of which half is sent; None: an answer's."""


@dataclass(frozen=True, slots=True)
class Drip:
    """Send a blank line every `every` seconds, `times` times and then the answer; None: for ever."""

    every: float = 0.01
    times: int | None = None
    then: Any = ""


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing until the client or the server closes."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer after `seconds`."""

    seconds: float
    then: Any = ""


Answer: TypeAlias = Any
"""A text (the same for each of the n choices), a list of texts (one a choice, as many as it has), a dict (the
whole body), a (status, headers, body) triple, or a fault: `Drop`, `Drip`, `Hang`, `Delay`."""
Script: TypeAlias = Callable[[dict[str, Any], int], Answer]
"""From a request's body and its number (0, 1, ... in order of arrival) to an answer; may be async."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it arrived."""

    k: int
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    """Its JSON; empty where it is none."""
    method: str = "POST"
    query: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""

    @property
    def n(self) -> int:
        """Draws asked for."""
        return int(self.body.get("n") or 1)

    @property
    def prompt(self) -> str:
        """The raw prompt, or the last message's text."""
        return prompt_of(self.body)


@dataclass
class FakeOpenAI:
    """A server on 127.0.0.1 for `/v1/chat/completions` and `/v1/completions`; an async context manager.

    `requests` holds every request in order of arrival, `draws` is how many choices were asked for in all,
    `peak` the most requests that were being answered at once. `on_request` sees each request first.
    """

    script: Script = field(default=lambda body, k: "ok")
    port: int = 0
    on_request: Callable[[Recorded], None] | None = None
    requests: list[Recorded] = field(default_factory=list)
    connections: int = 0
    active: int = 0
    peak: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """The base URL for a model: `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def draws(self) -> int:
        return sum(request.n for request in self.requests)

    async def __aenter__(self) -> FakeOpenAI:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await self._receive(reader)) is not None:
                self.active += 1
                self.peak = max(self.peak, self.active)
                try:
                    if not await self._respond(request, writer):
                        break
                finally:
                    self.active -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # gone, or closed by __aexit__: a handler's own cancellation ends here
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader) -> Recorded | None:
        """The next request on a kept-alive connection; None when the client has closed it."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        is_json = raw and "multipart" not in headers.get("content-type", "")
        body = orjson.loads(raw) if is_json else {}
        method, target, _ = first.split(" ", 2)
        path, _, query = target.partition("?")
        pairs = dict(parse_qsl(query))
        request = Recorded(len(self.requests), path, headers, body, method, pairs, raw)
        self.requests.append(request)
        if self.on_request is not None:
            self.on_request(request)
        return request

    def answer(self, request: Recorded) -> Answer:
        """What a request is answered with: what the script says."""
        return self.script(request.body, request.k)

    async def _respond(self, request: Recorded, writer: asyncio.StreamWriter) -> bool:
        """Answers; False if the connection is to be closed."""
        answer = self.answer(request)
        while True:
            if inspect.isawaitable(answer):
                answer = await answer
            elif isinstance(answer, Delay):
                await asyncio.sleep(answer.seconds)
                answer = answer.then
            else:
                break
        if isinstance(answer, Hang):
            await asyncio.Event().wait()
        if isinstance(answer, Drip):
            await self._drip(answer, request, writer)
            return True
        status, headers, body = rendered({} if isinstance(answer, Drop) else answer, request)
        if isinstance(answer, Drop) and answer.content is not None:
            body = answer.content
        head = _head(
            status, {"content-type": "application/json", "content-length": str(len(body)), **headers}
        )
        if isinstance(answer, Drop):
            sent = {"request": b"", "headers": head, "body": head + body[: len(body) // 2]}[answer.at]
            writer.write(sent)
            await writer.drain()
            return False
        writer.write(head + body)
        await writer.drain()
        return True

    async def _drip(self, drip: Drip, request: Recorded, writer: asyncio.StreamWriter) -> None:
        status, headers, body = rendered(drip.then, request)
        writer.write(_head(status, {"transfer-encoding": "chunked", **headers}))
        count = 0
        while drip.times is None or count < drip.times:
            writer.write(b"1\r\n\n\r\n")
            await writer.drain()
            await asyncio.sleep(drip.every)
            count += 1
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        await writer.drain()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def rendered(answer: Answer, request: Recorded) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of an answer that is no fault."""
    if isinstance(answer, tuple):
        return answer
    if not isinstance(answer, dict):
        texts = [answer] * request.n if isinstance(answer, str) else list(answer)
        answer = completion(texts, request.body, chat=request.path.endswith("/chat/completions"), k=request.k)
    return 200, {}, orjson.dumps(answer)


def completion(texts: Sequence[str], body: Mapping[str, Any], *, chat: bool, k: int = 0) -> dict[str, Any]:
    """A reply's JSON with `texts` as its choices; a word is a token. Stops are left to the client."""
    prompt, generated = len(prompt_of(body, whole=True).split()), sum(len(text.split()) for text in texts)
    return {
        "id": f"fake-{k}",
        "object": "chat.completion" if chat else "text_completion",
        "model": body.get("model", ""),
        "choices": [
            {"index": i, "finish_reason": "stop"}
            | ({"message": {"role": "assistant", "content": text}} if chat else {"text": text})
            for i, text in enumerate(texts)
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
        },
    }


def prompt_of(body: Mapping[str, Any], *, whole: bool = False) -> str:
    """The raw prompt of a request's body; of messages the last one's text, or all of them."""
    if "prompt" in body:
        return str(body["prompt"])
    texts = [str(message.get("content", "")) for message in body.get("messages", [])]
    return "\n\n".join(texts) if whole else texts[-1] if texts else ""


def pure_answer(body: dict[str, Any], k: int) -> list[str]:
    """n texts that depend only on prompt, seed and choice index: a run that is killed and resumed must end
    with the same. A prompt that ends in "Thought i:" or "Action i:" gets a step of ReAct (a search, then from
    step 3 on an answer); any other gets a sentence of reasoning and an answer."""
    prompt = prompt_of(body, whole=True)
    texts = []
    for i in range(int(body.get("n") or 1)):
        what = f"{prompt}\0{body.get('seed')}\0{i}"
        number = int.from_bytes(hashlib.sha256(what.encode()).digest()[:4], "big")
        step = re.search(r"(Thought|Action) (\d+):\s*$", prompt)
        if step is None:
            texts.append(f" Thinking of {number}.\nAnswer: {number % 5}")
            continue
        at = int(step.group(2))
        action = f"Search[Topic {number % 7}]" if at < 3 else f"Finish[{number % 5}]"
        if step.group(1) == "Thought":
            action = f"Thought {number}.\nAction {at}: {action}"
        texts.append(f" {action}\nObservation {at}: made up")
    return texts


def main(argv: Sequence[str] | None = None) -> None:
    """Serve `pure_answer` until killed."""
    words = argparse.ArgumentParser(prog="python -m runner.testing", description=main.__doc__)
    words.add_argument("--port", type=int, default=0)
    words.add_argument("--log", help="file that gets one JSON line a request, written before the answer")
    words.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    given = words.parse_args(argv)
    log = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if given.log else None

    def note(request: Recorded) -> None:
        if log is not None:
            seen = {
                "k": request.k,
                "path": request.path,
                "n": request.n,
                "seed": request.body.get("seed"),
                "prompt": hashlib.sha256(prompt_of(request.body, whole=True).encode()).hexdigest()[:16],
            }
            os.write(log, orjson.dumps(seen) + b"\n")

    def script(body: dict[str, Any], k: int) -> Answer:
        answer = pure_answer(body, k)
        return Delay(given.delay, answer) if given.delay else answer

    async def serve() -> None:
        async with FakeOpenAI(script, port=given.port, on_request=note) as server:
            sys.stdout.write(server.url + "\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    run: Coroutine[Any, Any, None] = serve()
    try:
        asyncio.run(run)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
