"""Full-text search over a catalogue of any size: BM25 as Lucene has it, from an index on disk that is made once.

Files of an index folder: `products.jsonl` (the products as read), `offsets.npy` (where each begins), `asins.npy` and
`order.npy` (to find one by its ASIN), for each kind of goals `human.npy` and `synthetic.npy` (numbers of the products
that have some, and how many), `terms.json` (term to number), `starts.npy` (where each term's postings begin),
`most.npy` (how often each is in one document at most), `documents.npy` and `counts.npy` (the postings), `lengths.npy`
(of the documents), and `whole.json`, written last.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import tempfile
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from snowballstemmer import stemmer

from envs.base import DataError
from envs.webshop.goals import KINDS, Goals, Kind, size
from envs.webshop.products import Product

K1, B = 0.9, 0.4
"""BM25's parameters, those of the search engine that WebShop uses (Pyserini)."""
TOP = 50
"""Results of a search at most."""
SPILL = 4_000_000
"""Postings that are held in memory while an index is made."""
_ENOUGH = 1000
"""So many products tell well enough which score the best will have at least."""
VERSION = 3
"""Of an index's files and of how texts become terms: indexes of another one are not read."""
_SLACK = 1e-4
"""Scores are sums of 32-bit floats: what is as near as this may be equal."""

_WORD = re.compile(r"[^\W_]+(?:\.[0-9]+)?", re.UNICODE)
_COMMON = """a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with"""
_STOP = frozenset(_COMMON.split())
_STEMS: dict[str, str] = {}
_MOST_STEMS = 500_000
_LOCK = threading.Lock()
_stem = stemmer("porter")


def words(text: str) -> list[str]:
    """The terms of a text: words in lower case without the commonest, by their stems (Porter)."""
    found = []
    for word in _WORD.findall(text.lower()):
        if word in _STOP:
            continue
        stem = _STEMS.get(word)
        if stem is None:
            if len(_STEMS) >= _MOST_STEMS:
                _STEMS.clear()
            with _LOCK:  # the stemmer keeps the word it works on
                stem = _STEMS[word] = _stem.stemWord(word)
        found.append(stem)
    return found


def _labels(product: Product) -> set[str]:
    """What a product can be found by besides its words; none of them is a word."""
    labels = [
        ("<c>", product.category),
        ("<q>", product.query),
        *(("<a>", each) for each in product.attributes),
    ]
    return {f"{kind} {label}" for kind, label in labels if label}


def prepare(products: Iterable[Product], folder: Path, source: str) -> Path:
    """The folder of an index over products, below `folder`; made if it is not there. `source` names what the products
    come from: another text is another index. Products are read once, and never all in memory. Of several threads or
    processes that want it at once, one makes it and the others wait. Raises DataError where there are no products, or
    no room."""
    place = folder / hashlib.sha256(f"{VERSION}\0{source}".encode()).hexdigest()[:16]
    if (place / "whole.json").exists():
        return place
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(place):
            if not (place / "whole.json").exists():
                _put(products, place, source)
    except OSError as error:
        raise DataError(
            f"{folder}: the index of products could not be written ({error.strerror or error}); "
            "make room there, or name another folder in OVERNIGHT_CACHE"
        ) from error
    return place


def _put(products: Iterable[Product], place: Path, source: str) -> None:
    making = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        _make(products, making, source)
        if not (place / "whole.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            making.rename(place)
    finally:
        shutil.rmtree(making, ignore_errors=True)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """While nobody else makes the index of a place; what those who were killed left behind is taken away. On a file
    system without locks nothing is waited for."""
    with place.with_name(f"{place.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield
            return
        for left in place.parent.glob(f"{place.name}.*/"):
            shutil.rmtree(left, ignore_errors=True)
        yield


class _Numbers(dict[str, int]):
    """The terms met so far, numbered in that order."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class _Postings:
    """(term, document, count) of an index that is being made: in memory, and now and then written to a file."""

    def __init__(self, file: Path) -> None:
        self.terms = _Numbers()
        self.pieces = 0
        self.frequency = np.zeros(0, dtype=np.int64)
        """In how many documents each term is; complete after `spill`."""
        self._file = file.open("wb")
        self._of, self._documents, self._counts = array("I"), array("I"), array("I")

    def add(self, document: int, product: Product) -> int:
        """The terms of a product, and its labels; gives how many terms there are."""
        found = Counter(map(self.terms.__getitem__, words(product.searched)))
        length = found.total()
        for label in _labels(product):
            found[self.terms[label]] = 1
        self._of.extend(found)
        self._documents.extend(itertools.repeat(document, len(found)))
        self._counts.extend(found.values())
        if len(self._of) >= SPILL:
            self.spill()
        return length

    def spill(self) -> None:
        of = np.frombuffer(self._of, dtype=np.uint32)
        of_each = np.bincount(of, minlength=len(self.terms))
        of_each[: len(self.frequency)] += self.frequency
        self.frequency = of_each
        np.save(self._file, of)
        np.save(self._file, np.frombuffer(self._documents, dtype=np.uint32))
        np.save(
            self._file, np.minimum(np.frombuffer(self._counts, dtype=np.uint32), 65_535).astype(np.uint16)
        )
        self._of, self._documents, self._counts = array("I"), array("I"), array("I")
        self.pieces += 1

    def close(self) -> None:
        self._file.close()


def _make(products: Iterable[Product], place: Path, source: str) -> None:
    postings = _Postings(place / "spill")
    lengths, offsets = array("I"), array("Q")
    wished = {kind: (array("I"), array("I")) for kind in KINDS}
    asins: list[bytes] = []
    at = 0
    with (place / "products.jsonl").open("wb") as rows, closing(postings):
        for number, product in enumerate(products):
            line = orjson.dumps(product, option=orjson.OPT_APPEND_NEWLINE)
            rows.write(line)
            offsets.append(at)
            at += len(line)
            asins.append(product.asin.encode())
            for kind, (which, sizes) in wished.items():
                if goals_of := size(product, kind):
                    which.append(number)
                    sizes.append(goals_of)
            lengths.append(postings.add(number, product))
        postings.spill()
    offsets.append(at)
    if not asins:
        raise DataError(f"{source}: no products to index")
    starts = np.zeros(len(postings.terms) + 1, dtype=np.int64)
    np.cumsum(postings.frequency, out=starts[1:])
    _sort(place, postings.pieces, starts)
    names = np.array(asins)
    order = np.argsort(names, kind="stable").astype(np.uint32)
    for name, values in (
        ("offsets", np.frombuffer(offsets, dtype=np.uint64)),
        ("lengths", np.frombuffer(lengths, dtype=np.uint32)),
        ("starts", starts),
        ("asins", names[order]),
        ("order", order),
    ):
        np.save(place / f"{name}.npy", values)
    for kind, both in wished.items():
        np.save(place / f"{kind}.npy", np.array(both, dtype=np.uint32))
    (place / "spill").unlink()
    (place / "terms.json").write_bytes(orjson.dumps(list(postings.terms)))
    (place / "whole.json").write_text(json.dumps({"source": source, "products": len(asins)}) + "\n", "utf-8")


def _sort(place: Path, pieces: int, starts: NDArray[np.int64]) -> None:
    """Bring the spilled postings, which are in the order of documents, into that of terms."""
    total = int(starts[-1])
    documents = np.lib.format.open_memmap(place / "documents.npy", "w+", np.uint32, (total,))
    counts = np.lib.format.open_memmap(place / "counts.npy", "w+", np.uint16, (total,))
    free = starts[:-1].copy()
    with (place / "spill").open("rb") as file:
        for _ in range(pieces):
            of, where, how_often = (np.load(file) for _ in range(3))
            order = np.argsort(of, kind="stable")
            of = of[order]
            first = np.flatnonzero(np.r_[True, of[1:] != of[:-1]]) if len(of) else np.zeros(0, np.int64)
            sizes = np.diff(np.r_[first, len(of)])
            to = np.repeat(free[of[first]] - first, sizes) + np.arange(len(of))
            documents[to], counts[to] = where[order], how_often[order]
            free[of[first]] += sizes
    documents.flush()
    counts.flush()
    np.save(place / "most.npy", np.maximum.reduceat(counts, starts[:-1]) if total else counts[:0])


def _best(scores: NDArray[np.float32], top: int) -> np.float32:
    """The `top`-th highest of at least so many scores."""
    found: np.float32 = np.partition(scores, len(scores) - top)[len(scores) - top]
    return found


class Index:
    """An open index; several threads may read it at once."""

    def __init__(self, place: Path) -> None:
        self.place = place

        def load(name: str, *, mapped: bool = False) -> Any:
            return np.load(place / f"{name}.npy", mmap_mode="r" if mapped else None)

        self._offsets = load("offsets", mapped=True)
        self._lengths = load("lengths")
        self._starts, self._most = load("starts"), load("most")
        self._documents, self._counts = load("documents", mapped=True), load("counts", mapped=True)
        self._asins, self._order = load("asins", mapped=True), load("order", mapped=True)
        self._wished = {kind: load(kind, mapped=True) for kind in KINDS}
        self._terms = {term: k for k, term in enumerate(orjson.loads((place / "terms.json").read_bytes()))}
        self._fd = os.open(place / "products.jsonl", os.O_RDONLY)
        mean = float(self._lengths.mean()) or 1.0
        self._norm = (K1 * (1 - B + B * self._lengths / mean)).astype(np.float32)
        self._least = float(self._norm.min())

    def __len__(self) -> int:
        return len(self._lengths)

    def product(self, number: int) -> Product:
        """The product with a number, from 0, in the source's order."""
        begin, end = int(self._offsets[number]), int(self._offsets[number + 1])
        return Product.of(orjson.loads(os.pread(self._fd, end - begin, begin)))

    def find(self, asin: str) -> Product | None:
        """The product with an ASIN, in upper case; None where there is none."""
        name = asin.encode()
        at = int(np.searchsorted(self._asins, np.array(name, dtype=self._asins.dtype)))
        if at < len(self._asins) and bytes(self._asins[at]) == name:
            return self.product(int(self._order[at]))
        return None

    def search(self, text: str, top: int = TOP) -> list[int]:
        """Numbers of the best matches for a text, the best first; of equals the earlier product.

        Words are taken from the weightiest to the lightest. As soon as all that are left together could not bring a
        product that has none so far among the best, only those that still may get there are scored on (MaxScore,
        Turtle and Flood 1995); the outcome is the same as if all were.
        """
        terms = self._weighed(text)
        scores = np.zeros(len(self), dtype=np.float32)
        likely, edge = np.zeros(0, np.intp), np.float32(0)
        """Products that hold the weightiest words; a score that at least `top` of them have."""
        left = sum(most for _, _, most in terms)
        while terms and edge * (1 - _SLACK) <= left:
            of, weight, most = terms.pop(0)
            begin, end = int(self._starts[of]), int(self._starts[of + 1])
            documents = self._documents[begin:end].astype(np.intp)
            scores[documents] += self._share(weight, self._counts[begin:end], documents)
            left -= most
            if len(likely) < _ENOUGH:
                likely = documents if len(documents) >= _ENOUGH else np.union1d(likely, documents)
            if len(likely) >= top:
                edge = _best(scores.take(likely), top)
        low = edge * (1 - _SLACK) - left
        found = np.flatnonzero(scores >= low if low > 0 else scores)
        for of, weight, most in terms:
            begin, end = int(self._starts[of]), int(self._starts[of + 1])
            documents = self._documents[begin:end]
            where = np.minimum(np.searchsorted(documents, found.astype(np.uint32)), len(documents) - 1)
            having = documents[where] == found
            also = found[having]
            scores[also] += self._share(weight, self._counts[begin:end][where[having]], also)
            left -= most
            if len(found) > top:
                edge = max(edge, _best(scores[found], top))
                found = found[scores[found] >= edge * (1 - _SLACK) - left]
        order = np.lexsort((found, -scores[found]))
        return [int(number) for number in found[order][:top]]

    def labelled(self, label: str, top: int = TOP) -> list[int]:
        """Numbers of the first products with an attribute (`<a> easy clean`), a category (`<c> beauty`) or a query
        (`<q> hand creams`)."""
        of = self._terms.get(label)
        if of is None:
            return []
        begin, end = int(self._starts[of]), int(self._starts[of + 1])
        return [int(number) for number in self._documents[begin : min(end, begin + top)]]

    def _weighed(self, text: str) -> list[tuple[int, float, float]]:
        """(term, weight, what it adds to a score at most) of a text's words that are in the index, by weight."""
        found = []
        for term, times in Counter(words(text)).items():
            of = self._terms.get(term)
            if of is not None:
                holding = int(self._starts[of + 1] - self._starts[of])
                weight = times * math.log1p((len(self) - holding + 0.5) / (holding + 0.5))
                most = int(self._most[of])
                found.append((of, weight, weight * most / (most + self._least)))
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def _share(
        self, weight: float, counts: NDArray[np.uint16], documents: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """What a term adds to the scores of documents that hold it so often."""
        often = counts.astype(np.float32)
        below = self._norm.take(documents)
        below += often
        often *= np.float32(weight)
        often /= below
        return often

    def goals(self, kind: Kind, seed: int) -> Goals:
        """All goals of a kind, with budgets and prices of a seed."""
        which, sizes = self._wished[kind]
        return Goals(sizes.tolist(), lambda at: self.product(int(which[at])), kind, seed)

    def products(self) -> Iterator[Product]:
        """All products in order."""
        return map(self.product, range(len(self)))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
