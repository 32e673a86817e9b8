"""The instruction and the worked example that stand before a task, in the ReAct paper's three ways to write it.

`python -m envs.webarena` plays the example anew in our own shop and writes `example.json`.
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

from envs.base import DataError

FILE = Path(str(resources.files("envs"))) / "webarena" / "example.json"
STYLES = ("act", "react", "react_im")
INSTRUCTION = """\
Do what is asked for in an online shop, through a browser, one line at a time: an action{thoughts}.
A page is shown as its elements, each with a number in brackets that stands for it until the next action. Actions:
click [number], hover [number], type [number] [text] [1] (with 0 at the end Enter is not pressed; in a list, the text
is the entry to choose), press [keys], scroll [down] or [up], goto [address], new_tab, tab_focus [number of the tab],
close_tab, go_back, go_forward, and stop [answer], which ends it: with the answer where one is asked for, with nothing
where something was to be done, and with N/A where it cannot be done.

Here is an example, its pages cut short.

"""
THOUGHTS = ", or a thought after think:"
HERE = "\nHere is the task.\n"


def shots(style: str) -> str:
    """All that stands before a task's objective. Raises DataError for a style that there is not."""
    if style not in STYLES:
        raise DataError(f"world 'webarena' has examples for {', '.join(STYLES)}, not for {style!r}")
    play = embedded()
    lines = [f"Objective: {play['objective']}\nObservation: {play['first']}"]
    for turn in play["turns"]:
        thought = {"act": "", "react": turn["thought"], "react_im": turn["pursuit"]}[style]
        if thought:
            lines.append(f"Action: think: {thought}\nObservation: OK.")
        lines.append(f"Action: {turn['action']}\nObservation: {turn['observation']}")
    lines[-1] = lines[-1].removesuffix("\nObservation: ")
    return INSTRUCTION.format(thoughts="" if style == "act" else THOUGHTS) + "\n".join(lines) + "\n" + HERE


def everything() -> str:
    """All texts, for what a change of them changes."""
    return "".join(map(shots, STYLES))


@functools.cache
def embedded() -> dict[str, Any]:
    """The example: what was asked for, the first observation, and each turn."""
    play: dict[str, Any] = orjson.loads(FILE.read_bytes())
    return play


def cut(observation: str, about: str = "") -> str:
    """The page's first lines, and those around the element that the next action names."""
    lines = observation.split("\n")
    kept = set(range(7)) | {len(lines) - 1}
    for at, line in enumerate(lines):
        if about and line.strip().startswith(f"[{about}] "):
            kept |= {at - 2, at - 1, at, at + 1}
    shown = []
    for at, line in enumerate(lines):
        if at in kept:
            shown.append(line)
        elif shown[-1] != "(…)":
            shown.append("(…)")
    return "\n".join(shown)
