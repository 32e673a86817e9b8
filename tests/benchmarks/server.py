"""A server that costs little, for benchmarks: `python -m tests.benchmarks.server --latency SECONDS`.

Answers every POST as an OpenAI-compatible service, after a fixed time, with texts of a fixed length: prompts that
end in `Thought k:` get a search for k < 8 and a finish then. Prints its address, and at the end of its standard
input what it saw, as JSON. One process, no checks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from typing import Any

STEPS = 8
FILLER = "It follows from what is known, and so on, and so forth, and there is more to be said of it. "
_STEP = re.compile(rb"^Thought (\d+):\s*\\?\"")
_N = re.compile(rb'"n":(\d+)')


def answer(body: bytes, chat: bool) -> bytes:
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
            "model": "mock",
            "choices": [{"index": k, "finish_reason": "stop", **one} for k in range(n)],
            "usage": {"prompt_tokens": len(body) // 4, "completion_tokens": 40 * n},
        }
    ).encode()


class Connection(asyncio.Protocol):
    latency = 0.0
    seen = 0
    open = 0
    most_open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.have = bytearray()
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
        length = int(low[at + 15 : low.find(b"\r\n", at) if low.find(b"\r\n", at) > 0 else None])
        if len(self.have) < head + 4 + length:
            return
        body = bytes(self.have[head + 4 : head + 4 + length])
        del self.have[: head + 4 + length]
        Connection.seen += 1
        reply = answer(body, b"/chat/" in low[:80])
        whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            len(reply),
            reply,
        )
        asyncio.get_running_loop().call_later(self.latency, self._send, whole)

    def _send(self, whole: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(whole)


async def serve(latency: float) -> None:
    Connection.latency = latency
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    sys.stdout.write(json.dumps({"requests": Connection.seen, "most_open": Connection.most_open}) + "\n")


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
