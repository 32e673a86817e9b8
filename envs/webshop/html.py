"""The shop's pages as HTML for browsers: no scripts, no pictures, nothing from elsewhere.

Names of classes and ids (`instruction-text`, `search_input`, `product-link`, `product-title`, `product-price`,
`product-info`) are those by which programs that drive WebShop's pages find things.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from urllib.parse import quote, urlencode

from envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SEARCH, SUB_PAGES, Results
from envs.webshop.products import Product

OPTION = "option."
"""Begins the name of a field that holds an option's chosen value."""
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; color: #222 }
#instruction-text { background: #f3f1ea; border-radius: 6px; padding: .5rem 1rem }
button { font: inherit; padding: .3rem .8rem; margin: .2rem .4rem .2rem 0 }
.product, fieldset { border: 1px solid #ccc; border-radius: 6px; margin: .8rem 0; padding: .5rem 1rem }
.product-price { font-weight: bold }
.purchase { background: #23634a; color: #fff }
"""


def page(instruction: str, title: str, *body: str) -> str:
    """A whole document: what is to be bought, and below it the page."""
    head = f"<!DOCTYPE html><html lang=en><head><meta charset=utf-8><title>{escape(title)}</title>"
    told = (
        f'<div id="instruction-text"><h4>Instruction:<br>{escape(instruction)}</h4></div>'
        if instruction
        else ""
    )
    return f"{head}<style>{_STYLE}</style></head><body>{told}{''.join(body)}</body></html>\n"


def start(instruction: str, session: str) -> str:
    """Where a search begins."""
    return page(
        instruction,
        "WebShop",
        f'<form action="{_path("search_results", session)}">'
        '<input type="search" id="search_input" name="q" aria-label="Search" required autofocus>'
        f'<button class="btn btn-success" type="submit">{SEARCH}</button></form>',
    )


def results(instruction: str, session: str, keywords: str, shown: Results) -> str:
    """One page of a search's results."""
    here = _path("search_results", session)

    def turn(number: int, name: str) -> str:
        return _form(here, name, {"q": keywords, "page": str(number)})

    items = (
        f'<div class="product searched-product"><h4 class="product-asin"><a class="product-link" '
        f'href="{_path("item_page", session, row.asin)}?{escape(urlencode({"q": keywords, "page": shown.number}))}">'
        f'{escape(row.asin)}</a></h4><h4 class="product-title">{escape(row.title)}</h4>'
        f'<h5 class="product-price">{escape(row.price)}</h5></div>'
        for row in shown.rows
    )
    return page(
        instruction,
        f"{keywords} - WebShop",
        _form(_path(session), BACK, {}),
        f"<h3>Page {shown.number} (Total results: {shown.total})</h3>",
        turn(shown.number - 1, PREVIOUS) if shown.previous else "",
        turn(shown.number + 1, NEXT) if shown.next else "",
        *items,
    )


def item(
    instruction: str, session: str, product: Product, place: Mapping[str, str], chosen: Mapping[str, str]
) -> str:
    """A product's page: one form, whose buttons take the chosen options with them. `place` is where in which search
    the customer came from."""
    choices = []
    for name, values in product.options.items():
        radios = (
            f'<label><input type="radio" name="{escape(OPTION + name)}" value="{escape(value)}"'
            f"{' checked' if chosen.get(name) == value else ''}>{escape(value)}</label> "
            for value in values
        )
        choices.append(
            f'<fieldset class="radio-toolbar"><legend>{escape(name)}</legend>{"".join(radios)}</fieldset>'
        )
    subs = (_button(name, _path("item_sub_page", session, product.asin, name)) for name in SUB_PAGES)
    return page(
        instruction,
        product.title,
        f'<form action="{_path("item_page", session, product.asin)}">{_hidden(place)}',
        _button(BACK, _path(session)),
        _button(PREVIOUS, _path("search_results", session)),
        *choices,
        f'<h2 class="product-title">{escape(product.title)}</h2><h4 class="product-price">Price: '
        f"{escape(product.shown_price)}</h4><h4>Rating: {escape(product.rating)}</h4>",
        *subs,
        f'<button class="btn purchase" formmethod="post" formaction="{_path("done", session, product.asin)}">'
        f"{BUY}</button></form>",
    )


def sub(
    instruction: str, session: str, product: Product, fields: Mapping[str, str], lines: Sequence[str]
) -> str:
    """A product's description, features or reviews. `fields`: those of the product's page."""
    return page(
        instruction,
        product.title,
        _form(_path(session), BACK, {}),
        _form(_path("item_page", session, product.asin), PREVIOUS, fields),
        *(f'<p class="product-info">{escape(line)}</p>' for line in lines),
    )


def end(session: str, score: float) -> str:
    """After a purchase."""
    return page(
        "",
        "WebShop",
        "<h3>Thank you for shopping with us!</h3>",
        f'<h4>Your score (min 0.0, max 1.0)</h4><pre id="reward">{score}</pre>',
        f'<p><a href="{_path(session)}">Begin again</a></p>',
    )


def refused(words: str) -> str:
    """What cannot be shown, and why."""
    return page("", "WebShop", f"<h3>{escape(words)}</h3>")


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _hidden(fields: Mapping[str, str]) -> str:
    return "".join(_field(name, value) for name, value in fields.items())


def _field(name: str, value: str) -> str:
    return f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'


def _button(name: str, to: str) -> str:
    return f'<button class="btn" formaction="{to}">{escape(name)}</button>'


def _form(to: str, name: str, fields: Mapping[str, str]) -> str:
    return f'<form action="{to}">{_hidden(fields)}<button class="btn">{escape(name)}</button></form>'


def fields_of(place: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The fields that a product's page was made from."""
    return {**place, **{OPTION + name: value for name, value in chosen.items()}}


def chosen_of(product: Product, fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The options in a form's fields; what the product has not is left out."""
    return {
        name: value
        for field, value in fields
        if field.startswith(OPTION) and value in product.options.get(name := field.removeprefix(OPTION), ())
    }
