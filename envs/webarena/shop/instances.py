"""Tasks in our own shop, in WebArena's format: of the kinds of its shopping tasks, in words of our own. What is
right is read from the shop itself. The same seed gives the same tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from urllib.parse import urlencode

from envs.webarena.shop.account import FREIGHT, TODAY, Account, Line, Order, account
from envs.webarena.shop.html import money
from envs.webarena.shop.stock import Stock, price, slug, stock
from envs.webarena.tasks import SHOPPING
from envs.webshop.products import Product

EACH = 4
"""Tasks of each kind."""
TODAY_IS = f"Today is {TODAY:%-m/%-d/%Y}."
LATEST = "func:shopping_get_latest_order_url()"
ORDERED = 'document.querySelector(".order-details-items.ordered").outerText'
WISHED = "document.querySelector('.products-grid.wishlist').outerText"
MIND = "document.querySelector('[title=\"What’s on your mind?\"]').value"


class _Maker:
    """One task after another, from one seed's shop."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.stock: Stock = stock(seed)
        self.account: Account = account(self.stock, seed)
        self.draw = Random(f"{seed}/tasks")

    # -- parts -----------------------------------------------------------------------------------------
    def product(self, fits: Callable[[Product], bool] = lambda _: True) -> Product:
        return self.draw.choice([product for product in self.stock.products if fits(product)])

    def category(self, depth: int) -> str:
        return self.draw.choice([path for path in self.stock.categories if path.count("/") == depth])

    def order(self, fits: Callable[[Order], bool] = lambda _: True) -> Order:
        return self.draw.choice([order for order in self.account.orders if fits(order)])

    def latest(self, status: str) -> Order:
        return next(order for order in reversed(self.account.orders) if order.status == status)

    # -- kinds -----------------------------------------------------------------------------------------
    def price_of(self) -> dict[str, Any]:
        product = self.product()
        return _said(
            "What does {product} cost?", {"product": product.title}, must_include=[f"{price(product):.2f}"]
        )

    def price_range(self) -> dict[str, Any]:
        path = self.category(2)
        prices = [price(product) for product in self.stock.categories[path]]
        name = self.stock.names[path]
        return _said(
            "In the category {category}, what do the cheapest and the dearest product cost?",
            {"category": name},
            must_include=[f"{min(prices):.2f}", f"{max(prices):.2f}"],
        )

    def order_number(self) -> dict[str, Any]:
        status = self.draw.choice(sorted({order.status for order in self.account.orders}))
        number = str(self.latest(status).number)
        return _said(
            "Tell me the number of my latest {status} order.",
            {"status": status.lower()},
            must_include=[number],
        )

    def order_total(self) -> dict[str, Any]:
        order = self.order()
        return _said(
            "What is the grand total of my order number {number}?",
            {"number": order.shown},
            must_include=[f"{order.total:,.2f}"],
        )

    def refund(self) -> dict[str, Any]:
        order = self.order(lambda each: each.status == "Canceled")
        return _said(
            "I canceled the order of {day}. What do I get back if shipping is not refunded?",
            {"day": f"{order.day:%B %-d, %Y}"},
            must_include=[f"{order.goods:,.2f}"],
        )

    def bought_option(self) -> dict[str, Any]:
        counts = Counter(line.product.asin for order in self.account.orders for line in order.lines)

        def has(line: Line) -> bool:
            return bool(line.options) and counts[line.product.asin] == 1

        order = self.order(lambda each: any(has(line) for line in each.lines))
        line = next(filter(has, order.lines))
        name, value = line.options[0]
        return _said(
            "Which {option} has the {product} that I ordered on {day}?",
            {"option": name, "product": line.product.title, "day": f"{order.day:%B %-d, %Y}"},
            must_include=[value],
        )

    def reviewers(self) -> dict[str, Any]:
        product = self.product(
            lambda each: any(review.stars <= 2 for review in self.stock.reviews[each.asin])
        )
        names = [review.nickname for review in self.stock.reviews[product.asin] if review.stars <= 2]
        return _said(
            "Who rated {product} with 2 stars or fewer? Give me their nicknames.",
            {"product": product.title},
            must_include=names,
        )

    def how_many_reviews(self) -> dict[str, Any]:
        product = self.product(lambda each: bool(self.stock.reviews[each.asin]))
        return _said(
            "How many reviews has {product}? Answer with the number alone.",
            {"product": product.title},
            exact_match=str(len(self.stock.reviews[product.asin])),
        )

    def first_order(self) -> dict[str, Any]:
        order = self.account.orders[self.draw.choice((0, -1))]
        which = "first" if order is self.account.orders[0] else "latest"
        return _said(
            f"{TODAY_IS} On which day did I place my {{which}} order here?",
            {"which": which},
            fuzzy_match=[f"{order.day:%B %-d, %Y}"],
        )

    def impossible(self) -> dict[str, Any]:
        words, why = self.draw.choice(
            (
                ("Which number do I call to reach {who}?", "the site shows no phone number of the shop"),
                (
                    "Send the parcel of my latest order to {who} instead.",
                    "an order cannot be changed once it is placed",
                ),
                (
                    "Show me only what is discounted for {who}.",
                    "the site has no discounts, and no way to show them",
                ),
            )
        )
        task = _said(
            words, {"who": self.draw.choice(("customer care", "my sister", "my office"))}, fuzzy_match="N/A"
        )
        task["eval"]["string_note"] = why
        return task

    def browse(self) -> dict[str, Any]:
        path = self.category(self.draw.choice((0, 1, 2)))
        return _found(
            "I want to look around in {category}.", {"category": self.stock.names[path]}, f"/{path}.html"
        )

    def under_a_price(self) -> dict[str, Any]:
        path, bound = self.category(2), self.draw.choice(("0-25", "25-50", "50-100"))
        low, high = bound.split("-")
        return _found(
            "Show me what costs ${low} to ${high} in the category {category}.",
            {"low": low, "high": high, "category": self.stock.names[path]},
            f"/{path}.html?price={bound}",
        )

    def search(self) -> dict[str, Any]:
        words = self.draw.choice(
            ("wool blanket", "usb charger", "green tea", "desk lamp", "hair oil", "rain boots")
        )
        address = f"/catalogsearch/result/?{urlencode({'q': words})}"
        return _found('Search the store for "{words}".', {"words": words}, address)

    def sorted_list(self) -> dict[str, Any]:
        path, order = self.category(2), self.draw.choice(("price", "name"))
        return _found(
            "List the category {category} by {order}.",
            {"category": self.stock.names[path], "order": order},
            f"/{path}.html?product_list_order={order}",
        )

    def dearest(self) -> dict[str, Any]:
        path = self.draw.choice(
            [path for path in self.stock.categories if path.count("/") == 2 and self._one_dearest(path)]
        )
        product = max(self.stock.categories[path], key=price)
        return _found(
            "Open the page of the most expensive product in the category {category}.",
            {"category": self.stock.names[path]},
            f"/{slug(product)}.html",
        )

    def _one_dearest(self, path: str) -> bool:
        prices = sorted(map(price, self.stock.categories[path]))
        return len(prices) > 1 and prices[-1] > prices[-2]

    def show_order(self) -> dict[str, Any]:
        status = self.draw.choice(sorted({order.status for order in self.account.orders}))
        address = f"/sales/order/view/order_id/{self.latest(status).number}/"
        return _found("Open my latest {status} order.", {"status": status.lower()}, address)

    def wish(self) -> dict[str, Any]:
        product = self.product()
        return _changed(
            "Put {product} on my wish list.",
            {"product": product.title},
            "/wishlist/",
            WISHED,
            [product.title],
        )

    def cart(self) -> dict[str, Any]:
        product = self.product()
        return _changed(
            "Put {product} into my cart.", {"product": product.title}, "/checkout/cart", "", [product.title]
        )

    def buy(self) -> dict[str, Any]:
        product = self.product(lambda each: len(each.options) == 2)
        name, values = next(iter(product.options.items()))
        value = self.draw.choice(values)
        return _changed(
            "Order one {product} for me, {option} {value}.",
            {"product": product.title, "option": name, "value": value},
            LATEST,
            ORDERED,
            [product.asin, value, f"Grand Total {money(price(product) + FREIGHT)}"],
        )

    def reorder(self) -> dict[str, Any]:
        order = self.order(lambda each: each.status == "Canceled")
        return _changed(
            "I canceled my order number {number}. Order the same again.",
            {"number": order.shown},
            LATEST,
            ORDERED,
            [line.product.asin for line in order.lines],
        )

    def newsletter(self) -> dict[str, Any]:
        task = _changed("Subscribe me to the {what}.", {"what": "newsletter"}, "/newsletter/manage/", "", [])
        task["eval"]["program_html"][0] |= {
            "locator": "document.querySelector('[title=\"General Subscription\"]').checked.toString()",
            "required_contents": {"exact_match": "true"},
        }
        return task

    def move(self) -> dict[str, Any]:
        street = (
            f"{self.draw.randint(2, 99)} {self.draw.choice(('Harbor Street', 'Elm Avenue', 'Station Road'))}"
        )
        city, region, code = self.draw.choice(
            (("Salem", "Oregon", "97301"), ("Albany", "New York", "12207"), ("Boise", "Idaho", "83702"))
        )
        task = _changed(
            "I have moved to {street}, {city}, {region}, {zip}. Change my address.",
            {"street": street, "city": city, "region": region, "zip": code},
            "",
            "",
            [],
        )
        task["eval"]["program_html"] = [
            {
                "url": f"{SHOPPING}/customer/address",
                "locator": f'document.querySelector(".box.box-address-{kind} > .box-content").outerText',
                "required_contents": {"must_include": [street, city, region, code]},
            }
            for kind in ("billing", "shipping")
        ]
        return task

    def rate(self) -> dict[str, Any]:
        line = self.draw.choice([line for order in self.account.orders for line in order.lines])
        stars, name = self.draw.randint(1, 5), self.draw.choice(("BookLover", "QuietHome", "Trailrunner"))
        sku = line.product.asin
        task = _changed(
            "Rate the {product} that I bought with {stars} stars, as {nickname}.",
            {"product": line.product.title, "stars": str(stars), "nickname": name},
            "",
            "",
            [],
        )
        task["eval"]["program_html"] = [
            {"url": "last", "locator": f"func:shopping_get_sku_latest_review_{what}('{sku}')",
             "required_contents": {"must_include": [value]}}
            for what, value in (("rating", str(20 * stars)), ("author", name))
        ]  # fmt: skip
        return task

    def draft(self) -> dict[str, Any]:
        order = self.order(lambda each: each.status == "Complete")
        line = order.lines[0]
        task = _changed(
            "Fill in the contact form, without sending it: I want a refund for the {product}, which broke in a week. "
            "Name the order number {number} and the SKU.",
            {"product": line.product.title, "number": order.shown},
            "last",
            MIND,
            ["refund", order.shown, line.product.asin],
        )
        task["eval"] |= {
            "eval_types": ["url_match", "program_html"],
            "reference_url": f"{SHOPPING}/contact",
            "url_note": "GOLD in PRED",
        }
        return task


KINDS = tuple(
    name for name, value in vars(_Maker).items() if callable(value) and not name.startswith("_")
    and name not in ("product", "category", "order", "latest")
)  # fmt: skip


def instances(seed: int, each: int = EACH) -> Iterator[dict[str, Any]]:
    """Rows in the form of WebArena's task files, `each` of every kind, the kinds taking turns; no two with the same
    words."""
    maker = _Maker(seed)
    seen: set[str] = set()
    number = 0
    for _ in range(each):
        for kind, name in enumerate(KINDS):
            for _ in range(20):
                task: dict[str, Any] = getattr(maker, name)()
                if task["intent"] not in seen:
                    break
            else:
                continue  # there are no others of this kind
            seen.add(task["intent"])
            yield {"task_id": f"{name}-{number}", "intent_template_id": kind, **task}
            number += 1


def _row(words: str, values: dict[str, str], judged: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"reference_answers": None, "reference_url": "", "program_html": []}
    return {
        "sites": ["shopping"],
        "require_login": True,
        "start_url": SHOPPING,
        "intent_template": words,
        "instantiation_dict": values,
        "intent": words.format(**values),
        "eval": {**empty, **judged},
    }


def _said(words: str, values: dict[str, str], **answers: Any) -> dict[str, Any]:
    return _row(
        words, values, {"eval_types": ["string_match"], "reference_answers": answers, "string_note": ""}
    )


def _found(words: str, values: dict[str, str], address: str) -> dict[str, Any]:
    judged = {
        "eval_types": ["url_match"],
        "reference_url": f"{SHOPPING}{address}",
        "url_note": "GOLD in PRED",
    }
    return _row(words, values, judged)


def _changed(
    words: str, values: dict[str, str], url: str, locator: str, include: list[str]
) -> dict[str, Any]:
    where = url if url == "last" or url.startswith("func:") else f"{SHOPPING}{url}"
    check = {"url": where, "locator": locator, "required_contents": {"must_include": include}}
    return _row(words, values, {"eval_types": ["program_html"], "program_html": [check]})
