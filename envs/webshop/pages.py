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
_NUMBERS = re.compile(r"Page (\d+) \(Total results: (\d+)\)")
_OPTION = re.compile(r"(.*?) \[(.*)\]", re.DOTALL)
_FOOT = [f"[{name}] " for name in (*SUB_PAGES, BUY)]


def read(observation: str) -> Page:
    """The page that an observation in ReAct's format shows. What is no page is `Said`.

    `written(read(text), "react", "")` is the text again. Whether a result was visited is not in it.
    """
    if observation.startswith(f"{_SCORE}: "):
        try:
            return End(float(observation.removeprefix(f"{_SCORE}: ")))
        except ValueError:
            return Said(observation)
    lines = observation.split("\n")
    if lines[:3] == ["", "Webshop ", "Instruction:  "] and lines[-1:] == [f"[{SEARCH}] "]:
        return Start("\n".join(lines[3:-1])[:-1])
    if lines[:2] != ["", f"[{BACK}] "]:
        return Said(observation)
    lines = lines[2:]
    if lines and (found := _NUMBERS.fullmatch(lines[0].removesuffix(" "))):
        return _read_results(int(found[1]), int(found[2]), lines[1:])
    if lines[:1] != [f"[{PREVIOUS}] "]:
        return Said(observation)
    if lines[-4:] == _FOOT:
        return _read_item(lines[1:-4]) or Said(observation)
    return Sub(tuple(line.removesuffix(" ") for line in lines[1:]))


def _read_results(number: int, total: int, lines: list[str]) -> Results:
    previous = lines[:1] == [f"[{PREVIOUS}] "]
    lines = lines[previous:]
    next_ = lines[:1] == [f"[{NEXT}] "]
    lines = [line.removesuffix(" ") for line in lines[next_:]]
    rows = [Row(lines[k][1:-1], lines[k + 1], lines[k + 2]) for k in range(0, len(lines) - 2, 3)]
    return Results(number, total, tuple(rows), previous, next_)


def _read_item(lines: list[str]) -> Item | None:
    if len(lines) < 3 or not (lines[-2].startswith("Price: ") and lines[-1].startswith("Rating: ")):
        return None
    options = []
    for line in lines[:-3]:
        if not (found := _OPTION.fullmatch(line)):
            return None
        values = found[2].split("][")
        chosen = next((value[1:-1] for value in values if value[:1] == "[" and value[-1:] == "]"), None)
        if chosen is not None:
            values = [chosen if value == f"[{chosen}]" else value for value in values]
        options.append(Option(found[1], tuple(values), chosen))
    title, price, rating = (line.removesuffix(" ") for line in lines[-3:])
    return Item(title, price.removeprefix("Price: "), rating.removeprefix("Rating: "), tuple(options))
