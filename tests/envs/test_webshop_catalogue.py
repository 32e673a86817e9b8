"""WebShop's products: the catalogue of our own, and files of the public code's form, whole and broken."""

import gzip
import json
from collections import Counter

import pytest

from envs.base import DataError
from envs.webshop import stream
from envs.webshop.catalogue import CATEGORIES, COUNT, SEED, products
from envs.webshop.files import read_products
from envs.webshop.products import Product, Wish

ITEMS = [
    {
        "asin": "B000000001",
        "name": "Tin Kettle, 1.5 L",
        "category": "garden",
        "query": " Kettles ",
        "product_category": "Home › Kitchen › Kettles",
        "pricing": "$1,019.99",
        "full_description": "Boils.",
        "small_description": ["Light ", "Loud"],
        "customization_options": {
            "Color": [{"value": " Red/Blue "}, {"value": "GREEN"}],
            "Size": None,
        },
        "average_rating": 4.5,
    },
    {"asin": "B000000002", "name": "Mug", "pricing": "$4$6.5$9", "small_description": "One bullet"},
    {"asin": "B000000003", "name": None, "pricing": None, "full_description": None},
]
ATTRIBUTES = {
    "B000000001": {
        "attributes": ["light weight"],
        "instruction": "Find me a kettle",
        "instruction_attributes": ["light weight"],
    },
    "B000000002": {"attributes": []},
    "B000000009": {"attributes": ["of nothing"]},
}
PEOPLE = {
    "B000000002": [
        {"instruction": "i want a mug.", "instruction_attributes": ["small"], "instruction_options": ["red"]},
        {"instruction": "a mug", "instruction_attributes": [], "instruction_options": []},
    ]
}


def file_of(folder, name, value):
    path = folder / name
    text = value if isinstance(value, str) else json.dumps(value)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


# -- our own -------------------------------------------------------------------------------------------
def test_the_catalogue_has_over_a_thousand_products_in_over_twenty_categories():
    found = list(products())
    assert len(found) == COUNT >= 1000
    assert len({product.asin for product in found}) == COUNT
    queries = Counter(product.query for product in found)
    assert queries.keys() == set(CATEGORIES) and len(queries) >= 20
    assert min(queries.values()) >= 50
    for product in found:
        assert len(product.asin) == 10 and product.asin.isalnum() and product.asin == product.asin.upper()
        assert product.title and product.description and product.bullets and "›" in product.path
        assert all(price > 0 for price in product.pricing) and list(product.pricing) == sorted(
            product.pricing
        )
        assert product.options and all(len(set(values)) == len(values) for values in product.options.values())
        assert product.wish is not None and set(product.wish.attributes) <= set(product.attributes)
        for wish in product.wishes:
            assert set(wish.attributes) <= set(product.attributes)
            assert all(any(value in of for of in product.options.values()) for value in wish.options)
            assert all(each in wish.text for each in (*wish.attributes, *wish.options))
    assert any(len(product.pricing) == 2 for product in found)


def test_a_seed_decides_all_and_a_longer_catalogue_begins_with_a_shorter_one():
    assert list(products(30, SEED)) == list(products(60, SEED))[:30]
    assert list(products(30, 1)) == list(products(30, 1)) != list(products(30, 2))


# -- the public files' form ----------------------------------------------------------------------------
def test_a_scraped_row_becomes_a_product(tmp_path):
    items = file_of(tmp_path, "items.json", ITEMS)
    first, second, third = read_products(
        items, file_of(tmp_path, "a.json", ATTRIBUTES), file_of(tmp_path, "p.json", PEOPLE)
    )
    assert first == Product(
        asin="B000000001",
        title="Tin Kettle, 1.5 L",
        category="garden",
        query="kettles",
        path="Home › Kitchen › Kettles",
        pricing=(1019.99,),
        price="$1019.99",
        rating="N.A.",
        description="Boils.",
        bullets=("Light ", "Loud"),
        attributes=("light weight",),
        options={"color": ("red | blue", "green")},
        wish=Wish("Find me a kettle", ("light weight",)),
    )
    assert second.pricing == (4.0, 6.5) and second.shown_price == "$4.0 to $6.5"
    assert second.bullets == ("One bullet",) and second.wish is None
    assert second.wishes == (Wish("i want a mug.", ("small",), ("red",)),)
    assert third.title == third.description == "" and third.shown_price == "$100.0" and not third.options


@pytest.mark.parametrize(
    "form", ["items.json", "items.json.gz", "items.jsonl", "items.ndjson.gz", "pretty.json"]
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_every_form_is_the_same_products_however_it_is_cut_into_pieces(tmp_path, monkeypatch, form, chunk):
    monkeypatch.setattr(stream, "CHUNK", chunk)
    want = list(read_products(file_of(tmp_path, "plain.json", ITEMS)))
    text = json.dumps(ITEMS)
    if form.startswith("pretty"):
        text = "\ufeff \n" + json.dumps(ITEMS, indent=3, ensure_ascii=False)
    elif "l" in form.split(".")[1] or "nd" in form:
        text = "\n\n".join(map(json.dumps, ITEMS))
    attributes = file_of(tmp_path, "a.json", json.dumps(ATTRIBUTES, indent=1))
    found = list(read_products(file_of(tmp_path, form, text)))
    assert found == want
    assert next(read_products(file_of(tmp_path, form, text), attributes)).attributes == ("light weight",)


def test_rows_without_a_usable_asin_and_second_ones_are_passed_over(tmp_path):
    rows = [
        {"asin": "nan", "name": "no"},
        {"name": "no"},
        {"asin": "", "name": "no"},
        {"asin": "B0000000012", "name": "too long"},
        {"asin": "B1", "name": "first"},
        {"asin": "B1", "name": "second"},
    ]
    assert [product.title for product in read_products(file_of(tmp_path, "x.json", rows))] == ["first"]


def test_odd_characters_stay_or_become_ones_that_can_be_written(tmp_path):
    row = {
        "asin": "B1",
        "name": 'Café \U0001f375\nset \\ "x" 茶',
        "pricing": "$ 1 019,00 - $20 each",
        "customization_options": {"Größe / Farbe": [{"value": "[A]/Ä"}, {"value": "½ cup\r\n(2)"}]},
    }
    text = json.dumps([row]).replace("\\ud83c\\udf75", "\\ud83c\\udf75\\ud83d")
    (product,) = read_products(file_of(tmp_path, "x.json", text))
    assert product.title == 'Café \U0001f375\ufffd set \\ "x" 茶'
    assert product.options == {"größe / farbe": ("[a] | ä", "½ cup (2)")}
    assert product.pricing == (101900.0, 20.0)
    (line,) = read_products(file_of(tmp_path, "x.jsonl", text[1:-1]))
    assert line == product


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "[]", "no products in it"),
        ("x.json", '[{"asin": "B1"}, {"asin": "B2", "na', "product 2: not JSON, or the file breaks off"),
        ("x.json", '[{"asin": "B1"}, nothing]', "product 2: not JSON"),
        ("x.json", '[{"asin": "B1"}, 7]', "product 2: '7' where an object belongs"),
        ("x.json", '[{"asin": "B1", "pricing": [true, "x"]}]', "product 1 (B1): ValueError"),
        (
            "x.json",
            '[{"asin": "B1", "customization_options": {"a": [{}]}}]',
            "product 1 (B1): KeyError: 'value'",
        ),
        ("x.jsonl", '{"asin": "B1"}\n{"asin": ', "line 2: not JSON"),
        ("x.jsonl", "", "no products in it"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, name, text, said):
    with pytest.raises(DataError) as error:
        list(read_products(file_of(tmp_path, name, text)))
    assert said in str(error.value) and str(tmp_path / name) in str(error.value)


def test_damage_to_the_bytes_is_told(tmp_path):
    cut = tmp_path / "x.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(ITEMS * 50).encode())[:-20])
    with pytest.raises(DataError, match="damaged gzip file"):
        list(read_products(cut))
    latin = tmp_path / "x.json"
    latin.write_bytes(b'[{"asin": "B1", "name": "caf\xe9"}]')
    with pytest.raises(DataError, match="not UTF-8"):
        list(read_products(latin))
    with pytest.raises(DataError, match=r"nowhere\.json"):
        list(read_products(tmp_path / "nowhere.json"))


def test_a_file_with_no_end_to_a_product_is_refused_before_it_is_all_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "LARGEST", 1000)
    monkeypatch.setattr(stream, "CHUNK", 100)
    path = file_of(tmp_path, "x.json", '[{"asin": "B1"}, {"asin" "B2"}' + "," * 5000)
    with pytest.raises(DataError, match="product 2: not JSON"):
        list(read_products(path))


def test_a_list_where_instructions_by_asin_belong_is_refused(tmp_path):
    items = file_of(tmp_path, "items.json", ITEMS)
    with pytest.raises(DataError, match="one JSON object by ASIN belongs here"):
        list(read_products(items, file_of(tmp_path, "a.json", [{"asin": "B1"}])))
