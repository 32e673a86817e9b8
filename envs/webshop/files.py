"""WebShop's public product files, and JSON lines of the same fields: read as a stream, whatever their size.

The public code's form is one JSON array of scraped products, beside it a file of attributes and invented instructions
(`items_ins_v2*.json`) and one of people's instructions (`items_human_ins.json`), each an object by ASIN.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envs.base import DataError
from envs.data import find
from envs.webshop.products import NO_PRICE, Product, Wish
from envs.webshop.stream import entries, mended, rows

_PLACEHOLDER = "DUMMY_ATTR"
_BREAK = re.compile(r"\s*[\r\n]+\s*")
_NO_DIGIT = re.compile(r"[^0-9.]")


def read_products(
    products: Path, attributes: Path | None = None, people: Path | None = None
) -> Iterator[Product]:
    """The products of a file in its order, each ASIN once; rows without a usable name or ASIN are passed over, as in
    the public code. `attributes` and `people` are the two files of instructions. Raises DataError."""
    known = _by_asin(attributes)
    said = _by_asin(people)
    seen: set[str] = set()
    for place, _, row in rows(find(products)):
        if not isinstance(row, dict):
            raise DataError(f"{place}: {str(row)[:40]!r} where an object belongs")
        asin = row.get("asin")
        if not isinstance(asin, str) or not 0 < len(asin) <= 10 or asin == "nan" or asin in seen:
            continue
        seen.add(asin)
        try:
            yield _product(row, known(asin) or {}, said(asin))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{place} ({asin}): {type(error).__name__}: {error}") from error
    if not seen:
        raise DataError(f"{products}: no products in it")


def _product(row: Mapping[str, Any], known: Mapping[str, Any], said: Any) -> Product:
    pricing = _pricing(row.get("pricing"))
    attributes = row.get("Attributes") or known.get("attributes") or [_PLACEHOLDER]
    wish = None
    if known.get("instruction"):
        wish = Wish(_text(known["instruction"]), _texts(known["instruction_attributes"]))
    bullets = row.get("small_description") or row.get("BulletPoints") or []
    return Product(
        asin=mended(row["asin"]),
        title=_line(row.get("name") or row.get("Title")),
        category=_text(row.get("category")),
        query=_text(row.get("query")).lower().strip(),
        path=_text(row.get("product_category")),
        pricing=pricing,
        price=" to ".join(f"${price}" for price in pricing),
        rating=_text(row.get("rating") or "N.A."),  # the public code passes over `average_rating`
        description=_text(row.get("full_description") or row.get("Description")),
        bullets=_texts(bullets if isinstance(bullets, list) else [bullets]),
        attributes=_texts(attributes),
        options=_options(row),
        wish=wish,
        wishes=tuple(
            Wish(
                _text(each["instruction"]),
                _texts(each["instruction_attributes"]),
                _texts(each.get("instruction_options") or ()),
            )
            for each in (said or row.get("instructions") or ())
            if each.get("instruction_attributes")
        ),
    )


def _pricing(given: Any) -> tuple[float, ...]:
    """One price or two, of a list of numbers or a text such as `$1,019.99$27.99`."""
    if isinstance(given, str):
        given = [_NO_DIGIT.sub("", part) for part in given.split("$")[1:]]
    found = tuple(float(price) for price in given or () if price != "")
    return found[:2] or (NO_PRICE,)


def _options(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    given = row.get("customization_options")
    if given is None:
        given = row.get("options") or {}
    options: dict[str, tuple[str, ...]] = {}
    for name, values in given.items():
        if values is None:
            continue
        texts = [each if isinstance(each, str) else each["value"] for each in values]
        options[_line(name).lower()] = tuple(map(_value, texts))
    return options


def _value(text: str) -> str:
    """An option's value as it is shown: a slash would end a part of the public shop's addresses."""
    return _line(text).strip().replace("/", " | ").lower()


def _text(value: Any) -> str:
    return "" if value is None else mended(str(value))


def _line(value: Any) -> str:
    """On a page each title and each option is one line."""
    return _BREAK.sub(" ", _text(value))


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _by_asin(path: Path | None) -> Callable[[str], Any]:
    return _ByAsin(path) if path is not None else lambda asin: None


class _ByAsin:
    """A file of instructions, found by ASIN: on disk, as the large one is as long as a catalogue."""

    def __init__(self, path: Path) -> None:
        self._base = sqlite3.connect("")  # a file of its own that nobody else sees, gone when it is closed
        self._base.execute("create table rows (asin text primary key, value text) without rowid")
        self._base.executemany("insert or replace into rows values (?, ?)", self._rows(path))

    @staticmethod
    def _rows(path: Path) -> Iterator[tuple[str, str]]:
        for _, asin, value in entries(find(path), "ASIN"):
            yield mended(asin), json.dumps(value)

    def __call__(self, asin: str) -> Any:
        found = self._base.execute("select value from rows where asin = ?", (asin,)).fetchone()
        return None if found is None else json.loads(found[0])
