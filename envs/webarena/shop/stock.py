"""What the shop has, the same in all episodes: products, their tree of categories, their reviews."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from envs.webshop import catalogue
from envs.webshop.products import Product

COUNT = 360
"""Products on sale."""
_NAMES = (
    "Ada", "Bela", "Cleo", "Dario", "Edda", "Farid", "Gwen", "Hugo", "Ines", "Jonas", "Kira", "Leon", "Mina", "Nils",
    "Olga", "Pavel", "Rosa", "Sven", "Tilda", "Umar", "Vera", "Wim", "Yara", "Zeno",
)  # fmt: skip
_OPINIONS = {
    1: (
        ("Broken on arrival", "It came broken and nobody answered me."),
        ("Not again", "It fell apart after a day."),
    ),
    2: (
        ("Disappointing", "It looks cheaper than in the picture."),
        ("Too small", "It is smaller than it says."),
    ),
    3: (
        ("It is fine", "It does what it should, no more."),
        ("Mixed", "I like the look, but it wears out fast."),
    ),
    4: (
        ("Good value", "Good for the price; it came a day late."),
        ("Recommended", "Solid, and easy to use."),
    ),
    5: (
        ("Love it", "I use it every day and bought a second one."),
        ("Perfect", "Just as described, well made."),
    ),
}


@dataclass(frozen=True, slots=True)
class Review:
    """What a customer said; `stars` from 1 to 5."""

    nickname: str
    title: str
    text: str
    stars: int

    @property
    def percent(self) -> int:
        """The rating as Magento's REST gives it: 20 for each star."""
        return 20 * self.stars


@dataclass(frozen=True)
class Stock:
    """All products, by what they are found by."""

    products: tuple[Product, ...]
    slugs: dict[str, Product]
    """By the last part of their page's address, without `.html`."""
    by_sku: dict[str, Product]
    categories: dict[str, tuple[Product, ...]]
    """By the path of their page, `clothing/women/dresses`, products of all categories below among them."""
    names: dict[str, str]
    """A category's name by its path."""
    reviews: dict[str, tuple[Review, ...]]
    """By SKU."""

    def page_of(self, product: Product) -> str:
        """The path of a product's page."""
        return f"/{slug(product)}.html"

    def search(self, words: str) -> list[Product]:
        """Products in which some word of the search is, those with the most words first."""
        wanted = re.findall(r"\w+", words.lower())
        found = []
        for product in self.products:
            text = set(re.findall(r"\w+", f"{product.title} {product.description} {product.query}".lower()))
            if hits := sum(_in(word, text) for word in wanted):
                found.append((-hits, product.title, product))
        return [product for _, _, product in sorted(found, key=lambda each: each[:2])]


def _in(word: str, text: set[str]) -> bool:
    return word in text or word.removesuffix("s") in text or f"{word}s" in text


def slug(product: Product) -> str:
    """A product's title as a part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", product.title.lower()).strip("-")


def price(product: Product) -> float:
    """What it costs, in dollars."""
    return product.pricing[0]


def path_of(names: Sequence[str]) -> str:
    """The path of a category's page."""
    return "/".join(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in names)


@lru_cache(maxsize=4)
def stock(seed: int = catalogue.SEED) -> Stock:
    """The shop's stock for a seed: products with different titles, each in its category."""
    titles: Counter[str] = Counter()
    products: list[Product] = []
    for product in catalogue.products(2 * COUNT, seed):
        titles[slug(product)] += 1
        if titles[slug(product)] == 1 and len(products) < COUNT:
            products.append(product)
    categories: dict[str, list[Product]] = {}
    names: dict[str, str] = {}
    for product in products:
        parts = product.path.split(" › ")[:-1]
        for depth in range(1, len(parts) + 1):
            path = path_of(parts[:depth])
            names[path] = parts[depth - 1]
            categories.setdefault(path, []).append(product)
    return Stock(
        products=tuple(products),
        slugs={slug(product): product for product in products},
        by_sku={product.asin: product for product in products},
        categories={path: tuple(categories[path]) for path in sorted(categories)},
        names=names,
        reviews={product.asin: tuple(_reviews(product, seed)) for product in products},
    )


def _reviews(product: Product, seed: int) -> list[Review]:
    draw = Random(f"{seed}/reviews/{product.asin}")
    who = draw.sample(_NAMES, draw.choice((0, 1, 2, 3, 4, 5, 6)))
    found = []
    for name in who:
        stars = draw.choice((1, 2, 3, 4, 4, 5, 5))
        title, text = draw.choice(_OPINIONS[stars])
        found.append(Review(name, title, text, stars))
    return found
