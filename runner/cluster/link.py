"""A link between a coordinator and one worker: messages both ways, many to a frame.

A message is a list whose first item says what it is. What is posted within a moment goes as one frame, so that
thousands of calls a second take a few hundred frames. A frame carries its sender's clock: times within it are turned
into the receiver's, late by as long as the frame was on its way, and so never too early for a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import orjson

from runner.models.queue import Clock

PAUSE = 0.005
"""Seconds between two frames at least; the first after a pause goes at the end of the loop's turn."""
LARGEST = 1 << 28
"""Bytes of a frame that is believed; what says it is longer does not speak this language."""

Message: TypeAlias = list[Any]
Taken: TypeAlias = Callable[[list[Message], float], None]
"""Takes a frame's messages, and what turns their times into ours (to be added)."""


class Link:
    """One end. `taken` gets what comes, `lost` is called once when nothing comes any more."""

    def __init__(self) -> None:
        self.taken: Taken = lambda messages, late: None
        self.lost: Callable[[], None] = lambda: None
        self.clock = Clock()
        self.closed = False
        self._posted: list[Message] = []
        self._timer: asyncio.Handle | None = None
        self._flushed = 0.0

    def post(self, *message: Any) -> None:
        """Send a message, soon. What is posted to a link that is closed goes nowhere."""
        if self.closed:
            return
        self._posted.append(list(message))
        if self._timer is None:
            wait = self._flushed + PAUSE - self.clock()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait, self.flush) if wait > 0 else loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was posted now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._posted and not self.closed:
            posted, self._posted = self._posted, []
            self._flushed = self.clock()
            self._send([self._flushed, posted])

    def close(self) -> None:
        """Send what was posted, and nothing more."""
        self.flush()
        self.closed = True

    def _send(self, frame: list[Any]) -> None:
        raise NotImplementedError

    def _came(self, frame: list[Any]) -> None:
        sent, messages = frame
        self.taken(messages, self.clock() - sent)

    def _ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closed = True
        self.lost()


class SocketLink(Link, asyncio.Protocol):
    """Over TCP: four bytes of length, then JSON."""

    def __init__(self, connected: Callable[[SocketLink], None] = lambda link: None) -> None:
        super().__init__()
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at, size = 0, len(self._buffer)
        while size - at >= 4:
            length = int.from_bytes(self._buffer[at : at + 4], "big")
            if length > LARGEST:
                return self.abort()
            if size - at - 4 < length:
                break
            try:
                frame = orjson.loads(memoryview(self._buffer)[at + 4 : at + 4 + length])
            except orjson.JSONDecodeError:
                return self.abort()
            at += 4 + length
            self._came(frame)
        del self._buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()

    def _send(self, frame: list[Any]) -> None:
        if self._transport is not None:
            self._transport.write(framed(frame))

    def close(self) -> None:
        super().close()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once: who is there does not belong here."""
        if self._transport is not None:
            self._transport.abort()


def framed(frame: Any) -> bytes:
    """A frame as bytes."""
    data = orjson.dumps(frame)
    return len(data).to_bytes(4, "big") + data


class MemoryLink(Link):
    """One end of a link within a process, whose frames take `delay()` seconds: for simulations."""

    def __init__(self, delay: Callable[[], float]) -> None:
        super().__init__()
        self.other: MemoryLink
        self._delay = delay
        self._last = 0.0

    @classmethod
    def pair(cls, delay: Callable[[], float]) -> tuple[MemoryLink, MemoryLink]:
        """Two ends."""
        one, two = cls(delay), cls(delay)
        one.other, two.other = two, one
        return one, two

    def _send(self, frame: list[Any]) -> None:
        self._last = max(self._last, self.clock() + self._delay())  # frames do not overtake each other
        asyncio.get_running_loop().call_at(self._last, self._arrive, frame)

    def _arrive(self, frame: list[Any]) -> None:
        if not self.other.closed:
            self.other._came(frame)

    def cut(self) -> None:
        """Both ends hear nothing any more, and only the other one is told."""
        self.closed = True
        self.other._ended()
