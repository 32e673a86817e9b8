"""What a shop sells, and what a customer is told to buy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NO_PRICE = 100.0
"""What a product without a price costs (as in WebShop)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One instruction for a product: the attributes it must have and the options that are to be chosen."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Product:
    """One product. `pricing` holds one price, or the ends of a range, in dollars; `options` the values of each
    option by its name. `wishes` are people's instructions for it, `wish` an invented one, to which a combination of
    its options is added for each synthetic goal."""

    asin: str
    title: str
    category: str = ""
    query: str = ""
    path: str = ""
    """Its place in the tree of categories, parts divided by ` › `."""
    pricing: tuple[float, ...] = (NO_PRICE,)
    price: str = ""
    """The price as shown; unset: written from `pricing`."""
    rating: str = "N.A."
    description: str = ""
    bullets: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wish: Wish | None = None
    wishes: tuple[Wish, ...] = ()

    @property
    def shown_price(self) -> str:
        """`$11.99`, or `$19.99 to $27.99`."""
        return self.price or " to ".join(f"${price}" for price in self.pricing)

    @property
    def searched(self) -> str:
        """The text in which a search looks: title, description, the first bullet and the options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.bullets[:1], options]).lower()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Product:
        """A product from its fields as JSON values (which `orjson.dumps` writes)."""
        return cls(
            **{
                **row,
                "pricing": tuple(row["pricing"]),
                "bullets": tuple(row["bullets"]),
                "attributes": tuple(row["attributes"]),
                "options": {name: tuple(values) for name, values in row["options"].items()},
                "wish": None if row["wish"] is None else _wish(row["wish"]),
                "wishes": tuple(map(_wish, row["wishes"])),
            }
        )


def _wish(row: Mapping[str, Any]) -> Wish:
    return Wish(row["text"], tuple(row["attributes"]), tuple(row["options"]))
