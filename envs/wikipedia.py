"""An encyclopedia that an episode reads with `search[entity]`, `lookup[keyword]` and `finish[answer]`.

The actions and the texts of their observations are those of the ReAct paper (Yao et al. 2023, section 3.1)
and its public environment: a search shows the first five sentences of the page, or similar titles if no page
has the name; a lookup shows the next sentence of that page which holds the keyword, as Ctrl+F would.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from envs.base import Observation, Session

Compat: TypeAlias = Literal["default", "reference"]

WIKIPEDIA = "https://en.wikipedia.org/w/api.php"
SHOWN = 5
"""How many sentences, and how many similar titles, an observation shows (ReAct's `wikienv.py`)."""

NOTHING_MORE = "No more results."
NO_PAGE = "No page is open. Search for an entity first."


@dataclass(frozen=True)
class Page:
    """One page. `paragraphs` hold its text; `sentences` its own sentence boundaries where the source knows
    them (then the default mode splits nothing); `options` the titles that a disambiguation page offers."""

    title: str
    paragraphs: tuple[str, ...]
    sentences: tuple[str, ...] | None = None
    options: tuple[str, ...] = ()

    @cached_property
    def packed(self) -> str:
        """All of it as one text, made once: a session's state holds it at each step."""
        return json.dumps([self.title, self.paragraphs, self.sentences, self.options], ensure_ascii=False)

    @classmethod
    def unpacked(cls, text: str) -> Page:
        title, paragraphs, sentences, options = json.loads(text)
        return cls(title, tuple(paragraphs), None if sentences is None else tuple(sentences), tuple(options))


class Source(Protocol):
    """Where pages come from: a snapshot file (`envs.snapshot`) or a live wiki (`envs.mediawiki`)."""

    @property
    def version(self) -> str:
        """What the pages depend on: a digest of a snapshot's content, or "live"."""
        ...

    async def open(self, cache: Path) -> None:
        """Get ready; `cache` is a folder that outlives runs. Raises WorldError."""
        ...

    async def close(self) -> None:
        """Give back what `open` took."""
        ...

    async def search(self, entity: str) -> Page | tuple[str, ...]:
        """The page of that name (after aliases and redirects), else up to five similar titles, best first."""
        ...


# -- text ----------------------------------------------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")
_LOOKALIKES = str.maketrans(
    dict.fromkeys("‐‑‒–—―−﹘﹣－", "-")
    | dict.fromkeys("‘’‚‛′ʼ`´", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | {"_": " ", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
_ACCENT = re.compile("[\u0300-\u036f]")


def clean(text: str) -> str:
    """`text` with lone surrogates (which no file or database takes) as U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def fold(text: str) -> str:
    """The form in which titles and keywords are compared: case, accents, the kind of dash or quote,
    underscores and runs of white space don't matter ("Beyoncé" = "beyonce", "New_York" = "New York")."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", clean(text)).casefold()
        text = _ACCENT.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.lower().translate(_LOOKALIKES).split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never the end of a sentence.
_TITLES = _words(
    "mr mrs ms messrs dr prof mt rev fr hon gen col lt sgt cpl capt cmdr maj adm gov sen rep pres mme mlle"
    " ste vs v viz cf eg ie ca approx eds trans op cit feat"
)
# As often as not: an end only before a word that likes to begin a sentence.
_EITHER = _words("inc ltd co corp etc jr sr bros ave blvd rd dept univ al ed st ft esq")
# An end unless a number follows.
_NUMBERED = _words(
    "no nos vol vols p pp c b d r fl sec fig ch pt jan feb mar apr jun jul aug sep sept oct nov dec"
)
_STARTERS = _words(
    "the this that these those he she it they we i you his her its their our a an in on at by for from with"
    " after before during since when while as although though however but and or there here both most many"
    " some other another one also if to"
)
_END = re.compile(
    r"(?P<stop>[.!?…]+)(?P<tail>['\"”’»)\]]*(?:\[[^\[\]\s]{1,20}\])*)(?P<gap>\s+)|(?P<wide>[。！？]+[」』”’）]*)\s*"
)
_WORD = re.compile(r"\S+")
_TOKEN = re.compile(r"[^\s(\[\"'“‘/–—-]*$")
_OPENERS = "\"'“‘«([{¿¡"


def split_sentences(text: str) -> list[str]:
    """The sentences of `text`, stripped, none empty; joined by spaces they hold all its non-space characters.

    A full stop does not end a sentence within numbers, after an abbreviation ("Dr.", "e.g.", "No. 5"), an
    initial ("J. K. Rowling") or an initialism ("U.S."), nor before a small letter. After what may stand at a
    sentence's end too ("U.S.", "Inc.", "Jr.") it does if the next word is one that opens sentences ("The").
    """
    sentences = []
    for line in text.splitlines():
        start = 0
        for end in _END.finditer(line):
            if end.end() < len(line) and (end["wide"] or _breaks(line, start, end)):
                sentences.append(line[start : end.end()].strip())
                start = end.end()
        sentences.append(line[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _breaks(line: str, start: int, end: re.Match[str]) -> bool:
    following = _WORD.match(line, end.end())
    word = following[0].lstrip(_OPENERS) if following else ""
    first = word[:1] or "A"
    if first.islower():
        return False
    if end["stop"] != ".":
        return True
    if not first.isalnum() and unicodedata.category(first) != "Sc":
        return False
    before = line[max(start, end.start() - 60) : end.start()]
    token = (_TOKEN.search(before) or [""])[0]
    bare = token.replace(".", "").lower()
    opens = re.sub(r"\W.*$", "", word).lower() in _STARTERS
    if "." in token and all(len(part) <= 2 and part.isalpha() for part in token.split(".")):
        return opens and bare not in _TITLES  # U.S., D.C., Ph.D., a.m., but not e.g.
    if end["tail"]:
        return True
    if len(token) == 1 and token.isupper():  # an initial, unless it is "vitamin C. It ..."
        word_before = before[:-1].split()[-1:]
        return opens and bool(word_before) and word_before[0].islower()
    if bare in _EITHER:
        return opens
    if bare in _NUMBERED:
        return not first.isdigit()
    return bare not in _TITLES


def _reference_sentences(paragraphs: Sequence[str]) -> list[str]:
    """ReAct's `wikienv.py`: paragraphs of more than two words, cut at ". ", a full stop added to every piece
    (so that the last of a paragraph ends in two)."""
    kept = (line for text in paragraphs if len(text.split(" ")) > 2 for line in text.split("\n"))
    pieces = (piece.strip() for line in kept for piece in line.strip().split(". "))
    return [piece + "." for piece in pieces if piece]


# Only a line that says nothing else: text after the colon makes it a sentence of an ordinary page.
_MAY_REFER = re.compile(r"^[^.:;]{0,200}\b(?:may|can|could)(?:\s+also)?\s+(?:\w+\s+)?refer\s+to\s*[:;]?$")


def _options(page: Page) -> tuple[str, ...] | None:
    """The titles a disambiguation page offers, perhaps none; None for an ordinary page."""
    if page.options:
        return page.options
    texts = page.paragraphs if page.sentences is None else page.sentences
    lines = [line.strip() for text in texts for line in text.split("\n") if line.strip()]
    if not lines or not _MAY_REFER.match(lines[0]):
        return None
    return tuple(title for line in lines[1:] if (title := line.split(",")[0].strip(" *•-\t")))


# -- acting --------------------------------------------------------------------------------------------


class WikiSession(Session):
    """One reader of a source. `score(answer)` gives the reward in [0, 1] that finishing shows.

    `compat="reference"` keeps the accidents of ReAct's environment: sentences cut at every ". ", a second
    full stop at the end of a paragraph, case-sensitive repetition of a keyword, a disambiguation page
    searched again in brackets.
    """

    def __init__(self, source: Source, score: Callable[[str], float], compat: Compat = "default") -> None:
        self._source = source
        self._score = score
        self._reference = compat == "reference"
        self._forget()

    def _forget(self) -> None:
        self.answer: str | None = None
        self.page: Page | None = None
        self._sentences: list[str] = []
        self._keyword: str | None = None
        self._position = 0
        self._done = False
        self._text = ""

    async def reset(self) -> str:
        """Begin again with no page open. There is no first observation."""
        self._forget()
        return ""

    async def step(self, action: str) -> Observation:
        """Apply `search[..]`, `lookup[..]`, `think[..]` or `finish[..]`, verbs in small letters; all else
        is answered `Invalid action: ..`. After `finish` each step gives its text again, with no reward.
        Raises WorldError if the source fails."""
        if self._done:
            return Observation(self._text, 0.0, True)
        action = clean(action).strip()
        verb, bracket, rest = action.partition("[")
        argument, reward = rest[:-1], 0.0
        if not bracket or not rest.endswith("]"):
            verb = ""
        if not self._reference:
            argument = " ".join(argument.split())
        match verb:
            case "search":
                text = await self._search(argument)
            case "lookup":
                text = self._lookup(argument)
            case "think":
                text = "Nice thought."
            case "finish":
                self.answer, self._done = argument, True
                reward = self._score(argument)
                text = f"Episode finished, reward = {reward:.15g}"
            case _:
                text = f"Invalid action: {action}"
        self._text = text.replace("\\n", "") if self._reference else text
        return Observation(self._text, reward, self._done)

    async def _search(self, entity: str) -> str:
        found = await self._source.search(entity)
        if isinstance(found, Page):
            page, similar = found, await self._ambiguous(entity, found)
        else:
            page, similar = None, found
        if page is None or similar is not None:
            if page is not None and self._reference:
                entity = f"[{entity}]"  # the reference searches again in brackets, and says so
            return f"Could not find {entity}. Similar: {list((similar or ())[:SHOWN])}."
        self._open(page)
        if not self._sentences and not self._reference:
            return f"The page {page.title} is empty."
        return " ".join(self._sentences[:SHOWN])

    async def _ambiguous(self, entity: str, page: Page) -> tuple[str, ...] | None:
        """What to show instead of a disambiguation page; None for an ordinary page."""
        if self._reference:
            options: tuple[str, ...] | None = ()
            if not page.options and not any("may refer to:" in text for text in page.paragraphs):
                options = None
        else:
            options = _options(page)
        if options is None or options:
            return options
        again = await self._source.search(f"[{entity}]")
        titles = (again.title,) if isinstance(again, Page) else again
        if self._reference:
            return titles
        return tuple(title for title in titles if title != page.title) or None

    def _open(self, page: Page) -> None:
        self.page, self._keyword, self._position = page, None, 0
        if self._reference:
            self._sentences = _reference_sentences(page.paragraphs)
        elif page.sentences is not None:
            self._sentences = [
                line for text in page.sentences if (line := " ".join(text.split("\n")).strip())
            ]
        else:
            self._sentences = [line for text in page.paragraphs for line in split_sentences(text)]

    def _lookup(self, keyword: str) -> str:
        if self.page is None and not self._reference:
            return NO_PAGE
        same = keyword if self._reference else fold(keyword)
        if same != self._keyword:
            self._keyword, self._position = same, 0
        found = list(self._holding(same))
        if self._position >= len(found):
            return NOTHING_MORE
        self._position += 1
        return f"(Result {self._position} / {len(found)}) {found[self._position - 1]}"

    def _holding(self, keyword: str) -> Iterator[str]:
        for sentence in self._sentences:
            if self._reference:
                if keyword.lower() in sentence.lower():
                    yield sentence
            elif keyword and keyword in fold(sentence):
                yield sentence

    # -- state -----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All that the next step depends on, the open page's text included: no source is asked again."""
        return {
            "page": self.page.packed if self.page else None,
            "keyword": self._keyword,
            "position": self._position,
            "answer": self.answer,
            "done": self._done,
            "text": self._text,
        }

    def restore(self, state: Any) -> None:
        """Continue from what `snapshot` gave, also after it went through JSON (lists for tuples)."""
        self._forget()
        if state["page"]:
            self._open(Page.unpacked(state["page"]))
        self._keyword, self._position = state["keyword"], state["position"]
        self.answer, self._done, self._text = state["answer"], state["done"], state["text"]
