"""The worked examples that stand before a task: three for each kind, in the ReAct paper's three ways to write them.

`react` has thoughts where they decide something, `act` none, `react_im` one before each action that repeats what is
being pursued. A job's own prompt files (the public ReAct repository's form) take their place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import orjson

from envs.alfworld.goals import KINDS, Kind, Wording
from envs.alfworld.session import in_wording
from envs.base import DataError

FILE = Path(str(resources.files("envs"))) / "alfworld" / "examples.json"
EACH = 3
"""Examples of a kind."""
STYLES = ("react", "act", "react_im")
OPENING = "You are in a household and have a task there. Write one line at a time: an action{thoughts}. {examples}\n"
THOUGHTS = ", or a thought after think:"
HERE = "\nHere is the task.\n"
_GO = re.compile(r"go to (\w+ \d+)")
_PUT_DOWN = re.compile(r"^You put the (\w+ \d+) in/on the (\w+ \d+)\.$")
_COUNTS = ("There is no example", "Here is an example", "Here are two examples", "Here are three examples")


def shots(style: str, kind: Kind, which: Sequence[int], wording: Wording, opening: str = "") -> str:
    """All that stands before a task of a kind: our own examples number `which` (0 to 2), in that order.

    `opening` is the first line, ours where it is "".
    """
    texts = [_written(kind.short, number, style, wording) for number in which]
    return _whole(style, "\n".join(texts), len(texts), opening)


def shots_of_files(
    style: str, kind: Kind, which: Sequence[int], texts: Mapping[str, str], opening: str = ""
) -> str:
    """The same from prompt files, whose names are `react_put_0`, `act_clean_2`, ... Raises DataError naming the one
    that is missing."""
    chosen = []
    for number in which:
        name = f"{style}_{kind.short}_{number}"
        if name not in texts:
            raise DataError(f"prompts: no prompt {name!r}; there are: {', '.join(sorted(texts)) or 'none'}")
        chosen.append(texts[name])
    return _whole(style, "".join(chosen), len(chosen), opening)


def _whole(style: str, texts: str, count: int, opening: str) -> str:
    if not opening:
        thoughts = "" if style == "act" else THOUGHTS
        opening = OPENING.format(thoughts=thoughts, examples=_COUNTS[count] + ".")
    if not opening.endswith("\n"):
        opening += "\n"
    return opening + texts + HERE


@functools.cache
def embedded() -> dict[tuple[str, int], dict[str, Any]]:
    """Our examples by kind and number."""
    return {(row["kind"], row["number"]): row for row in orjson.loads(FILE.read_bytes())}


def everything() -> str:
    """All texts of our examples, for what a change of them changes."""
    return "".join(
        _written(kind.short, number, style, wording)
        for kind in KINDS
        for number in range(EACH)
        for style in STYLES
        for wording in get_args(Wording)
    )


@functools.cache
def _written(kind: str, number: int, style: str, wording: Wording) -> str:
    row = embedded()[kind, number]
    lines = [row["first"]]
    for k, turn in enumerate(row["turns"]):
        thoughts = []
        if style == "react":
            thoughts = turn["thoughts"]
        elif style == "react_im":
            thoughts = [*(turn["thoughts"][:1] if k == 0 else []), turn["pursuit"]]
        for thought in thoughts:
            lines += [f"> think: {thought}", "OK."]
        lines += [f"> {in_wording(turn['action'], wording)}", _observed(turn, wording)]
    return "\n".join(lines) + "\n"


def _observed(turn: Mapping[str, Any], wording: Wording) -> str:
    """What a game of the wording answers. One that says `move` names the place where one arrives; of the others that
    is left out, as in ReAct's prompts."""
    text: str = turn["observation"]
    if wording == "put":
        return text
    if place := _GO.fullmatch(turn["action"]):
        return f"You arrive at {place[1]}. {text}"
    return _PUT_DOWN.sub(r"You move the \1 to the \2.", text)
