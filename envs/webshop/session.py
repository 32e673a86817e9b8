"""One customer in the shop: which page is open, what each action leads to, and the purchase."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from envs.base import Observation, Session
from envs.webshop.goals import Goal, price_of
from envs.webshop.index import TOP, Index
from envs.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SUB_PAGES,
    End,
    Format,
    Item,
    Option,
    Page,
    Results,
    Row,
    Said,
    Start,
    Sub,
    clickable,
    written,
)
from envs.webshop.products import Product
from envs.webshop.reward import reward

PER_PAGE = 10
LARGE = 20_000
"""Products from which on a search takes so long that it is made beside the event loop."""
INVALID = "Invalid action!"
THOUGHT = "OK."
_ACTION = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)


AT_ONCE = 2
"""Searches of large shops at once: more of them are no faster, and leave the event loop less of the interpreter."""
_LIMITER: RunVar[CapacityLimiter] = RunVar("searches")


def _limiter() -> CapacityLimiter:
    try:
        return _LIMITER.get()
    except LookupError:
        _LIMITER.set(limiter := CapacityLimiter(AT_ONCE))
        return limiter


class Shop:
    """An open catalogue, and how it answers searches. `seed` decides prices of products that have a range."""

    def __init__(self, index: Index, seed: int) -> None:
        self.index = index
        self.seed = seed

    async def search(self, keywords: str) -> list[int]:
        """Numbers of the products found. Beside words: `<r>` 50 of all, `<a> attribute`, `<c> category` and
        `<q> query` the first 50 that have it."""
        if len(self.index) < LARGE:
            return self.found(keywords)
        return await to_thread.run_sync(self.found, keywords, limiter=_limiter())

    def found(self, keywords: str) -> list[int]:
        """As `search`, at once."""
        kind, _, word = keywords.partition(" ")
        if kind == "<r>":
            everything = range(len(self.index))
            return Random(f"{self.seed}/{keywords}").sample(everything, min(TOP, len(everything)))
        if kind in ("<a>", "<c>", "<q>"):
            return self.index.labelled(f"{kind} {word.strip()}")
        return self.index.search(keywords)

    def price(self, product: Product) -> float:
        """What it costs."""
        return price_of(product, self.seed)


@dataclass
class State:
    """Where a customer is: the start, a page of results, a product's page or one of its sub pages."""

    keywords: str | None = None
    found: list[int] = field(default_factory=list)
    number: int = 1
    """Of the results' page."""
    product: int | None = None
    sub: str = ""
    options: dict[str, str] = field(default_factory=dict)
    """Chosen values, in the order of being chosen."""
    visited: list[str] = field(default_factory=list)
    bought: str = ""
    """The ASIN; with it the shop closes."""
    score: float = 0.0


class ShopSession(Session):
    """An episode. In ReAct's format names of buttons are taken to the letter and what cannot be done is `Invalid
    action!`; in WebShop's own formats case does not count, and the page is shown again.

    `shown`: how many of a page's ten results are shown there. `paged`: whether one can go to the next page of
    results; in the ReAct paper's code one cannot.
    """

    def __init__(
        self, shop: Shop, goal: Goal, style: Format, *, shown: int = PER_PAGE, paged: bool = True
    ) -> None:
        self._shop, self._goal, self._style = shop, goal, style
        self._rows, self._paged = shown, paged
        self._state = State()
        self._product: Product | None = None

    # -- the session -----------------------------------------------------------------------------------
    async def reset(self) -> str:
        self._state, self._product, self.answer = State(), None, None
        return self._shown(self._page())

    async def step(self, action: str) -> Observation:
        """What the page says. The purchase ends the episode; its reward is in [0, 1]."""
        state = self._state
        if state.bought:
            return Observation(self._shown(End(state.score)), done=True)
        found = _ACTION.fullmatch(action.strip())
        verb, word = (found[1], found[2]) if found else ("", "")
        if verb == "think":
            return Observation(THOUGHT)
        if verb == "search" and state.keywords is None and word.strip():
            await self._search(word.strip())
            return Observation(self._shown(self._page()))
        if verb == "click" and (word := self._named(word)):
            return self._click(word)
        return Observation(self._shown(Said(INVALID) if self._style == "react" else self._page()))

    def snapshot(self) -> Any:
        return asdict(self._state)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._state = State(**deepcopy(dict(state)))
        self._product = None if self._state.product is None else self._shop.index.product(self._state.product)
        self.answer = self._state.bought or None

    # -- what can be done ------------------------------------------------------------------------------
    def buttons(self) -> list[str]:
        """What can be clicked on the page that is open, options among it."""
        names = clickable(self._page())
        return names if self._paged else [name for name in names if name != NEXT]

    def _named(self, word: str) -> str:
        """The button that a word means; "" where there is none."""
        names = self.buttons()
        if word in names:
            return word
        if self._style == "react":
            return ""
        return next((name for name in names if name.lower() == word.strip().lower()), "")

    async def _search(self, keywords: str) -> None:
        self._state.keywords = keywords
        self._state.found = await self._shop.search(keywords)
        self._state.number = 1
        self._state.options.clear()

    def _click(self, name: str) -> Observation:
        state, product = self._state, self._product
        if name == BACK:
            self._state, self._product = State(visited=state.visited), None
        elif product is None:
            if name in (NEXT, PREVIOUS):
                state.number += 1 if name == NEXT else -1
            else:
                self._visit(name)
        elif state.sub:
            state.sub = ""
        elif name == PREVIOUS:
            state.product = self._product = None
        elif name == BUY:
            return self._buy(product)
        elif name in SUB_PAGES:
            state.sub = name
        else:
            self._choose(product, name)
            if self._style == "react":
                return Observation(f"You have clicked {name}.")
        return Observation(self._shown(self._page()))

    def _visit(self, asin: str) -> None:
        state = self._state
        for number in state.found:
            product = self._shop.index.product(number)
            if product.asin == asin:
                state.product, self._product = number, product
                break
        state.options.clear()
        if asin not in state.visited:
            state.visited.append(asin)

    def _choose(self, product: Product, value: str) -> None:
        """The first option that has such a value gets it; where several do, one after another."""
        names = [name for name, values in product.options.items() if value in values]
        free = [name for name in names if self._state.options.get(name) != value] or names
        self._state.options.pop(free[0], None)
        self._state.options[free[0]] = value

    def _buy(self, product: Product) -> Observation:
        state = self._state
        worth = reward(self._goal, product, state.options, self._shop.price(product))
        state.bought, state.score = product.asin, worth.value
        self.answer = product.asin
        return Observation(self._shown(End(worth.value)), reward=worth.value, done=True)

    # -- the page --------------------------------------------------------------------------------------
    def _shown(self, page: Page) -> str:
        return written(page, self._style, self._goal.instruction)

    def _page(self) -> Page:
        state, product = self._state, self._product
        if state.keywords is None:
            return Start(self._goal.instruction)
        if product is None:
            return self._results()
        if state.sub:
            return Sub(sub_lines(product, state.sub))
        options = tuple(
            Option(name, values, state.options.get(name)) for name, values in product.options.items()
        )
        return Item(
            product.title, product.shown_price, product.rating, options, tuple(state.options.values())
        )

    def _results(self) -> Results:
        state = self._state
        return results_page(self._shop, state.found, state.number, self._rows, state.visited)


def results_page(
    shop: Shop, found: Sequence[int], number: int, rows: int = PER_PAGE, visited: Sequence[str] = ()
) -> Results:
    """A page of what a search found, of which the first `rows` of ten are shown."""
    first = (number - 1) * PER_PAGE
    products = map(shop.index.product, found[first : first + PER_PAGE][:rows])
    return Results(
        number=number,
        total=len(found),
        rows=tuple(Row(p.asin, p.title, p.shown_price, p.asin in visited) for p in products),
        previous=number > 1,
        next=len(found) > first + PER_PAGE,
    )


def sub_lines(product: Product, sub: str) -> tuple[str, ...]:
    """What a sub page says. No catalogue has reviews' texts."""
    lines = {"Description": (product.description,), "Features": product.bullets, "Reviews": ()}[sub]
    return tuple(" ".join(line.split()) for line in lines)
