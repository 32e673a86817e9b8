"""WebShop against the public catalogue, people's goals and published transcripts.

OVERNIGHT_WEBSHOP_TRANSCRIPTS names another file of transcripts of the same form: JSON lines of `session`,
`instruction`, `reward` and `steps`, [action, observation] each.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import pytest

from envs.webshop.files import read_products
from envs.webshop.goals import goals, price_of
from envs.webshop.pages import NEXT, End, Item, Results, Said, Start, Sub, clickable, read, written
from envs.webshop.reward import reward

PRODUCTS = "webshop/products_1k.jsonl"
ATTRIBUTES = "webshop/items_ins_v2_1000.json"
TRANSCRIPTS = "webshop/react_davinci002_0_249.jsonl.gz"
SEED = 233
ACTION = re.compile(r"(search|click|think)\[.*", re.DOTALL)


@pytest.fixture(scope="module")
def catalogue(published):
    return list(read_products(published(PRODUCTS), published(ATTRIBUTES)))


@pytest.fixture(scope="module")
def transcripts(published):
    path = published(TRANSCRIPTS, "OVERNIGHT_WEBSHOP_TRANSCRIPTS")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def test_the_small_catalogue_has_6910_synthetic_goals(catalogue):
    assert len(catalogue) == 1000
    found = goals(catalogue, "synthetic", SEED)
    assert len(found) == 6910 and len({goal.asin for goal in found}) == 415


def test_a_goals_own_product_with_its_own_options_is_worth_everything(catalogue):
    products = {product.asin: product for product in catalogue}
    for goal in goals(catalogue, "synthetic", SEED):
        product = products[goal.asin]
        options = dict(zip(sorted(product.options), goal.options, strict=True))
        assert reward(goal, product, options, price_of(product, SEED)).value == 1.0, goal


def test_something_else_is_worth_less(catalogue):
    """Of goals with options: without them, with the price above the budget, and another kind of product."""
    products = {product.asin: product for product in catalogue}
    some = [goal for goal in goals(catalogue, "synthetic", SEED) if goal.options][:300]
    for goal in some:
        product = products[goal.asin]
        whole = len(goal.attributes) + len(goal.options) + 1
        bare = reward(goal, product, {}, price_of(product, SEED))
        assert bare.value == pytest.approx((whole - len(goal.options)) / whole)
        options = dict(zip(sorted(product.options), goal.options, strict=True))
        dear = reward(goal, product, options, goal.price_upper + 0.01)
        assert dear.value == pytest.approx((whole - 1) / whole)
    table = next(product for product in catalogue if product.query == "console tables")
    other = next(goal for goal in some if "›" in goal.path and goal.path.split("›")[0] not in table.path)
    assert reward(other, table, {}, 1.0).value < 0.5


def test_transcripts_are_read_whole_and_written_again(transcripts):
    """Every observation is a page that, written again from what was read, is the same to the letter."""
    kinds = Counter()
    for row in transcripts:
        for action, observation in row["steps"]:
            page = read(observation)
            kinds[type(page)] += 1
            assert written(page, "react", "") == observation
            if isinstance(page, Said):
                assert page.text in ("OK.", "Invalid action!", "") or page.text.startswith(
                    "You have clicked "
                )
            if isinstance(page, Start):
                assert page.instruction == row["instruction"]
            if isinstance(page, Results):
                assert page.rows or not page.total
                assert all(re.fullmatch(r"[0-9A-Z]{10}", each.asin) for each in page.rows)
                assert all(each.price.startswith("$") for each in page.rows)
            if isinstance(page, Item):
                assert page.price.startswith("$")
                assert all(option.values for option in page.options)
            if isinstance(page, End):
                assert page.score == pytest.approx(row["reward"], abs=1e-4), action
    assert {Start, Results, Item, End, Said} <= kinds.keys() <= {Start, Results, Item, Sub, End, Said}


def test_every_action_of_the_transcripts_is_one_of_the_grammar(transcripts):
    """What is none was answered as invalid, here as there."""
    for row in transcripts:
        for action, observation in row["steps"]:
            if action != "reset" and not ACTION.fullmatch(action):
                assert observation == "Invalid action!", action


def test_clicks_of_the_transcripts_are_on_what_the_page_before_shows(transcripts):
    """An option, a result or a button that is on the last page that was read; else it was refused."""
    for row in transcripts:
        page = None
        for action, observation in row["steps"]:
            seen = read(observation)
            if action.startswith("click[") and action.endswith("]"):
                word = action[len("click[") : -1]
                if (
                    isinstance(page, Item)
                    and isinstance(seen, Said)
                    and seen.text.startswith("You have clicked")
                ):
                    assert any(word in option.values for option in page.options)
                if isinstance(page, Results) and isinstance(seen, Item):
                    assert word in {each.asin for each in page.rows}
                    assert seen.title == next(each.title for each in page.rows if each.asin == word)
            if not isinstance(seen, Said):
                page = seen


def test_what_was_refused_there_is_what_cannot_be_done_here(transcripts):
    """By the page alone that was seen last. (There was no next page. The code of then also took results that it did
    not show, and a page of attributes that it did not offer; a model that names one is rare.)"""
    refused, done, other = 0, 0, []
    for row in transcripts:
        page = None
        for action, observation in row["steps"]:
            verb, _, word = action.partition("[")
            if verb == "click" and word.endswith("]"):
                can = word[:-1] in clickable(page) and word[:-1] != NEXT
            else:
                can = verb in ("reset", "think") or (verb == "search" and isinstance(page, Start))
            if (observation != "Invalid action!") is not can:
                other.append((row["session"], action))
            refused, done = refused + (not can), done + can
            seen = read(observation)
            page = page if isinstance(seen, Said) else seen
    assert refused > 0 and done > 3 * len(transcripts)
    assert len(other) <= (refused + done) // 500, other


def test_instructions_are_those_of_peoples_goals(transcripts, published):
    """Session `fixed_k` has goal k. (The file of goals has lost its quotation marks.)"""
    texts = json.loads(published("webshop/human_goals.json").read_text("utf-8"))

    def plain(text):
        return re.sub(r"['\"]", "", text).strip(".")

    for row in transcripts:
        number = int(row["session"].removeprefix("fixed_"))
        assert plain(row["instruction"]).startswith(plain(texts[number]))
