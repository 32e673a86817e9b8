"""WebArena on a user's own site, by its address: logging in, its REST interface, several tabs, what fails there."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

if find_spec("playwright") is None:
    pytest.skip("Playwright is not installed", allow_module_level=True)

from envs.base import WorldError
from envs.webarena.checks import Rest
from envs.webarena.chromium import MISSING, program
from envs.webarena.engine import WebArenaEngine
from envs.webarena.shop.server import ShopServer
from envs.webarena.shop.stock import slug, stock

if program() is None:
    pytest.skip(MISSING, allow_module_level=True)

SEED = 233
FORM = (
    "<form method=post action='/customer/account/loginPost/'><input id=email name=email><input id=pass name=pass "
    "type=password><button id=send2>Sign In</button></form>"
)


class Site(BaseHTTPRequestHandler):
    """A shop that lets in who knows the password, and has a REST interface with a token."""

    def do_GET(self):
        if self.path.startswith("/rest/"):
            known = self.headers.get("authorization") == "Bearer right"
            self.say(
                200 if known else 401,
                b'[{"nickname": "Ada", "ratings": [{"percent": 80}]}]' if known else b"{}",
            )
            return
        if self.path.startswith("/customer/account/login"):
            self.say(200, FORM.encode())
            return
        who = "Welcome, Ada!" if "session=ada" in self.headers.get("cookie", "") else "Welcome, stranger!"
        self.say(200, f"<title>{self.path}</title><p>{who}</p>".encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path.startswith("/rest/"):
            self.say(200, b'"right"') if "secret" in body else self.say(401, b'{"message": "no"}')
            return
        let_in = "pass=secret" in body
        self.send_response(302)
        self.send_header("location", "/customer/account/" if let_in else "/customer/account/login/")
        if let_in:
            self.send_header("set-cookie", "session=ada; path=/")
        self.end_headers()

    def say(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def engine(shop, **more):
    return WebArenaEngine(shop=shop, seed=SEED, page_seconds=20.0, most=100, whole=True, **more)


def task(**judged):
    return {
        "start_url": "__SHOPPING__",
        "eval": {"eval_types": ["url_match"], "reference_url": "__SHOPPING__/a", **judged},
    }


def test_a_customer_is_logged_in_and_every_episode_is_theirs(address):
    made = engine(address, login={"user": "ada@example.org", "password": "secret"})
    try:
        for name in ("a", "b"):
            assert "Welcome, Ada!" in made.begin(name, task())
        assert made.step("a", f"goto [{address}/a]")[0].count("Welcome, Ada!") == 1
        assert made.step("a", "stop []")[1:3] == (1.0, True)
        assert made.step("b", "stop []")[1:3] == (0.0, True)
        tabs = made.begin("c", {**task(), "start_url": "__SHOPPING__/x |AND| __SHOPPING__/y"})
        assert tabs.startswith("Tab 0 (current): /x | Tab 1: /y\n")
        assert "RootWebArea '/y'" in made.step("c", "tab_focus [1]")[0]
    finally:
        made.close()


def test_what_a_site_refuses_is_said_in_one_line(address):
    with pytest.raises(WorldError, match="does not let ada in"):
        engine(address, login={"user": "ada", "password": "wrong"})
    made = engine(address)
    try:
        assert "Welcome, stranger!" in made.begin("a", task())
        with pytest.raises(WorldError, match="is the shop up"):
            made.begin("b", {**task(), "start_url": "http://127.0.0.1:1/"})
    finally:
        made.close()


def test_the_rest_interface_is_asked_with_a_token(address):
    rest = Rest(address, "admin", "secret")
    assert rest.latest_review("B1")["nickname"] == "Ada"
    rest.close()
    rest = Rest(address, "admin", "wrong")
    with pytest.raises(WorldError, match=r"REST interface.*401.*admin_password_env"):
        rest.latest_order()
    rest.close()


def test_our_shop_can_be_a_users_site():
    server = ShopServer(SEED)
    made = engine(f"http://127.0.0.1:{server.port}")
    product = stock(SEED).products[5]
    judged = {
        "eval_types": ["program_html"],
        "program_html": [
            {"url": "__SHOPPING__/wishlist/", "locator": "document.querySelector('.wishlist').outerText",
             "required_contents": {"must_include": [product.title]}},
        ],
    }  # fmt: skip
    try:
        made.begin("a", task(**judged))
        assert made.step("a", "stop []")[1] == 0.0
        made.begin("a", task(**judged))
        seen = made.step("a", f"goto [http://127.0.0.1:{server.port}/{slug(product)}.html]")[0]
        number = seen.split("] button 'Add to Wish List'")[0].rsplit("[", 1)[1]
        made.step("a", f"click [{number}]")
        assert made.step("a", "stop []")[1] == 1.0
    finally:
        made.close()
        server.close()
