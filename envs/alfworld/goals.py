"""The six kinds of tasks, and how a game words its goal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Wording: TypeAlias = Literal["put", "move"]
"""How a game calls putting a thing down: `put mug 1 in/on shelf 2` (games 2.1.1, which the ReAct paper used) or
`move mug 1 to shelf 2` (later ones)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task: its name in the data, its name in ReAct's prompts, its column in the paper's Table 3, the
    forms of its goal, and the treatment that the thing needs."""

    name: str
    short: str
    column: str
    forms: tuple[str, ...]
    treatment: str = ""


KINDS: tuple[Kind, ...] = (
    Kind(
        "pick_and_place_simple",
        "put",
        "Pick",
        ("put a {thing} in {receptacle}.", "put some {thing} on {receptacle}."),
    ),
    Kind(
        "pick_clean_then_place_in_recep",
        "clean",
        "Clean",
        ("put a clean {thing} in {receptacle}.", "clean some {thing} and put it in {receptacle}."),
        "clean",
    ),
    Kind(
        "pick_heat_then_place_in_recep",
        "heat",
        "Heat",
        ("put a hot {thing} in {receptacle}.", "heat some {thing} and put it in {receptacle}."),
        "heat",
    ),
    Kind(
        "pick_cool_then_place_in_recep",
        "cool",
        "Cool",
        ("put a cool {thing} in {receptacle}.", "cool some {thing} and put it in {receptacle}."),
        "cool",
    ),
    Kind(
        "look_at_obj_in_light",
        "examine",
        "Look",
        ("examine the {thing} with the {lamp}.", "look at {thing} under the {lamp}."),
    ),
    Kind(
        "pick_two_obj_and_place",
        "puttwo",
        "Pick 2",
        ("put two {thing} in {receptacle}.", "find two {thing} and put them in {receptacle}."),
    ),
)
"""In the order of the paper's Table 3."""

BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
BY_SHORT: Mapping[str, Kind] = {kind.short: kind for kind in KINDS}


def kind_of(name: str) -> Kind | None:
    """The kind whose name a task's id or `task_type` begins with, e.g. of
    `pick_clean_then_place_in_recep-Knife-None-CounterTop-10/trial_T2019...`; None if there is none."""
    return next((kind for kind in KINDS if name.startswith(kind.name)), None)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be done: `thing` in `receptacle`, or under `lamp` (short forms: `coffeemachine`)."""

    kind: Kind
    thing: str
    receptacle: str = ""
    lamp: str = ""

    def text(self, form: int = 0) -> str:
        """The goal as a game words it."""
        return self.kind.forms[form % len(self.kind.forms)].format(
            thing=self.thing, receptacle=self.receptacle, lamp=self.lamp
        )


_WORDS = {name: rf"(?P<{name}>\w+)" for name in ("thing", "receptacle", "lamp")}
_FORMS = [
    (kind, re.compile(form.rstrip(".").format(**_WORDS) + r"\.?"))
    for kind in KINDS
    for form in kind.forms
]  # fmt: skip


def parse_goal(text: str) -> Goal | None:
    """A goal from its sentence, e.g. `put a clean knife in countertop.`; None where it has none of the known
    forms (people's own words, say)."""
    for kind, form in _FORMS:
        if found := form.fullmatch(text.strip()):
            return Goal(kind, **found.groupdict(default=""))
    return None
