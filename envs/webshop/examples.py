"""The worked example that stands before a task: a purchase in our own shop, in the ReAct paper's three ways.

`react` has thoughts where they decide something, `act` none, `react_im` one before each action that says what is still
to be done. `python -m envs.webshop` plays it anew and writes `example.json`.
"""

from __future__ import annotations

import functools
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

from envs.base import DataError

FILE = Path(str(resources.files("envs"))) / "webshop" / "example.json"
STYLES = ("act", "react", "react_im")


def shots(style: str) -> str:
    """All that stands before a task's first observation. Raises DataError for a style that there is not."""
    if style not in STYLES:
        raise DataError(f"world 'webshop' has examples for {', '.join(STYLES)}, not for {style!r}")
    play = embedded()
    lines = [play["first"].removeprefix("\n")]
    for turn in play["turns"]:
        thought = {"act": "", "react": turn["thought"], "react_im": turn["pursuit"]}[style]
        if thought:
            lines.append(f"Action: think[{thought}]\nObservation: OK.")
        lines.append(f"Action: {turn['action']}\nObservation: {turn['observation']}")
    return "\n\n".join(lines) + "\n"


def everything() -> str:
    """All texts of the example, for what a change of them changes."""
    return "".join(map(shots, STYLES))


@functools.cache
def embedded() -> dict[str, Any]:
    """The first observation, and each turn: its thoughts, its action and what came of it."""
    play: dict[str, Any] = orjson.loads(FILE.read_bytes())
    return play


async def played() -> dict[str, Any]:
    """The example, played in the shop: the first goal of `train` whose product is among the results that are shown."""
    from envs.webshop.catalogue import SEED, products
    from envs.webshop.goals import SPLITS
    from envs.webshop.index import Index, prepare
    from envs.webshop.session import Shop, ShopSession

    with tempfile.TemporaryDirectory() as folder:
        index = Index(prepare(products(), Path(folder), "example"))
        every = index.goals("human", SEED)
        for goal in every[SPLITS["train"][0] :]:
            product = index.find(goal.asin)
            assert product is not None
            words = " ".join([*goal.attributes, *goal.options, product.path.split(" › ")[-1].lower()])
            session = ShopSession(Shop(index, SEED), goal, "react", shown=3)
            first = await session.reset()
            seen = (await session.step(f"search[{words}]")).text
            if len(goal.attributes) < 2 or len(goal.options) < 2 or f"[{goal.asin}]" not in seen:
                continue
            budget = f"{goal.price_upper:.2f} dollars"
            wants, chosen = (
                " and ".join(goal.attributes),
                " and ".join(f"'{value}'" for value in goal.options),
            )
            thing = product.path.split(" › ")[-1].lower()
            steps = [
                ("", f"I have to search for {thing} that is {wants}.", f"search[{words}]"),
                (
                    f"{goal.asin} is {thing} that is {wants}, at {product.shown_price} below {budget}. I look at it.",
                    f"I have to open a product that fits, at less than {budget}.",
                    f"click[{goal.asin}]",
                ),
                (
                    f"It has the options {chosen}. I choose them, then I buy it.",
                    f"I have to choose '{goal.options[0]}'.",
                    f"click[{goal.options[0]}]",
                ),
                *(("", f"I have to choose '{value}'.", f"click[{value}]") for value in goal.options[1:]),
                ("", "All options are chosen. I have to buy it.", "click[Buy Now]"),
            ]
            first = await session.reset()
            turns = []
            for thought, pursuit, action in steps:
                text = (await session.step(action)).text
                turns.append({"thought": thought, "pursuit": pursuit, "action": action, "observation": text})
            index.close()
            return {"first": first, "turns": turns}
    raise AssertionError("no goal of the catalogue serves as an example")
