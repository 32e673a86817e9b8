"""The usual transport: pyreqwest, whose sockets are not Python's, so that a call costs a tenth of httpx's CPU.

What it cannot be told is left to httpx (`transport.py`): proxies, and certificates of one's own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import (
    BuilderError,
    ConnectError,
    DecodeError,
    PyreqwestError,
    RequestTimeoutError,
)

from runner.errors import CellStopped, ModelError, Transient
from runner.models.transport import (
    CONNECT_TIMEOUT,
    KEEP_ALIVE,
    MAX_BODY,
    Response,
    Transport,
    httpx_transport,
    no_reply_begun,
    proxy_for,
    shown,
)

OWN_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that name authorities to trust."""


def usual_transport(
    url: str, *, connect_timeout: float = CONNECT_TIMEOUT, first_byte: float | None = None
) -> Transport:
    """What calls to an address go through. Raises JobError for a proxy setting that cannot be used."""
    certified = url.startswith("https:") and any(os.environ.get(name) for name in OWN_CERTIFICATES)
    if certified or proxy_for(url)[1]:
        return httpx_transport(url, connect_timeout=connect_timeout, first_byte=first_byte)
    return NativeTransport(connect_timeout, first_byte)


class NativeTransport:
    """Direct connections, as many as there are calls at once, kept for a few seconds after their last call."""

    def __init__(self, connect_timeout: float = CONNECT_TIMEOUT, first_byte: float | None = None) -> None:
        self._first_byte = first_byte
        self._client: Any = (
            ClientBuilder()
            .no_proxy()
            .follow_redirects(False)
            .referer(False)
            .gzip(True)
            .deflate(True)
            .connect_timeout(timedelta(seconds=connect_timeout))
            .pool_idle_timeout(timedelta(seconds=KEEP_ALIVE))
            .build()
        )

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        try:
            request = self._client.post(url).headers(headers).body_bytes(body)
            if self._first_byte is not None:
                request.streamed_read_buffer_limit(0)  # else it comes back with the beginning of the body
            request = request.timeout(timedelta(seconds=timeout)).build_streamed()
            async with _begun(request, url, self._first_byte) as response:
                whole = await response.body_reader.read(MAX_BODY)
                if whole is not None and len(whole) >= MAX_BODY:
                    raise Transient(
                        f"{shown(url)}: the body is longer than {MAX_BODY >> 20} MiB", billed=True
                    )
                return Response(response.status, _named(response.headers), bytes(whole or b""))
        except asyncio.CancelledError:
            # pyreqwest raises one of its own, and a cancel scope takes only those that bear its words
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        except ValueError as error:  # a header that is none (BuilderError is one, too)
            raise _unwritable(url, error) from None
        except PyreqwestError as error:
            raise _failure(url, error, timeout) from error

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def _begun_in(request: Any, url: str, seconds: float) -> AsyncIterator[Any]:
    """The response, whose headers must come in time."""
    async with AsyncExitStack() as stack:
        try:
            with anyio.fail_after(seconds):
                try:
                    response = await stack.enter_async_context(request)
                except asyncio.CancelledError:  # as in `send`
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    raise
        except TimeoutError as error:
            if isinstance(error, PyreqwestError):  # another deadline of its own
                raise
            raise no_reply_begun(url, seconds) from None
        yield response


def _begun(request: Any, url: str, seconds: float | None) -> Any:
    return request if seconds is None else _begun_in(request, url, seconds)


def _named(headers: Any) -> dict[str, str]:
    """Headers by name; of several with one name, all of them, as httpx has it."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _unwritable(url: str, error: Exception) -> CellStopped:
    """Of a request that cannot be sent at all. The error's own text is never shown: it quotes headers, and with them
    the key."""
    if isinstance(error, BuilderError):
        return CellStopped(f"{shown(url)}: base_url must begin with http:// or https://")
    return CellStopped(
        f"{shown(url)}: the request cannot be written as HTTP; look for odd characters in `headers` or key"
    )


def _failure(url: str, error: PyreqwestError, timeout: float) -> ModelError:
    """What a failure below HTTP means."""
    where = shown(url)
    causes = [str(cause["message"]) for cause in (getattr(error, "details", None) or {}).get("causes") or ()]
    what = next((cause for cause in reversed(causes) if "for url" not in cause), type(error).__name__)
    if any("certificate" in cause.lower() for cause in causes):
        return CellStopped(
            f"{where}: its certificate is not trusted ({what}); "
            "set SSL_CERT_FILE to the right authority's certificate and resume"
        )
    never_left = any("(Connect)" in cause for cause in causes)
    if isinstance(error, RequestTimeoutError) and never_left:
        return Transient(f"{where}: no connection in time; is the server up?")
    if isinstance(error, ConnectError) and never_left:
        return Transient(f"{where}: no connection ({what})")
    if isinstance(error, RequestTimeoutError):
        return Transient(f"{where}: no whole reply within {timeout:g} s", billed=True)
    if isinstance(error, DecodeError) and "end of file" not in what and "connection" not in what:
        return Transient(f"{where}: the reply could not be unpacked ({what})", billed=True)
    return Transient(f"{where}: the connection broke before the whole reply came ({what})", billed=True)
