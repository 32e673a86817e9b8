"""The shop as a site: which page answers which address, what its forms change, and the few REST calls of Magento's that
evaluators make. No sockets here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from envs.webarena.shop import html
from envs.webarena.shop.account import Account, Line
from envs.webarena.shop.stock import Review, price
from envs.webshop.products import Product

TOKEN = "a-token-of-the-shop"
"""What stands for an administrator's token; nothing is secret here."""
_VIEW = re.compile(r"/sales/order/view/order_id/(\d+)")
_REORDER = re.compile(r"/sales/order/reorder/order_id/(\d+)")
_REVIEWS = re.compile(r"/rest(?:/default)?/V1/products/([^/]+)/reviews")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the site answers: a page, JSON, or the address to go on to."""

    status: int = 200
    body: bytes = b""
    kind: str = "text/html; charset=utf-8"
    location: str = ""


def answer(account: Account, method: str, target: str, body: bytes = b"") -> Reply:
    """What a request gets: `target` is path and query, `body` a form's fields."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    path = parts.path.rstrip("/") or "/"
    if path.startswith("/rest/"):
        return _rest(account, method, path)
    if method == "POST":
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        to = _change(account, path, fields)
        return Reply(303, location=to) if to else _missing(account)
    found = _page(account, path, query)
    return _missing(account) if found is None else Reply(body=found.encode())


def _missing(account: Account) -> Reply:
    return Reply(
        404, html.page(account, "404 Not Found", "<p>The page you requested was not found.</p>").encode()
    )


# -- pages ---------------------------------------------------------------------------------------------
def _page(account: Account, path: str, query: Mapping[str, str]) -> str | None:
    own = {
        "/customer/account": html.account_page,
        "/sales/order/history": html.orders_page,
        "/wishlist": html.wishlist_page,
        "/customer/address": html.address_page,
        "/newsletter/manage": html.newsletter_page,
        "/contact": html.contact_page,
        "/checkout/cart": html.cart_page,
        "/checkout": html.checkout_page,
    }
    if path in own:
        return own[path](account)
    if path == "/":
        return html.page(account, html.NAME, html.grid(account, account.stock.products[:12]))
    if found := _VIEW.fullmatch(path):
        order = account.order(int(found[1]))
        return None if order is None else html.order_page(account, order)
    if path in ("/catalogsearch/result", "/catalogsearch/result/index"):
        words = query.get("q", "")
        products = sorted_by(query, account.stock.search(words))
        return html.listing(account, f"Search results for: '{words}'", f"{path}/", dict(query), products)
    name = path.removeprefix("/").removesuffix(".html")
    if name in account.stock.slugs:
        return html.product_page(account, account.stock.slugs[name])
    if name in account.stock.categories:
        products = sorted_by(query, account.stock.categories[name])
        return html.listing(account, account.stock.names[name], path, dict(query), products)
    return None


def sorted_by(query: Mapping[str, str], products: Any) -> list[Product]:
    """Products as a listing's query asks for them: within `price=a-b`, ordered by `product_list_order`, in the
    direction `product_list_dir`."""
    found = list(products)
    bound = re.fullmatch(r"(\d*)-(\d*)", query.get("price", ""))
    if bound:
        low, high = float(bound[1] or 0), float(bound[2] or "inf")
        found = [product for product in found if low <= price(product) < high]
    order = query.get("product_list_order", "position")
    if order == "price":
        found.sort(key=lambda product: (price(product), product.title))
    elif order == "name":
        found.sort(key=lambda product: product.title)
    if query.get("product_list_dir") == "desc":
        found.reverse()
    return found


# -- forms ---------------------------------------------------------------------------------------------
def _change(account: Account, path: str, fields: dict[str, str]) -> str:
    """Do what a form asks for; the address to go on to, "" for a form that there is not."""
    product = account.stock.by_sku.get(fields.get("sku", ""))
    if found := _REORDER.fullmatch(path):
        order = account.order(int(found[1]))
        for line in order.lines if order else ():
            account.put(line)
        return "/checkout/cart/" if order else ""
    match path:
        case "/checkout/cart/add" if product is not None:
            return _add(account, product, fields)
        case "/checkout/cart/remove":
            at = fields.get("line", "")
            if at.isdecimal() and int(at) < len(account.cart):
                del account.cart[int(at)]
            return "/checkout/cart/"
        case "/checkout/place":
            if not account.cart:
                return "/checkout/cart/"
            order = account.buy()
            account.said = f"Thank you for your purchase! Your order number is: {order.shown}."
            return f"/sales/order/view/order_id/{order.number}/"
        case "/wishlist/add" if product is not None:
            if product not in account.wishes:
                account.wishes.append(product)
            account.said = f"{product.title} has been added to your Wish List."
            return "/wishlist/"
        case "/customer/address/save":
            account.address = html.with_fields(account.address, fields)
            account.said = "You saved the address."
            return "/customer/address"
        case "/newsletter/manage/save":
            account.subscribed = "is_subscribed" in fields
            account.said = "We have saved your subscription." if account.subscribed else "We have removed it."
            return "/newsletter/manage/"
        case "/review/product/post" if product is not None:
            return _review(account, product, fields)
        case "/contact/post":
            account.said = "Thanks for contacting us."
            return "/contact"
    return ""


def _add(account: Account, product: Product, fields: Mapping[str, str]) -> str:
    options = tuple(
        (name, fields.get(f"option_{name}", values[0])) for name, values in product.options.items()
    )
    pieces = fields.get("qty", "1").strip()
    if (
        not pieces.isdecimal()
        or not 0 < int(pieces) <= 100
        or any(v not in product.options[n] for n, v in options)
    ):
        account.said = "Please enter a quantity from 1 to 100, and options of the product."
        return account.stock.page_of(product)
    account.put(Line(product, options, int(pieces)))
    account.said = f"You added {product.title} to your shopping cart."
    return "/checkout/cart/"


def _review(account: Account, product: Product, fields: Mapping[str, str]) -> str:
    name, title, text = (fields.get(each, "").strip() for each in ("nickname", "title", "detail"))
    stars = fields.get("stars", "")
    if not (name and title and text) or stars not in ("1", "2", "3", "4", "5"):
        account.said = "Please fill in all fields of the review, and choose its stars."
    else:
        account.reviews.setdefault(product.asin, []).append(Review(name, title, text, int(stars)))
        account.said = "You submitted your review."
    return account.stock.page_of(product)


# -- REST ----------------------------------------------------------------------------------------------
def _rest(account: Account, method: str, path: str) -> Reply:
    if method == "POST" and path.endswith("/integration/admin/token"):
        return _json(TOKEN)
    if found := _REVIEWS.fullmatch(path):
        product = account.stock.by_sku.get(found[1])
        if product is None:
            return _json({"message": "The product that was requested doesn't exist."}, 404)
        return _json(
            [
                {
                    "nickname": review.nickname,
                    "title": review.title,
                    "detail": review.text,
                    "ratings": [{"percent": review.percent, "value": review.stars}],
                }
                for review in account.reviews_of(product)
            ]
        )
    if re.fullmatch(r"/rest(?:/default)?/V1/orders", path):
        items = [
            {
                "increment_id": order.shown,
                "created_at": f"{order.day} 12:00:00",
                "status": order.status.lower(),
                "grand_total": order.total,
            }
            for order in reversed(account.orders)
        ]
        return _json({"items": items, "total_count": len(items)})
    return _json({"message": "Request does not match any route."}, 404)


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, orjson.dumps(value), "application/json")
