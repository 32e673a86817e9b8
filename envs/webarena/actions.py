"""The actions of WebArena's grammar (Zhou et al. 2024, table 2), read from a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

VERBS = {
    "click": ("id",),
    "hover": ("id",),
    "type": ("id", "text", "enter"),
    "press": ("keys",),
    "scroll": ("direction",),
    "goto": ("url",),
    "new_tab": (),
    "tab_focus": ("number",),
    "close_tab": (),
    "go_back": (),
    "go_forward": (),
    "stop": ("answer",),
}
"""What each action takes, in brackets."""
_LINE = re.compile(r"(\w+)\s*(.*)", re.DOTALL)
_TYPE = re.compile(r"\[(\d+)\]\s*\[(.*?)\](?:\s*\[([01])\])?", re.DOTALL)
_ONE = re.compile(r"\[(.*)\]", re.DOTALL)


class Unreadable(ValueError):
    """A line is no action; the message says what would be one."""


@dataclass(frozen=True, slots=True)
class Action:
    """`element` is a number of the last observation; `text` what is typed, pressed, opened or answered; `number` a
    tab's."""

    verb: str
    element: int | None = None
    text: str = ""
    enter: bool = True
    number: int | None = None


def read_action(line: str) -> Action:
    """The action that a line is, e.g. `click [12]`, `type [7] [red shoes] [1]`, `stop [42]`. Fences of code around it
    do not count. Raises Unreadable."""
    line = line.strip().strip("`").strip()
    found = _LINE.fullmatch(line)
    verb = found[1].lower() if found else ""
    if found is None or verb not in VERBS:
        raise Unreadable(
            f"there is no action {line.split('[')[0].strip()!r:.40}; there are: {', '.join(VERBS)}"
        )
    rest = found[2].strip()
    if verb == "type":
        typed = _TYPE.fullmatch(rest)
        if typed is None:
            raise Unreadable("write type [id] [text] [1], or [0] at the end where Enter is not to be pressed")
        return Action(verb, element=int(typed[1]), text=typed[2], enter=typed[3] != "0")
    if not VERBS[verb]:
        return Action(verb)
    one = _ONE.fullmatch(rest)
    if one is None:
        if verb == "stop" and not rest:
            return Action(verb)
        raise Unreadable(f"write {verb} [{VERBS[verb][0]}]")
    inner = one[1].strip()
    if verb in ("click", "hover", "tab_focus"):
        if not inner.isdecimal():
            raise Unreadable(f"{verb} takes a number of the page, not [{inner:.40}]")
        number = int(inner)
        return Action(verb, number=number) if verb == "tab_focus" else Action(verb, element=number)
    if verb == "scroll":
        inner = inner.lower().removeprefix("direction=")
        if inner not in ("up", "down"):
            raise Unreadable("scroll takes [up] or [down]")
    return Action(verb, text=inner)
