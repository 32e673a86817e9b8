"""The rules and the words of ALFWorld's games: the domain (PDDL) and the grammar that the installed package brings,
in either wording.

Games of the data carry their own. Those that come without (records, our households) are played by the package's,
which has the later wording; `put` takes it back to the one of games 2.1.1: `put mug 1 in/on shelf 2` in place of
`move mug 1 to shelf 2`, arriving at a `loc 12` in place of at the shelf, no `help`.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from envs.alfworld.goals import Wording
from envs.base import WorldError

INSTALL = "ALFWorld's engine is not installed; run: pip install 'overnight[alfworld]' (it compiles for some minutes)"
GOAL = "UNKNOWN GOAL"
"""What stands in a grammar for the goal's text."""


@dataclass(frozen=True, slots=True)
class Logic:
    """A domain and a grammar, whose goal reads `GOAL`."""

    domain: str
    grammar: str


@functools.cache
def installed(wording: Wording) -> Logic:
    """The installed package's logic in a wording. Raises WorldError where there is none, or an unknown one."""
    found = importlib.util.find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        raise WorldError(INSTALL)
    data = Path(next(iter(found.submodule_search_locations))) / "data"
    try:
        domain, grammar = ((data / f"alfred.{kind}").read_text("utf-8") for kind in ("pddl", "twl2"))
    except OSError as error:
        raise WorldError(f"{error.filename}: {error.strerror}; install alfworld anew") from error
    grammar = _changed(grammar, {f"{GOAL}.": GOAL})
    if wording == "move":
        return Logic(domain, grammar)
    grammar = _changed(
        grammar,
        {
            '"move {o} to {r}"': '"put {o} in/on {r}"',
            "You move the {o.name} to the {r.name}.": "You put the {o.name} in/on the {r.name}.",
            "You arrive at {r.name}.": "You arrive at {lend.name}.",
        },
    )
    domain = _changed(domain, {";(receptacleType ?r SinkType)": "(receptacleType ?r SinkType)"})
    return Logic(_without(domain, "(:action help", "()"), _without(grammar, "action help", "{}"))


def wording_of(grammar: str) -> Wording:
    """The wording of a game's own grammar."""
    return "put" if "put {o} in/on {r}" in grammar else "move"


_TASK = re.compile(r"(?<=Your task is to: )[^\"\\]*(?:\\.[^\"\\]*)*(?=\")")


def split_goal(grammar: str) -> tuple[str, str]:
    """(a grammar with `GOAL` for its goal, the goal's text). Grammars of games differ in nothing else, so they are
    read once. Raises ValueError where no goal is found."""
    found = _TASK.search(grammar)
    if found is None:
        raise ValueError("the grammar has no line 'Your task is to: '")
    text = found[0].replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")
    return grammar[: found.start()] + GOAL + grammar[found.end() :], text


def _changed(text: str, changes: dict[str, str]) -> str:
    for before, after in changes.items():
        if before not in text:
            raise WorldError(
                f"the installed alfworld's files lack {before!r}, so this is a version that is not known here; "
                "install alfworld 0.4.2"
            )
        text = text.replace(before, after)
    return text


def _without(text: str, opening: str, brackets: str) -> str:
    """The text without a block: from `opening` to where the first of its brackets is closed."""
    start = text.find(opening)
    if start < 0:
        return text
    depth, quoted = 0, False
    for at in range(start, len(text)):
        quoted ^= brackets == "{}" and text.startswith('"', at)
        depth += 0 if quoted else (text[at] == brackets[0]) - (text[at] == brackets[1])
        if depth == 0 and text[at] == brackets[1] and not quoted:
            return text[:start] + text[at + 1 :]
    return text[:start]
