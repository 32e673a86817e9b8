"""A shop of the public catalogue's size: 1.18 million products in its files' form, indexed once and searched.

`python -m tests.full webshop [--products N]`: the files are invented, as long as the real ones' texts on average; the
index is made, and opened and searched, in processes of their own, so that the memory is theirs alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from envs.webshop.catalogue import products as invented
from envs.webshop.files import read_products
from envs.webshop.index import Index, prepare
from envs.webshop.session import Shop

PRODUCTS = 1_180_000
QUERIES = 1000
WORDS = 200_000
"""Different words of the texts, drawn as in a language: the k-th commonest about as often as 1 / (k + 10)."""
SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvwz" for vowel in "aeiou"]
SEED = 233


def vocabulary(words: int) -> list[str]:
    draw = Random(SEED)
    found = dict.fromkeys(
        "".join(draw.choices(SYLLABLES, k=draw.choice((2, 3, 3, 4)))) for _ in range(3 * words)
    )
    return list(found)[:words]


def write_files(folder: Path, count: int, words: int = WORDS) -> None:
    """`items.json`, an array of products as scraped, and `attributes.json`, an object by ASIN."""
    known = np.array(vocabulary(words), dtype=object)
    weights = 1 / (np.arange(len(known)) + 10.0)
    edges = np.cumsum(weights / weights.sum())
    draw = np.random.default_rng(SEED)

    def texts(of: int) -> Any:
        return known[np.minimum(np.searchsorted(edges, draw.random((1000, of))), len(known) - 1)]

    with (folder / "items.json").open("wb") as items, (folder / "attributes.json").open("wb") as attributes:
        items.write(b"[")
        attributes.write(b"{")
        for number, product in enumerate(invented(count, SEED)):
            at = number % 1000
            if at == 0:
                titles, descriptions, bullets = texts(8), texts(80), texts(125)
            lead = b"" if number == 0 else b", "
            row = {
                "name": f"{product.title} {' '.join(titles[at])}",
                "asin": product.asin,
                "category": product.category,
                "query": product.query,
                "product_category": product.path,
                "pricing": "".join(f"${price}" for price in product.pricing),
                "average_rating": "",
                "full_description": f"{product.description} {' '.join(descriptions[at])}",
                "small_description": [" ".join(bullets[at, k : k + 25]) for k in range(0, 125, 25)],
                "customization_options": {
                    name: [{"value": value, "is_selected": False} for value in values]
                    for name, values in product.options.items()
                },
            }
            items.write(lead + orjson.dumps(row))
            told: dict[str, Any] = {"attributes": product.attributes}
            if number % 5 < 2 and product.wish is not None:  # of the public products, 415 in 1,000 have one
                told["instruction"] = product.wish.text
                told["instruction_attributes"] = product.wish.attributes
            attributes.write(lead + orjson.dumps({product.asin: told})[1:-1])
        items.write(b"]")
        attributes.write(b"}")


def memory() -> dict[str, float]:
    """Megabytes of this process: the most it held, and of what it holds now its own and what are pages of files."""
    now = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line
    )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    own, files = (int(now[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    return {"most_rss_mb": round(most, 1), "own_mb": round(own, 1), "file_pages_mb": round(files, 1)}


def make(folder: Path) -> dict[str, Any]:
    began, used = time.monotonic(), time.process_time()
    products = read_products(folder / "items.json", folder / "attributes.json")
    place = prepare(products, folder / "index", "large")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_s": round(time.process_time() - used, 1),
        "index_mb": round(sum(file.stat().st_size for file in place.iterdir()) / 2**20, 1),
        **memory(),
    }


def queries(index: Index, count: int) -> list[str]:
    """Three to eight words of a product's text, so that common words are in them as often as in texts; every second
    one in a sentence."""
    draw = Random(SEED)
    found = []
    for number in range(count):
        text = index.product(draw.randrange(len(index))).searched.split()
        some = " ".join(draw.sample(text, min(len(text), draw.randint(3, 8))))
        found.append(f"i am looking for a {some}, and price lower than 50 dollars" if number % 2 else some)
    return found


def search(folder: Path, count: int) -> dict[str, Any]:
    """Searches one after another, then ten at a time beside an event loop whose lag is watched."""
    (place,) = (folder / "index").glob("*/")
    began = time.monotonic()
    index = Index(place)
    opened = time.monotonic() - began
    asked = queries(index, count)
    took, used, full_pages = [], [], 0
    for query in asked:
        began, at = time.monotonic(), time.process_time()
        found = index.search(query)
        took.append(1000 * (time.monotonic() - began))
        used.append(1000 * (time.process_time() - at))
        full_pages += len(found) == 50
    lags: list[float] = []

    async def watched() -> None:
        shop, queue = Shop(index, SEED), iter(asked[: count // 2])

        async def customer() -> None:
            for query in queue:
                await shop.search(query)

        async def watch() -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.005)
                lags.append(1000 * (time.monotonic() - began - 0.005))

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(customer() for _ in range(10)))
        watcher.cancel()

    asyncio.run(watched())
    began = time.monotonic()
    goals = index.goals("synthetic", SEED)
    some = goals[:500]
    assert len(some) == 500 and index.find(some[0].asin) is not None
    listed = time.monotonic() - began
    return {
        "products": len(index),
        "open_s": round(opened, 2),
        "searches": count,
        **{f"p{at}_ms": round(float(np.percentile(took, at)), 2) for at in (50, 99, 100)},
        **{f"cpu_p{at}_ms": round(float(np.percentile(used, at)), 2) for at in (50, 99, 100)},
        "busy": round(os.getloadavg()[0], 1),
        "full_share": round(full_pages / count, 3),
        "lag_p99_ms": round(float(np.percentile(lags or [0.0], 99)), 2),
        "goals": len(goals),
        "goals_s": round(listed, 2),
        **memory(),
    }


def started(what: str, folder: Path, count: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "tests.webshop_large", what, str(folder), str(count)]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    found: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def full(products: int = PRODUCTS, queries: int = QUERIES) -> dict[str, Any]:
    """For `tests.full`: prints and returns the figures."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_files(folder, products)
        sizes = {
            f"{name}_mb": round((folder / f"{name}.json").stat().st_size / 2**20, 1)
            for name in ("items", "attributes")
        }
        figures = {
            "files": sizes,
            "make": started("make", folder, 0),
            "search": started("search", folder, queries),
        }
    print(orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode())
    return figures


if __name__ == "__main__":
    what, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(make(folder) if what == "make" else search(folder, count)))
