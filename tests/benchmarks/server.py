"""A server that costs little, for benchmarks: `python -m tests.benchmarks.server --latency SECONDS`.

Answers every POST as an OpenAI-compatible service, after a fixed time, with texts of a fixed length: prompts that
end in `Thought k:` get a search for k < 8 and a finish then; requests with tools get seven calls of the first
tool and then one of `submit`, or a text where there is no such tool. Prints its address, and at the end of its
standard input what it saw, as JSON: requests, most in flight, connections (all that were made, and most open at
once), its own CPU seconds. One process, no checks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS = 8
FILLER = "It follows from what is known, and so on, and so forth, and there is more to be said of it. "
_STEP = re.compile(rb"^Thought (\d+):\s*\\?\"")
_N = re.compile(rb'"n":(\d+)')
_TURN = re.compile(rb'"role": ?"tool"')
_TOOL = re.compile(rb'"name": ?"(\w+)"')


@dataclass(slots=True)
class Serving:
    """A server that runs. `seen`, what it saw, is there when it has ended."""

    address: str
    seen: dict[str, Any] = field(default_factory=dict)


@contextmanager
def serving(latency: float) -> Iterator[Serving]:
    """A benchmark server in a process of its own; `latency` in seconds."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.server", "--latency", str(latency)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert server.stdin is not None and server.stdout is not None
    with server.stdout:
        it = Serving(server.stdout.readline().strip())
        try:
            yield it
        finally:
            server.stdin.close()
            it.seen.update(json.loads(server.stdout.readline()))
            server.wait(10)


def answer(body: bytes, chat: bool) -> bytes:
    if chat and (at := body.find(b'"tools":')) >= 0:
        return with_tools(body, _TOOL.findall(body, at))
    found = _STEP.search(body[max(body.rfind(b"Thought "), 0) :][:40])
    n = int(match[1]) if (match := _N.search(body)) else 1
    if found is None:
        text = f" {FILLER}{FILLER}\nAnswer: 42"
    elif int(found[1]) < STEPS:
        text = f" {FILLER}\nAction {int(found[1])}: Search[Mirna Falls]"
    else:
        text = f" {FILLER}\nAction {int(found[1])}: Finish[42]"
    one = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion" if chat else "text_completion",
            "created": 0,
            "model": "mock",
            "choices": [{"index": k, "finish_reason": "stop", **one} for k in range(n)],
            "usage": usage(body, n),
        }
    ).encode()


def with_tools(body: bytes, tools: list[bytes]) -> bytes:
    turn, message = len(_TURN.findall(body)), {"role": "assistant", "content": FILLER}
    last = turn >= STEPS - 1
    if not last or b"submit" in tools:
        name, words = ("submit", {"answer": "42"}) if last else (tools[0].decode(), {"query": "Mirna Falls"})
        asked = {"name": name, "arguments": json.dumps(words)}
        message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": asked}]
    else:
        message["content"] += "\nAnswer: 42"
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "mock",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                    "message": message,
                }
            ],
            "usage": usage(body, 1),
        }
    ).encode()


def usage(body: bytes, n: int) -> dict[str, int]:
    prompt = len(body) // 4
    return {"prompt_tokens": prompt, "completion_tokens": 40 * n, "total_tokens": prompt + 40 * n}


class Connection(asyncio.Protocol):
    latency = 0.0
    seen = 0
    flying = 0
    most_flying = 0
    made = 0
    open = 0
    most_open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.have = bytearray()
        Connection.made += 1
        Connection.open += 1
        Connection.most_open = max(Connection.most_open, Connection.open)

    def connection_lost(self, error: Exception | None) -> None:
        Connection.open -= 1

    def data_received(self, data: bytes) -> None:
        self.have += data
        head = self.have.find(b"\r\n\r\n")
        if head < 0:
            return
        low = bytes(self.have[:head]).lower()
        at = low.find(b"content-length:")
        end = low.find(b"\r\n", at)
        length = int(low[at + 15 : end if end > 0 else None]) if at >= 0 else 0
        if len(self.have) < head + 4 + length:
            return
        body = bytes(self.have[head + 4 : head + 4 + length])
        del self.have[: head + 4 + length]
        Connection.seen += 1
        Connection.flying += 1
        Connection.most_flying = max(Connection.most_flying, Connection.flying)
        reply = answer(body, b"/chat/" in low[:80])
        whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            len(reply),
            reply,
        )
        asyncio.get_running_loop().call_later(self.latency, self._send, whole)

    def _send(self, whole: bytes) -> None:
        Connection.flying -= 1
        if not self.transport.is_closing():
            self.transport.write(whole)


async def serve(latency: float) -> None:
    Connection.latency = latency
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    seen = {
        "requests": Connection.seen,
        "most_in_flight": Connection.most_flying,
        "connections": Connection.made,
        "most_open": Connection.most_open,
        "cpu": round(time.process_time(), 2),
    }
    sys.stdout.write(json.dumps(seen) + "\n")


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.server")
    words.add_argument("--latency", type=float, default=0.2, help="seconds")
    latency = words.parse_args().latency
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(latency))
    else:
        uvloop.run(serve(latency))


if __name__ == "__main__":
    main()
