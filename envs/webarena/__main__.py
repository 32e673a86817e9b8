"""Plays the embedded example anew in a browser: `python -m envs.webarena`."""

from __future__ import annotations

import re
from typing import Any

import orjson

from envs.webarena.engine import WebArenaEngine
from envs.webarena.examples import FILE, cut
from envs.webarena.shop.instances import instances
from envs.webshop.catalogue import SEED


def played() -> dict[str, Any]:
    """A wish list's task, solved: search, look, wish."""
    task = next(row for row in instances(SEED + 1) if row["task_id"].startswith("wish"))
    title = task["instantiation_dict"]["product"]
    engine = WebArenaEngine(shop="", seed=SEED + 1, page_seconds=30.0, most=250, whole=False)
    try:
        first = engine.begin("example", task)
        turns: list[dict[str, str]] = []

        def take(thought: str, pursuit: str, action: str) -> str:
            seen, reward, done, _ = engine.step("example", action)
            turns.append({"thought": thought, "pursuit": pursuit, "action": action, "observation": seen})
            assert not done or reward == 1.0
            return seen

        words = " ".join(title.split()[1:4])
        seen = take(
            f"I search for the product by some words of its name, {words}.",
            "I have to find the product.",
            f"type [{_number(first, 'textbox', 'Search')}] [{words}] [1]",
        )
        seen = take(
            "There it is among the results. I open its page.",
            "I have to open the product's page.",
            f"click [{_number(seen, 'link', title)}]",
        )
        take(
            "This is the product. I put it on the wish list.",
            "I have to put it on the wish list.",
            f"click [{_number(seen, 'button', 'Add to Wish List')}]",
        )
        take("It is on the wish list, so nothing is left to do.", "Nothing is left to do.", "stop []")
        pages = [first, *(turn["observation"] for turn in turns)]
        named = [re.search(r"\[(\d+)\]", turn["action"]) for turn in turns]
        shown = [cut(page, found[1] if found else "") for page, found in zip(pages, named, strict=False)]
        for turn, page in zip(turns, [*shown[1:], ""], strict=True):
            turn["observation"] = page
        return {"objective": task["intent"], "first": shown[0], "turns": turns}
    finally:
        engine.close()


def _number(seen: str, role: str, name: str) -> str:
    found = re.search(rf"\[(\d+)\] {role} '{re.escape(name)}", seen)
    assert found is not None, f"{role} {name!r} is not on the page:\n{seen}"
    return found[1]


if __name__ == "__main__":
    FILE.write_bytes(orjson.dumps(played(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
