"""Calls over httpx.

Nothing waits in here for a free connection: how many calls run at once is the gate's business. httpx's own
pool is not used as a pool. When it queues, it loses slots for ever as queued calls are cancelled
(encode/httpcore#1093), and it looks at every connection for every call, which at 64 calls at once already
costs milliseconds each. Instead each call takes a `lane`, an httpx transport with a single connection: the
one that came back last (it is the warmest), or a new one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

import anyio
import httpx

from runner.errors import CellStopped, JobError, ModelError, Transient
from runner.models.transport import (
    CONNECT_TIMEOUT,
    KEEP_ALIVE,
    MAX_BODY,
    Response,
    no_reply_begun,
    proxy_for,
    shown,
)


class _Lanes:
    """Idle one-connection transports to one place (directly or by one proxy), and how to make more.

    A new one is made where none is idle, so that there are never more than calls were in flight at once. Those that
    nobody needed for KEEP_ALIVE hold a connection that is as good as closed: they are let go.
    """

    def __init__(self, proxy: str, keep: int | None) -> None:
        self._proxy = proxy
        self._keep = keep
        self._context = httpx.create_ssl_context()
        self._idle: deque[tuple[float, httpx.AsyncBaseTransport]] = deque()  # the longest unused first
        self._idle.append((time.monotonic(), self._new()))  # made now: a wrong proxy shows at once

    def _new(self) -> httpx.AsyncBaseTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE)
        return httpx.AsyncHTTPTransport(verify=self._context, limits=limits, proxy=self._proxy or None)

    def take(self) -> httpx.AsyncBaseTransport:
        return self._idle.pop()[1] if self._idle else self._new()

    async def give_back(self, lane: httpx.AsyncBaseTransport, *, good: bool) -> None:
        """Keep a lane whose call ended well; close any other, as nobody knows what is still in it."""
        now = time.monotonic()
        old = []
        if good and (self._keep is None or len(self._idle) < self._keep):
            self._idle.append((now, lane))
        else:
            old.append(lane)
        while self._idle and now - self._idle[0][0] > KEEP_ALIVE:
            old.append(self._idle.popleft()[1])
        with anyio.CancelScope(shield=True):
            for each in old:
                await each.aclose()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop()[1].aclose()


class _Given(_Lanes):
    """Lanes that are all the one transport that was given."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    def take(self) -> httpx.AsyncBaseTransport:
        return self._transport

    async def give_back(self, lane: httpx.AsyncBaseTransport, *, good: bool) -> None:
        pass

    async def close(self) -> None:
        await self._transport.aclose()


class HttpxTransport:
    """A transport over httpx: for proxies, for certificates of one's own, and for tests.

    `connections` is how many idle connections are kept at most; unset: as many as calls were in flight at once of
    late, which the gate bounds. `transport` takes the place of the connections (tests give `httpx.MockTransport`).
    Proxies come from HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, except for hosts in NO_PROXY and for this machine.
    """

    def __init__(
        self,
        connections: int | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        first_byte: float | None = None,
    ) -> None:
        self._keep = connections
        self._connect_timeout = connect_timeout
        self._first_byte = first_byte
        self._given = _Given(transport) if transport is not None else None
        self._lanes: dict[str, _Lanes] = {}
        self._routes: dict[str, tuple[httpx.URL, _Lanes]] = {}

    def route(self, url: str) -> tuple[httpx.URL, _Lanes]:
        """The parsed URL and the lanes that serve it. Raises `JobError` for a proxy setting that cannot be
        used, so that calling it early shows the mistake before the first request."""
        found = self._routes.get(url)
        if found is None:
            try:
                parsed = httpx.URL(url)
            except httpx.InvalidURL as error:
                raise JobError(f"base_url is not a URL: {shown(url)} ({error})") from None
            found = self._routes[url] = (parsed, self._given or self._lanes_for(url))
        return found

    def _lanes_for(self, url: str) -> _Lanes:
        name, proxy = proxy_for(url)
        if proxy not in self._lanes:
            try:
                if proxy and not urlsplit(proxy).hostname:
                    raise ValueError("no host in it")
                self._lanes[proxy] = _Lanes(proxy, self._keep)
            except ImportError:
                raise JobError(
                    f"the environment variable {name} asks for a SOCKS proxy, which needs one more package: "
                    f"pip install 'httpx[socks]' (or unset {name})"
                ) from None
            except (ValueError, httpx.InvalidURL) as error:
                raise JobError(
                    f"the environment variable {name} is no usable proxy address ({shown(str(error))}); "
                    f"write it like http://host:port, or unset {name}"
                ) from None
        return self._lanes[proxy]

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        target, lanes = self.route(url)
        request = httpx.Request(
            "POST",
            target,
            headers=headers,
            content=body,
            extensions={
                "timeout": {
                    "connect": min(self._connect_timeout, timeout),
                    "read": None,  # the deadline bounds reading as a whole: dripped bytes don't extend it
                    "write": None,
                    "pool": None,
                }
            },
        )
        lane = lanes.take()
        good = False
        try:
            with anyio.fail_after(timeout):
                with anyio.move_on_after(self._first_byte) as begins:
                    response = await lane.handle_async_request(request)
                if begins.cancelled_caught:
                    assert self._first_byte is not None
                    raise no_reply_begun(url, self._first_byte)
                try:
                    body = await _read(response)
                finally:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
            good = True
            return Response(response.status_code, dict(response.headers), body)
        except TimeoutError:
            raise Transient(f"{shown(url)}: no whole reply within {timeout:g} s", billed=True) from None
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise failure(url, error) from error
        finally:
            await lanes.give_back(lane, good=good)

    async def close(self) -> None:
        every = [*self._lanes.values(), *([self._given] if self._given else [])]
        self._lanes.clear()
        self._routes.clear()
        for lanes in every:
            await lanes.close()


async def _read(response: httpx.Response) -> bytes:
    """The whole body; given up when it grows past all reason."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY:
            raise httpx.ReadError(f"the body is longer than {MAX_BODY >> 20} MiB")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def failure(url: str, error: Exception) -> ModelError:
    """What a failure below HTTP means. The texts of `LocalProtocolError` are never shown: they quote headers,
    and with them the key."""
    where, what = shown(url), str(error) or type(error).__name__
    if isinstance(error, httpx.LocalProtocolError):
        return CellStopped(
            f"{where}: the request cannot be written as HTTP; look for odd characters in `headers` or key"
        )
    if isinstance(error, httpx.UnsupportedProtocol):
        return CellStopped(f"{where}: base_url must begin with http:// or https://")
    if isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in what:
        return CellStopped(
            f"{where}: its certificate is not trusted ({what}); "
            "set SSL_CERT_FILE to the right authority's certificate and resume"
        )
    if isinstance(error, httpx.ConnectTimeout):
        return Transient(f"{where}: no connection in time; is the server up?", unreached=True)
    if isinstance(error, httpx.ConnectError | httpx.PoolTimeout | httpx.ProxyError):
        return Transient(f"{where}: no connection ({what})", unreached=True)
    if isinstance(error, httpx.DecodingError):
        return Transient(f"{where}: the reply could not be unpacked ({what})", billed=True)
    return Transient(f"{where}: the connection broke before the whole reply came ({what})", billed=True)
