"""Pages of a live wiki, over the MediaWiki Action API: `MediaWikiSource`.

What is asked: `action=query` with `prop=extracts|pageprops` (mediawiki.org/wiki/Extension:TextExtracts),
`prop=links` for what a disambiguation page offers, and `list=search` for similar titles. Manners are those of
mediawiki.org/wiki/API:Etiquette: a User-Agent that says whom to write to, `maxlag`, `Retry-After`, a pace.
Each answer is kept on disk, so that a title is asked for once.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import ipaddress
import math
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
from aiolimiter import AsyncLimiter

from envs.base import WorldError
from envs.wikipedia import SHOWN, WIKIPEDIA, Page, clean, fold

_TRIES = 5
_FIRST_WAIT = 1.0  # seconds; doubles from try to try where the server names no time
_LONGEST_WAIT = 120.0  # seconds; a server that asks for more is left alone, and resume asks again
_MAXLAG = 5  # seconds; the value that the API's etiquette page recommends
_DEADLINE = 60.0  # seconds for one request, body included
# No title holds these (https://www.mediawiki.org/wiki/Help:Bad_title); "#" would cut the title there.
_NOT_IN_TITLES = re.compile(r"[#<>\[\]{}|\x00-\x1f\x7f\ufffd]")
_LONGEST_TITLE = 255  # bytes
_LONGEST_QUERY = 300  # characters of a search (CirrusSearch's limit)
_HEADING = re.compile(r"^=+[^=].*=+$")


class _Busy(Exception):
    """The server asks to come later, or an answer was damaged on its way: `wait` in seconds if it said."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass
class _Flight:
    """Askers of one title: the first asks the wiki, the others wait and share what came, also its error."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    askers: int = 0
    error: str | None = None


class MediaWikiSource:
    """Pages of the wiki whose API is at `base_url`.

    `contact` (an address or web page, for the User-Agent) is needed by all but local servers. `pace` is the
    most requests a second. `transport` replaces the network, `sleep` the waiting (for tests).
    """

    version: str = "live"

    def __init__(
        self,
        base_url: str = WIKIPEDIA,
        *,
        contact: str = "",
        pace: float = 5.0,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.base_url = base_url
        self.contact = contact.strip()
        self._pace = pace
        self._transport = transport
        self._sleep = sleep
        self._client: httpx.AsyncClient | None = None
        self._limiter: AsyncLimiter | None = None
        self._folder: Path | None = None
        self._flights: dict[str, _Flight] = {}

    async def open(self, cache: Path) -> None:
        """Make the client. Raises WorldError if no contact is given, or the settings make no client."""
        host = _host(self.base_url)
        local = _is_local(host)
        if not self.contact and not local:
            raise WorldError(
                f"{self.base_url}: a live wiki wants to know whom to write to if a program misbehaves; set "
                "`contact` to your e-mail address or web page, or use a snapshot as `source`"
            )
        agent = f"overnight/{_own_version()}" + (f" ({_one_line(self.contact)})" if self.contact else "")
        try:
            self._client = httpx.AsyncClient(
                headers={"User-Agent": agent.encode("ascii", "replace").decode(), "Accept-Encoding": "gzip"},
                timeout=httpx.Timeout(30.0, connect=10.0, pool=None),
                transport=self._transport,
                trust_env=not local,  # local addresses bypass proxies
                follow_redirects=True,
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            names = [name for name in os.environ if name.upper().endswith("_PROXY")]
            raise WorldError(f"no client for {self.base_url}: {error}; check {', '.join(names)}") from error
        self._limiter = AsyncLimiter(1, 1 / self._pace)
        site = hashlib.sha256(self.base_url.encode()).hexdigest()[:12]
        self._folder = cache / "mediawiki" / f"{re.sub(r'[^a-z0-9.-]', '_', host)}-{site}"

    async def close(self) -> None:
        """Close the connections. May be called again."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def search(self, entity: str) -> Page | tuple[str, ...]:
        """The page of that name (redirects followed), else up to five similar titles; from the cache if it
        was asked for before. Raises WorldError if the wiki can't be reached or refuses."""
        entity = " ".join(clean(entity).split())
        if not entity:
            return ()
        async with self._alone(entity) as flight:
            kept = self._read(entity)
            if kept is None:
                if flight.error is not None:
                    raise WorldError(flight.error)
                try:
                    kept = await self._ask(entity)
                    self._write(entity, kept)
                except WorldError as error:
                    flight.error = str(error)
                    raise
            return kept

    @asynccontextmanager
    async def _alone(self, entity: str) -> AsyncIterator[_Flight]:
        # A lock, not a shared task: whoever is cancelled cancels only itself, and the next in line asks.
        flight = self._flights.setdefault(entity, _Flight())
        flight.askers += 1
        try:
            async with flight.lock:
                yield flight
        finally:
            flight.askers -= 1
            if flight.askers == 0:
                del self._flights[entity]

    # -- what is asked ---------------------------------------------------------------------------------

    async def _ask(self, entity: str) -> Page | tuple[str, ...]:
        if not _NOT_IN_TITLES.search(entity) and len(entity.encode()) <= _LONGEST_TITLE:
            page = await self._page(entity)
            if page is not None:
                return page
        hits = await self._hits(entity)
        named = next((title for title, names in hits if fold(entity) in map(fold, names)), None)
        page = await self._page(named) if named else None
        return page if page is not None else tuple(title for title, _ in hits)

    async def _page(self, title: str) -> Page | None:
        answer = await self._query(
            prop="extracts|pageprops",
            titles=title,
            redirects="1",
            explaintext="1",
            exsectionformat="wiki",
            ppprop="disambiguation",
        )
        pages = answer.get("pages") or []
        if not pages or "missing" in pages[0] or "invalid" in pages[0] or "extract" not in pages[0]:
            return None
        name, text = str(pages[0]["title"]), clean(str(pages[0]["extract"]))
        lines = [line.strip() for line in text.split("\n")]
        paragraphs = tuple(line for line in lines if line and not _HEADING.match(line))
        options: tuple[str, ...] = ()
        if "disambiguation" in (pages[0].get("pageprops") or {}):
            options = await self._options(name, text)
        return Page(name, paragraphs, None, options)

    async def _options(self, title: str, text: str) -> tuple[str, ...]:
        """The links of a disambiguation page in the order in which its text names them."""
        answer = await self._query(prop="links", titles=title, plnamespace="0", pllimit="max")
        links = [str(link["title"]) for page in answer.get("pages") or [] for link in page.get("links") or []]
        folded = fold(text)
        places = {link: folded.find(fold(link)) for link in links}
        named = sorted((link for link in links if places[link] >= 0), key=places.__getitem__)
        return tuple(named + [link for link in links if places[link] < 0])

    async def _hits(self, entity: str) -> list[tuple[str, list[str]]]:
        """Up to five titles found by the wiki's search, each with the names under which it was found."""
        answer = await self._query(
            list="search", srsearch=entity[:_LONGEST_QUERY], srlimit=str(SHOWN), srprop="redirecttitle"
        )
        return [
            (str(hit["title"]), [str(hit[key]) for key in ("title", "redirecttitle") if key in hit])
            for hit in answer.get("search") or []
        ]

    # -- how it is asked -------------------------------------------------------------------------------

    async def _query(self, **parameters: str) -> dict[str, Any]:
        wait = _FIRST_WAIT
        for left in reversed(range(_TRIES)):
            try:
                return await self._once(parameters)
            except _Busy as busy:
                if left == 0 or (busy.wait or 0) > _LONGEST_WAIT:
                    raise WorldError(
                        f"{self.base_url}: {busy}; given up at try {_TRIES - left}. Resume the run later: it "
                        "asks again"
                    ) from busy
                await self._sleep(wait if busy.wait is None else busy.wait)
                wait *= 2
        raise AssertionError("unreachable")

    async def _once(self, parameters: dict[str, str]) -> dict[str, Any]:
        if self._client is None or self._limiter is None:
            raise WorldError(f"{self.base_url}: the wiki is not open; await open(cache) first")
        fixed = {"action": "query", "format": "json", "formatversion": "2", "maxlag": str(_MAXLAG)}
        await self._limiter.acquire()
        try:
            with anyio.fail_after(_DEADLINE):
                response = await self._client.get(self.base_url, params=fixed | parameters)
        except (httpx.TimeoutException, TimeoutError) as error:
            raise WorldError(
                f"{self.base_url}: no answer in time; check the network, then resume the run (it asks again)"
            ) from error
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            raise _Busy(f"the connection broke ({error or type(error).__name__})") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise WorldError(
                f"{self.base_url}: {error or type(error).__name__}; check the network and `api`, then resume "
                "the run (it asks again), or use a snapshot as `source`"
            ) from error
        return self._read_answer(response)

    def _read_answer(self, response: httpx.Response) -> dict[str, Any]:
        status, wait = response.status_code, _retry_after(response.headers.get("Retry-After"))
        if status == 429 or status >= 500:
            raise _Busy(f"HTTP {status}", wait)
        if status != 200:
            raise WorldError(
                f"{self.base_url}: HTTP {status} ({response.text[:200]!r}); check `api`, and that `contact` "
                "is an address that the wiki's operators accept"
            )
        try:
            answer = orjson.loads(response.content)
        except orjson.JSONDecodeError as error:
            raise _Busy(f"no JSON came but {response.text[:80]!r}") from error
        refusal = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(refusal, dict):
            code = str(refusal.get("code"))
            if code in {"maxlag", "ratelimited", "readonly"} or code.startswith("internal_api_error"):
                raise _Busy(f"{code}: {refusal.get('info')}", wait)
            raise WorldError(f"{self.base_url}: {code}: {refusal.get('info')}; check `api`")
        found = answer.get("query", {}) if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            raise _Busy(f"an answer without `query` came: {response.text[:80]!r}")
        return found

    # -- the cache -------------------------------------------------------------------------------------

    def _file(self, entity: str) -> Path:
        assert self._folder is not None
        key = hashlib.sha256(entity.encode()).hexdigest()
        return self._folder / key[:2] / f"{key[2:32]}.json"

    def _read(self, entity: str) -> Page | tuple[str, ...] | None:
        if self._folder is None:
            raise WorldError(f"{self.base_url}: the wiki is not open; await open(cache) first")
        try:
            kept = orjson.loads(self._file(entity).read_bytes())
            if kept["entity"] != entity:
                return None
            if kept["page"] is None:
                return tuple(map(str, kept["similar"]))
            page = kept["page"]
            return Page(page["title"], tuple(page["paragraphs"]), None, tuple(page["options"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not there, or torn: asked again

    def _write(self, entity: str, found: Page | tuple[str, ...]) -> None:
        file = self._file(entity)
        kept = {
            "entity": entity,
            "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
            "page": asdict(found) if isinstance(found, Page) else None,
            "similar": None if isinstance(found, Page) else found,
        }
        temporary = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(orjson.dumps(kept))
            temporary.replace(file)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise WorldError(f"{file}: can't be written ({error}); make room, then resume the run") from error


def _retry_after(header: str | None) -> float | None:
    """Seconds from now that a Retry-After header (a number or an HTTP date) names, None if it names none."""
    if header is None:
        return None
    try:
        seconds = float(header)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _host(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise WorldError(f"`api` is {url!r}, which is no address ({error})") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise WorldError(f"`api` is {url!r}; it must begin with https:// (or http://) and name a server")
    return parsed.host.lower()


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _own_version() -> str:
    try:
        return importlib.metadata.version("overnight")
    except importlib.metadata.PackageNotFoundError:
        return "0"
