"""A real Chromium in `overnight shop`, driven by its accessibility tree as browser agents drive it."""

from __future__ import annotations

import asyncio
import re
import threading
from importlib.util import find_spec

import pytest

if find_spec("playwright") is None:
    pytest.skip("Playwright is not installed", allow_module_level=True)

from envs.webarena.actions import read_action
from envs.webarena.browser import Tabs
from envs.webarena.chromium import MISSING, Chromium, program
from envs.webshop.site import Site, serving
from envs.webshop.world import WebShop

if program() is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture
def site():
    """The shop of 240 products, served in a thread of its own (Playwright's plain interface wants none around it)."""
    world = WebShop(count=240)
    made = Site(world.opened(), world.every_goal())
    ready, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve():
        async with serving(made):
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield made
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()
    made.shop.index.close()


@pytest.fixture
def tabs():
    chromium = Chromium()
    made = Tabs(chromium.context(), seconds=30.0, most=400, whole=True)
    yield made
    made.close()
    chromium.close()


def test_an_agent_finds_chooses_and_buys_by_the_accessibility_tree(site, tabs):
    goal = next(goal for goal in site.goals if len(goal.options) == 2 and goal.options[0] != goal.options[1])
    number = site.goals.index(goal)

    def press(role, name):
        (node,) = re.findall(rf"\[(\d+)\] {role} '{re.escape(name)}'", tabs.seen())
        tabs.do(read_action(f"click [{node}]"))

    tabs.open(f"{site.url}/fixed_{number}")
    seen = tabs.seen()
    assert goal.instruction in seen
    (box,) = re.findall(r"\[(\d+)\] searchbox 'Search'", seen)
    tabs.do(read_action(f"type [{box}] [{goal.title} {' '.join(goal.options)}] [1]"))
    while f"link '{goal.asin}'" not in tabs.seen():
        press("button", "Next >")
    press("link", goal.asin)
    for value in goal.options:
        press("radio", value)
    press("button", "Description")
    press("button", "< Prev")
    press("button", "Buy Now")
    assert "Thank you for shopping with us!" in tabs.seen()
    assert tabs.page.url == f"{site.url}/done/fixed_{number}"
    assert site.scores == {f"fixed_{number}": 1.0}
