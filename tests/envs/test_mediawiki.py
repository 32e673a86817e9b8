"""The live wiki's client, against a small wiki on a local port."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from time import time

import anyio
import anyio.lowlevel
import httpx
import pytest

from envs.base import WorldError
from envs.mediawiki import MediaWikiSource
from envs.testing import Disambiguation, MediaWikiServer, Redirect
from envs.wikipedia import Page, WikiSession

PAGES: dict[str, str | Redirect | Disambiguation] = {
    "Oslo": "Oslo is a city.\nIt has trams.\n\n\n== History ==\nIt was called Christiania.\n=== Trams ===\n",
    "Christiania": Redirect("Oslo"),
    "Mercury": Disambiguation(("Mercury (planet)", "Mercury (element)", "Freddie Mercury")),
    "Mercury (planet)": "Mercury is a planet.",
    "Mercury (element)": "Mercury is a metal.",
    "Freddie Mercury": "Freddie Mercury was a singer.",
    "C Sharp": "C Sharp is a language.",
    "Café Central": "Café Central is a café.",
    "C-sharp": Redirect("C Sharp"),
}


@pytest.fixture
async def wiki() -> AsyncIterator[MediaWikiServer]:
    async with MediaWikiServer(PAGES) as server:
        yield server


class Clock:
    """Waiting that takes no time and is written down."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def source(wiki: MediaWikiServer, clock: Clock, tmp_path: Path) -> AsyncIterator[MediaWikiSource]:
    live = MediaWikiSource(wiki.url, contact="me@example.org", pace=10_000, sleep=clock)
    await live.open(tmp_path)
    yield live
    await live.close()


async def test_a_page_is_its_paragraphs_without_section_headings(source: MediaWikiSource) -> None:
    assert await source.search("Oslo") == Page(
        "Oslo", ("Oslo is a city.", "It has trams.", "It was called Christiania.")
    )


async def test_redirects_lead_to_the_page(source: MediaWikiSource) -> None:
    found = await source.search("christiania")
    assert isinstance(found, Page)
    assert found.title == "Oslo"


async def test_a_miss_gives_similar_titles(source: MediaWikiSource) -> None:
    found = await source.search("Mercury the singer")
    assert isinstance(found, tuple)
    assert found[0] == "Freddie Mercury"
    assert len(found) <= 5


@pytest.mark.parametrize(("entity", "title"), [("cafe central", "Café Central"), ("c-SHARP", "C Sharp")])
async def test_a_search_hit_of_the_same_name_in_another_spelling_is_the_page(
    source: MediaWikiSource, entity: str, title: str
) -> None:
    found = await source.search(entity)
    assert isinstance(found, Page)
    assert found.title == title


async def test_a_disambiguation_page_carries_its_options_in_the_order_of_its_text(
    source: MediaWikiSource,
) -> None:
    found = await source.search("Mercury")
    assert isinstance(found, Page)
    assert found.options == ("Mercury (planet)", "Mercury (element)", "Freddie Mercury")


async def test_a_session_reads_a_live_wiki(source: MediaWikiSource) -> None:
    reader = WikiSession(source, lambda answer: 1.0)
    actions = "search[Mercury]", "search[Mercury (planet)]", "lookup[planet]"
    assert [(await reader.step(action)).text for action in actions] == [
        "Could not find Mercury. Similar: ['Mercury (planet)', 'Mercury (element)', 'Freddie Mercury'].",
        "Mercury is a planet.",
        "(Result 1 / 1) Mercury is a planet.",
    ]


async def test_the_reference_mode_finds_similar_titles_for_a_disambiguation(source: MediaWikiSource) -> None:
    reader = WikiSession(source, lambda answer: 1.0, "reference")
    seen = (await reader.step("search[Mercury]")).text
    assert seen.startswith("Could not find [Mercury]. Similar: ['Mercury', ")


async def test_requests_say_who_asks_and_how_they_may_be_put_off(
    source: MediaWikiSource, wiki: MediaWikiServer
) -> None:
    await source.search("Oslo")
    (request,) = wiki.requests
    agent = request.headers["user-agent"]
    assert agent.startswith("overnight/")
    assert agent.endswith(" (me@example.org)")
    assert request.parameters["maxlag"] == "5"
    assert request.parameters["formatversion"] == "2"
    assert request.parameters["redirects"] == "1"


@pytest.mark.parametrize(
    "entity", ["C#", "[Oslo]", "a|b", "<b>", "{x}", "\0", "\ud800", "x" * 10_000, "é" * 200]
)
async def test_what_can_be_no_title_is_only_searched(
    source: MediaWikiSource, wiki: MediaWikiServer, entity: str
) -> None:
    await source.search(entity)
    assert all("titles" not in request.parameters or entity == "C#" for request in wiki.requests[:1])
    assert len(wiki.requests[0].parameters["srsearch"]) <= 300


async def test_nothing_is_asked_for_an_empty_title(source: MediaWikiSource, wiki: MediaWikiServer) -> None:
    assert await source.search(" \n") == ()
    assert wiki.requests == []


# -- the cache -----------------------------------------------------------------------------------------


async def test_pages_and_misses_are_asked_for_once_also_by_the_next_run(
    source: MediaWikiSource, wiki: MediaWikiServer, tmp_path: Path
) -> None:
    first = [await source.search(entity) for entity in ("Oslo", "Nowhere at all", "Mercury")]
    asked = len(wiki.requests)
    wiki.pages["Oslo"] = "Changed."
    assert [await source.search(entity) for entity in ("Oslo", " Nowhere  at all", "Mercury")] == first
    again = MediaWikiSource(wiki.url, contact="me@example.org", pace=10_000)
    await again.open(tmp_path)
    assert [await again.search(entity) for entity in ("Oslo", "Nowhere at all", "Mercury")] == first
    await again.close()
    assert len(wiki.requests) == asked


def cached(tmp_path: Path) -> list[Path]:
    return sorted(file for file in tmp_path.rglob("*") if file.is_file())


async def test_a_cached_page_says_when_it_was_fetched(source: MediaWikiSource, tmp_path: Path) -> None:
    await source.search("Oslo")
    (file,) = cached(tmp_path)
    assert json.loads(file.read_text())["fetched"].startswith("20")


@pytest.mark.parametrize("torn", [b"", b'{"entity": "Os', b"[]", b'{"entity": "Oslo"}', b"\xff"])
async def test_a_torn_file_is_fetched_again(
    source: MediaWikiSource, wiki: MediaWikiServer, tmp_path: Path, torn: bytes
) -> None:
    first = await source.search("Oslo")
    (file,) = cached(tmp_path)
    file.write_bytes(torn)
    assert await source.search("Oslo") == first
    assert len(wiki.requests) == 2
    assert await source.search("Oslo") == first
    assert len(wiki.requests) == 2
    assert cached(tmp_path) == [file]


async def test_many_who_ask_for_one_title_at_once_make_one_request(
    source: MediaWikiSource, wiki: MediaWikiServer
) -> None:
    wiki.delay = 0.05
    found: list[object] = []

    async def ask() -> None:
        found.append(await source.search("Oslo"))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(ask)
    assert len(wiki.requests) == 1
    assert len(found) == 50
    assert len(set(map(repr, found))) == 1


async def test_cancelling_the_first_asker_cancels_no_other(
    source: MediaWikiSource, wiki: MediaWikiServer
) -> None:
    wiki.delay = 0.05
    found: list[object] = []

    async def ask() -> None:
        found.append(await source.search("Oslo"))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as first:
                first.start_soon(ask)
                while not wiki.requests:
                    await anyio.lowlevel.checkpoint()
                group.start_soon(ask)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    assert len(found) == 1
    assert isinstance(found[0], Page)


async def test_those_who_wait_for_a_title_share_its_error(
    source: MediaWikiSource, wiki: MediaWikiServer
) -> None:
    wiki.delay = 0.02
    wiki.fail_status(403, times=100)
    errors: list[str] = []

    async def ask() -> None:
        try:
            await source.search("Oslo")
        except WorldError as error:
            errors.append(str(error))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
    assert len(errors) == 20
    assert len(wiki.requests) == 1
    assert "403" in errors[0]
    assert "contact" in errors[0]


# -- failures ------------------------------------------------------------------------------------------


async def test_a_busy_wiki_is_asked_again_when_it_said(
    source: MediaWikiSource, wiki: MediaWikiServer, clock: Clock
) -> None:
    wiki.fail_status(429, retry_after="7")
    wiki.fail_maxlag(retry_after="3")
    wiki.fail_maxlag(retry_after="0.5", status=503)
    wiki.fail_status(503, retry_after=formatdate(time() + 30, usegmt=True))
    assert isinstance(await source.search("Oslo"), Page)
    assert clock.waits[:3] == [7.0, 3.0, 0.5]
    assert 20 < clock.waits[3] <= 30


@pytest.mark.parametrize("header", [None, "soon", "nan", "inf", ""])
async def test_without_a_time_the_waits_double(
    source: MediaWikiSource, wiki: MediaWikiServer, clock: Clock, header: str | None
) -> None:
    wiki.fail_status(503, retry_after=header, times=3)
    assert isinstance(await source.search("Oslo"), Page)
    assert clock.waits == [1.0, 2.0, 4.0]


async def test_damaged_answers_are_asked_for_again(
    source: MediaWikiSource, wiki: MediaWikiServer, clock: Clock
) -> None:
    wiki.fail_garbage()
    wiki.fail_cut()
    wiki.fail_garbage(b"[]")
    wiki.fail_error("ratelimited", "slow down")
    assert isinstance(await source.search("Oslo"), Page)
    assert len(wiki.requests) == 5


async def test_a_wiki_that_stays_busy_is_given_up_with_advice_and_not_cached(
    source: MediaWikiSource, wiki: MediaWikiServer, tmp_path: Path
) -> None:
    wiki.fail_status(429, retry_after="1", times=5)
    with pytest.raises(WorldError, match=r"HTTP 429.*try 5.*[Rr]esume"):
        await source.search("Oslo")
    assert cached(tmp_path) == []
    assert isinstance(await source.search("Oslo"), Page)


async def test_a_wiki_that_asks_for_an_hour_is_left_alone(
    source: MediaWikiSource, wiki: MediaWikiServer, clock: Clock
) -> None:
    wiki.fail_status(429, retry_after="3600")
    with pytest.raises(WorldError, match="429"):
        await source.search("Oslo")
    assert clock.waits == []


async def test_an_error_of_the_api_is_passed_on(source: MediaWikiSource, wiki: MediaWikiServer) -> None:
    wiki.fail_error("badvalue", "Unrecognized value")
    with pytest.raises(WorldError, match="badvalue: Unrecognized value"):
        await source.search("Oslo")
    assert len(wiki.requests) == 1


async def test_a_server_that_is_not_there_is_a_world_error_that_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = MediaWikiSource(f"http://127.0.0.1:{port}/w/api.php")
    await source.open(tmp_path)
    with pytest.raises(WorldError, match="check the network"):
        await source.search("Oslo")
    await source.close()


async def test_a_time_out_is_a_world_error_that_says_what_to_do(tmp_path: Path) -> None:
    def late(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("too late", request=request)

    source = MediaWikiSource(contact="me@example.org", transport=httpx.MockTransport(late))
    await source.open(tmp_path)
    with pytest.raises(WorldError, match="no answer in time"):
        await source.search("Oslo")
    await source.close()


async def test_a_live_wiki_needs_a_contact(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="`contact`"):
        await MediaWikiSource().open(tmp_path)


@pytest.mark.parametrize(
    "api", ["", "en.wikipedia.org", "ftp://x/", "http://", "http://[::1", "http://a b:x/"]
)
async def test_an_address_that_is_none_is_refused(tmp_path: Path, api: str) -> None:
    with pytest.raises(WorldError, match="`api`"):
        await MediaWikiSource(api, contact="me").open(tmp_path)


async def test_local_wikis_are_asked_without_the_proxy(
    wiki: MediaWikiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    source = MediaWikiSource(wiki.url)
    await source.open(tmp_path)
    assert isinstance(await source.search("Oslo"), Page)
    await source.close()


async def test_proxy_settings_that_make_no_client_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks9://127.0.0.1:9")
    with pytest.raises(WorldError, match="ALL_PROXY"):
        await MediaWikiSource(contact="me@example.org").open(tmp_path)


async def test_a_source_that_is_not_open_says_so() -> None:
    with pytest.raises(WorldError, match="not open"):
        await MediaWikiSource(contact="me").search("Oslo")


async def test_requests_are_paced(wiki: MediaWikiServer, tmp_path: Path) -> None:
    """At one request in 1,000 seconds a second one can't have gone out while this test looks."""
    source = MediaWikiSource(wiki.url, pace=0.001)
    await source.open(tmp_path)
    assert isinstance(await source.search("Oslo"), Page)
    with anyio.move_on_after(0.05) as scope:
        await source.search("Mercury")
    assert scope.cancelled_caught
    assert len(wiki.requests) == 1
    await source.close()
