"""What a purchase is worth: WebShop's reward (Yao et al. 2022, section 3.2 and appendix; its public code's formula)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from envs.webshop.goals import Goal
from envs.webshop.nouns import nouns
from envs.webshop.products import Product

ALIKE = 85
"""Texts whose `token_set_ratio` is above this are the same. It is rounded, as the library of the public code does."""
COLORS = (
    "black", "white", "grey", "gray", "silver", "gold", "red", "crimson", "burgundy", "wine", "maroon", "pink", "rose",
    "coral", "orange", "peach", "yellow", "mustard", "green", "olive", "mint", "teal", "turquoise", "aqua", "cyan",
    "blue", "navy", "indigo", "purple", "violet", "lavender", "magenta", "brown", "chocolate", "coffee", "tan", "khaki",
    "beige", "cream", "ivory", "bronze", "copper",
)  # fmt: skip
"""A colour is known by the first of these words that is in its name."""
Nouns = Callable[[str], set[str]]
"""From a title to its nouns in lower case."""


@dataclass(frozen=True, slots=True)
class Reward:
    """`value` in [0, 1], and what it is made of: shares of attributes and options that were met, whether the price is
    within the budget, and how near the kind of product comes (1, 0.5, 0.1 or 0)."""

    value: float
    attributes: float
    options: float
    price: bool
    kind: float


def reward(
    goal: Goal, product: Product, options: Mapping[str, str], price: float, nouns_of: Nouns = nouns
) -> Reward:
    """The reward for buying a product with options (value by name) at a price in dollars."""
    attributes = sum(_has(product, each) for each in goal.attributes)
    chosen = [_color(value) for value in options.values()]
    met = sum(any(_alike(value, _color(each)) for value in chosen) for each in goal.options)
    affordable = price <= goal.price_upper
    kind = _kind(goal, product, nouns_of)
    whole = len(goal.attributes) + len(goal.options) + 1
    return Reward(
        value=kind * (attributes + met + affordable) / whole,
        attributes=attributes / len(goal.attributes) if goal.attributes else 1.0,
        options=met / len(goal.options) if goal.options else 1.0,
        price=affordable,
        kind=kind,
    )


def _has(product: Product, attribute: str) -> bool:
    if any(_alike(each, attribute) for each in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(attribute in text.lower() for text in texts)


def _alike(one: str, other: str) -> bool:
    return one == other or round(fuzz.token_set_ratio(one, other, processor=utils.default_process)) > ALIKE


def _color(value: str) -> str:
    return next((color for color in COLORS if color in value), value)


def _kind(goal: Goal, product: Product, nouns_of: Nouns) -> float:
    wanted = nouns_of(goal.title)
    share = len(wanted & nouns_of(product.title)) / len(wanted) if wanted else 0.2
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    same = product.query == goal.query or len(_parts(goal.path) & _parts(product.path)) >= 2
    return 1.0 if same or share > 0.2 else 0.5


def _parts(path: str) -> set[str]:
    return {part.strip() for part in path.split("›") if part.strip()}
