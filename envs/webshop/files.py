"""WebShop's public product files, and JSON lines of the same fields: read as a stream, whatever their size.

The public code's form is one JSON array of scraped products, beside it a file of attributes and invented instructions
(`items_ins_v2*.json`) and one of people's instructions (`items_human_ins.json`), each an object by ASIN.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any

import orjson

from envs.base import DataError
from envs.data import find
from envs.webshop.products import NO_PRICE, Product, Wish

CHUNK = 1 << 20
_PLACEHOLDER = "DUMMY_ATTR"
_SPACE = re.compile(r"[\s,]*")


def read_products(
    products: Path, attributes: Path | None = None, people: Path | None = None
) -> Iterator[Product]:
    """The products of a file in its order, each ASIN once; rows without a usable name or ASIN are passed over, as in
    the public code. `attributes` and `people` are the two files of instructions. Raises DataError."""
    known = _by_asin(attributes)
    said = _by_asin(people)
    seen: set[str] = set()
    for place, row in _rows(find(products)):
        asin = row.get("asin")
        if not isinstance(asin, str) or len(asin) > 10 or asin in ("", "nan") or asin in seen:
            continue
        seen.add(asin)
        try:
            yield _product(row, known.get(asin, {}), said.get(asin, ()))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{place}: product {asin}: {type(error).__name__}: {error}") from error
    if not seen:
        raise DataError(f"{products}: no products in it")


def _product(row: Mapping[str, Any], known: Mapping[str, Any], said: Any) -> Product:
    pricing = _pricing(row.get("pricing"))
    attributes = row.get("Attributes") or known.get("attributes") or [_PLACEHOLDER]
    wish = None
    if known.get("instruction"):
        wish = Wish(_text(known["instruction"]), tuple(known["instruction_attributes"]))
    bullets = row.get("small_description") or row.get("BulletPoints") or []
    return Product(
        asin=row["asin"],
        title=_text(row.get("name") or row.get("Title")),
        category=_text(row.get("category")),
        query=_text(row.get("query")).lower().strip(),
        path=_text(row.get("product_category")),
        pricing=pricing,
        price=" to ".join(f"${price}" for price in pricing),
        rating=str(row.get("average_rating") or "N.A."),
        description=_text(row.get("full_description") or row.get("Description")),
        bullets=tuple(map(_text, bullets if isinstance(bullets, list) else [bullets])),
        attributes=tuple(map(str, attributes)),
        options=_options(row),
        wish=wish,
        wishes=tuple(
            Wish(
                each["instruction"], tuple(each["instruction_attributes"]), tuple(each["instruction_options"])
            )
            for each in (said or row.get("instructions") or ())
            if each.get("instruction_attributes")
        ),
    )


def _pricing(given: Any) -> tuple[float, ...]:
    """One price or two, of a list of numbers or a text such as `$1,019.99$27.99`."""
    if isinstance(given, str):
        given = [part.replace(",", "").strip() for part in given.split("$")[1:]]
    found = tuple(float(price) for price in given or ())
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
        options[name.lower()] = tuple(map(_value, texts))
    return options


def _value(text: str) -> str:
    """An option's value as it is shown: a slash would end a part of the public shop's addresses."""
    return text.strip().replace("/", " | ").lower()


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _by_asin(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    with _opened(find(path)) as file:
        try:
            found = orjson.loads(file.read())
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: one JSON object by ASIN belongs here")
    return found


# -- rows of a large file ------------------------------------------------------------------------------
def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each object, of an array or of JSON lines."""
    with _opened(path) as file:
        begins = file.peek(CHUNK).lstrip()[:1]
        values = _array(file, path) if begins == b"[" else _lines(file, path)
        for number, row in values:
            place = f"{path}, product {number}"
            if not isinstance(row, dict):
                raise DataError(f"{place}: {str(row)[:40]!r} where an object belongs")
            yield place, row


def _opened(path: Path) -> io.BufferedReader:
    try:
        if path.suffix == ".gz":
            return io.BufferedReader(gzip.open(path, "rb"))
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _lines(file: io.BufferedReader, path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            yield number, orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error})") from error


def _array(file: io.BufferedReader, path: Path) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON array, of which never more than some are in memory."""
    decode, decoder = codecs.getincrementaldecoder("utf-8")(), JSONDecoder()
    text, at, number = decode.decode(file.read(CHUNK)), 0, 0
    at = text.index("[") + 1
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        try:
            if text.startswith("]", at):
                return
            value, at = decoder.raw_decode(text, at)
        except JSONDecodeError as error:
            more = file.read(CHUNK)
            if not more:
                raise DataError(f"{path}, product {number + 1}: the file breaks off ({error})") from error
            text, at = text[at:] + decode.decode(more), 0
            continue
        number += 1
        yield number, value
