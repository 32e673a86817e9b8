"""What one episode changes in the shop: the customer's orders, cart, wish list, address, newsletter and reviews."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random

from envs.webarena.shop.stock import Review, Stock, price
from envs.webshop.products import Product

TODAY = date(2023, 6, 12)
"""The shop's own date: it stands still."""
FIRST_ORDER = 101
FREIGHT = 5.0
"""Dollars of shipping for each piece."""
STATUSES = ("Complete", "Canceled", "Pending", "Processing")
CUSTOMER = "Nora Finch"


@dataclass(frozen=True, slots=True)
class Line:
    """Some pieces of one product, with the chosen options."""

    product: Product
    options: tuple[tuple[str, str], ...] = ()
    pieces: int = 1

    @property
    def total(self) -> float:
        """Dollars."""
        return price(self.product) * self.pieces


@dataclass(frozen=True, slots=True)
class Order:
    """`number` is the order's id; nine digits of it are shown."""

    number: int
    day: date
    status: str
    lines: tuple[Line, ...]
    address: str

    @property
    def shown(self) -> str:
        """The number as the shop writes it."""
        return f"{self.number:09}"

    @property
    def goods(self) -> float:
        """Dollars without shipping."""
        return round(sum(line.total for line in self.lines), 2)

    @property
    def freight(self) -> float:
        """Dollars of shipping."""
        return FREIGHT * sum(line.pieces for line in self.lines)

    @property
    def total(self) -> float:
        """Dollars, shipping included."""
        return round(self.goods + self.freight, 2)


@dataclass
class Address:
    """Where the customer lives."""

    street: str = "12 Mill Lane"
    city: str = "Dover"
    region: str = "Delaware"
    zip: str = "19901"
    country: str = "United States"
    phone: str = "555-0117"

    @property
    def lines(self) -> tuple[str, ...]:
        """As an envelope has it."""
        place = f"{self.city}, {self.region}, {self.zip}"
        return (CUSTOMER, self.street, place, self.country, f"T: {self.phone}")


@dataclass
class Account:
    """The customer of one episode, as everything stands now."""

    stock: Stock
    orders: list[Order]
    """The oldest first."""
    address: Address = field(default_factory=Address)
    cart: list[Line] = field(default_factory=list)
    wishes: list[Product] = field(default_factory=list)
    subscribed: bool = False
    reviews: dict[str, list[Review]] = field(default_factory=dict)
    """Those that the customer wrote in the episode, by SKU."""
    said: str = ""
    """What the next page tells once."""

    def reviews_of(self, product: Product) -> list[Review]:
        """All reviews of a product, the latest last."""
        return [*self.stock.reviews[product.asin], *self.reviews.get(product.asin, ())]

    def percent(self, product: Product) -> int | None:
        """A product's rating, 20 for each star; None without reviews."""
        found = [review.percent for review in self.reviews_of(product)]
        return round(sum(found) / len(found)) if found else None

    def order(self, number: int) -> Order | None:
        """The order with a number."""
        return next((order for order in self.orders if order.number == number), None)

    def put(self, line: Line) -> None:
        """Into the cart, to what is there of it."""
        for at, there in enumerate(self.cart):
            if (there.product, there.options) == (line.product, line.options):
                self.cart[at] = Line(line.product, line.options, there.pieces + line.pieces)
                return
        self.cart.append(line)

    def buy(self) -> Order:
        """Order what is in the cart."""
        number = self.orders[-1].number + 1 if self.orders else FIRST_ORDER
        order = Order(number, TODAY, "Pending", tuple(self.cart), ", ".join(self.address.lines))
        self.orders.append(order)
        self.cart = []
        return order


def account(stock: Stock, seed: int) -> Account:
    """The customer's account as every episode finds it: a dozen orders of the last year."""
    draw = Random(f"{seed}/orders")
    address = Address()
    days = sorted(TODAY - timedelta(days=each) for each in draw.sample(range(3, 360), 12))
    orders = []
    for number, day in enumerate(days, FIRST_ORDER):
        products = draw.sample(stock.products, draw.randint(1, 3))
        lines = tuple(
            Line(
                product,
                tuple((name, draw.choice(values)) for name, values in product.options.items()),
                draw.choice((1, 1, 2)),
            )
            for product in products
        )
        status = (
            STATUSES[(number - FIRST_ORDER) % 2]
            if day < TODAY - timedelta(days=30)
            else draw.choice(STATUSES[2:])
        )
        orders.append(Order(number, day, status, lines, ", ".join(address.lines)))
    return Account(stock, orders, address)
