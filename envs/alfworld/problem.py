"""A household as a PDDL problem of ALFWorld's domain (`alfred`).

Objects are named so that the engine's own rule gives them our numbers: it sorts the names of a kind and gives the
first the highest number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envs.alfworld.catalogue import ROOMS, STATIONS, THINGS
from envs.alfworld.households import Household, Item, Receptacle

DOMAIN_TYPES = ("SinkType", "SinkBasinType", "MicrowaveType", "FridgeType")
DOMAIN_THINGS = ("KnifeType", "ButterKnifeType")
"""What the domain's actions name, and so every problem must declare."""


def problem(of: Household) -> str:
    """The problem's text."""
    names = _Names(of)
    parts = [
        "(define (problem household)",
        "(:domain alfred)",
        "(:objects",
        *_objects(of, names),
        ")",
        "(:init",
        *_facts(of, names),
        ")",
        f"(:goal {_goal(of)})",
        ")",
    ]
    return "\n".join(parts) + "\n"


class _Names:
    """The names of a household's objects in its problem."""

    def __init__(self, of: Household) -> None:
        self._count = Counter([each.kind for each in of.receptacles] + [each.kind for each in of.items])
        self._places = {each: number for number, each in enumerate(of.receptacles, 1)}

    def __call__(self, each: Receptacle | Item) -> str:
        rank = f"{self._count[each.kind] - each.number + 1:02}"
        if each.kind.endswith("Basin"):  # the engine writes "basin" behind what stands before the first bar
            return f"{each.kind.removesuffix('Basin')}_bar_{rank}_bar_{each.kind}"
        return f"{each.kind}_bar_{rank}"

    def place(self, receptacle: Receptacle) -> str:
        """Where one stands who uses it."""
        return f"loc_bar_{self._places[receptacle]:02}"


def _objects(of: Household, names: _Names) -> Iterator[str]:
    yield "agent1 - agent"
    yield "loc_bar_00 - location"
    for receptacle in of.receptacles:
        yield f"{names(receptacle)} - receptacle"
        yield f"{names.place(receptacle)} - location"
    for item in of.items:
        yield f"{names(item)} - object"
    for rtype in sorted({f"{kind}Type" for kind in ROOMS[of.room]} | set(DOMAIN_TYPES)):
        yield f"{rtype} - rtype"
    for otype in sorted({f"{kind}Type" for kind in THINGS[of.room]} | set(DOMAIN_THINGS)):
        yield f"{otype} - otype"


def _facts(of: Household, names: _Names) -> Iterator[str]:
    yield "(atLocation agent1 loc_bar_00)"
    for receptacle in of.receptacles:
        name = names(receptacle)
        yield f"(receptacleType {name} {receptacle.kind}Type)"
        yield f"(receptacleAtLocation {name} {names.place(receptacle)})"
        if receptacle.openable:
            yield f"(openable {name})"
    there = {each.kind for each in of.receptacles}
    for name, thing in sorted(THINGS[of.room].items()):
        places = {*thing.places, *(STATIONS[doing] for doing in thing.does)}
        yield from (f"(canContain {place}Type {name}Type)" for place in sorted(places & there))
    for item in of.items:
        name, thing = names(item), of.thing(item)
        yield f"(objectType {name} {item.kind}Type)"
        yield f"(inReceptacle {name} {names(item.at)})"
        yield f"(objectAtLocation {name} {names.place(item.at)})"
        yield f"(toggleable {name})" if thing.lamp else f"(pickupable {name})"
        if thing.holds:
            yield f"(isReceptacleObject {name})"
        yield from (f"({doing}able {name})" for doing in sorted(thing.does))


_STATES = {
    "clean": "(cleanable ?o) (isClean ?o)",
    "heat": "(heatable ?o) (isHot ?o)",
    "cool": "(coolable ?o) (isCool ?o)",
}


def _goal(of: Household) -> str:
    thing = of.wanted[0].kind
    if of.tool:
        lit = f"(objectType ?lamp {of.tool}Type) (isToggled ?lamp) (inReceptacle ?lamp ?r)"
        near = "(receptacleAtLocation ?r ?l) (atLocation ?a ?l)"
        return (
            f"(exists (?lamp - object ?r - receptacle ?a - agent ?l - location ?o - object) "
            f"(and {lit} {near} (objectType ?o {thing}Type) (holds ?a ?o)))"
        )
    there = f"(receptacleType ?r {of.target}Type)"
    if of.kind.short == "puttwo":
        both = " ".join(f"(objectType {o} {thing}Type) (inReceptacle {o} ?r)" for o in ("?o", "?other"))
        return (
            f"(exists (?r - receptacle ?o - object ?other - object) (and {there} (not (= ?o ?other)) {both}))"
        )
    state = _STATES.get(of.kind.treatment, "")
    inside = f"{there} (objectType ?o {thing}Type) (inReceptacle ?o ?r) {state}"
    return f"(exists (?r - receptacle ?o - object) (and {inside}))"
