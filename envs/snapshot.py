"""Pages from one file, searched without a network: `SnapshotSource`.

A snapshot is JSON lines, gzipped or not, a page a line, in one of two shapes:

    ["Title", ["First sentence.", " Second sentence."]]
    {"title": "Title", "aliases": ["Other name"], "sentences": ["First sentence.", "Second sentence."]}

(a sentence may also be `[number, text]`). It is indexed once into an SQLite file of the cache folder, named
by the content's digest; the file's own sentence boundaries are kept.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import re
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import orjson

from envs.base import DataError, WorldError
from envs.wikipedia import SHOWN, Page, clean, fold

T = TypeVar("T")

_INDEX_VERSION = 1  # part of the index file's name: raise it when the tables or `fold` change
_TERMS = 32  # how many different words of a query are searched; the rest of a 10 kB "title" says nothing more
_CHECKED_WHOLE = 256 << 20  # bytes; a larger index is checked by its head and its last row only
REMEMBERED = 1000
"""Answers that are kept at hand."""
_TITLE_WEIGHT = 10.0  # of a word in the title against one in the text, for bm25

_TABLES = """
CREATE TABLE page (id INTEGER PRIMARY KEY, line INTEGER, title TEXT UNIQUE, aliases TEXT, sentences TEXT);
CREATE TABLE name (folded TEXT, page INTEGER, alias INTEGER);
CREATE VIRTUAL TABLE words USING fts5(title, text, content='', tokenize='unicode61');
CREATE TABLE complete (pages INTEGER);
"""


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    title: str
    aliases: tuple[str, ...]
    sentences: tuple[str, ...]


def read_pages(path: Path) -> Iterator[_Row]:
    """The pages of a snapshot file in its order, with their line numbers from 1; blank lines are passed over.

    A byte order mark and CRLF are fine. Raises DataError naming file, line and what is wrong.
    """
    number = 0
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if zipped else raw as lines:
                for number, line in enumerate(lines, 1):
                    if text := line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip():
                        yield _read_row(text, number, f"{path}, line {number}")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{path}: damaged gzip file after line {number} ({error}); fetch it again") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); check the path") from error


def _read_row(text: bytes, number: int, where: str) -> _Row:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error}); a page is [title, [sentence, ...]]") from error
    aliases: Any = []
    if isinstance(row, list) and len(row) == 2:
        title, sentences = row
    elif isinstance(row, dict):
        missing = next((name for name in ("title", "sentences") if name not in row), None)
        if missing:
            raise DataError(f"{where}: field {missing!r} is missing")
        title, sentences, aliases = row["title"], row["sentences"], row.get("aliases") or []
    else:
        raise DataError(f"{where}: not a page; write [title, [sentence, ...]] or an object with these fields")
    if not isinstance(title, str) or not title.strip():
        raise DataError(f"{where}: the title must be a text that is not blank")
    if not isinstance(sentences, list):
        raise DataError(f"{where}: the sentences of {title!r} must be a list")
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise DataError(f"{where}: the aliases of {title!r} must be a list of texts")
    texts = []
    for place, sentence in enumerate(sentences):
        if isinstance(sentence, list) and len(sentence) >= 2:
            sentence = sentence[1]
        if not isinstance(sentence, str):
            raise DataError(f"{where}: sentence {place} of {title!r} must be a text")
        texts.append(sentence)
    return _Row(number, title.strip(), tuple(aliases), tuple(texts))


def _join(sentences: tuple[str, ...]) -> str:
    """Sentences as one paragraph; those that carry their own leading space are put together as they are."""
    spaced = any(sentence[:1].isspace() for sentence in sentences[1:])
    return ("" if spaced else " ").join(sentences).strip()


def _page(title: str, packed: str) -> Page:
    sentences = tuple(orjson.loads(packed))
    stripped = tuple(text for sentence in sentences if (text := sentence.strip()))
    return Page(title, (_join(sentences),), stripped)


# -- the index -----------------------------------------------------------------------------------------


def build_index(path: Path, index: Path) -> None:
    """Index the snapshot `path` into the SQLite file `index`, which appears whole or not at all.

    Raises DataError for a bad row, a second page of one title and a file without pages.
    """
    index.parent.mkdir(parents=True, exist_ok=True)
    temporary = index.with_name(f"{index.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with closing(sqlite3.connect(temporary)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.executescript(_TABLES)
            with database:
                _fill(database, path)
            database.execute("CREATE INDEX name_folded ON name (folded)")
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(index)
    finally:
        temporary.unlink(missing_ok=True)


def _fill(database: sqlite3.Connection, path: Path) -> None:
    number = 0
    for number, row in enumerate(read_pages(path), 1):
        packed, aliases = orjson.dumps(row.sentences).decode(), orjson.dumps(row.aliases).decode()
        try:
            database.execute(
                "INSERT INTO page VALUES (?, ?, ?, ?, ?)", (number, row.line, row.title, aliases, packed)
            )
        except sqlite3.IntegrityError:
            first = database.execute("SELECT line FROM page WHERE title = ?", (row.title,)).fetchone()[0]
            raise DataError(
                f"{path}, lines {first} and {row.line}: two pages called {row.title!r}; keep one of them"
            ) from None
        names = list(dict.fromkeys(fold(name) for name in (row.title, *row.aliases, unescape(row.title))))
        database.executemany(
            "INSERT INTO name VALUES (?, ?, ?)",
            [(name, number, place > 0) for place, name in enumerate(names)],
        )
        database.execute(
            "INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)",
            (number, " / ".join(names), fold(_join(row.sentences))),
        )
    if number == 0:
        raise DataError(f"{path}: no pages in it; check that the file was written or fetched to its end")
    database.execute("INSERT INTO complete VALUES (?)", (number,))


def _is_whole(index: Path) -> bool:
    """Whether `index` is there and undamaged, as far as can be told without reading gigabytes."""
    try:
        with closing(_connect(index)) as database:
            (pages,) = database.execute("SELECT pages FROM complete").fetchone()
            (last,) = database.execute("SELECT max(id) FROM page").fetchone()
            if index.stat().st_size > _CHECKED_WHOLE:
                return bool(pages == last)
            return bool(pages == last and database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except (sqlite3.DatabaseError, OSError, TypeError, ValueError):
        return False


def _connect(index: Path) -> sqlite3.Connection:
    # immutable: the file never changes in place, so no locks are taken (which some network drives lack).
    uri = f"{index.resolve().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


# -- searching -----------------------------------------------------------------------------------------


def _find(database: sqlite3.Connection, entity: str) -> Page | tuple[str, ...]:
    exact = database.execute("SELECT title, sentences FROM page WHERE title = ?", (entity,)).fetchone()
    if exact:
        return _page(*exact)
    folded = fold(entity)
    named = database.execute(
        "SELECT page.title, page.aliases, page.sentences FROM name JOIN page ON page.id = name.page"
        " WHERE name.folded = ? ORDER BY name.alias, page.id",
        (folded,),
    ).fetchall()
    if named:
        # "Us" and "US" fold alike: an alias spelt exactly so, else the first title, else the first alias.
        spelt = [row for row in named if entity in orjson.loads(row[1])]
        title, _, sentences = (spelt or named)[0]
        return _page(title, sentences)
    return tuple(_similar(database, folded))


def _similar(database: sqlite3.Connection, folded: str) -> list[str]:
    """Up to five titles: first "Name (disambiguator)", then by bm25 those with the name in the title, with
    all its words anywhere, and with any of them."""
    if not folded:
        return []
    found = database.execute(
        "SELECT page.title FROM name JOIN page ON page.id = name.page WHERE name.folded >= ?"
        " AND name.folded < ? AND NOT name.alias ORDER BY name.folded, page.id LIMIT ?",
        (f"{folded} (", f"{folded} )", SHOWN),
    ).fetchall()
    titles = dict.fromkeys(title for (title,) in found)
    terms = list(dict.fromkeys(re.findall(r"[^\W_]+", folded)))[:_TERMS]
    quoted = [f'"{term}"' for term in terms]
    queries = [f'title : "{" ".join(terms)}"', " AND ".join(quoted), " OR ".join(quoted)] if terms else []
    for query in queries:
        if len(titles) >= SHOWN:
            break
        found = database.execute(
            "SELECT page.title FROM (SELECT rowid, bm25(words, ?, 1.0) AS score FROM words"
            " WHERE words MATCH ? ORDER BY score, rowid LIMIT ?) AS best JOIN page ON page.id = best.rowid"
            " ORDER BY best.score, best.rowid",
            (_TITLE_WEIGHT, query, 2 * SHOWN),
        ).fetchall()
        titles |= dict.fromkeys(title for (title,) in found)
    return list(titles)[:SHOWN]


class SnapshotSource:
    """The pages of one snapshot file (see the module for its shapes), found by exact title, by title or alias
    in any case, accents and dashes, else as similar titles by bm25.

    Queries run in worker threads, each on a connection of its own; any number may be under way.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._index: Path | None = None
        self._idle: list[sqlite3.Connection] = []
        self._rebuild = threading.Lock()
        self._found: dict[str, Page | tuple[str, ...]] = {}
        """What was found lately, the least lately used first: episodes of one task search alike."""

    @functools.cached_property
    def version(self) -> str:
        """sha256 of the file's bytes, 16 hex digits. Raises DataError if it can't be read."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read ({error}); check `source`") from error

    async def open(self, cache: Path) -> None:
        """Index the file into `cache` unless a whole index lies there. Raises DataError for a bad file."""
        self._index = await anyio.to_thread.run_sync(self._prepare, cache)

    def _prepare(self, cache: Path) -> Path:
        index = cache / "snapshots" / f"{self.version}-{_INDEX_VERSION}.sqlite"
        if not _is_whole(index):
            self._build(index)
        return index

    def _build(self, index: Path) -> None:
        try:
            build_index(self.path, index)
        except (OSError, sqlite3.Error) as error:
            raise WorldError(f"{index}: the index of {self.path} can't be written ({error})") from error

    async def close(self) -> None:
        """Close the database. May be called again."""
        self._index = None
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def search(self, entity: str) -> Page | tuple[str, ...]:
        """The page called `entity`, else up to five similar titles. Any text is fine; "" finds nothing."""
        if self._index is None:
            raise WorldError(f"{self.path}: the snapshot is not open; await open(cache) first")
        entity = " ".join(clean(entity).replace("\0", " ").split())
        found = self._found.pop(entity, None)
        if found is None:
            found = await anyio.to_thread.run_sync(self._search, self._index, entity)
            while len(self._found) >= REMEMBERED:
                del self._found[next(iter(self._found))]
        self._found[entity] = found
        return found

    def _search(self, index: Path, entity: str) -> Page | tuple[str, ...]:
        try:
            return self._query(index, lambda database: _find(database, entity))
        except (sqlite3.DatabaseError, ValueError):
            with self._rebuild:
                if not _is_whole(index):
                    self._close_idle()
                    self._build(index)
            try:
                return self._query(index, lambda database: _find(database, entity))
            except (sqlite3.DatabaseError, ValueError) as error:
                raise WorldError(
                    f"{index}: damaged ({error}); delete it, and it will be built anew"
                ) from error

    def _query(self, index: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
        try:
            database = self._idle.pop()
        except IndexError:
            database = _connect(index)
        try:
            answer = ask(database)
        except BaseException:
            database.close()
            raise
        if self._index is None:
            database.close()
        else:
            self._idle.append(database)
        return answer


def embedded() -> SnapshotSource:
    """The project's own small encyclopedia."""
    return SnapshotSource(Path(str(resources.files("envs") / "encyclopedia" / "articles.jsonl")))
