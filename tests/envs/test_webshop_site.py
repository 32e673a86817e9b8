"""The shop as a web site: what a browser is shown, and what comes of its forms."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from envs.webshop import site as module
from envs.webshop.goals import goals
from envs.webshop.index import Index, prepare
from envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS
from envs.webshop.products import Product, Wish
from envs.webshop.session import Shop, ShopSession
from envs.webshop.site import Site, serving

ROOT = Path(__file__).parents[2]
SHELF = [
    Product(
        "B000000001",
        'Tin <b>Kettle</b> & "lid"',
        query="kettles",
        pricing=(14.5,),
        description="Boils <i>water</i>.",
        bullets=("Light & loud",),
        attributes=("light weight",),
        options={'co"lor': ("red & blue", "<green>", "½"), "size": ("1 l", "2 l")},
        wishes=(Wish("i want a <tin> kettle", ("light weight",), ("red & blue", "2 l")),),
    ),
    Product("B000000002", "Tin Mug", query="mugs", wishes=(Wish("a mug", ("small",)),)),
    *(Product(f"C{number:09}", f"Spoon {number}", query="spoons") for number in range(23)),
]


class Form:
    def __init__(self, attributes):
        self.action, self.method = attributes.get("action", ""), attributes.get("method", "get")
        self.fields, self.radios, self.buttons = {}, {}, {}


class Document(HTMLParser):
    """What a browser finds on a page: its visible text, its links, its forms with their fields and buttons."""

    def __init__(self, text):
        super().__init__()
        self.text, self.links, self.forms, self._button = "", {}, [], None
        self._link = None
        self.feed(text)

    def handle_starttag(self, tag, given):
        attributes = dict(given)
        if tag == "form":
            self.forms.append(Form(attributes))
        elif tag == "input" and attributes["type"] == "radio":
            self.forms[-1].radios.setdefault(attributes["name"], []).append(attributes["value"])
            if "checked" in attributes:
                self.forms[-1].fields[attributes["name"]] = attributes["value"]
        elif tag == "input":
            self.forms[-1].fields[attributes["name"]] = attributes.get("value", "")
        elif tag == "button":
            self._button = attributes
        elif tag == "a":
            self._link = attributes["href"]

    def handle_endtag(self, tag):
        if tag == "button":
            self._button = None
        elif tag == "a":
            self._link = None

    def handle_data(self, data):
        self.text += data
        if self._button is not None:
            self.forms[-1].buttons[data] = self._button
        if self._link is not None:
            self.links[data] = self._link


class Browser:
    """Follows links and sends forms as a browser does, without scripts."""

    def __init__(self, url):
        self.client = httpx.AsyncClient(base_url=url, follow_redirects=True, trust_env=False)

    async def go(self, target, method="GET", **how):
        response = await self.client.request(method, target, **how)
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["content-length"] == str(len(response.content))
        self.status, self.at = response.status_code, str(response.url)
        self.page = Document(response.text)
        return self.page

    async def follow(self, link):
        return await self.go(self.page.links[link])

    async def press(self, button, **chosen):
        (form,) = [form for form in self.page.forms if button in form.buttons]
        for name, value in chosen.items():
            assert name in form.fields or any(value in values for values in form.radios.values())
        named = {
            next((r for r in form.radios if r == f"option.{name}"), name): v for name, v in chosen.items()
        }
        pressed = form.buttons[button]
        target = urljoin(self.at, pressed.get("formaction", form.action))
        fields = {**form.fields, **named}
        if pressed.get("formmethod", form.method) == "post":
            return await self.go(target, "POST", data=fields)
        return await self.go(target, params=fields)


@pytest.fixture
async def shop(tmp_path):
    index = Index(prepare(SHELF, tmp_path / "index", "shelf"))
    site = Site(Shop(index, 1), goals(SHELF, "human", 1), tmp_path / "bought.jsonl")
    async with serving(site):
        browser = Browser(site.url)
        async with browser.client:
            yield site, browser
    index.close()


def kettle(site):
    """The session of the kettle's goal."""
    return next(f"fixed_{number}" for number, goal in enumerate(site.goals) if goal.asin == "B000000001")


async def test_a_customer_shops_with_links_and_forms_alone(shop):
    site, browser = shop
    session = kettle(site)
    start = await browser.go(f"/{session}")
    assert "Instruction:i want a <tin> kettle, and price lower than" in start.text
    found = await browser.press("Search", q="tin kettle ½&=+#")
    assert "Page 1 (Total results: 2)" in found.text and "$14.5" in found.text
    assert list(found.links) == ["B000000001", "B000000002"]
    item = await browser.follow("B000000001")
    assert (
        'Tin <b>Kettle</b> & "lid"' in item.text
        and "Price: $14.5" in item.text
        and "Rating: N.A." in item.text
    )
    (form,) = item.forms
    assert form.radios == {'option.co"lor': ["red & blue", "<green>", "½"], "option.size": ["1 l", "2 l"]}
    assert list(form.buttons) == [BACK, PREVIOUS, "Description", "Features", "Reviews", BUY]
    described = await browser.press("Description", **{'co"lor': "red & blue"})
    assert "Boils <i>water</i>." in described.text
    item = await browser.press(PREVIOUS)
    assert item.forms[0].fields['option.co"lor'] == "red & blue"  # the choice was kept on the way
    assert "Light & loud" in (await browser.press("Features", size="2 l")).text
    await browser.press(PREVIOUS)
    again = await browser.press(PREVIOUS)
    assert "Page 1 (Total results: 2)" in again.text and browser.at.startswith(
        f"{site.url}/search_results/{session}?"
    )
    await browser.follow("B000000001")
    done = await browser.press(BUY, **{'co"lor': "red & blue", "size": "2 l"})
    assert "Thank you for shopping with us!" in done.text and done.text.rstrip().endswith("1.0Begin again")
    assert browser.at == f"{site.url}/done/{session}" and site.scores == {session: 1.0}
    (line,) = map(json.loads, site.log.read_text().splitlines())
    assert line == {
        "session": session,
        "instruction": site.goals[int(session[6:])].instruction,
        "goal": "B000000001",
        "asin": "B000000001",
        "options": {'co"lor': "red & blue", "size": "2 l"},
        "price": 14.5,
        "reward": 1.0,
    }
    await browser.follow("Begin again")
    assert browser.at == f"{site.url}/{session}"


async def test_pages_say_what_the_text_world_says(shop):
    """The same words in the same order as WebShop's plain text."""
    site, browser = shop
    session = kettle(site)
    goal = site.goals[int(session[6:])]
    world = ShopSession(site.shop, goal, "text")

    def squeezed(text):
        return re.sub(r"\s+|\[SEP\]", "", text)

    pairs = [
        (await world.reset(), await browser.go(f"/{session}")),
        ((await world.step("search[spoon]")).text, await browser.press("Search", q="spoon")),
        ((await world.step("click[Next >]")).text, await browser.press(NEXT)),
        ((await world.step("click[Next >]")).text, await browser.press(NEXT)),
        ((await world.step("click[< Prev]")).text, await browser.press(PREVIOUS)),
        ((await world.step("click[Back to Search]")).text, await browser.press(BACK)),
        ((await world.step("search[kettle]")).text, await browser.press("Search", q="kettle")),
        ((await world.step("click[b000000001]")).text, await browser.follow("B000000001")),
        ((await world.step("click[features]")).text, await browser.press("Features")),
    ]
    for said, page in pairs:
        body = page.text.split("}\n", 1)[-1].rpartition("}")[2] if "}" in page.text else page.text
        assert squeezed(said).removeprefix("WebShop") == squeezed(body)


async def test_a_purchase_without_options_and_of_the_wrong_thing(shop):
    site, browser = shop
    await browser.go(f"/{kettle(site)}")
    await browser.press("Search", q="spoon")
    await browser.follow(next(iter(browser.page.links)))
    await browser.press(BUY)
    assert site.scores[kettle(site)] == 0.0


async def test_other_words_are_sessions_too_each_with_its_own_goal(shop):
    site, browser = shop
    told = {(await browser.go(f"/anna-{number}")).text for number in range(12)}
    assert len(told) == len(site.goals) == 2
    assert (await browser.go("/anna-1")).text == (await browser.go("/anna-1")).text


async def test_an_empty_search_begins_again_and_the_root_is_the_first_goal(shop):
    site, browser = shop
    await browser.go("/search_results/fixed_0?q=%20")
    assert browser.at == f"{site.url}/fixed_0"
    await browser.go("/")
    assert browser.at == f"{site.url}/fixed_0"
    nothing = await browser.go("/search_results/fixed_0?q=unheard")
    assert "Page 1 (Total results: 0)" in nothing.text and browser.status == 200


@pytest.mark.parametrize(
    ("method", "target", "status", "said"),
    [
        ("GET", "/fixed_2", 404, "There is no goal 2; there are 0 to 1"),
        ("GET", "/a b", 404, "'a b' is no session"),
        ("GET", "/" + "x" * 65, 404, "is no session"),
        ("GET", "/item_page/fixed_0/B999999999", 404, "There is no product 'B999999999'"),
        ("GET", "/item_page/fixed_0/%3Cscript%3E", 404, "There is no product '<script>'"),
        ("GET", "/item_sub_page/fixed_0/B000000001/Secrets", 404, "There is no such page"),
        ("GET", "/search_results/fixed_0?q=spoon&page=4", 404, "There is no page '4' of these results"),
        ("GET", "/search_results/fixed_0?q=spoon&page=0", 404, "there are 1 to 3"),
        ("GET", "/search_results/fixed_0?q=spoon&page=²", 404, "There is no page '²'"),
        ("GET", "/done/fixed_0", 404, "There is no such page"),
        ("GET", "/a/b/c/d/e", 404, "There is no such page"),
        ("POST", "/done/fixed_0/B999999999", 404, "There is no product"),
        ("POST", "/done/fixed_9/B000000001", 404, "There is no goal 9"),
        ("POST", "/fixed_0", 405, "POST is not done here"),
        ("DELETE", "/fixed_0", 405, "DELETE is not done here"),
    ],
)
async def test_what_is_not_there_is_said(shop, method, target, status, said):
    site, browser = shop
    page = await browser.go(target, method)
    assert browser.status == status and said in page.text and not site.scores


async def test_options_that_a_product_has_not_are_left_out(shop):
    site, browser = shop
    session = kettle(site)
    await browser.go(
        f"/done/{session}/B000000001", "POST", data={"option.size": "9 l", "option.taste": "sour", "x": "2 l"}
    )
    assert json.loads(site.log.read_text())["options"] == {} and site.scores[session] < 1


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"POST /done/a/b HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST /done/a/b HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n",
        b"POST /done/a/b HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_no_browser_sends_is_refused(shop, bytes_):
    site, _ = shop
    reader, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))
    writer.write(bytes_)
    answered = await reader.read(1 << 16)
    assert answered.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    writer.close()


async def test_who_never_ends_a_request_is_sent_away_and_others_are_served_meanwhile(shop, monkeypatch):
    site, browser = shop
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))
    writer.write(b"GET /fixed_0 HTTP/1.1\r\n")
    assert "Instruction:" in (await browser.go("/fixed_0")).text
    assert (await reader.read(1 << 16)).startswith(b"HTTP/1.1 408")
    writer.close()


async def test_a_customer_who_leaves_amid_a_request_disturbs_nobody(shop):
    site, browser = shop
    for sent in (b"", b"GET / HT", b"POST /done/a/b HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc"):
        _, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))
        writer.write(sent)
        writer.close()
    assert "Instruction:" in (await browser.go("/fixed_0")).text


async def test_many_shop_at_once(shop):
    _, browser = shop
    pages = await asyncio.gather(
        *(
            browser.client.get("/search_results/fixed_0", params={"q": "spoon", "page": 1 + n % 3})
            for n in range(60)
        )
    )
    assert len({page.text for page in pages}) == 3 and {page.status_code for page in pages} == {200}


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    log = tmp_path / "bought.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "shop", "--port", "0", "--log", str(log)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        line = process.stdout.readline()
        (url,) = re.findall(
            r"^(http://127\.0\.0\.1:\d+)/fixed_0 to .*/fixed_2399: a shop and 2,400 goals", line
        )
        with httpx.Client(base_url=url, trust_env=False) as client:
            page = client.get("/search_results/fixed_0", params={"q": "lamp"}).text
            (asin, *_) = re.findall(r">(BZ\w{8})</a>", page)
            assert client.post(f"/done/fixed_0/{asin}").headers["location"] == "/done/fixed_0"
        assert json.loads(log.read_text())["asin"] == asin
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
