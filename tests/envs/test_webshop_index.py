"""WebShop's search, its goals and its reward."""

import itertools
import math
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.base import DataError
from envs.webshop import index as indexing
from envs.webshop.catalogue import products
from envs.webshop.goals import NO_LIMIT, SPLITS, Goal, goals, price_of
from envs.webshop.index import K1, TOP, B, Index, prepare, words
from envs.webshop.nouns import nouns
from envs.webshop.products import Product, Wish
from envs.webshop.reward import reward


@pytest.fixture(scope="module")
def catalogue():
    return list(products(600))


@pytest.fixture(scope="module")
def index(catalogue, tmp_path_factory):
    opened = Index(prepare(catalogue, tmp_path_factory.mktemp("index"), "test"))
    yield opened
    opened.close()


def opened(folder, texts):
    made = [Product(f"B{number:09}", text) for number, text in enumerate(texts)]
    return Index(prepare(made, folder, "texts"))


# -- search --------------------------------------------------------------------------------------------
def plain_bm25(texts, query):
    """(score, number) of all that have a word of the query, by the formula as Lucene has it, the best first."""
    documents = [Counter(words(text)) for text in texts]
    mean = sum(each.total() for each in documents) / len(documents)
    found = []
    for number, document in enumerate(documents):
        score = 0.0
        for term, times in Counter(words(query)).items():
            holding = sum(term in each for each in documents)
            if count := document[term]:
                idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
                score += times * idf * count / (count + K1 * (1 - B + B * document.total() / mean))
        if score:
            found.append((-score, number))
    return sorted(found)


@pytest.mark.parametrize(
    "query",
    [
        "red ankle boots with side zipper size 8.5",
        "i am looking for gluten free granola bars, and price lower than 20 dollars",
        "lamp lamp lamps dimmable",
        "wok",
    ],
)
def test_search_is_bm25(index, catalogue, query):
    want = plain_bm25([product.searched for product in catalogue], query)
    found = index.search(query)
    assert len(found) == min(TOP, len(want))
    scores = {number: score for score, number in want}
    assert [scores[number] for number in found] == pytest.approx([score for score, _ in want[:TOP]], rel=1e-5)


def test_the_best_fifty_and_of_equals_the_earlier(tmp_path):
    found = opened(tmp_path, ["red mug"] * 60 + ["red red mug"] + ["blue cup"] * 5)
    assert found.search("red mug") == [60, *range(49)]
    assert found.search("cup") == list(range(61, 66))
    assert found.search("cup", top=2) == [61, 62]


def test_what_cannot_be_among_the_best_is_left_out_without_a_difference(index, catalogue):
    """The first few are those of all, whatever was passed over on the way."""
    for number in range(0, 600, 7):
        text = catalogue[number].searched.split()
        for query in (" ".join(text[:6]), " ".join(text[-9:]), " ".join(text[number % 5 :: 9])):
            every = index.search(query, top=len(index))
            for top in (1, 3, 10, 50):
                assert index.search(query, top) == every[:top], query


@pytest.mark.parametrize("query", ["", "   ", "the of and", "zzzunheardof", "!!! [] \x00", "%", "'\"; drop"])
def test_a_query_without_a_known_word_finds_nothing(index, query):
    assert index.search(query) == []


def test_words_are_stemmed_and_in_any_script(tmp_path):
    assert words("The Boots, running QUICKLY: 8.5 über-gross 日本") == [
        "boot", "run", "quickli", "8.5", "über", "gross", "日本",
    ]  # fmt: skip
    found = opened(tmp_path, ["Tasse für Kaffee", "緑茶 100g", "plain"])
    assert found.search("TASSEN kaffee FÜR") == [0] and found.search("緑茶") == [1]


@given(
    st.lists(st.text(alphabet="ab c", max_size=12), min_size=1, max_size=30),
    st.text(alphabet="ab c", max_size=9),
)
def test_search_is_bm25_over_any_texts(tmp_path_factory, texts, query):
    found = opened(tmp_path_factory.mktemp("any"), texts)
    want = {number: score for score, number in plain_bm25([text + " " for text in texts], query)}
    got = found.search(query)
    found.close()
    assert set(got) == set(want)
    assert [want[number] for number in got] == pytest.approx(sorted(want.values()), rel=1e-5)


def test_postings_that_are_spilled_make_the_same_index(catalogue, index, tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "SPILL", 500)
    other = Index(prepare(catalogue, tmp_path, "test"))
    for name in ("documents", "counts", "starts", "lengths", "order"):
        assert (other.place / f"{name}.npy").read_bytes() == (index.place / f"{name}.npy").read_bytes()
    assert not (other.place / "spill").exists()


def test_products_come_back_whole_and_by_asin(index, catalogue):
    assert len(index) == len(catalogue)
    assert list(index.products()) == catalogue
    for product in catalogue[::50]:
        assert index.find(product.asin) == product
    for asin in ("", "B", "ZZZZZZZZZZ", catalogue[0].asin.lower(), catalogue[0].asin + "X", "茶"):
        assert index.find(asin) is None


def test_an_index_is_made_once_a_source_and_a_failed_one_leaves_nothing(tmp_path, catalogue):
    def never():
        raise AssertionError("read again")
        yield

    def broken():
        yield catalogue[0]
        raise DataError("row 2")

    first = prepare(catalogue[:5], tmp_path, "one")
    assert prepare(never(), tmp_path, "one") == first
    with pytest.raises(DataError, match="row 2"):
        prepare(broken(), tmp_path, "two")
    with pytest.raises(DataError, match="no products to index"):
        prepare([], tmp_path, "three")
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [first]
    assert prepare(catalogue[:6], tmp_path, "two") != first


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path, catalogue, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(indexing.np, "save", full)
    with pytest.raises(DataError, match=r"could not be written \(No space left on device\); make room there"):
        prepare(catalogue[:5], tmp_path / "new", "one")
    assert not [path for path in (tmp_path / "new").iterdir() if path.is_dir()]
    with pytest.raises(DataError, match="OVERNIGHT_CACHE"):
        (tmp_path / "file").write_text("")
        prepare(catalogue[:5], tmp_path / "file" / "below", "one")


def test_half_of_an_index_is_made_anew(tmp_path, catalogue):
    place = prepare(catalogue[:5], tmp_path, "one")
    (place / "whole.json").unlink()
    (tmp_path / f"{place.name}.left").mkdir()
    assert prepare(catalogue[:5], tmp_path, "one") == place
    assert len(Index(place)) == 5
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [place]


def test_several_that_make_an_index_at_once_agree(tmp_path, catalogue):
    places = []
    threads = [
        threading.Thread(target=lambda: places.append(prepare(catalogue[:50], tmp_path, "one")))
        for _ in range(3)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(places) == 3 and len(set(places)) == 1
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == places[:1]
    assert len(Index(places[0])) == 50


# -- goals ---------------------------------------------------------------------------------------------
KETTLE = Product(
    "B000000001",
    "Tin Kettle",
    query="kettles",
    path="Home › Kitchen › Kettles",
    pricing=(14.5,),
    attributes=("light weight",),
    options={"size": ("1 l", "2 l", "3 l"), "color": ("red", "blue")},
    wish=Wish("Find me a kettle", ("light weight",)),
    wishes=(Wish("a kettle.", ("light weight",), ("red",)), Wish("nothing asked", ())),
)


def test_a_synthetic_goal_for_each_combination_of_options():
    found = goals([KETTLE, Product("B000000002", "Mug")], "synthetic", 1)
    assert len(found) == 6
    assert {goal.options for goal in found} == set(itertools.product(("red", "blue"), ("1 l", "2 l", "3 l")))
    for goal in found:
        color, size = goal.options
        start = f"Find me a kettle with color: {color}, and size: {size}, and price lower than "
        assert goal.instruction == f"{start}{goal.price_upper:.2f} dollars"
        assert goal.price_upper in (30.0, 40.0, 50.0)  # the larger of two of 20, 30, 40 and 50
        assert (goal.title, goal.query, goal.path) == (KETTLE.title, KETTLE.query, KETTLE.path)
        assert Goal.of(goal.instruction, goal.as_dict()) == goal


def test_peoples_goals_are_those_that_name_attributes():
    (goal,) = goals([KETTLE], "human", 1)
    assert goal.instruction == f"a kettle, and price lower than {goal.price_upper:.2f} dollars"
    assert goal.options == ("red",)


def test_a_product_without_options_has_one_synthetic_goal_and_a_dear_one_no_budget():
    bare = Product("B1", "Piano", pricing=(5000.0,), wish=Wish("Find me a piano", ("grand",)))
    (goal,) = goals([bare], "synthetic", 1)
    assert goal.instruction == "Find me a piano" and goal.options == () and goal.price_upper == NO_LIMIT


def test_goals_of_an_index_are_those_of_its_products(index, catalogue):
    for kind in ("human", "synthetic"):
        found, want = index.goals(kind, 233), goals(catalogue, kind, 233)
        assert len(found) == len(want) and found[:300] == want[:300] and found[-1] == want[-1]
    assert goals(catalogue, "human", 233)[:50] != goals(catalogue, "human", 234)[:50]  # other budgets
    with pytest.raises(IndexError):
        found[len(found)]


def test_an_options_goals_are_in_an_order_that_is_shuffled_but_fixed(catalogue):
    once, again = (list(goals(catalogue, "synthetic", 1)) for _ in range(2))
    assert once == again
    asins = [goal.asin for goal in once]
    assert asins != sorted(asins, key=[product.asin for product in catalogue].index)


def test_splits_follow_one_another_without_a_gap():
    ends = [0, *(end for _, end in SPLITS.values())]
    assert [begin for begin, _ in SPLITS.values()] == ends[:-1] and ends[-1] is None


def test_a_price_of_a_range_is_drawn_once_and_within_it():
    for number in range(50):
        product = Product(f"B{number}", "x", pricing=(10.0, 20.0))
        assert 10 <= price_of(product, 1) <= 20 and price_of(product, 1) == price_of(product, 1)
    assert len({price_of(Product(f"B{number}", "x", pricing=(10.0, 20.0)), 1) for number in range(50)}) > 40


# -- reward --------------------------------------------------------------------------------------------
GOAL = Goal("B1", "…", ("light weight", "loud"), ("red", "2 l"), 20.0, "Tin Kettle", "kettles", KETTLE.path)
RIGHT = Product(
    "B1",
    "Tin Kettle",
    query="kettles",
    path=KETTLE.path,
    attributes=("light weight",),
    description="Very LOUD.",
)


@pytest.mark.parametrize(
    ("options", "price", "value"),
    [
        ({"color": "red", "size": "2 l"}, 20.0, 1.0),
        ({"color": "red", "size": "2 l"}, 20.01, 4 / 5),
        ({"color": "red"}, 5.0, 4 / 5),
        ({}, 5.0, 3 / 5),
        ({"color": "blue", "size": "1 l"}, 50.0, 2 / 5),
        ({"color": "dark red matte", "size": "2 l"}, 5.0, 1.0),  # a colour is known by its first colour word
    ],
)
def test_the_reward_counts_attributes_options_and_price(options, price, value):
    assert reward(GOAL, RIGHT, options, price).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("has", "met"),
    [
        (Product("B", "Tin Kettle", attributes=("Light-Weight", "loud")), 1.0),
        (Product("B", "Tin Kettle", attributes=("weight light steel", "loud")), 1.0),
        (Product("B", "Tin Kettle", bullets=("so LIGHT WEIGHT", "and loud")), 1.0),
        (Product("B", "Loud Kettle of Light Weight"), 1.0),
        (Product("B", "Tin Kettle", attributes=("light",)), 0.5),  # all its words are in what is asked for
        (Product("B", "Tin Kettle", attributes=("heavy",)), 0.0),
    ],
)
def test_an_attribute_is_met_by_a_like_one_or_by_the_texts(has, met):
    assert reward(GOAL, has, {}, 5.0).attributes == met


TITLE = "Copper Teapot Ladle Colander Whisk Grater Peeler Tongs Spatula Skillet Griddle"


@pytest.mark.parametrize(
    ("title", "query", "path", "kind"),
    [
        ("Copper Kettle", "kettles", "", 1.0),
        ("Tin Drum", "drums", "", 1.0),  # half of the nouns
        ("Wooden Chair", "kettles", KETTLE.path, 0.0),  # no noun in common, whatever the category
        ("", "kettles", KETTLE.path, 0.0),
    ],
)
def test_the_kind_of_product_is_told_by_nouns_query_and_categories(title, query, path, kind):
    assert reward(GOAL, Product("B", title, query=query, path=path), {}, 5.0).kind == kind


@pytest.mark.parametrize(
    ("shared", "query", "path", "kind"),
    [
        (1, "other", "Home › Sport › Balls", 0.1),  # 1 noun of 11: below a tenth
        (2, "other", "Home › Sport › Balls", 0.5),
        (2, "kettles", "Home › Sport › Balls", 1.0),
        (2, "other", "Kitchen › Home", 1.0),  # two parts of the path
        (3, "other", "", 1.0),  # above a fifth
    ],
)
def test_little_in_common_is_worth_little(shared, query, path, kind):
    goal = Goal("B1", "…", ("loud",), (), 20.0, TITLE, "kettles", KETTLE.path)
    title = " ".join([*TITLE.split()[:shared], "football"])
    assert len(nouns(TITLE)) == 11
    assert reward(goal, Product("B", title, query=query, path=path), {}, 5.0).kind == kind


def test_another_way_to_find_nouns_can_be_given():
    found = reward(GOAL, Product("B", "Wooden Chair"), {}, 5.0, nouns_of=lambda title: {"thing"})
    assert found.kind == 1.0


def test_a_title_without_nouns_counts_as_a_fifth():
    goal = Goal("B1", "…", ("loud",), (), 20.0, "the 12 of", "kettles", "")
    assert reward(goal, Product("B", "chair", query="kettles"), {}, 5.0).kind == 1.0
    assert reward(goal, Product("B", "chair", query="chairs"), {}, 5.0).kind == 0.5


def test_likeness_is_rounded_as_the_public_codes_library_rounds_it():
    """85.4 is 85, which is not above 85; 85.7 is 86."""
    from rapidfuzz import fuzz

    for one, other, alike in (("a" * 41 + "b" * 7, "a" * 41 + "c" * 7, False), ("abcdefg", "abcdefx", True)):
        ratio = fuzz.token_set_ratio(one, other)
        assert (85 < ratio < 85.5) is not alike and ratio > 85
        goal = Goal("B", "…", (one,), (), 1.0, "x", "", "")
        assert reward(goal, Product("B", "x", attributes=(other,)), {}, 1.0).attributes == alike


def test_the_own_product_of_each_goal_of_the_catalogue_is_worth_everything(catalogue):
    by_asin = {product.asin: product for product in catalogue}
    for kind in ("human", "synthetic"):
        for goal in goals(catalogue, kind, 233)[:2000]:
            product = by_asin[goal.asin]
            chosen = {
                name: value
                for name, values in product.options.items()
                for value in goal.options
                if value in values
            }
            assert reward(goal, product, chosen, price_of(product, 233)).value == 1.0, goal
