"""WebArena in a real Chromium: our shop's tasks, done right and done wrong in each way."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

if find_spec("playwright") is None:
    pytest.skip("Playwright is not installed", allow_module_level=True)

from envs.base import Outcome
from envs.webarena.chromium import MISSING, program
from envs.webarena.engine import OWN, WebArenaEngine
from envs.webarena.shop.account import account
from envs.webarena.shop.instances import KINDS, instances
from envs.webarena.shop.stock import slug, stock
from envs.webarena.tasks import task_of
from envs.webarena.world import WebArena

SEED = 233
SECONDS = 30.0

if program() is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def engine():
    made = WebArenaEngine(shop="", seed=SEED, page_seconds=SECONDS, most=400, whole=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def rows():
    """The first task of each kind."""
    found = {}
    for row in instances(SEED):
        found.setdefault(row["task_id"].rsplit("-", 1)[0], row)
    return found


class Customer:
    """One episode: does things by the names of elements."""

    def __init__(self, engine, row):
        self.engine, self.row = engine, row
        self.task = task_of(row, "a test")
        self.seen = engine.begin("customer", row)
        self.reward = None

    def do(self, line):
        self.seen, reward, done, _ = self.engine.step("customer", line)
        if done:
            self.reward = reward
        return self

    def number(self, role, name, which=0):
        found = re.findall(rf"\[(\d+)\] {role} '{re.escape(name)}", self.seen)
        assert len(found) > which, f"no {role} {name!r} in\n{self.seen}"
        return found[which]

    def go(self, path):
        return self.do(f"goto [{OWN}{path}]")

    def click(self, role, name):
        return self.do(f"click [{self.number(role, name)}]")

    def type(self, name, text, role="textbox"):
        return self.do(f"type [{self.number(role, name)}] [{text}] [0]")

    def stop(self, answer="", verdicts=()):
        """The episode's score."""
        self.do(f"stop [{answer}]")
        outcome = Outcome(answer or None, (self.reward,), True, tuple(verdicts))
        return WebArena().score_outcome(self.task, outcome)["reward"]


def product_of(row):
    return next(p for p in stock(SEED).products if p.title == row["instantiation_dict"]["product"])


def path_of(row):
    return row["eval"]["reference_url"].removeprefix("__SHOPPING__")


# -- answers -------------------------------------------------------------------------------------------
STRINGS = KINDS[: KINDS.index("browse")]


@pytest.mark.parametrize("kind", STRINGS)
def test_answers_right_and_wrong(engine, rows, kind):
    row = rows[kind]
    answers = row["eval"]["reference_answers"]
    customer = Customer(engine, row)
    if "fuzzy_match" in answers:
        assert customer.stop("whenever", ["correct" if answers["fuzzy_match"] != "N/A" else "same"]) == 1.0
        assert Customer(engine, row).stop("whenever", ["incorrect"]) == 0.0
    else:
        right = answers.get("exact_match") or " and ".join(answers["must_include"])
        assert customer.stop(right) == 1.0
        assert Customer(engine, row).stop("something else") == 0.0
        if len(answers.get("must_include", ())) > 1:
            assert Customer(engine, row).stop(answers["must_include"][0]) == 0.0
    assert Customer(engine, row).stop("") == 0.0


def test_answers_are_on_the_pages(engine, rows):
    """What a task asks for can be read in the shop."""
    for kind, path in (
        ("price_of", f"/{slug(product_of(rows['price_of']))}.html"),
        ("reviewers", f"/{slug(product_of(rows['reviewers']))}.html"),
        ("order_number", "/sales/order/history/"),
        ("order_total", "/sales/order/history/"),
    ):
        customer = Customer(engine, rows[kind]).go(path)
        for part in rows[kind]["eval"]["reference_answers"]["must_include"]:
            assert part in customer.seen, kind


# -- pages ---------------------------------------------------------------------------------------------
PAGES = ["browse", "under_a_price", "search", "sorted_list", "dearest", "show_order"]


@pytest.mark.parametrize("kind", PAGES)
def test_pages_right_and_wrong(engine, rows, kind):
    row = rows[kind]
    assert Customer(engine, row).go(path_of(row)).stop() == 1.0
    assert Customer(engine, row).stop() == 0.0
    assert Customer(engine, row).go("/wishlist/").stop() == 0.0
    if "?" in path_of(row):
        assert Customer(engine, row).go(path_of(row).split("?")[0]).stop() == 0.0


def test_pages_are_reached_by_clicking(engine, rows):
    """As a customer would: through categories, filters and the search field."""
    row = rows["under_a_price"]
    path = path_of(row).split(".html")[0].strip("/")
    names = [stock(SEED).names["/".join(path.split("/")[: k + 1])] for k in range(path.count("/") + 1)]
    customer = Customer(engine, row)
    for name in names:
        customer.click("link", name)
    low, high = row["instantiation_dict"]["low"], row["instantiation_dict"]["high"]
    assert customer.click("link", f"${low} - ${high}").stop() == 1.0

    row = rows["search"]
    customer = Customer(engine, row)
    customer.do(f"type [{customer.number('textbox', 'Search')}] [{row['instantiation_dict']['words']}] [1]")
    assert customer.stop() == 1.0

    row = rows["show_order"]
    customer = Customer(engine, row).click("link", "My Account").click("link", "My Orders")
    number = path_of(row).strip("/").rsplit("/", 1)[1]
    assert customer.click("link", f"View Order {int(number):09}").stop() == 1.0


# -- what is changed -----------------------------------------------------------------------------------
def test_a_wish_right_and_wrong(engine, rows):
    row = rows["wish"]
    page = f"/{slug(product_of(row))}.html"
    assert Customer(engine, row).go(page).click("button", "Add to Wish List").stop() == 1.0
    assert Customer(engine, row).go(page).stop() == 0.0
    assert Customer(engine, row).go(page).click("button", "Add to Cart").stop() == 0.0
    assert Customer(engine, row).click("button", "Add to Wish List").stop() == 0.0  # another product


def test_the_cart_right_and_wrong(engine, rows):
    row = rows["cart"]
    page = f"/{slug(product_of(row))}.html"
    customer = Customer(engine, row).go(page).click("button", "Add to Cart")
    assert customer.stop() == 1.0
    assert Customer(engine, row).go(page).click("button", "Add to Wish List").stop() == 0.0
    removed = Customer(engine, row).go(page).click("button", "Add to Cart").click("button", "Remove ")
    assert removed.stop() == 0.0


def bought(engine, row, *, option=None, place=True):
    """Buy the task's product, with its option or another one."""
    product, values = product_of(row), row["instantiation_dict"]
    customer = Customer(engine, row).go(f"/{slug(product)}.html")
    customer.type(values["option"], option or values["value"], role="combobox")
    customer.click("button", "Add to Cart").click("link", "Proceed to Checkout")
    return customer.click("button", "Place Order") if place else customer


def test_an_order_right_and_wrong(engine, rows):
    row = rows["buy"]
    assert bought(engine, row).stop() == 1.0
    assert bought(engine, row, place=False).stop() == 0.0
    values = product_of(row).options[row["instantiation_dict"]["option"]]
    other = next(each for each in values if each != row["instantiation_dict"]["value"])
    assert bought(engine, row, option=other).stop() == 0.0


def test_two_instead_of_one_is_wrong(engine, rows):
    row = rows["buy"]
    customer = Customer(engine, row).go(f"/{slug(product_of(row))}.html")
    customer.type(row["instantiation_dict"]["option"], row["instantiation_dict"]["value"], role="combobox")
    customer.type("Qty", "2").click("button", "Add to Cart").click("link", "Proceed to Checkout")
    assert customer.click("button", "Place Order").stop() == 0.0


def test_an_order_again_right_and_wrong(engine, rows):
    row = rows["reorder"]
    number = row["instantiation_dict"]["number"]
    customer = Customer(engine, row).go("/sales/order/history/").click("button", f"Reorder {number}")
    customer.click("link", "Proceed to Checkout")
    assert customer.click("button", "Place Order").stop() == 1.0
    cart_only = Customer(engine, row).go("/sales/order/history/").click("button", f"Reorder {number}")
    assert cart_only.stop() == 0.0
    other = next(o.shown for o in reversed(account(stock(SEED), SEED).orders) if o.shown != number)
    wrong = Customer(engine, row).go("/sales/order/history/").click("button", f"Reorder {other}")
    assert wrong.click("link", "Proceed to Checkout").click("button", "Place Order").stop() == 0.0


def test_the_newsletter_right_and_wrong(engine, rows):
    row = rows["newsletter"]
    ticked = Customer(engine, row).go("/newsletter/manage/").click("checkbox", "General Subscription")
    assert "checked: true" in ticked.seen
    assert ticked.click("button", "Save").stop() == 1.0
    unsaved = Customer(engine, row).go("/newsletter/manage/").click("checkbox", "General Subscription")
    assert unsaved.stop() == 0.0
    assert Customer(engine, row).stop() == 0.0


def test_an_address_right_and_wrong(engine, rows):
    row = rows["move"]
    fields = {
        "Street Address": "street",
        "City": "city",
        "State/Province": "region",
        "Zip/Postal Code": "zip",
    }

    def moved(but=""):
        customer = Customer(engine, row).go("/customer/address")
        for label, name in fields.items():
            customer.type(label, "Elsewhere" if name == but else row["instantiation_dict"][name])
        return customer

    assert moved().click("button", "Save Address").stop() == 1.0
    assert moved().stop() == 0.0  # not saved
    for name in fields.values():
        assert moved(but=name).click("button", "Save Address").stop() == 0.0


def rated(engine, row, *, stars=None, nickname=None):
    product, values = product_of(row), row["instantiation_dict"]
    customer = Customer(engine, row).go(f"/{slug(product)}.html")
    word = f"{stars or values['stars']} star"
    customer.click("radio", word).type("Nickname", nickname or values["nickname"]).type("Summary", "So")
    return customer.type("Review", "It is so.").click("button", "Submit Review")


def test_a_rating_right_and_wrong(engine, rows):
    row = rows["rate"]
    assert rated(engine, row).stop() == 1.0
    other = "5" if row["instantiation_dict"]["stars"] != "5" else "4"
    assert rated(engine, row, stars=other).stop() == 0.0
    assert rated(engine, row, nickname="Somebody").stop() == 0.0
    assert Customer(engine, row).stop() == 0.0


def test_a_draft_right_and_wrong(engine, rows):
    row = rows["draft"]
    sku, number = product_of(row).asin, row["instantiation_dict"]["number"]

    def drafted(text):
        return Customer(engine, row).go("/contact").type("What’s on your mind?", text)

    whole = f"I want a refund for order {number}, SKU {sku}."
    assert drafted(whole).stop() == 1.0
    assert drafted(whole).click("button", "Submit").stop() == 0.0  # it was not to be sent
    assert drafted(f"I want a refund for order {number}.").stop() == 0.0
    assert drafted(whole).go("/").stop() == 0.0
