"""The shop's pages as HTML: plain, with the marks (classes, titles) that WebArena's evaluators look for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as e
from urllib.parse import urlencode

from envs.webarena.shop.account import Account, Address, Line, Order
from envs.webarena.shop.stock import price, slug
from envs.webshop.products import Product

NAME = "Corner Shop"
PER_PAGE = 12
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#222}
header,main,footer{max-width:1100px;margin:auto;padding:12px}
header{border-bottom:1px solid #ddd}nav a,nav form{margin-right:12px;display:inline-block}
ol.products{list-style:none;padding:0;display:grid;grid-template-columns:repeat(3,1fr);gap:16px}
ol.products li{border:1px solid #ddd;padding:10px}form.inline{display:inline}label{display:block;margin-top:8px}
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;padding:6px;text-align:left}
.message{background:#e5f5e5;padding:8px}input,select,textarea,button{font:inherit;padding:4px}textarea{width:100%}
"""


def money(dollars: float) -> str:
    """`$1,019.90`."""
    return f"${dollars:,.2f}"


def page(account: Account, title: str, *body: str) -> str:
    """A whole page, with the head that all share."""
    said, account.said = account.said, ""
    tops = [path for path in account.stock.categories if "/" not in path]
    links = "".join(f'<a href="/{path}.html">{e(account.stock.names[path])}</a>' for path in tops)
    pieces = sum(line.pieces for line in account.cart)
    message = f'<div role="alert" class="message">{e(said)}</div>' if said else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{e(title)}</title>
<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>
<header><a href="/">{NAME}</a>
<form action="/catalogsearch/result/" role="search" class="inline"><input name="q" aria-label="Search"
 placeholder="Search entire store here..."><button>Search</button></form>
<nav aria-label="Account"><a href="/customer/account/">My Account</a><a href="/wishlist/">My Wish List</a>
<a href="/checkout/cart/">My Cart ({pieces})</a></nav>
<nav aria-label="Categories">{links}</nav></header>
<main>{message}<h1>{e(title)}</h1>{"".join(body)}</main>
<footer><a href="/contact">Contact Us</a> <a href="/newsletter/manage/">Newsletter</a></footer></body></html>"""


def _post(action: str, button: str, title: str = "", **fields: str) -> str:
    hidden = "".join(f'<input type="hidden" name="{e(k)}" value="{e(v)}">' for k, v in fields.items())
    label = f' aria-label="{e(title)}" title="{e(title)}"' if title else ""
    return f'<form method="post" action="{e(action)}" class="inline">{hidden}<button{label}>{e(button)}</button></form>'


def _stars(account: Account, product: Product) -> str:
    percent = account.percent(product)
    count = len(account.reviews_of(product))
    if percent is None:
        return '<p class="rating">No reviews yet</p>'
    return f'<p class="rating" title="{percent}%">Rating: {percent}% ({count} Review{"s" if count != 1 else ""})</p>'


def _card(account: Account, product: Product) -> str:
    return (
        f'<li><a href="/{slug(product)}.html">{e(product.title)}</a>{_stars(account, product)}'
        f"<p class=price>{money(price(product))}</p>"
        + _post("/checkout/cart/add", "Add to Cart", sku=product.asin)
        + _post("/wishlist/add", "Add to Wish List", sku=product.asin)
        + "</li>"
    )


def grid(account: Account, products: Sequence[Product], kind: str = "") -> str:
    """Products side by side."""
    cards = "".join(_card(account, product) for product in products)
    return f'<ol class="products products-grid {kind}">{cards}</ol>'


def listing(
    account: Account, title: str, path: str, query: dict[str, str], products: Sequence[Product]
) -> str:
    """A category's or a search's products: in an order, within a price, a page at a time."""
    number = int(query.get("p", "1")) if query.get("p", "1").isdecimal() else 1
    pages = max(1, -(-len(products) // PER_PAGE))
    number = min(max(number, 1), pages)
    shown = products[(number - 1) * PER_PAGE : number * PER_PAGE]

    def link(words: str, **changes: str) -> str:
        asked = {**{name: value for name, value in query.items() if name != "p"}, **changes}
        return f'<a href="{e(path)}?{e(urlencode(asked))}">{e(words)}</a>'

    orders = [("Position", "position"), ("Product Name", "name"), ("Price", "price")]
    sorts = " ".join(link(words, product_list_order=of) for words, of in orders)
    sorts += " " + link("Set Descending Direction", product_list_dir="desc")
    sorts += " " + link("Set Ascending Direction", product_list_dir="asc")
    bounds = ["0-25", "25-50", "50-100", "100-200", "200-500"]
    prices = " ".join(link("${} - ${}".format(*bound.split("-")), price=bound) for bound in bounds)
    others = " ".join(link(f"Page {k}", p=str(k)) for k in range(1, pages + 1) if k != number)
    below = [
        f'<a href="/{each}.html">{e(account.stock.names[each])}</a>'
        for each in account.stock.categories
        if each.startswith(f"{path.strip('/').removesuffix('.html')}/")
        and each.count("/") == path.strip("/").count("/") + 1
    ]
    return page(
        account,
        title,
        f"<nav aria-label=Subcategories>{' '.join(below)}</nav>" if below else "",
        f"<p>{len(products)} Items, page {number} of {pages}</p>",
        f"<p>Sort By: {sorts}</p><p>Price: {prices}</p>",
        grid(account, shown) if shown else "<p>We can't find products matching the selection.</p>",
        f"<nav aria-label=Pages>{others}</nav>" if others else "",
    )


def product_page(account: Account, product: Product) -> str:
    """One product: what it is, its options, its reviews, and the form for one more."""
    selects = "".join(
        f'<label>{e(name)} <select name="option_{e(name)}">'
        + "".join(f"<option>{e(value)}</option>" for value in values)
        + "</select></label>"
        for name, values in product.options.items()
    )
    bullets = "".join(f"<li>{e(each)}</li>" for each in product.bullets)
    reviews = "".join(
        f"<li><h3>{e(review.title)}</h3><p>Rating: {review.percent}%</p><p>{e(review.text)}</p>"
        f"<p>Review by {e(review.nickname)}</p></li>"
        for review in account.reviews_of(product)
    )
    stars = "".join(
        f'<label><input type="radio" name="stars" value="{k}"> {k} star{"s" if k > 1 else ""}</label>'
        for k in range(1, 6)
    )
    return page(
        account,
        product.title,
        _stars(account, product),
        f"<p class=price>{money(price(product))}</p><p>In stock</p><p>SKU {product.asin}</p>",
        f'<form method="post" action="/checkout/cart/add"><input type="hidden" name="sku" value="{product.asin}">'
        f'{selects}<label>Qty <input name="qty" value="1"></label><button>Add to Cart</button></form>',
        _post("/wishlist/add", "Add to Wish List", sku=product.asin),
        f"<h2>Details</h2><p>{e(product.description)}</p><ul>{bullets}</ul>",
        f"<h2>Customer Reviews</h2><ul>{reviews}</ul>",
        "<h2>Write your own review</h2>"
        f'<form method="post" action="/review/product/post"><input type="hidden" name="sku" value="{product.asin}">'
        f"<fieldset><legend>Rating</legend>{stars}</fieldset>"
        '<label>Nickname <input name="nickname"></label><label>Summary <input name="title"></label>'
        '<label>Review <textarea name="detail"></textarea></label><button>Submit Review</button></form>',
    )


def _lines(lines: Iterable[Line], *, change: bool = False) -> str:
    rows = []
    for at, line in enumerate(lines):
        options = "".join(f"<dt>{e(name)}</dt><dd>{e(value)}</dd>" for name, value in line.options)
        more = f"<dl>{options}</dl>" if options else ""
        remove = _post("/checkout/cart/remove", "Remove", f"Remove {line.product.title}", line=str(at))
        rows.append(
            f'<tr><td><a href="/{slug(line.product)}.html">{e(line.product.title)}</a>{more}</td>'
            f"<td>{line.product.asin}</td><td>{money(price(line.product))}</td><td>{line.pieces}</td>"
            f"<td>{money(line.total)}</td>{f'<td>{remove}</td>' if change else ''}</tr>"
        )
    head = "<tr><th>Product Name</th><th>SKU</th><th>Price</th><th>Qty</th><th>Subtotal</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def cart_page(account: Account) -> str:
    """What is in the cart, and the way to the checkout."""
    if not account.cart:
        return page(account, "Shopping Cart", "<p>You have no items in your shopping cart.</p>")
    total = money(sum(line.total for line in account.cart))
    return page(
        account,
        "Shopping Cart",
        _lines(account.cart, change=True),
        f"<p>Subtotal {total}</p>",
        '<p><a href="/checkout/">Proceed to Checkout</a></p>',
    )


def checkout_page(account: Account) -> str:
    """The last look before an order is placed."""
    if not account.cart:
        return cart_page(account)
    pieces = sum(line.pieces for line in account.cart)
    return page(
        account,
        "Checkout",
        f"<h2>Ship To</h2><p>{'<br>'.join(map(e, account.address.lines))}</p>",
        f"<h2>Order Summary</h2>{_lines(account.cart)}<p>Flat Rate - Fixed {money(5.0 * pieces)}</p>",
        _post("/checkout/place", "Place Order"),
    )


def orders_page(account: Account) -> str:
    """All orders, the latest first."""
    rows = "".join(
        f"<tr><td>{order.shown}</td><td>{order.day:%-m/%-d/%y}</td><td>{money(order.total)}</td>"
        f'<td>{order.status}</td><td><a href="/sales/order/view/order_id/{order.number}/" '
        f'aria-label="View Order {order.shown}">View Order</a> '
        + _post(f"/sales/order/reorder/order_id/{order.number}/", "Reorder", f"Reorder {order.shown}")
        + "</td></tr>"
        for order in reversed(account.orders)
    )
    head = "<tr><th>Order #</th><th>Date</th><th>Order Total</th><th>Status</th><th>Action</th></tr>"
    return page(account, "My Orders", f"<table>{head}{rows}</table>")


def order_page(account: Account, order: Order) -> str:
    """One order."""
    return page(
        account,
        f"Order # {order.shown}",
        f"<p>{order.status}</p><p>Order Date: {order.day:%B %-d, %Y}</p>",
        f'<div class="order-details-items ordered">{_lines(order.lines)}'
        f"<p>Subtotal {money(order.goods)}</p><p>Shipping &amp; Handling {money(order.freight)}</p>"
        f"<p>Grand Total {money(order.total)}</p></div>",
        f"<h2>Shipping Address</h2><p>{e(order.address)}</p>",
        "<h2>Shipping Method</h2><p>Flat Rate - Fixed</p><h2>Payment Method</h2><p>Check / Money order</p>",
        _post(f"/sales/order/reorder/order_id/{order.number}/", "Reorder"),
    )


def account_page(account: Account) -> str:
    """Where the customer's own pages are."""
    links = [
        ("/sales/order/history/", "My Orders"),
        ("/wishlist/", "My Wish List"),
        ("/customer/address", "Address Book"),
        ("/newsletter/manage/", "Newsletter Subscriptions"),
    ]
    items = "".join(f'<li><a href="{path}">{words}</a></li>' for path, words in links)
    return page(account, "My Account", f"<ul>{items}</ul><p>{'<br>'.join(map(e, account.address.lines))}</p>")


def wishlist_page(account: Account) -> str:
    """What the customer wishes for."""
    if not account.wishes:
        return page(account, "My Wish List", "<p>You have no items in your wish list.</p>")
    return page(account, "My Wish List", grid(account, account.wishes, "wishlist"))


def address_page(account: Account) -> str:
    """The address, for bills and for parcels, and the form to change it."""
    lines = "<br>".join(map(e, account.address.lines))
    boxes = "".join(
        f'<div class="box box-address-{kind}"><strong>Default {kind.title()} Address</strong>'
        f'<div class="box-content"><address>{lines}</address></div></div>'
        for kind in ("billing", "shipping")
    )
    fields = "".join(
        f'<label>{words} <input name="{name}" value="{e(getattr(account.address, name))}"></label>'
        for name, words in ADDRESS.items()
    )
    return page(
        account,
        "Address Book",
        boxes,
        "<h2>Change Address</h2>"
        f'<form method="post" action="/customer/address/save">{fields}<button>Save Address</button></form>',
    )


ADDRESS = {
    "street": "Street Address",
    "city": "City",
    "region": "State/Province",
    "zip": "Zip/Postal Code",
    "country": "Country",
    "phone": "Phone Number",
}
"""The form's fields."""


def with_fields(address: Address, given: dict[str, str]) -> Address:
    """An address with some of its fields changed."""
    return Address(**{name: given.get(name, getattr(address, name)).strip() for name in ADDRESS})


def newsletter_page(account: Account) -> str:
    """Whether the newsletter is subscribed to."""
    ticked = " checked" if account.subscribed else ""
    return page(
        account,
        "Newsletter Subscription",
        '<form method="post" action="/newsletter/manage/save"><label><input type="checkbox" name="is_subscribed" '
        f'title="General Subscription"{ticked}> General Subscription</label><button>Save</button></form>',
    )


def contact_page(account: Account) -> str:
    """The form by which one writes to the shop."""
    return page(
        account,
        "Contact Us",
        '<form method="post" action="/contact/post"><label>Name <input name="name"></label>'
        '<label>Email <input name="email"></label>'
        '<label>What’s on your mind? <textarea name="comment" rows="6" title="What’s on your mind?"></textarea></label>'
        "<button>Submit</button></form>",
    )
