"""A snapshot file: read, indexed once, searched by any text."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.base import DataError, WorldError
from envs.snapshot import SnapshotSource, build_index, embedded, read_pages
from envs.wikipedia import Page

ROWS: list[Any] = [
    ["Oslo", ["Oslo is a city.", " It lies in Norway."]],
    {"title": "Beyoncé", "aliases": ["Queen B"], "sentences": ["Beyoncé is a singer.", "She sings."]},
    {"title": "Java (island)", "sentences": ["Java is an island."]},
    {"title": "Java (language)", "sentences": [[0, "Java is a language."], [7, "It has classes.", 1]]},
    {"title": "JavaScript", "sentences": ["JavaScript is another language, not Java."]},
    {"title": "US", "sentences": ["US is a country."]},
    {"title": "Us", "sentences": ["Us is a film."]},
    {"title": "Record of 13–3", "sentences": ["It is a record."]},
    {"title": "X&amp;Y", "sentences": ["X&Y is an album."]},
    {"title": "Café del Mar", "sentences": ["It plays music."]},
    {"title": "Empty", "sentences": []},
]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[SnapshotSource]:
    snapshot = SnapshotSource(write(tmp_path / "pages.jsonl", ROWS))
    await snapshot.open(tmp_path / "cache")
    yield snapshot
    await snapshot.close()


def index_of(cache: Path) -> Path:
    (index,) = (cache / "snapshots").iterdir()
    return index


async def title(source: SnapshotSource, entity: str) -> str:
    found = await source.search(entity)
    assert isinstance(found, Page), found
    return found.title


async def similar(source: SnapshotSource, entity: str) -> tuple[str, ...]:
    found = await source.search(entity)
    assert isinstance(found, tuple), found
    return found


async def test_a_page_comes_with_its_paragraph_and_the_files_own_sentences(source: SnapshotSource) -> None:
    assert await source.search("Oslo") == Page(
        "Oslo", ("Oslo is a city. It lies in Norway.",), ("Oslo is a city.", "It lies in Norway.")
    )
    assert await source.search("Java (language)") == Page(
        "Java (language)",
        ("Java is a language. It has classes.",),
        ("Java is a language.", "It has classes."),
    )
    assert await source.search("Empty") == Page("Empty", ("",), ())


@pytest.mark.parametrize(
    ("entity", "found"),
    [
        ("oslo", "Oslo"),
        (" OSLO\n", "Oslo"),
        ("beyonce", "Beyoncé"),
        ("queen b", "Beyoncé"),
        ("US", "US"),
        ("Us", "Us"),
        ("us", "US"),
        ("record of 13-3", "Record of 13–3"),
        ("X&Y", "X&amp;Y"),
        ("cafe_del_mar", "Café del Mar"),
    ],
)
async def test_titles_and_aliases_are_found_in_any_spelling(
    source: SnapshotSource, entity: str, found: str
) -> None:
    assert await title(source, entity) == found


async def test_disambiguated_titles_come_first_among_similar_ones(source: SnapshotSource) -> None:
    assert await similar(source, "java") == ("Java (island)", "Java (language)", "JavaScript")


async def test_words_of_the_text_are_searched_too_and_titles_weigh_more(source: SnapshotSource) -> None:
    assert "Oslo" in await similar(source, "city in Norway")
    assert (await similar(source, "Del Mar music"))[0] == "Café del Mar"


async def test_no_more_than_five_titles_come_back(tmp_path: Path) -> None:
    rows = [[f"Smith {letter}", ["A smith."]] for letter in "abcdefgh"]
    snapshot = SnapshotSource(write(tmp_path / "p.jsonl", rows))
    await snapshot.open(tmp_path)
    assert len(await similar(snapshot, "Smith")) == 5
    await snapshot.close()


@pytest.mark.parametrize(
    "entity",
    [
        *("", " ", '"', "'", "a OR b", "NEAR(a b)", "title:x", "a* -b", "(", "x" * 10_000, "a " * 5_000),
        *("\0", "a\0b", "\ud800", "%", "_", "AND", '"; DROP TABLE page; --', "{a} : b", "^a", "日本語", "😀"),
    ],
)
async def test_any_text_can_be_searched(source: SnapshotSource, entity: str) -> None:
    assert isinstance(await source.search(entity), tuple)


@given(st.text() | st.text(alphabet='aO"*()^:{}-+ \0ANDR'))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_text_breaks_the_query_language(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    async def search() -> None:
        base = tmp_path_factory.getbasetemp()
        path = base / "any.jsonl"
        if not path.exists():
            write(path, ROWS)
        snapshot = SnapshotSource(path)
        await snapshot.open(base / "any-cache")
        assert isinstance(await snapshot.search(text), tuple | Page)
        await snapshot.close()

    anyio.run(search)


async def test_many_searches_at_once_get_each_its_own_answer(source: SnapshotSource) -> None:
    wanted = ["Oslo", "Beyoncé", "US", "Us", "Café del Mar"] * 60
    found: dict[int, str] = {}

    async def search(k: int) -> None:
        found[k] = await title(source, wanted[k])

    async with anyio.create_task_group() as group:
        for k in range(len(wanted)):
            group.start_soon(search, k)
    assert [found[k] for k in range(len(wanted))] == wanted


# -- files ---------------------------------------------------------------------------------------------


def test_zipped_files_byte_order_marks_crlf_and_blank_lines_are_read(tmp_path: Path) -> None:
    lines = "\ufeff" + '["A", ["a."]]\r\n\r\n["B", ["b."]]\r\n'
    zipped = tmp_path / "pages.gz"
    zipped.write_bytes(gzip.compress(lines.encode()))
    assert [(row.line, row.title) for row in read_pages(zipped)] == [(1, "A"), (3, "B")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"title": "B"', "not JSON"),
        ('["B", [NaN]]', "not JSON"),
        ('["B", ["\\ud800"]]', "not JSON"),
        ("7", "not a page"),
        ('["B"]', "not a page"),
        ('["", ["b"]]', "the title"),
        ('[5, ["b"]]', "the title"),
        ('["B", "b"]', "must be a list"),
        ('["B", ["b", 5]]', "sentence 1 of 'B'"),
        ('{"title": "B"}', "'sentences' is missing"),
        ('{"sentences": []}', "'title' is missing"),
        ('{"title": "B", "sentences": [], "aliases": "b"}', "aliases"),
        ('["A", ["b."]]', "lines 1 and 2: two pages called 'A'"),
    ],
)
async def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'["A", ["a."]]\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        await SnapshotSource(path).open(tmp_path / "cache")
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "line 2" in str(caught.value) or "and 2" in str(caught.value)
    assert list((tmp_path / "cache" / "snapshots").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\n\n", gzip.compress(b"")])
async def test_a_file_without_pages_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "none.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="no pages"):
        await SnapshotSource(tmp_path / "none.jsonl").open(tmp_path)


async def test_missing_damaged_and_impossible_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(json.dumps(ROWS[0]).encode() * 200)[:-30])
    (tmp_path / "latin.jsonl").write_bytes(b'["A", ["\xe9"]]\n')
    for name in ("cut.gz", "latin.jsonl", "missing.jsonl", "", "a\0b"):
        with pytest.raises(DataError) as caught:
            await SnapshotSource(tmp_path / name).open(tmp_path)
        assert str(tmp_path) in str(caught.value)


# -- the index -----------------------------------------------------------------------------------------


async def test_the_version_depends_on_the_content_only(tmp_path: Path) -> None:
    one, same = write(tmp_path / "one.jsonl", ROWS), write(tmp_path / "same.jsonl", ROWS)
    other = write(tmp_path / "other.jsonl", ROWS[:-1])
    assert SnapshotSource(one).version == SnapshotSource(same).version != SnapshotSource(other).version


async def test_a_file_is_indexed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "pages.jsonl", ROWS)
    first = SnapshotSource(path)
    await first.open(tmp_path / "cache")
    await first.close()
    before = index_of(tmp_path / "cache").stat().st_ino
    monkeypatch.setattr("envs.snapshot.build_index", None)  # calling it would fail
    again = SnapshotSource(write(tmp_path / "moved.jsonl", ROWS))
    await again.open(tmp_path / "cache")
    assert await title(again, "Oslo") == "Oslo"
    assert index_of(tmp_path / "cache").stat().st_ino == before
    await again.close()


@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "unfinished"])
async def test_a_damaged_index_is_built_anew(tmp_path: Path, damage: str) -> None:
    source = SnapshotSource(write(tmp_path / "pages.jsonl", ROWS))
    await source.open(tmp_path / "cache")
    await source.close()
    index = index_of(tmp_path / "cache")
    whole = index.read_bytes()
    if damage == "unfinished":
        database = sqlite3.connect(index)
        database.execute("DELETE FROM complete")
        database.commit()
        database.close()
    else:
        cut = whole[: len(whole) // 2]
        index.write_bytes({"empty": b"", "half": cut, "garbage": b"x" * len(whole)}[damage])
    again = SnapshotSource(tmp_path / "pages.jsonl")
    await again.open(tmp_path / "cache")
    assert await title(again, "Oslo") == "Oslo"
    assert await similar(again, "java")
    await again.close()
    assert [file.name for file in (tmp_path / "cache" / "snapshots").iterdir()] == [index.name]


async def test_an_index_that_breaks_while_it_is_used_is_built_anew(tmp_path: Path) -> None:
    source = SnapshotSource(write(tmp_path / "pages.jsonl", ROWS))
    await source.open(tmp_path / "cache")
    index_of(tmp_path / "cache").write_bytes(b"x" * 5000)
    assert await title(source, "Oslo") == "Oslo"
    await source.close()


def _build(path: Path, index: Path, barrier: Any) -> None:
    barrier.wait()
    build_index(path, index)


def test_two_processes_may_build_one_index_at_the_same_time(tmp_path: Path) -> None:
    rows = [[f"Page {k}", [f"This is page {k}."]] for k in range(2000)]
    path, index = write(tmp_path / "pages.jsonl", rows), tmp_path / "index" / "pages.sqlite"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    builders = [context.Process(target=_build, args=(path, index, barrier)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert [builder.exitcode for builder in builders] == [0, 0]
    assert [file.name for file in index.parent.iterdir()] == [index.name]
    database = sqlite3.connect(index)
    assert database.execute("SELECT count(*) FROM page").fetchone() == (2000,)
    database.close()


async def test_a_source_that_is_not_open_says_so(tmp_path: Path) -> None:
    source = SnapshotSource(write(tmp_path / "pages.jsonl", ROWS))
    with pytest.raises(WorldError, match="not open"):
        await source.search("Oslo")
    await source.close()


async def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(WorldError, match="cache"):
        await SnapshotSource(write(tmp_path / "pages.jsonl", ROWS)).open(tmp_path / "cache")


async def test_the_embedded_encyclopedia_opens_and_every_title_and_alias_leads_to_its_page(
    tmp_path: Path,
) -> None:
    source = embedded()
    await source.open(tmp_path)
    for row in read_pages(source.path):
        for name in (row.title, *row.aliases):
            assert await title(source, name) == row.title
    await source.close()
