"""A real Chromium before odd pages: dialogs, new windows, huge pages, what has vanished, circles, downloads."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

if find_spec("playwright") is None:
    pytest.skip("Playwright is not installed", allow_module_level=True)

from envs.webarena.actions import read_action
from envs.webarena.browser import Refused, Tabs
from envs.webarena.chromium import MISSING, Chromium, program

SECONDS = 30.0

if program() is None:
    pytest.skip(MISSING, allow_module_level=True)

ODD = {
    "/dialog": "<button onclick=\"alert('Careful'); document.title='after'\">Warn</button>",
    "/popup": "<a href='/dialog' target='_blank'>Elsewhere</a>",
    "/huge": "<ul>" + "".join(f"<li><a href='/{k}'>Link {k}</a></li>" for k in range(3000)) + "</ul>",
    "/gone": '<button onclick="this.remove()">Vanish</button><button>Stay</button>',
    "/download": "<a href='/file.bin' download>Fetch</a>",
    "/hidden": "<div style='height:3000px'>Top</div><button onclick=\"document.title='found'\">Far below</button>",
}


@pytest.fixture(scope="module")
def odd():
    """A site of odd pages, and a browser that is on it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/round":
                self.send_response(302)
                self.send_header("location", "/round")
                self.end_headers()
                return
            body = ODD.get(self.path, "<p>Nothing</p>").encode()
            self.send_response(200)
            kind = "application/octet-stream" if self.path.endswith(".bin") else "text/html"
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Odd</title>" + body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    chromium = Chromium({"odd.test:80": f"127.0.0.1:{server.server_port}"})
    yield chromium
    chromium.close()
    server.shutdown()
    server.server_close()


@pytest.fixture
def tabs(odd):
    made = Tabs(odd.context(), seconds=SECONDS, most=100, whole=False)
    yield made
    made.close()


def at(tabs, path):
    tabs.open(f"http://odd.test{path}")
    return tabs.seen()


def element(seen, name):
    return re.search(rf"\[(\d+)\] \w+ '{re.escape(name)}", seen)[1]


def test_a_dialog_is_accepted_and_told(tabs):
    seen = at(tabs, "/dialog")
    tabs.do(read_action(f"click [{element(seen, 'Warn')}]"))
    after = tabs.seen()
    assert "(a dialog said 'Careful' and was accepted)" in after
    assert "RootWebArea 'after'" in after
    assert "dialog said" not in tabs.seen()


def test_a_new_window_is_a_tab_in_front(tabs):
    seen = at(tabs, "/popup")
    tabs.do(read_action(f"click [{element(seen, 'Elsewhere')}]"))
    assert "Tab 1 (current): Odd" in tabs.seen()
    tabs.do(read_action("close_tab"))
    assert tabs.seen().startswith("Tab 0 (current)")
    tabs.do(read_action("close_tab"))
    assert "about:blank" in tabs.seen()  # the last one is replaced
    with pytest.raises(Refused, match="there is no tab 4"):
        tabs.do(read_action("tab_focus [4]"))


def test_a_huge_page_is_cut(tabs):
    tabs_seen = at(tabs, "/huge")
    assert len(tabs_seen.split("\n")) < 110


def test_what_cannot_be_done_is_refused_with_a_reason(tabs):
    seen = at(tabs, "/gone")
    button = element(seen, "Vanish")
    with pytest.raises(Refused, match="takes no text"):
        tabs.do(read_action(f"type [{button}] [x] [1]"))
    tabs.do(read_action(f"click [{button}]"))
    with pytest.raises(Refused):
        tabs.do(read_action(f"click [{button}]"))  # it is gone, and the page was not looked at since
    with pytest.raises(Refused, match=r"no element \[999\]"):
        tabs.do(read_action("click [999]"))
    with pytest.raises(Refused, match="no page to go to"):
        tabs.do(read_action("go_forward"))
    with pytest.raises(Refused, match="keys"):
        tabs.do(read_action("press []"))
    with pytest.raises(Refused, match=r"nowhere\.test could not be opened"):
        tabs.do(read_action("goto [http://nowhere.test]"))
    for elsewhere in ("file:///etc/passwd", "javascript:alert(1)", "chrome://version", "data:text/html,hm"):
        with pytest.raises(Refused, match="begin with http"):
            tabs.do(read_action(f"goto [{elsewhere}]"))
    tabs.do(read_action("goto [odd.test/gone]"))
    assert "http://odd.test/gone" in tabs.seen()


def test_going_round_in_circles_ends(tabs):
    with pytest.raises(Refused, match="could not be opened"):
        at(tabs, "/round")
    assert "Tab 0" in tabs.seen()


def test_a_download_is_refused(tabs):
    seen = at(tabs, "/download")
    tabs.do(read_action(f"click [{element(seen, 'Fetch')}]"))
    assert "http://odd.test/download" in tabs.seen()


def test_what_is_far_below_is_seen_after_scrolling(tabs):
    seen = at(tabs, "/hidden")
    assert "Far below" not in seen
    for _ in range(5):
        tabs.do(read_action("scroll [down]"))
    seen = tabs.seen()
    tabs.do(read_action(f"click [{element(seen, 'Far below')}]"))
    assert "RootWebArea 'found'" in tabs.seen()
