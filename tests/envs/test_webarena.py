"""WebArena without a browser: task files, actions, comparisons, the tree, and the shop's own pages."""

from __future__ import annotations

import json
from urllib.parse import quote

import orjson
import pytest

from envs.base import DataError, Outcome, Task
from envs.webarena.actions import VERBS, Action, Unreadable, read_action
from envs.webarena.examples import STYLES, shots
from envs.webarena.shop.account import account
from envs.webarena.shop.instances import KINDS, instances
from envs.webarena.shop.site import answer
from envs.webarena.shop.stock import price, slug, stock
from envs.webarena.strings import exact, includes, questions, string_score, url_score
from envs.webarena.tasks import read_tasks, task_of
from envs.webarena.tree import tree
from envs.webarena.world import LEFT, WebArena

SEED = 233


# -- actions -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("click [12]", Action("click", element=12)),
        ("  Click[12] ", Action("click", element=12)),
        ("```hover [3]```", Action("hover", element=3)),
        ("type [7] [red shoes] [1]", Action("type", element=7, text="red shoes")),
        ("type [7] [red shoes] [0]", Action("type", element=7, text="red shoes", enter=False)),
        ("type [7] [a [b] c] [0]", Action("type", element=7, text="a [b] c", enter=False)),
        ("type [7] []", Action("type", element=7, text="")),
        ("press [ctrl+a]", Action("press", text="ctrl+a")),
        ("scroll [direction=down]", Action("scroll", text="down")),
        ("goto [http://shop.test/a?b=[c]]", Action("goto", text="http://shop.test/a?b=[c]")),
        ("tab_focus [0]", Action("tab_focus", number=0)),
        ("new_tab", Action("new_tab")),
        ("go_back", Action("go_back")),
        ("stop [a [b]]", Action("stop", text="a [b]")),
        ("stop", Action("stop")),
        ("stop []", Action("stop")),
    ],
)
def test_actions_are_read(line, action):
    assert read_action(line) == action


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "there is no action"),
        ("fly [3]", "there is no action 'fly'; there are: click"),
        ("click", "write click [id]"),
        ("click [the button]", "takes a number"),
        ("type [x] [y]", "write type [id] [text] [1]"),
        ("scroll [left]", "scroll takes"),
    ],
)
def test_what_is_no_action_says_what_is_one(line, told):
    with pytest.raises(Unreadable) as caught:
        read_action(line)
    assert told in str(caught.value)


def test_the_instruction_names_every_action():
    for style in STYLES:
        assert all(f"{verb}" in shots(style).split("Here is an example")[0] for verb in VERBS)
    with pytest.raises(DataError, match="act, react, react_im"):
        shots("cot")
    assert "think:" in shots("react")
    assert "think:" not in shots("act")
    assert shots("react_im").count("think:") >= shots("react").count("think:")


# -- comparisons ---------------------------------------------------------------------------------------
def test_texts_are_compared_as_webarena_does():
    assert exact("'Yes'", " yes ")
    assert not exact("yes", "yes.")
    assert includes("5.49", "from $5.49 to $9")
    assert not includes("5", "15", alone=True)
    assert includes("5", "it is 5.", alone=True)
    assert includes("5", "15")
    assert includes("65 |OR| 3", "3 stars", alone=True)
    assert not includes("65 |OR| 3", "2 stars")


@pytest.mark.parametrize(
    ("reference", "address", "same"),
    [
        ("http://s/a.html", "http://s/a.html", True),
        ("http://s/a.html", "http://s/a.html/", True),
        ("http://s/a", "http://s/a.html?p=2", True),
        ("http://s/a.html?price=0-25", "http://s/a.html?p=1&price=0-25", True),
        ("http://s/a.html?price=0-25", "http://s/a.html?price=25-50", False),
        ("http://s/a.html?price=0-25", "http://s/a.html", False),
        ("http://s/a.html", "http://t/a.html", False),
        ("http://s/a |OR| http://s/b", "http://s/b", True),
        ("http://s/?q=usb+wifi", "http://s/?q=usb%20wifi", True),
    ],
)
def test_addresses_are_compared_as_webarena_does(reference, address, same):
    assert url_score(reference, address) is same


def judged(**answers):
    return {"eval_types": ["string_match"], "reference_answers": answers, "string_note": "no phone number"}


def test_only_a_judge_can_tell_some_answers():
    task = Task("1", "When was it?")
    fuzzy = judged(fuzzy_match=["March 11th 2023", "a Saturday"])
    asked = questions(fuzzy, task, "3/11/23, a Saturday")
    assert len(asked) == 2
    assert "March 11th 2023" in asked[0]
    assert "3/11/23" in asked[0]
    assert string_score(fuzzy, "3/11/23", ["Correct.", "correct"])
    for said in ("incorrect", "partially correct", "", "It is correct"):
        assert not string_score(fuzzy, "3/11/23", ["correct", said])
    with pytest.raises(DataError, match="need a judge"):
        string_score(fuzzy, "3/11/23", ["correct"])
    assert questions(fuzzy, task, "  ") == []
    assert not string_score(fuzzy, "", [])


def test_what_cannot_be_done_is_said_or_explained():
    task, impossible = Task("1", "Call them"), judged(fuzzy_match="N/A")
    assert questions(impossible, task, "n/a") == []
    assert string_score(impossible, "N/A", [])
    (asked,) = questions(impossible, task, "They have no telephone")
    assert "no phone number" in asked
    assert string_score(impossible, "They have no telephone", ["same"])
    assert not string_score(impossible, "I am tired", ["different"])


def test_all_strings_must_be_there():
    assert string_score(judged(must_include=["a", "b"]), "b and a", [])
    assert not string_score(judged(must_include=["a", "b"]), "only b", [])
    assert string_score(judged(exact_match="7"), "7", [])
    assert not string_score(judged(exact_match="7"), "7 reviews", [])


# -- task files ----------------------------------------------------------------------------------------
def row(**changes):
    return {
        "sites": ["shopping"],
        "task_id": 1,
        "start_url": "__SHOPPING__",
        "intent": "Look",
        "eval": {"eval_types": ["url_match"], "reference_url": "__SHOPPING__/a"},
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"intent": None}, "field 'intent'"),
        ({"start_url": 3}, "field 'start_url'"),
        ({"eval": []}, "field 'eval'"),
        ({"eval": {"eval_types": ["magic"]}}, "eval.eval_types"),
        ({"eval": {"eval_types": ["url_match"]}}, "reference_url"),
        ({"eval": {"eval_types": ["program_html"], "program_html": []}}, "program_html is empty"),
        ({"eval": {"eval_types": ["string_match"], "reference_answers": {"guess": 1}}}, "reference_answers"),
    ],
)
def test_damaged_tasks_name_their_place(changes, told):
    with pytest.raises(DataError) as caught:
        task_of(row(**changes), "tasks.json, row 7")
    assert "tasks.json, row 7" in str(caught.value)
    assert told in str(caught.value)


def test_tasks_of_other_sites_are_passed_over(tmp_path):
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps([row(), row(task_id=2, sites=["shopping", "reddit"]), row(task_id=3)]))
    assert [task.id for task in read_tasks(file)] == ["1", "3"]
    world = WebArena(source=str(file), only=[3])
    assert [task.id for task in world.tasks()] == ["3"]
    with pytest.raises(DataError, match="no task 2"):
        list(WebArena(source=str(file), only=[2]).tasks())


def test_the_public_tasks_are_all_read(published):
    tasks = list(read_tasks(published("webarena/shopping_tasks.jsonl")))
    assert len(tasks) == 187
    kinds = [tuple(task.target["eval_types"]) for task in tasks]
    assert kinds.count(("string_match",)) == 88
    assert kinds.count(("program_html",)) == 47
    assert kinds.count(("url_match",)) == 42
    assert kinds.count(("url_match", "program_html")) == 10
    some = [task.id for task in tasks][:98]
    chosen = WebArena(source=str(published("webarena/shopping_tasks.jsonl")), only=some)
    assert [task.id for task in chosen.tasks()] == some


# -- the tree ------------------------------------------------------------------------------------------
def node(id, role, name="", children=(), **more):
    return {
        "nodeId": str(id),
        "role": {"value": role},
        "name": {"value": name},
        "childIds": list(map(str, children)),
        "backendDOMNodeId": 100 + id,
        **more,
    }


PAGE = [
    node(1, "RootWebArea", "A shop", [2]),
    node(2, "generic", "", [3, 5, 6, 7]),
    node(3, "link", "Tea  and\ncoffee", [4]),
    node(4, "StaticText", "Tea and coffee"),
    node(
        5,
        "textbox",
        "Search",
        value={"value": "red"},
        properties=[{"name": "focused", "value": {"value": True}}],
    ),
    node(6, "checkbox", "Gift", properties=[{"name": "checked", "value": {"value": "false"}}]),
    node(7, "none", "", [8], ignored=True),
    node(8, "button", "Buy"),
]


def test_a_tree_is_numbered_lines():
    found = tree(PAGE)
    assert found.text == (
        "[1] RootWebArea 'A shop'\n\t[2] link 'Tea and coffee'\n\t[3] textbox 'Search' value: 'red' focused: true\n"
        "\t[4] checkbox 'Gift' checked: false\n\t[5] button 'Buy'"
    )
    assert found.nodes[2] == 103
    assert found.nodes[5] == 108


def test_a_tree_shows_what_is_in_the_window_and_says_what_is_cut():
    boxes = {103: (0, 10, 100, 20), 105: (0, 2000, 100, 20), 106: (0, 0, 0, 0), 108: (0, 700, 50, 50)}
    shown = tree(PAGE, boxes, (0, 0, 1280, 720)).text
    assert "link" in shown
    assert "Buy" in shown
    assert "Search" not in shown
    cut = tree(PAGE, most=2).text
    assert cut.endswith("(3 more elements; scroll, or search for less)")
    assert tree([]).text == ""


# -- the world's texts ---------------------------------------------------------------------------------
def test_a_prompt_shows_the_latest_page_only():
    world = WebArena()
    task = next(world.tasks())
    prompt = world.shots("react", task) + "Tab 0 (current): A\nURL: u\n[1] RootWebArea 'A'" + world.cue
    assert world.window(prompt) is None
    prompt += world.turn("think: hm", "OK.")
    assert world.window(prompt) is None
    prompt += world.turn("click [1]", "Tab 0 (current): B\nURL: v\n[1] RootWebArea 'B'")
    cut = world.window(prompt)
    assert cut is not None
    assert cut.count("RootWebArea 'A'") == 0
    assert cut.count("RootWebArea 'B'") == 1
    assert f"Observation: {LEFT}\nAction: think: hm" in cut
    assert cut.endswith("\nAction:")
    assert cut.startswith(world.shots("react", task).split("Objective: " + task.input)[0])


def test_scores_ask_the_shop_first_and_the_judge_last():
    world = WebArena()
    task = next(task for task in world.tasks() if task.id.startswith("first_order"))
    right = Outcome("May 18, 2023", (0.0, 1.0), True)
    assert len(world.to_judge(task, right)) == 1
    assert world.score_outcome(task, Outcome("May 18, 2023", (1.0,), True, ("correct",)))["reward"] == 1.0
    assert world.score_outcome(task, Outcome("May 18, 2023", (1.0,), True, ("incorrect",)))["reward"] == 0.0
    assert world.to_judge(task, Outcome("x", (0.0,), True)) == ()
    assert world.score_outcome(task, Outcome("x", (0.0,), True))["success"] == 0.0
    assert world.score_outcome(task, Outcome(None, (), False))["success"] == 0.0


@pytest.mark.parametrize("site", ["shop.example", "ftp://x", "http://"])
def test_a_site_must_be_an_address(site):
    with pytest.raises(ValueError, match="http://host:port"):
        WebArena(site=site)


# -- the shop ------------------------------------------------------------------------------------------
@pytest.fixture
def shop():
    return account(stock(SEED), SEED)


def get(shop, target):
    return answer(shop, "GET", target)


def test_every_page_of_the_shop_is_there(shop):
    pages = [
        "/",
        "/customer/account/",
        "/sales/order/history/",
        "/wishlist/",
        "/customer/address",
        "/contact",
    ]
    pages += ["/newsletter/manage/", "/checkout/cart", "/checkout/cart/", "/checkout/"]
    pages += [f"/{path}.html" for path in shop.stock.categories]
    pages += [f"/{slug(product)}.html" for product in shop.stock.products]
    pages += [f"/sales/order/view/order_id/{order.number}/" for order in shop.orders]
    for page in pages:
        assert get(shop, page).status == 200, page
    for page in ("/nothing.html", "/sales/order/view/order_id/9/", "/../../etc/passwd", "/%00"):
        assert get(shop, page).status == 404, page
    assert answer(shop, "POST", "/nothing").status == 404
    assert answer(shop, "POST", "/wishlist/add", b"sku=NOPE").status == 404


def test_a_listing_is_filtered_sorted_and_turned(shop):
    path = next(path for path in shop.stock.categories if path.count("/") == 2)
    whole = shop.stock.categories[path]
    under = [p for p in whole if 25 <= price(p) < 50]
    text = get(shop, f"/{path}.html?price=25-50").body.decode()
    assert f"{len(under)} Items" in text
    by_price = get(shop, f"/{path}.html?product_list_order=price&product_list_dir=desc").body.decode()
    titles = [p.title for p in sorted(whole, key=lambda p: (price(p), p.title), reverse=True)][:5]
    places = [by_price.index(title) for title in titles]
    assert places == sorted(places)
    for odd in ("?price=x", "?p=99999", "?p=-1", "?product_list_order=nothing", "?price=-"):
        assert get(shop, f"/{path}.html{odd}").status == 200


def test_what_is_typed_is_escaped(shop):
    words = "<script>alert(1)</script>&\"'"
    text = get(shop, f"/catalogsearch/result/?q={quote(words)}").body.decode()
    assert "<script>alert" not in text
    answer(shop, "POST", "/customer/address/save", b"street=%3Cscript%3E")
    assert "<script>" not in get(shop, "/customer/address").body.decode()


def test_buying_takes_what_is_in_the_cart(shop):
    product = next(p for p in shop.stock.products if p.options)
    name, values = next(iter(product.options.items()))
    fields = f"sku={product.asin}&option_{name}={values[1]}&qty=2".encode()
    assert answer(shop, "POST", "/checkout/cart/add", fields).location == "/checkout/cart/"
    answer(shop, "POST", "/checkout/cart/add", fields)
    assert [line.pieces for line in shop.cart] == [4]
    before = len(shop.orders)
    to = answer(shop, "POST", "/checkout/place").location
    assert len(shop.orders) == before + 1
    assert shop.cart == []
    assert values[1] in get(shop, to).body.decode()
    assert (
        orjson.loads(get(shop, "/rest/V1/orders").body)["items"][0]["increment_id"] == shop.orders[-1].shown
    )
    assert answer(shop, "POST", "/checkout/place").location == "/checkout/cart/"
    assert len(shop.orders) == before + 1


@pytest.mark.parametrize("quantity", ["0", "-1", "1.5", "many", "1000", ""])
def test_odd_quantities_are_refused(shop, quantity):
    product = shop.stock.products[0]
    answer(shop, "POST", "/checkout/cart/add", f"sku={product.asin}&qty={quantity}".encode())
    assert shop.cart == []
    assert "quantity" in shop.said


def test_a_review_needs_all_of_it(shop):
    product = shop.stock.products[0]
    before = len(shop.reviews_of(product))
    for fields in ("", "nickname=A&title=B&detail=C", "nickname=A&title=B&detail=C&stars=6", "stars=5"):
        answer(shop, "POST", "/review/product/post", f"sku={product.asin}&{fields}".encode())
        assert len(shop.reviews_of(product)) == before
    answer(
        shop,
        "POST",
        "/review/product/post",
        f"sku={product.asin}&nickname=A&title=B&detail=C&stars=3".encode(),
    )
    latest = orjson.loads(get(shop, f"/rest/V1/products/{product.asin}/reviews").body)[-1]
    assert (latest["nickname"], latest["ratings"][0]["percent"]) == ("A", 60)
    assert get(shop, "/rest/V1/products/NOPE/reviews").status == 404


# -- our tasks -----------------------------------------------------------------------------------------
def test_our_tasks_are_of_every_kind_and_evaluator():
    rows = list(instances(SEED))
    assert rows == list(instances(SEED))
    assert len({row["intent"] for row in rows}) == len(rows) >= 80
    assert {row["task_id"].rsplit("-", 1)[0] for row in rows} == set(KINDS)
    assert {tuple(row["eval"]["eval_types"]) for row in rows} == {
        ("string_match",),
        ("url_match",),
        ("program_html",),
        ("url_match", "program_html"),
    }
    answers = {name for row in rows for name in row["eval"]["reference_answers"] or ()}
    assert answers == {"exact_match", "must_include", "fuzzy_match"}
    for number, each in enumerate(rows):
        task_of(each, f"row {number}")


def test_no_task_is_done_before_it_begins(shop):
    """Nothing that is to be changed is already so."""
    for each in instances(SEED):
        for check in each["eval"]["program_html"]:
            url = check["url"].replace("__SHOPPING__", "")
            if url in ("last",) or url.startswith("func:"):
                continue
            wanted = check["required_contents"].get("must_include") or ()
            text = get(shop, url).body.decode()
            assert not wanted or not all(part in text for part in wanted), each["intent"]
