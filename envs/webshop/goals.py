"""What customers are sent out for: people's instructions or synthetic ones, each with a budget, in three splits."""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, TypeAlias, get_args, overload

from envs.webshop.products import Product

Kind: TypeAlias = Literal["human", "synthetic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SPLITS: Mapping[str, tuple[int, int | None]] = {"test": (0, 500), "dev": (500, 1500), "train": (1500, None)}
"""Which goals of the shuffled list a split has (Yao et al. 2022, section 5.1)."""
SHUFFLE = 233
"""The seed of the public code's shuffle of goals."""
PRICES = tuple(10.0 * k for k in range(1, 100))
"""Budgets are of these."""
NO_LIMIT = 1_000_000.0
"""The budget of a product that is dearer than all of them."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be bought. `options` are the values to choose; `price_upper` dollars is what it may cost at most.
    Title, query and path are those of the product that it was written for."""

    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_upper: float
    title: str
    query: str
    path: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, from which `of` makes it again."""
        return {
            "asin": self.asin,
            "attributes": list(self.attributes),
            "options": list(self.options),
            "price_upper": self.price_upper,
            "title": self.title,
            "query": self.query,
            "path": self.path,
        }

    @classmethod
    def of(cls, instruction: str, row: Mapping[str, Any]) -> Goal:
        """The goal with an instruction of which `as_dict` gave these values."""
        lists = {name: tuple(row[name]) for name in ("attributes", "options")}
        return cls(instruction=instruction, **{**row, **lists})


def price_of(product: Product, seed: int) -> float:
    """What a product costs: of a range, a price drawn for the seed. (The public code draws anew in each process.)"""
    if len(product.pricing) == 1:
        return product.pricing[0]
    low, high = product.pricing
    return Random(f"{seed}/price/{product.asin}").uniform(low, high)


def goals(products: Iterable[Product], kind: Kind, seed: int) -> Goals:
    """All goals of the products, which are kept."""
    kept = [(product, found) for product in products if (found := size(product, kind))]
    return Goals([found for _, found in kept], lambda at: kept[at][0], kind, seed)


class Goals(Sequence[Goal]):
    """All goals of a catalogue, shuffled as in the public code: `SPLITS` are slices of it. A goal is made when it is
    asked for, as the large catalogue has millions.

    `sizes` are how many each product with goals has, `product` gives the product with a place among those. Budgets are
    drawn for (seed, product, number), so that they are the same in every process and for every part of a catalogue:
    the larger of two of the next four tens above the price.
    """

    def __init__(
        self, sizes: Sequence[int], product: Callable[[int], Product], kind: Kind, seed: int
    ) -> None:
        self._ends = list(itertools.accumulate(sizes))
        self._product, self._kind, self._seed = product, kind, seed
        self._order = array("I", range(self._ends[-1] if self._ends else 0))
        Random(SHUFFLE).shuffle(self._order)

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Goal: ...
    @overload
    def __getitem__(self, at: slice) -> list[Goal]: ...
    def __getitem__(self, at: int | slice) -> Goal | list[Goal]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        place = self._order[at]
        of = bisect_right(self._ends, place)
        number = place - (self._ends[of - 1] if of else 0)
        product = self._product(of)
        if self._kind == "human":
            wish = [each for each in product.wishes if each.attributes][number]
            return _goal(product, wish.text.strip("."), wish.attributes, wish.options, number, self._seed)
        return _synthetic(product, number, self._seed)


def size(product: Product, kind: Kind) -> int:
    """How many goals a product has: people's instructions that name attributes, or one for each combination of its
    options where it has an invented one."""
    if kind == "human":
        return sum(bool(wish.attributes) for wish in product.wishes)
    if product.wish is None or not product.wish.attributes:
        return 0
    return math.prod(map(len, product.options.values()))


def _synthetic(product: Product, number: int, seed: int) -> Goal:
    """The goal with a number: combinations of options in the order of their names, the last one's values first."""
    assert product.wish is not None
    names, left, values = sorted(product.options), number, list[str]()
    for name in reversed(names):
        left, at = divmod(left, len(product.options[name]))
        values.insert(0, product.options[name][at])
    chosen = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
    text = f"{product.wish.text} with {chosen}" if chosen else product.wish.text
    return _goal(product, text, product.wish.attributes, tuple(values), number, seed)


def _goal(
    product: Product, text: str, attributes: tuple[str, ...], options: tuple[str, ...], number: int, seed: int
) -> Goal:
    price = price_of(product, seed)
    above = [each for each in PRICES if each > price][:4]
    most = NO_LIMIT
    if len(above) >= 2:
        most = max(Random(f"{seed}/budget/{product.asin}/{number}").sample(above, 2))
        text += f", and price lower than {most:.2f} dollars"
    return Goal(product.asin, text, attributes, options, most, product.title, product.query, product.path)
