"""Households of our own: rooms, what lies about in them and a task, made from a seed, each with its own walkthrough.

A household can be solved because of how it is made: the thing that the task is about is put where it can be taken,
and its way to the goal is written down beside it. Nothing is planned.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from envs.alfworld.catalogue import OPENABLE, ROOMS, STATIONS, THINGS, Thing
from envs.alfworld.goals import KINDS, Goal, Kind, Wording

Split: TypeAlias = Literal["train", "seen", "unseen"]

PLANS = {"train": range(1, 13), "seen": range(1, 13), "unseen": range(13, 19)}
"""The floor plans of a split, for each sort of room: `seen` has new tasks in the rooms of `train`, `unseen` new
rooms."""

CAPACITY = {
    "CoffeeMachine": 1, "HandTowelHolder": 1, "Microwave": 2, "StoveBurner": 1, "Toaster": 1, "ToiletPaperHanger": 1,
    "TowelHolder": 1,
}  # fmt: skip
ROOMY = 8
"""How many things a receptacle has at most in the beginning: `CAPACITY`, or this."""


@dataclass(frozen=True, slots=True)
class Receptacle:
    """One receptacle: `cabinet 3` is Receptacle("Cabinet", 3)."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind.lower()} {self.number}"

    @property
    def openable(self) -> bool:
        return self.kind in OPENABLE


@dataclass(frozen=True, slots=True)
class Item:
    """One thing and where it is in the beginning: `mug 2`."""

    kind: str
    number: int
    at: Receptacle

    @property
    def name(self) -> str:
        return f"{self.kind.lower()} {self.number}"


@dataclass(frozen=True, slots=True)
class Household:
    """A room with a task. `target` and `tool` are the kinds of the receptacle and of the lamp that the goal names
    (long forms, "" without one); `wanted` are the items that the walkthrough uses."""

    id: str
    split: Split
    room: str
    plan: int
    kind: Kind
    text: str
    target: str
    tool: str
    receptacles: tuple[Receptacle, ...]
    items: tuple[Item, ...]
    wanted: tuple[Item, ...]

    def thing(self, item: Item) -> Thing:
        """The kind of an item."""
        return THINGS[self.room][item.kind]

    def walkthrough(self, wording: Wording = "put") -> list[str]:
        """Actions that solve it, with no look at anything that is not needed."""
        walk = _Walk(wording)
        for item in self.wanted:
            walk.go(item.at)
            walk.say(f"take {item.name} from {item.at.name}")
            if self.tool:
                (lamp,) = (other for other in self.items if other.kind == self.tool)
                walk.go(lamp.at, look_inside=False)
                walk.say(f"use {lamp.name}")
                continue
            if self.kind.treatment:
                station = self._first(STATIONS[self.kind.treatment])
                walk.go(station, look_inside=False)
                walk.say(f"{self.kind.treatment} {item.name} with {station.name}")
            target = self._first(self.target)
            walk.go(target)
            walk.put(item, target)
        return walk.actions

    def _first(self, kind: str) -> Receptacle:
        return next(each for each in self.receptacles if each.kind == kind)


class _Walk:
    """Actions so far, and what they changed."""

    def __init__(self, wording: Wording) -> None:
        self.actions: list[str] = []
        self._wording = wording
        self._at: Receptacle | None = None
        self._opened: set[Receptacle] = set()

    def say(self, action: str) -> None:
        self.actions.append(action)

    def go(self, to: Receptacle, look_inside: bool = True) -> None:
        if to != self._at:
            self.say(f"go to {to.name}")
            self._at = to
        if look_inside and to.openable and to not in self._opened:
            self.say(f"open {to.name}")
            self._opened.add(to)

    def put(self, item: Item, into: Receptacle) -> None:
        self.say(put_down(item.name, into.name, self._wording))


def put_down(thing: str, receptacle: str, wording: Wording) -> str:
    """The action that puts a thing into or onto a receptacle, both with their numbers."""
    return f"put {thing} in/on {receptacle}" if wording == "put" else f"move {thing} to {receptacle}"


def household(seed: int, split: Split, number: int) -> Household:
    """Household `number` (from 0) of a split. The six kinds of tasks take turns, so that any first n are mixed.

    The same arguments give the same household, everywhere and always.
    """
    rng = random.Random(f"household/{seed}/{split}/{number}")
    kind = KINDS[number % len(KINDS)]
    room, plan, receptacles, (thing, target, tool) = _setting(rng, seed, split, kind)
    copies = THINGS[room][thing].most
    count = rng.randint(2, copies) if kind.short == "puttwo" else rng.randint(1, copies)
    filling = _Filling(rng, room, receptacles)
    for _ in range(count):
        filling.put(thing, avoid=target)
    if tool:
        filling.put(tool)
    others = sorted(name for name, each in THINGS[room].items() if name != thing and not each.lamp)
    for name in rng.sample(others, min(len(others), rng.randint(9, 14))):
        for _ in range(rng.randint(1, THINGS[room][name].most)):
            filling.put(name)
    items = filling.items()
    wanted = [item for item in items if item.kind == thing][: 2 if kind.short == "puttwo" else 1]
    goal = Goal(kind, thing.lower(), target.lower(), tool.lower())
    return Household(
        id=f"{kind.name}-{thing}-None-{target or tool}-{room}{plan}/{split}_s{seed}_{number:04}",
        split=split,
        room=room,
        plan=plan,
        kind=kind,
        text=goal.text(rng.randrange(len(kind.forms))),
        target=target,
        tool=tool,
        receptacles=receptacles,
        items=items,
        wanted=tuple(wanted),
    )


def layout(seed: int, room: str, plan: int) -> tuple[Receptacle, ...]:
    """The receptacles of a floor plan. Tasks in the same plan find the same furniture."""
    rng = random.Random(f"plan/{seed}/{room}/{plan}")
    return tuple(
        Receptacle(kind, number)
        for kind, (least, most) in sorted(ROOMS[room].items())
        for number in range(1, rng.randint(least, most) + 1)
    )


def _setting(
    rng: random.Random, seed: int, split: Split, kind: Kind
) -> tuple[str, int, tuple[Receptacle, ...], tuple[str, str, str]]:
    """A room, its plan and furniture, and (thing, target, tool) of a task that can be done in it. A plan without one
    (no lamp's place, no cabinet) is passed over for the next."""
    fitting = sorted(room for room in ROOMS if any(_tasks(kind, room, set(ROOMS[room]))))
    while True:
        room, plan = rng.choice(fitting), rng.choice(PLANS[split])
        receptacles = layout(seed, room, plan)
        if tasks := _tasks(kind, room, {each.kind for each in receptacles}):
            return room, plan, receptacles, rng.choice(tasks)


def _tasks(kind: Kind, room: str, there: set[str]) -> list[tuple[str, str, str]]:
    """All (thing, target, tool) of a kind of task in a room with these kinds of receptacles."""
    station = STATIONS.get(kind.treatment)
    if station is not None and station not in there:
        return []
    tasks = []
    lamps = [name for name, each in THINGS[room].items() if each.lamp and there.intersection(each.places)]
    for name, each in THINGS[room].items():
        if each.lamp or (kind.treatment and kind.treatment not in each.does):
            continue
        if kind.short == "puttwo" and each.most < 2:
            continue
        places = [place for place in each.places if place in there]
        if kind.short == "examine":
            tasks += [(name, "", lamp) for lamp in lamps if places]
            continue
        tasks += [
            (name, target, "")
            for target in places
            if target != station and len(places) > 1 and CAPACITY.get(target, ROOMY) > 1
        ]
    return sorted(tasks)


class _Filling:
    """Things put into a room's receptacles one by one."""

    def __init__(self, rng: random.Random, room: str, receptacles: Sequence[Receptacle]) -> None:
        self._rng, self._room = rng, room
        self._space = {each: CAPACITY.get(each.kind, ROOMY) for each in receptacles}
        self._placed: list[tuple[str, Receptacle]] = []

    def put(self, thing: str, avoid: str = "") -> None:
        """One more of these, in one of its places, the likelier ones more often; none where all are full."""
        places = THINGS[self._room][thing].places
        spots = [
            each for each, left in self._space.items() if left and each.kind in places and each.kind != avoid
        ]
        if not spots:
            return
        alike = Counter(each.kind for each in spots)
        weights = [(len(places) - places.index(each.kind)) / alike[each.kind] for each in spots]
        (spot,) = self._rng.choices(spots, weights)
        self._space[spot] -= 1
        self._placed.append((thing, spot))

    def items(self) -> tuple[Item, ...]:
        """What was put, numbered in that order."""
        count: Counter[str] = Counter()
        items = []
        for thing, spot in self._placed:
            count[thing] += 1
            items.append(Item(thing, count[thing], spot))
        return tuple(items)
