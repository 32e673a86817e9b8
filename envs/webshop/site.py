"""The shop as a web site, for agents that drive a browser: `overnight shop`.

A session is a word in the address, and its first page is `/WORD`: `fixed_7` is sent out for goal 7, any other word for
one of the goals by its letters. All else that a customer did stands in the addresses of the pages, so that many may
shop at once, and go back and forth.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from envs.webshop import html
from envs.webshop.goals import Goal
from envs.webshop.pages import SUB_PAGES
from envs.webshop.products import Product
from envs.webshop.reward import reward
from envs.webshop.session import PER_PAGE, Shop, results_page, sub_lines

if TYPE_CHECKING:
    from envs.webshop.world import WebShop

_WORD = re.compile(r"[\w.-]{1,64}", re.ASCII)
_FIXED = re.compile(r"fixed_(\d{1,9})")
_LONGEST = 1 << 16
"""Bytes of a request's head, or of its body, at most."""
PATIENCE = 30.0
"""Seconds within which a whole request has to come."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the site says to a request."""

    status: int
    text: str = ""
    to: str = ""
    """Where else to look, for a status of 303."""


@dataclass(frozen=True, slots=True)
class _Refused(Exception):
    status: int
    words: str


@dataclass
class Site:
    """The pages of a shop and the purchases that were made. `log`: a file that gets a JSON line for each."""

    shop: Shop
    goals: Sequence[Goal]
    log: Path | None = None
    scores: dict[str, float] = field(default_factory=dict)
    """Of each session's last purchase."""
    url: str = ""

    async def respond(self, method: str, target: str, body: str = "") -> Answer:
        """The page at an address: `GET /fixed_0`, or `POST /done/fixed_0/B000000001` with the options in its body."""
        address = urlsplit(target)
        parts = [unquote(part) for part in address.path.split("/") if part]
        fields = parse_qsl(address.query if method != "POST" else body, keep_blank_values=True)
        try:
            if method == "POST" and len(parts) == 3 and parts[0] == "done":
                return self._buy(parts[1], self._product(parts[2]), fields)
            if method not in ("GET", "HEAD"):
                raise _Refused(405, f"{method} is not done here")
            return await self._shown(parts, fields)
        except _Refused as refusal:
            return Answer(refusal.status, html.refused(refusal.words))

    async def _shown(self, parts: list[str], fields: list[tuple[str, str]]) -> Answer:
        match parts:
            case []:
                return Answer(303, to="/fixed_0")
            case [session]:
                return Answer(200, html.start(self._goal(session).instruction, session))
            case ["search_results", session]:
                return await self._results(session, dict(fields))
            case ["item_page", session, asin]:
                product, place = self._product(asin), _place(fields)
                chosen = html.chosen_of(product, fields)
                return Answer(
                    200, html.item(self._goal(session).instruction, session, product, place, chosen)
                )
            case ["item_sub_page", session, asin, name] if name in SUB_PAGES:
                product = self._product(asin)
                kept = html.fields_of(_place(fields), html.chosen_of(product, fields))
                told = self._goal(session).instruction
                return Answer(200, html.sub(told, session, product, kept, sub_lines(product, name)))
            case ["done", session] if session in self.scores:
                return Answer(200, html.end(session, self.scores[session]))
        raise _Refused(404, "There is no such page")

    def _goal(self, session: str) -> Goal:
        if not _WORD.fullmatch(session):
            raise _Refused(404, f"{session!r} is no session: letters, digits, '_', '-' and '.', 64 at most")
        if found := _FIXED.fullmatch(session):
            if int(found[1]) >= len(self.goals):
                raise _Refused(404, f"There is no goal {found[1]}; there are 0 to {len(self.goals) - 1}")
            return self.goals[int(found[1])]
        return self.goals[Random(f"{self.shop.seed}/session/{session}").randrange(len(self.goals))]

    def _product(self, asin: str) -> Product:
        product = self.shop.index.find(asin)
        if product is None:
            raise _Refused(404, f"There is no product {asin!r}")
        return product

    async def _results(self, session: str, fields: Mapping[str, str]) -> Answer:
        goal, keywords = self._goal(session), fields.get("q", "").strip()
        if not keywords:
            return Answer(303, to=f"/{session}")
        found = await self.shop.search(keywords)
        last = max(1, -(-len(found) // PER_PAGE))
        number = fields.get("page", "1")
        if not (number.isascii() and number.isdigit() and 1 <= int(number) <= last):
            raise _Refused(404, f"There is no page {number!r} of these results; there are 1 to {last}")
        shown = results_page(self.shop, found, int(number))
        return Answer(200, html.results(goal.instruction, session, keywords, shown))

    def _buy(self, session: str, product: Product, fields: list[tuple[str, str]]) -> Answer:
        goal, options = self._goal(session), html.chosen_of(product, fields)
        price = self.shop.price(product)
        score = reward(goal, product, options, price).value
        self.scores[session] = score
        if self.log is not None:
            line = {
                "session": session,
                "instruction": goal.instruction,
                "goal": goal.asin,
                "asin": product.asin,
            }
            with self.log.open("ab") as file:
                file.write(
                    orjson.dumps({**line, "options": options, "price": price, "reward": score}) + b"\n"
                )
        return Answer(303, to=f"/done/{session}")


def _place(fields: list[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in fields if name in ("q", "page")}


# -- HTTP ----------------------------------------------------------------------------------------------
@asynccontextmanager
async def serving(site: Site, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Site]:
    """The site at `site.url` while the block runs; port 0 is one that is free. Raises OSError for one that is not."""
    customers: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        customers.add(task)
        try:
            await _serve(site, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # gone, or closed below: a connection's own task ends here
        finally:
            customers.discard(task)
            writer.close()

    server = await asyncio.start_server(served, host, port, limit=_LONGEST)
    name, at = server.sockets[0].getsockname()[:2]
    site.url = f"http://{f'[{name}]' if ':' in name else name}:{at}"
    try:
        yield site
    finally:
        server.close()
        for task in customers:
            task.cancel()
        await asyncio.gather(*customers, return_exceptions=True)


async def _serve(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, then the connection is closed."""
    method = "GET"
    try:
        async with asyncio.timeout(PATIENCE):
            method, target, body = await _request(reader)
        answer = await site.respond(method, target, body)
    except TimeoutError:
        answer = Answer(408, html.refused("The request did not come to its end"))
    except asyncio.IncompleteReadError:
        return
    except (ValueError, asyncio.LimitOverrunError):
        answer = Answer(400, html.refused("This is no request that a browser makes"))
    content = answer.text.encode()
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, '')}",
        "content-type: text/html; charset=utf-8",
        f"content-length: {len(content)}",
        "connection: close",
        "cache-control: no-store",
        *([f"location: {answer.to}"] if answer.to else []),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else content))
    await writer.drain()


_REASONS = {200: "OK", 303: "See Other", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
            408: "Request Timeout"}  # fmt: skip


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, str]:
    """(method, target, body). Raises ValueError for what is none."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, version = head[0].split(" ")
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise ValueError(head[0])
    lengths = [line.partition(":")[2] for line in head[1:] if line.lower().startswith("content-length:")]
    length = int(lengths[0]) if lengths else 0
    if not 0 <= length <= _LONGEST:
        raise ValueError(lengths[0])
    return method, target, (await reader.readexactly(length)).decode("utf-8", "replace")


async def serve(world: WebShop, host: str, port: int, log: Path | None, say: Callable[[str], object]) -> None:
    """The shop of a world, served until it is cancelled; `say` is told where."""
    try:
        site = Site(world.opened(), world.every_goal(), log)
        async with serving(site, host, port):
            last = len(site.goals) - 1
            say(
                f"{site.url}/fixed_0 to {site.url}/fixed_{last}: a shop and {last + 1:,} goals; Ctrl-C closes it"
            )
            await asyncio.Event().wait()
    finally:
        await world.close()
