"""A provider's HTTP API for what is no draw: files and batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

from runner.batch.api import PAUSE
from runner.models.http import HttpModel
from runner.models.lanes import failure
from runner.models.transport import CONNECT_TIMEOUT, Response, proxy_for


class Desk:
    """A model's HTTP calls that are no draws: a few an hour, so a plain client does."""

    def __init__(self, model: HttpModel) -> None:
        self.model = model
        proxy = proxy_for(model.url("/"))[1]
        timeout = httpx.Timeout(PAUSE, connect=CONNECT_TIMEOUT, pool=None)
        self._client = httpx.AsyncClient(proxy=proxy or None, trust_env=False, timeout=timeout)

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The JSON object with which the provider answers."""
        url = self.model.url(path)
        headers = {"accept": "application/json", **self.model.own_headers(), **more.pop("headers", {})}
        try:
            with anyio.fail_after(self.model.timeout):
                response = await self._client.request(method, url, headers=headers, **more)
        except (TimeoutError, httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise failure(url, error) from error
        return self.model.read(_response(response, response.content), {})

    @asynccontextmanager
    async def _opened(self, path: str) -> AsyncIterator[httpx.Response]:
        url = self.model.url(path)
        try:
            async with self._client.stream("GET", url, headers=self.model.own_headers()) as response:
                if response.status_code != 200:
                    self.model.read(_response(response, await response.aread()), {})
                yield response
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise failure(url, error) from error

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a file at the provider as they come, split at newlines alone."""
        async with self._opened(path) as response:
            rest = b""
            async for part in response.aiter_bytes():
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    if line.strip():
                        yield line
            if rest.strip():
                yield rest


def _response(response: httpx.Response, body: bytes) -> Response:
    return Response(response.status_code, dict(response.headers), body)
