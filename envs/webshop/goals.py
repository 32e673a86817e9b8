"""What customers are sent out for: people's instructions or synthetic ones, each with a budget, in three splits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, TypeAlias

from envs.webshop.products import Product

Kind: TypeAlias = Literal["human", "synthetic"]
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


def goals(products: Iterable[Product], kind: Kind, seed: int) -> list[Goal]:
    """All goals of the products, shuffled as in the public code: `SPLITS` are slices of this list.

    Budgets are drawn for (seed, product, number), so that they are the same in every process and for every part of a
    catalogue: the larger of two of the next four tens above the price.
    """
    of = _human if kind == "human" else _synthetic
    found = [goal for product in products for goal in of(product, seed)]
    Random(SHUFFLE).shuffle(found)
    return found


def _human(product: Product, seed: int) -> Iterator[Goal]:
    for number, wish in enumerate(product.wishes):
        if wish.attributes:
            yield _goal(product, wish.text.strip("."), wish.attributes, wish.options, number, seed)


def _synthetic(product: Product, seed: int) -> Iterator[Goal]:
    """One for each combination of its options."""
    wish = product.wish
    if wish is None or not wish.attributes:
        return
    names = sorted(product.options)
    for number, values in enumerate(itertools.product(*(product.options[name] for name in names))):
        chosen = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        text = f"{wish.text} with {chosen}" if chosen else wish.text
        yield _goal(product, text, wish.attributes, values, number, seed)


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


def count(products: Iterable[Product], kind: Kind) -> int:
    """How many goals there are, without making them."""
    total = 0
    for product in products:
        if kind == "human":
            total += sum(bool(wish.attributes) for wish in product.wishes)
        elif product.wish is not None and product.wish.attributes:
            size = 1
            for values in product.options.values():
                size *= len(values)
            total += size
    return total
