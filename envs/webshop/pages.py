"""The shop's pages: what is on each, in three ways of writing them, and the way back from ReAct's to the page.

A page is data; `written` turns it into an observation, `read` turns an observation in ReAct's format into the page
again. So what a model has seen can be analysed without a shop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Format: TypeAlias = Literal["react", "text", "text_rich"]
"""`react`: the ReAct paper's (its table 6); `text` and `text_rich`: WebShop's own two."""

SEARCH, BACK, NEXT, PREVIOUS, BUY = "Search", "Back to Search", "Next >", "< Prev", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
_SCORE = "Your score (min 0.0, max 1.0)"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search begins."""

    instruction: str


@dataclass(frozen=True, slots=True)
class Row:
    """A result. `visited`: its page has been opened in this episode."""

    asin: str
    title: str
    price: str
    visited: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """One page of a search's results; `number` begins at 1, `total` counts all pages' results."""

    number: int
    total: int
    rows: tuple[Row, ...]
    previous: bool = False
    next: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option, its values, and which of them is chosen."""

    name: str
    values: tuple[str, ...]
    chosen: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A product's page."""

    title: str
    price: str
    rating: str
    options: tuple[Option, ...] = ()
    clicked: tuple[str, ...] = field(default=(), compare=False)
    """Values of options in the order of being chosen; the rich text begins with them."""


@dataclass(frozen=True, slots=True)
class Sub:
    """A product's description, features or reviews."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """After a purchase; `score` is in [0, 1]."""

    score: float


@dataclass(frozen=True, slots=True)
class Said:
    """Words that are no page: `OK.`, `Invalid action!`, `You have clicked red.`, or nothing."""

    text: str


Page: TypeAlias = Start | Results | Item | Sub | End | Said


def clickable(page: Page) -> list[str]:
    """The names of all that can be clicked on a page; to search is an action of its own, `search[...]`."""
    match page:
        case Results():
            turns = [name for name, there in ((PREVIOUS, page.previous), (NEXT, page.next)) if there]
            return [BACK, *turns, *(row.asin for row in page.rows)]
        case Item():
            values = (value for option in page.options for value in option.values)
            return [BACK, PREVIOUS, *SUB_PAGES, BUY, *values]
        case Sub():
            return [BACK, PREVIOUS]
    return []


# -- writing -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Part:
    """Something on a page: `text`, a `button`, a `link` to a product, or an `option`'s value."""

    kind: Literal["text", "button", "link", "option"]
    text: str
    marked: bool = False


def written(page: Page, style: Format, instruction: str) -> str:
    """The observation that a page is."""
    if isinstance(page, Said):
        return page.text
    if style == "react":
        return _react(page)
    parts = [*_head(page, instruction), *_parts(page)]
    return _plain(parts) if style == "text" else _rich(page, parts)


def _head(page: Page, instruction: str) -> Iterator[_Part]:
    if isinstance(page, End):
        return
    if isinstance(page, Start):
        yield _Part("text", "WebShop")
    yield _Part("text", "Instruction:")
    yield _Part("text", instruction)


def _parts(page: Page) -> Iterator[_Part]:
    match page:
        case Start():
            yield _Part("button", SEARCH)
        case Results():
            yield _Part("button", BACK)
            yield _Part("text", f"Page {page.number} (Total results: {page.total})")
            if page.previous:
                yield _Part("button", PREVIOUS)
            if page.next:
                yield _Part("button", NEXT)
            for row in page.rows:
                yield _Part("link", row.asin, row.visited)
                yield _Part("text", row.title)
                yield _Part("text", row.price)
        case Item():
            yield _Part("button", BACK)
            yield _Part("button", PREVIOUS)
            for option in page.options:
                yield _Part("text", option.name)
                for value in option.values:
                    yield _Part("option", value, value == option.chosen)
            yield _Part("text", page.title)
            yield _Part("text", f"Price: {page.price}")
            yield _Part("text", f"Rating: {page.rating}")
            for name in (*SUB_PAGES, BUY):
                yield _Part("button", name)
        case Sub():
            yield _Part("button", BACK)
            yield _Part("button", PREVIOUS)
            for line in page.lines:
                yield _Part("text", line)
        case End():
            yield _Part("text", "Thank you for shopping with us!")
            yield _Part("text", _SCORE)
            yield _Part("text", f"{page.score}")


def _plain(parts: list[_Part]) -> str:
    return " [SEP] ".join(part.text for part in parts)


def _rich(page: Page, parts: list[_Part]) -> str:
    lines = []
    for part in parts:
        if part.kind == "text":
            lines.append(part.text)
            continue
        lead = {"button": "", "link": "\n", "option": "  "}[part.kind]
        word = "clicked button" if part.marked else "button"
        lines.append(f"{lead}[{word}] {part.text} [{word}_]")
    clicked = [f"You have clicked {value}." for value in page.clicked] if isinstance(page, Item) else []
    return "\n".join([*clicked, *lines])


def _react(page: Page) -> str:
    if isinstance(page, End):
        return f"{_SCORE}: {page.score}"
    if isinstance(page, Start):
        return f"\nWebshop \nInstruction:  \n{page.instruction} \n[{SEARCH}] "
    if isinstance(page, Item):
        lines = [f"[{BACK}] ", f"[{PREVIOUS}] "]
        for option in page.options:
            values = (f"[[{value}]]" if value == option.chosen else f"[{value}]" for value in option.values)
            lines.append(f"{option.name} {''.join(values)}")
        lines += [f"{page.title} ", f"Price: {page.price} ", f"Rating: {page.rating} "]
        lines += [f"[{name}] " for name in (*SUB_PAGES, BUY)]
    else:
        lines = [f"[{p.text}] " if p.kind in ("button", "link") else f"{p.text} " for p in _parts(page)]
    return "\n".join(["", *lines])


# -- reading -------------------------------------------------------------------------------------------
_START = re.compile(rf"\nWebshop \nInstruction:  \n(.*) \n\[{SEARCH}\] ", re.DOTALL)
_HEAD = f"\n[{BACK}] "
_RESULTS = re.compile(
    rf"\nPage (\d+) \(Total results: (\d+)\) (\n\[{PREVIOUS}\] )?(\n\[{NEXT}\] )?(.*)", re.DOTALL
)
_ROW = re.compile(r"\n\[([^\]\n]+)\] \n(.*?) \n(\$[^\n]*) (?=\n\[[^\]\n]+\] \n|$)", re.DOTALL)
_ITEM = re.compile(
    rf"\n\[{PREVIOUS}\] ((?:\n[^\n]*\])*)\n(.*) \nPrice: ([^\n]*) \nRating: ([^\n]*) "
    + "".join(rf"\n\[{name}\] " for name in (*SUB_PAGES, BUY)),
    re.DOTALL,
)
_OPTION = re.compile(r"(.*?) \[(.*)\]")
_SUB = re.compile(rf"\n\[{PREVIOUS}\] (?:\n(.*) )?", re.DOTALL)


def read(observation: str) -> Page:
    """The page that an observation in ReAct's format shows. What is no page is `Said`.

    `written(read(text), "react", "")` is the text again, though nothing else of it is kept than what stands on the
    page. Whether a result was visited is not in it.
    """
    page = _page(observation)
    if page is not None and written(page, "react", "") == observation:
        return page
    return Said(observation)


def _page(text: str) -> Page | None:
    if text.startswith(f"{_SCORE}: "):
        try:
            return End(float(text.removeprefix(f"{_SCORE}: ")))
        except ValueError:
            return None
    if found := _START.fullmatch(text):
        return Start(found[1])
    if not text.startswith(_HEAD):
        return None
    body = text.removeprefix(_HEAD)
    if found := _RESULTS.fullmatch(body):
        rows = tuple(Row(*row) for row in _ROW.findall(found[5]))
        return Results(int(found[1]), int(found[2]), rows, found[3] is not None, found[4] is not None)
    if found := _ITEM.fullmatch(body):
        options = tuple(filter(None, map(_option, found[1].split("\n")[1:])))
        return Item(found[2], found[3], found[4], options)
    if found := _SUB.fullmatch(body):
        return Sub(() if found[1] is None else tuple(found[1].split(" \n")))
    return None


def _option(line: str) -> Option | None:
    """Of a line such as `size [1 l][[2 l]]`."""
    found = _OPTION.fullmatch(line)
    if found is None:
        return None
    values = found[2].split("][")
    chosen = next((value[1:-1] for value in values if value[:1] == "[" and value[-1:] == "]"), None)
    if chosen is not None:
        values = [chosen if value == f"[{chosen}]" else value for value in values]
    return Option(found[1], tuple(values), chosen)
