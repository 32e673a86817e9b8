"""For tests of one's own: a small MediaWiki API on a local port (`MediaWikiServer`)."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from envs.wikipedia import fold


@dataclass(frozen=True, slots=True)
class Redirect:
    """A page that is only another name of the page `to`."""

    to: str


@dataclass(frozen=True, slots=True)
class Disambiguation:
    """A page that offers other pages, by title."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked: the query's parameters, and the headers with names in small letters."""

    parameters: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False


class MediaWikiServer:
    """A wiki of the given pages behind `url`, over real sockets of 127.0.0.1; an async context manager.

    `pages` maps titles to a text (paragraphs and `== headings ==` on lines of their own), a `Redirect` or a
    `Disambiguation`; it may be changed at any time. `requests` records what was asked. `delay` is how many
    seconds each answer takes. What `fail_...` queues is answered before anything else, one a request.

        async with MediaWikiServer({"Warsaw": "Warsaw is a city."}) as wiki:
            source = MediaWikiSource(wiki.url)
    """

    def __init__(
        self, pages: Mapping[str, str | Redirect | Disambiguation] | None = None, *, delay: float = 0.0
    ) -> None:
        self.pages = dict(pages or {})
        self.requests: list[Request] = []
        self.delay = delay
        self._failures: deque[_Reply] = deque()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """The address of the API. Known once the server is entered."""
        if self._server is None:
            raise RuntimeError("the server is not running; use `async with MediaWikiServer(...) as wiki:`")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/w/api.php"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._open.values():
                writer.close()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    # -- failures --------------------------------------------------------------------------------------

    def fail_status(self, status: int, *, retry_after: str | None = None, times: int = 1) -> None:
        """The next `times` requests get this HTTP status, e.g. 429, with a Retry-After header if given."""
        headers = (("Retry-After", retry_after),) if retry_after is not None else ()
        self._failures.extend([_Reply(status, b"later", headers)] * times)

    def fail_maxlag(self, *, retry_after: str = "5", status: int = 200, times: int = 1) -> None:
        """The next `times` requests are refused because the wiki's databases lag."""
        body = {"error": {"code": "maxlag", "info": "Waiting for a database: 9 seconds lagged.", "lag": 9}}
        reply = _Reply(status, json.dumps(body).encode(), (("Retry-After", retry_after),))
        self._failures.extend([reply] * times)

    def fail_error(self, code: str, info: str = "", *, times: int = 1) -> None:
        """The next `times` requests get this error of the API."""
        reply = _Reply(200, json.dumps({"error": {"code": code, "info": info}}).encode())
        self._failures.extend([reply] * times)

    def fail_garbage(self, body: bytes = b"<html>oops", *, times: int = 1) -> None:
        """The next `times` requests get this body with status 200."""
        self._failures.extend([_Reply(200, body)] * times)

    def fail_cut(self, *, times: int = 1) -> None:
        """The next `times` connections break before the body is complete."""
        self._failures.extend([_Reply(200, b'{"query": {', cut=True)] * times)

    # -- HTTP ------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            self._open.pop(task, None)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        sent = urlsplit(first.split(" ")[1]).query or body.decode()
        parameters = dict(parse_qsl(sent, keep_blank_values=True))
        self.requests.append(Request(parameters, headers))
        if self.delay:
            await asyncio.sleep(self.delay)
        reply = self._failures.popleft() if self._failures else self._answer(parameters)
        length = len(reply.body) + (100 if reply.cut else 0)
        fields = [("Content-Type", "application/json"), ("Content-Length", str(length)), *reply.headers]
        lines = [f"HTTP/1.1 {reply.status} -", *(f"{name}: {value}" for name, value in fields)]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + reply.body)
        await writer.drain()
        return not reply.cut

    # -- the API ---------------------------------------------------------------------------------------

    def _answer(self, parameters: Mapping[str, str]) -> _Reply:
        query: dict[str, Any] = {}
        if "titles" in parameters:
            query |= self._titles(parameters)
        if parameters.get("list") == "search":
            query["search"] = self._search(parameters)
        return _Reply(200, json.dumps({"batchcomplete": True, "query": query}).encode())

    def _titles(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        title = parameters["titles"].replace("_", " ").strip()
        if not title or re.search(r"[#<>\[\]{}|]", title):
            return {"pages": [{"title": title, "invalidreason": "bad characters", "invalid": True}]}
        title = title[:1].upper() + title[1:]  # titles of a wiki begin with a capital letter
        redirects = []
        while isinstance(page := self.pages.get(title), Redirect) and "redirects" in parameters:
            redirects.append({"from": title, "to": page.to})
            title = page.to
        answer: dict[str, Any] = {"redirects": redirects} if redirects else {}
        if page is None:
            return answer | {"pages": [{"ns": 0, "title": title, "missing": True}]}
        shown: dict[str, Any] = {"pageid": 1 + list(self.pages).index(title), "ns": 0, "title": title}
        wanted = parameters.get("prop", "").split("|")
        if "extracts" in wanted:
            shown["extract"] = self._text(title)
        if "pageprops" in wanted and isinstance(page, Disambiguation):
            shown["pageprops"] = {"disambiguation": ""}
        if "links" in wanted and isinstance(page, Disambiguation):
            shown["links"] = [{"ns": 0, "title": option} for option in sorted(page.options)]
        return answer | {"pages": [shown]}

    def _text(self, title: str) -> str:
        page = self.pages[title]
        if isinstance(page, Disambiguation):
            return "\n".join(
                [f"{title} may refer to:", "", "", *(f"{option}, a page" for option in page.options)]
            )
        return page if isinstance(page, str) else ""

    def _search(self, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        wanted = set(re.findall(r"\w+", fold(parameters.get("srsearch", ""))))
        hits: dict[str, tuple[int, dict[str, Any]]] = {}
        for title, page in self.pages.items():
            to = page.to if isinstance(page, Redirect) else title
            words = set(re.findall(r"\w+", fold(title)))
            score = 10 * len(wanted & words) - len(words - wanted)
            if not isinstance(page, Redirect):
                score += 2 * len(wanted & set(re.findall(r"\w+", fold(self._text(title)))))
            if fold(title) == fold(parameters.get("srsearch", "")):
                score += 100
            if wanted & words or (score > 0 and to == title):
                hit: dict[str, Any] = {"ns": 0, "title": to}
                if to != title:
                    hit["redirecttitle"] = title
                if to not in hits or hits[to][0] < score:
                    hits[to] = (score, hit)
        ranked = sorted(hits.values(), key=lambda scored: -scored[0])
        return [hit for _, hit in ranked[: int(parameters.get("srlimit", "10"))]]
