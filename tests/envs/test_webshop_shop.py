"""WebShop's pages and what each action leads to."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.goals import Goal
from envs.webshop.index import Index, prepare
from envs.webshop.pages import End, Item, Option, Results, Row, Said, Start, Sub, read, written
from envs.webshop.products import Product
from envs.webshop.session import Shop, ShopSession

TEXTS = ["i want a tin kettle, and price lower than 30.00 dollars"]
SHELF = [
    Product(
        "B000000001",
        "Tin Kettle [loud] ½ café",
        category="garden",
        query="kettles",
        path="Home › Kettles",
        pricing=(14.5,),
        rating="4.5",
        description="Boils  water.\nFast.",
        bullets=("Light ", "Loud"),
        attributes=("light weight",),
        options={"color [hue]": ("red", "[b] | blue"), "size": ("1 l", "2 l")},
    ),
    Product("B000000002", "Tin Mug", query="mugs", pricing=(4.0, 6.0)),
    Product("B000000003", "Tin Box", options={"lid": ("red", "none"), "base": ("red", "blue")}),
    *(
        Product(f"C{number:09}", f"Spoon {number}", query="spoons", category="kitchen")
        for number in range(23)
    ),
]
GOAL = Goal(
    "B000000001",
    TEXTS[0],
    ("light weight",),
    ("red", "2 l"),
    30.0,
    SHELF[0].title,
    "kettles",
    "Home › Kettles",
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    index = Index(prepare(SHELF, tmp_path_factory.mktemp("shop"), "shelf"))
    yield Shop(index, 1)
    index.close()


async def entered(shop, style="react", **how):
    session = ShopSession(shop, GOAL, style, **how)
    await session.reset()
    return session


async def after(session, *actions):
    """What the last of some actions leads to."""
    for action in actions:
        seen = await session.step(action)
    return seen


# -- ReAct's format ------------------------------------------------------------------------------------
async def test_a_purchase_from_the_first_page_to_the_last(shop):
    session = ShopSession(shop, GOAL, "react", shown=3)
    assert await session.reset() == f"\nWebshop \nInstruction:  \n{TEXTS[0]} \n[Search] "
    seen = await session.step("search[tin kettle]")
    assert seen.text == (
        "\n[Back to Search] \nPage 1 (Total results: 3) \n[B000000001] \nTin Kettle [loud] ½ café \n$14.5 "
        "\n[B000000002] \nTin Mug \n$4.0 to $6.0 \n[B000000003] \nTin Box \n$100.0 "
    )
    item = (
        "\n[Back to Search] \n[< Prev] \ncolor [hue] {red}[[b] | blue]\nsize [1 l]{two}\nTin Kettle [loud] ½ café "
        "\nPrice: $14.5 \nRating: 4.5 \n[Description] \n[Features] \n[Reviews] \n[Buy Now] "
    )
    assert (await session.step("click[B000000001]")).text == item.format(red="[red]", two="[2 l]")
    assert (await session.step("think[red, then 2 l]")).text == "OK."
    assert (await session.step("click[red]")).text == "You have clicked red."
    assert (await session.step("click[2 l]")).text == "You have clicked 2 l."
    assert (await after(session, "click[Features]")).text == "\n[Back to Search] \n[< Prev] \nLight \nLoud "
    assert (await session.step("click[< Prev]")).text == item.format(red="[[red]]", two="[[2 l]]")
    assert (await after(session, "click[Description]")).text.endswith("\nBoils water. Fast. ")
    assert (await after(session, "click[< Prev]", "click[Reviews]")).text == "\n[Back to Search] \n[< Prev] "
    done = await after(session, "click[< Prev]", "click[Buy Now]")
    assert (done.text, done.reward, done.done) == ("Your score (min 0.0, max 1.0): 1.0", 1.0, True)
    assert session.answer == "B000000001"
    late = await session.step("click[Back to Search]")
    assert (late.text, late.reward, late.done) == (done.text, 0.0, True)


@pytest.mark.parametrize(
    ("before", "action"),
    [
        ((), "search[]"),
        ((), "search[   ]"),
        ((), "click[Search]"),
        ((), "click[Buy Now]"),
        ((), "Search[tin]"),
        ((), "buy it"),
        ((), ""),
        ((), "search[tin"),
        (("search[tin]",), "search[mug]"),
        (("search[tin]",), "click[back to search]"),
        (("search[tin]",), "click[b000000001]"),
        (("search[tin]",), "click[ B000000001]"),
        (("search[tin]",), "click[C000000001]"),
        (("search[tin]",), "click[< Prev]"),
        (("search[tin]",), "click[Next >]"),
        (("search[tin]",), "click[red]"),
        (("search[tin]", "click[B000000001]"), "click[buy now]"),
        (("search[tin]", "click[B000000001]"), "click[Red]"),
        (("search[tin]", "click[B000000001]"), "click[none]"),
        (("search[tin]", "click[B000000001]"), "click[B000000001]"),
        (("search[tin]", "click[B000000001]"), "click[]"),
        (("search[tin]", "click[B000000001]", "click[Features]"), "click[red]"),
        (("search[tin]", "click[B000000001]", "click[Features]"), "click[Buy Now]"),
        (("search[nothing like it]",), "click[Next >]"),
    ],
)
async def test_what_cannot_be_done_changes_nothing(shop, before, action):
    session = await entered(shop)
    if before:
        await after(session, *before)
    kept = session.snapshot()
    seen = await session.step(action)
    assert (seen.text, seen.reward, seen.done) == ("Invalid action!", 0.0, False)
    assert session.snapshot() == kept


async def test_pages_of_results_and_none_beyond_the_last(shop):
    session = await entered(shop)
    first = (await session.step("search[spoon]")).text
    second = (await session.step("click[Next >]")).text
    third = (await session.step("click[Next >]")).text
    assert first.startswith("\n[Back to Search] \nPage 1 (Total results: 23) \n[Next >] \n[C")
    assert second.startswith("\n[Back to Search] \nPage 2 (Total results: 23) \n[< Prev] \n[Next >] \n[C")
    assert third.startswith("\n[Back to Search] \nPage 3 (Total results: 23) \n[< Prev] \n[C")
    rows = [len(read(text).rows) for text in (first, second, third)]
    assert rows == [10, 10, 3]
    assert len({row.asin for text in (first, second, third) for row in read(text).rows}) == 23
    assert (await session.step("click[Next >]")).text == "Invalid action!"
    assert (await session.step("click[< Prev]")).text == second
    asin = read(second).rows[4].asin
    assert (await after(session, f"click[{asin}]", "click[< Prev]")).text == second
    assert (await after(session, "click[Back to Search]")).text.startswith("\nWebshop \n")


async def test_as_in_the_papers_code_there_are_three_results_and_no_next_page(shop):
    session = await entered(shop, shown=3, paged=False)
    seen = await session.step("search[spoon]")
    assert "[Next >]" in seen.text and len(read(seen.text).rows) == 3
    assert (await session.step("click[Next >]")).text == "Invalid action!"
    hidden = session._state.found[3]
    assert (await session.step(f"click[{SHELF[hidden].asin}]")).text == "Invalid action!"


async def test_nothing_found(shop):
    session = await entered(shop)
    seen = await session.step("search[unheard of]")
    assert seen.text == "\n[Back to Search] \nPage 1 (Total results: 0) "
    assert (await session.step("click[Back to Search]")).text.startswith("\nWebshop")


async def test_a_product_without_options_can_be_bought_at_once(shop):
    session = await entered(shop)
    seen = await after(session, "search[mug]", "click[B000000002]", "click[Buy Now]")
    assert seen.done and 0 < seen.reward < 1 and seen.text.endswith(f": {seen.reward}")


async def test_a_later_value_takes_the_place_of_an_earlier_one(shop):
    session = await entered(shop)
    await after(session, "search[tin]", "click[B000000001]", "click[red]", "click[[b] | blue]")
    assert session.snapshot()["options"] == {"color [hue]": "[b] | blue"}


async def test_a_value_that_two_options_have_is_chosen_for_one_after_the_other(shop):
    session = await entered(shop)
    await after(session, "search[tin box]", "click[B000000003]", "click[red]")
    assert session.snapshot()["options"] == {"lid": "red"}
    await session.step("click[red]")
    assert session.snapshot()["options"] == {"lid": "red", "base": "red"}


async def test_options_are_kept_on_a_product_and_forgotten_beyond_it(shop):
    session = await entered(shop)
    await after(session, "search[tin]", "click[B000000001]", "click[red]", "click[Features]", "click[< Prev]")
    assert session.snapshot()["options"] == {"color [hue]": "red"}
    await after(session, "click[< Prev]", "click[B000000001]")
    assert session.snapshot()["options"] == {}
    await after(session, "click[red]", "click[Back to Search]", "search[tin]")
    assert session.snapshot()["options"] == {}


@pytest.mark.parametrize("style", ["react", "text", "text_rich"])
async def test_an_episode_goes_on_from_any_step(shop, style):
    """With the state that was kept as JSON, in another session: the same from there on."""
    actions = [
        "search[spoon]", "click[Next >]", "click[Back to Search]", "search[tin kettle]", "click[B000000001]",
        "click[2 l]", "click[Features]", "click[< Prev]", "click[red]", "click[Buy Now]", "click[red]",
    ]  # fmt: skip
    session = await entered(shop, style)
    states, seen = [json.dumps(session.snapshot())], []
    for action in actions:
        seen.append(await session.step(action))
        states.append(json.dumps(session.snapshot()))
    for at, state in enumerate(states):
        other = ShopSession(shop, GOAL, style)
        kept = json.loads(state)
        other.restore(kept)
        assert [await other.step(action) for action in actions[at:]] == seen[at:]
        assert json.dumps(kept) == state  # what is kept on record is not changed by going on
        assert other.answer == session.answer == "B000000001"


# -- WebShop's own formats -----------------------------------------------------------------------------
async def test_plain_text(shop):
    session = ShopSession(shop, GOAL, "text")
    first = await session.reset()
    assert first == f"WebShop [SEP] Instruction: [SEP] {TEXTS[0]} [SEP] Search"
    seen = await session.step("search[Tin Mug]")
    assert seen.text.startswith(
        f"Instruction: [SEP] {TEXTS[0]} [SEP] Back to Search [SEP] Page 1 (Total results: 3) [SEP] B000000002 [SEP] "
        "Tin Mug [SEP] $4.0 to $6.0 [SEP] "
    )
    seen = await session.step("click[b000000001]")
    assert seen.text == (
        f"Instruction: [SEP] {TEXTS[0]} [SEP] Back to Search [SEP] < Prev [SEP] color [hue] [SEP] red [SEP] "
        "[b] | blue [SEP] size [SEP] 1 l [SEP] 2 l [SEP] Tin Kettle [loud] ½ café [SEP] Price: $14.5 [SEP] "
        "Rating: 4.5 [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert (await session.step("click[RED]")).text == seen.text
    assert (await session.step("fly[away]")).text == seen.text
    done = await after(session, "click[2 L]", "click[buy now]")
    assert done.done and done.reward == 1.0
    assert done.text == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0"


async def test_rich_text_marks_buttons_and_what_was_clicked(shop):
    session = ShopSession(shop, GOAL, "text_rich")
    assert await session.reset() == f"WebShop\nInstruction:\n{TEXTS[0]}\n[button] Search [button_]"
    await session.step("search[tin kettle]")
    seen = await after(session, "click[b000000001]", "click[2 l]", "click[red]")
    assert seen.text == (
        f"You have clicked 2 l.\nYou have clicked red.\nInstruction:\n{TEXTS[0]}\n[button] Back to Search [button_]\n"
        "[button] < Prev [button_]\ncolor [hue]\n  [clicked button] red [clicked button_]\n"
        "  [button] [b] | blue [button_]\nsize\n  [button] 1 l [button_]\n  [clicked button] 2 l [clicked button_]\n"
        "Tin Kettle [loud] ½ café\nPrice: $14.5\nRating: 4.5\n[button] Description [button_]\n"
        "[button] Features [button_]\n[button] Reviews [button_]\n[button] Buy Now [button_]"
    )
    back = await session.step("click[< prev]")
    assert "\n\n[clicked button] B000000001 [clicked button_]\nTin Kettle" in back.text
    assert "\n\n[button] B000000002 [button_]\nTin Mug" in back.text


NAMES = [
    "Back to Search", "< Prev", "Next >", "Description", "Features", "Reviews", "Buy Now", "buy now", "B000000001",
    "b000000001", "B000000003", "red", "[b] | blue", "2 l", "none", "blue", "", "nowhere",
]  # fmt: skip
actions = st.one_of(
    st.sampled_from(
        ["search[tin]", "search[spoon]", "search[]", "search[<r>]", "search[none such]", "think[so]", "x"]
    ),
    st.sampled_from(NAMES).map(lambda name: f"click[{name}]"),
)


BEGINNINGS = [
    [],
    ["search[spoon]"],
    *(["search[tin]", f"click[{asin}]"] for asin in ("B000000001", "B000000003")),
]


@given(
    st.tuples(st.sampled_from(BEGINNINGS), st.lists(actions, max_size=25)).map(
        lambda both: both[0] + both[1]
    ),
    st.sampled_from(["react", "text", "text_rich"]),
)
async def test_whatever_is_done_leads_to_a_page_and_can_be_taken_up_again(shop, taken, style):
    """No action raises, what can be clicked is on the page, and another session goes on as this one does."""
    session, other, bought = await entered(shop, style), ShopSession(shop, GOAL, style), False
    for action in taken:
        other.restore(json.loads(json.dumps(session.snapshot())))
        can = action.removeprefix("click[")[:-1] in session.buttons() or not action.startswith("click[")
        seen = await session.step(action)
        assert await other.step(action) == seen
        assert seen.done or not bought
        bought = bought or seen.done
        if style == "react" and not can and not bought:
            assert seen.text == "Invalid action!"
        if style == "react":
            assert not isinstance(page := read(seen.text), Said) or page.text.startswith(
                ("Invalid", "OK.", "You have")
            )
        assert (seen.reward > 0) <= seen.done


# -- searches of another kind --------------------------------------------------------------------------
async def test_searches_by_attribute_category_query_or_at_random(shop):
    assert shop.found("<a> light weight") == [0]
    assert shop.found("<q> mugs") == [1]
    assert shop.found("<c> kitchen") == list(range(3, 26))
    some = shop.found("<r>")
    assert sorted(some) == list(range(26)) and some != sorted(some) and some == shop.found("<r>")
    assert shop.found("<c> nowhere") == shop.found("<c>") == shop.found("<a> kitchen") == []
    assert shop.found("<c") == shop.found("c kitchen") == []  # no label, and no word of any text


async def test_a_large_shop_searches_beside_the_event_loop_and_finds_the_same(shop, monkeypatch):
    from envs.webshop import session as module

    near = await shop.search("tin")
    monkeypatch.setattr(module, "LARGE", 0)
    assert await shop.search("tin") == near


# -- reading what was written --------------------------------------------------------------------------
plain = st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp", "Zs"]), min_size=1)
words = st.lists(plain, min_size=1, max_size=3).map(" ".join)
simple = words.filter(lambda text: not set(text) & set("[]"))
items = st.builds(
    Item,
    title=words,
    price=st.just("$9.99"),
    rating=st.sampled_from(["N.A.", "4.5"]),
    options=st.lists(
        st.lists(simple, min_size=1, max_size=4, unique=True).flatmap(
            lambda values: st.builds(Option, simple, st.just(tuple(values)), st.sampled_from([None, *values]))
        ),
        max_size=3,
    ).map(tuple),
)
rows = st.builds(Row, asin=st.from_regex(r"[A-Z0-9]{10}", fullmatch=True), title=words, price=st.just("$1.0"))
results = st.builds(
    Results,
    st.integers(1, 5),
    st.integers(0, 50),
    st.lists(rows, max_size=10).map(tuple),
    st.booleans(),
    st.booleans(),
)


@given(st.one_of(items, results, st.builds(Start, words), st.builds(End, st.floats(0, 1))))
def test_a_page_is_read_again_as_it_was(page):
    text = written(page, "react", "")
    assert read(text) == page


@given(st.text())
def test_any_text_can_be_read_and_is_written_again(text):
    assert written(read(text), "react", "") == text


@given(st.lists(st.sampled_from(
    ["", "[Back to Search] ", "[< Prev] ", "[Next >] ", "Page 1 (Total results: 3) ", "Page x ", "[B000000001] ", "a ",
     "a", "size [1][[2]][3]", "size [", "size [[a]", "Price: $1 ", "Price: $1", "Rating: N.A. ", "[Description] ",
     "[Features] ", "[Reviews] ", "[Buy Now] ", "Webshop ", "Instruction:  ", "[Search] ",
     "Your score (min 0.0, max 1.0): 1", "Your score (min 0.0, max 1.0): 0.50"]
), max_size=12))  # fmt: skip
def test_what_looks_like_a_page_is_written_again_to_the_letter(lines):
    for text in ("\n".join(lines), "\n".join(["", "[Back to Search] ", *lines])):
        assert written(read(text), "react", "") == text


def test_breaks_and_spaces_within_texts_are_kept():
    """As in pages that were scraped."""
    item = "\n[Back to Search] \n[< Prev] \nsize [1][2]\n A  mug\nof tin  \nPrice: $1 \nRating: N.A. "
    item += "\n[Description] \n[Features] \n[Reviews] \n[Buy Now] "
    assert read(item) == Item(" A  mug\nof tin ", "$1", "N.A.", (Option("size", ("1", "2")),))
    assert read("\n[Back to Search] \n[< Prev] \n One\n\ntwo  \nthree ") == Sub((" One\n\ntwo ", "three"))
    results = (
        "\n[Back to Search] \nPage 1 (Total results: 2) \n[B1] \nA\nmug \n$1 \n[B2] \n $2 off \n$3 to $4 "
    )
    assert read(results).rows == (Row("B1", "A\nmug", "$1"), Row("B2", " $2 off", "$3 to $4"))
    assert isinstance(read(results + "\nmore"), Said)


def test_words_that_are_no_page():
    for text in ("OK.", "Invalid action!", "You have clicked red.", ""):
        assert read(text) == Said(text)
    assert read("\n[Back to Search] \n[< Prev] \nLight \n Loud ") == Sub(("Light", " Loud"))
