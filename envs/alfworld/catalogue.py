"""What stands in the rooms of a household, what lies about there, and where people put it.

Names are those of ALFWorld's games in their long form (`CoffeeMachine`); a game shows them small (`coffeemachine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thing:
    """A kind of thing. `places`: the receptacles it belongs on or in, the likeliest first. `most`: copies a room
    may have. `does`: of `clean`, `heat` and `cool`, what can be done to it."""

    places: tuple[str, ...]
    most: int = 1
    does: frozenset[str] = frozenset()
    holds: bool = False
    """Whether it could hold something itself (a mug, a box)."""
    lamp: bool = False
    """Whether it is a lamp: it stays where it is and is switched on."""


OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
"""Receptacles that are closed at the beginning."""

ROOMS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "kitchen": {
        "Cabinet": (5, 12), "CoffeeMachine": (1, 1), "CounterTop": (1, 3), "DiningTable": (0, 1), "Drawer": (3, 8),
        "Fridge": (1, 1), "GarbageCan": (1, 1), "Microwave": (1, 1), "Shelf": (0, 3), "SinkBasin": (1, 1),
        "StoveBurner": (2, 4), "Toaster": (1, 1),
    },
    "livingroom": {
        "ArmChair": (1, 2), "Cabinet": (0, 4), "CoffeeTable": (1, 1), "DiningTable": (0, 1), "Drawer": (2, 5),
        "Dresser": (0, 1), "GarbageCan": (1, 1), "Safe": (0, 1), "Shelf": (0, 5), "SideTable": (1, 2),
        "Sofa": (1, 1), "TVStand": (0, 1),
    },
    "bedroom": {
        "ArmChair": (0, 1), "Bed": (1, 1), "Desk": (1, 2), "Drawer": (3, 9), "Dresser": (0, 1), "GarbageCan": (1, 1),
        "LaundryHamper": (0, 1), "Safe": (0, 1), "Shelf": (1, 6), "SideTable": (1, 2),
    },
    "bathroom": {
        "BathtubBasin": (0, 1), "Cabinet": (2, 6), "Cart": (0, 1), "CounterTop": (1, 2), "Drawer": (0, 4),
        "GarbageCan": (1, 1), "HandTowelHolder": (1, 2), "Shelf": (0, 2), "SinkBasin": (1, 2), "Toilet": (1, 1),
        "ToiletPaperHanger": (1, 1), "TowelHolder": (1, 1),
    },
}  # fmt: skip
"""How many of each receptacle a room has, from least to most."""

_FOOD = frozenset({"clean", "heat", "cool"})
_WASHED = frozenset({"clean"})
_DRY_FOOD = frozenset({"heat", "cool"})
_POT = frozenset({"clean", "cool"})
_TABLES = ("CounterTop", "DiningTable")

THINGS: Mapping[str, Mapping[str, Thing]] = {
    "kitchen": {
        "Apple": Thing((*_TABLES, "Fridge", "SinkBasin", "GarbageCan", "Microwave"), 3, _FOOD),
        "Bowl": Thing(("Cabinet", *_TABLES, "Shelf", "Fridge", "SinkBasin"), 2, _POT, holds=True),
        "Bread": Thing((*_TABLES, "Fridge", "GarbageCan", "Microwave"), 2, _DRY_FOOD),
        "ButterKnife": Thing(("Drawer", *_TABLES, "SinkBasin"), 3, _WASHED),
        "Cup": Thing(("Cabinet", *_TABLES, "Shelf", "SinkBasin", "Microwave", "Fridge"), 3, _FOOD, holds=True),
        "DishSponge": Thing(("SinkBasin", *_TABLES, "Cabinet", "Drawer", "Shelf"), 2, _WASHED),
        "Egg": Thing(("Fridge", *_TABLES, "SinkBasin", "Microwave", "GarbageCan"), 3, _FOOD),
        "Fork": Thing(("Drawer", *_TABLES, "SinkBasin"), 3, _WASHED),
        "GlassBottle": Thing(("Cabinet", *_TABLES, "Shelf", "Fridge", "GarbageCan"), 2, _WASHED),
        "Kettle": Thing(("StoveBurner", *_TABLES, "Cabinet", "Shelf"), 2, _WASHED),
        "Knife": Thing(("Drawer", *_TABLES, "SinkBasin"), 2, _WASHED),
        "Ladle": Thing(("Drawer", *_TABLES, "Cabinet", "SinkBasin"), 2, _WASHED),
        "Lettuce": Thing(("Fridge", *_TABLES, "SinkBasin", "GarbageCan"), 2, _POT),
        "Mug": Thing(("CoffeeMachine", "Cabinet", *_TABLES, "Shelf", "SinkBasin", "Microwave"), 3, _FOOD, holds=True),
        "Pan": Thing(("StoveBurner", *_TABLES, "Cabinet", "Fridge", "SinkBasin"), 2, _POT, holds=True),
        "PepperShaker": Thing((*_TABLES, "Cabinet", "Drawer", "Shelf"), 3),
        "Plate": Thing(("Cabinet", *_TABLES, "Shelf", "SinkBasin", "Microwave", "Fridge"), 3, _FOOD, holds=True),
        "Pot": Thing(("StoveBurner", *_TABLES, "Cabinet", "Fridge", "SinkBasin"), 2, _POT, holds=True),
        "Potato": Thing((*_TABLES, "Fridge", "SinkBasin", "Microwave", "GarbageCan"), 3, _FOOD),
        "SaltShaker": Thing((*_TABLES, "Cabinet", "Drawer", "Shelf"), 3),
        "SoapBottle": Thing(("CounterTop", "Cabinet", "SinkBasin", "Drawer", "GarbageCan"), 2),
        "Spatula": Thing(("Drawer", *_TABLES, "SinkBasin"), 3, _WASHED),
        "Spoon": Thing(("Drawer", *_TABLES, "SinkBasin"), 3, _WASHED),
        "Tomato": Thing((*_TABLES, "Fridge", "SinkBasin", "Microwave", "GarbageCan"), 3, _FOOD),
        "Vase": Thing((*_TABLES, "Shelf", "Cabinet"), 2),
    },
    "livingroom": {
        "Book": Thing(("CoffeeTable", "Sofa", "Shelf", "SideTable", "DiningTable", "Drawer", "ArmChair"), 3),
        "Box": Thing(("CoffeeTable", "DiningTable", "SideTable", "ArmChair", "Sofa", "Cabinet"), 2, holds=True),
        "CellPhone": Thing(("SideTable", "CoffeeTable", "Sofa", "DiningTable", "Drawer", "Dresser", "ArmChair"), 3),
        "CreditCard": Thing(("Drawer", "SideTable", "CoffeeTable", "Dresser", "Shelf", "ArmChair", "Safe"), 3),
        "DeskLamp": Thing(("SideTable", "Dresser", "Shelf", "CoffeeTable"), 1, lamp=True),
        "FloorLamp": Thing(("SideTable", "Sofa"), 1, lamp=True),
        "KeyChain": Thing(("SideTable", "Drawer", "CoffeeTable", "Dresser", "Sofa", "Safe", "ArmChair"), 3),
        "Laptop": Thing(("CoffeeTable", "DiningTable", "Sofa", "SideTable", "ArmChair"), 2),
        "Newspaper": Thing(("CoffeeTable", "Sofa", "SideTable", "DiningTable", "ArmChair", "GarbageCan"), 3),
        "Pillow": Thing(("Sofa", "ArmChair"), 3),
        "Plate": Thing(("DiningTable", "CoffeeTable", "SideTable", "Cabinet", "Shelf"), 2, holds=True),
        "RemoteControl": Thing(("CoffeeTable", "Sofa", "TVStand", "SideTable", "ArmChair", "Drawer"), 3),
        "Statue": Thing(("Shelf", "CoffeeTable", "Dresser", "TVStand", "SideTable", "DiningTable", "Safe"), 3),
        "TissueBox": Thing(("SideTable", "CoffeeTable", "DiningTable", "Dresser", "Cabinet", "Drawer"), 3),
        "Vase": Thing(("Shelf", "CoffeeTable", "DiningTable", "SideTable", "Dresser", "Cabinet", "Safe"), 3),
        "Watch": Thing(("SideTable", "Drawer", "CoffeeTable", "Dresser", "TVStand", "Shelf", "Safe"), 3),
    },
    "bedroom": {
        "AlarmClock": Thing(("SideTable", "Desk", "Dresser", "Shelf"), 2),
        "BaseballBat": Thing(("Bed", "Desk", "SideTable"), 1),
        "Book": Thing(("Desk", "Bed", "Shelf", "SideTable", "Drawer", "Dresser"), 3),
        "Bowl": Thing(("Desk", "Shelf", "SideTable", "Dresser"), 1, holds=True),
        "CD": Thing(("Desk", "Shelf", "Drawer", "SideTable", "Dresser", "Safe", "GarbageCan"), 3),
        "CellPhone": Thing(("Desk", "SideTable", "Bed", "Dresser", "Drawer", "Safe"), 3),
        "Cloth": Thing(("LaundryHamper", "Drawer", "Desk", "Bed", "Dresser"), 2),
        "CreditCard": Thing(("Desk", "Drawer", "SideTable", "Shelf", "Dresser", "Safe"), 3),
        "DeskLamp": Thing(("Desk", "SideTable", "Dresser"), 1, lamp=True),
        "KeyChain": Thing(("Drawer", "Desk", "SideTable", "Dresser", "Shelf", "Safe"), 3),
        "Laptop": Thing(("Desk", "Bed", "SideTable", "Dresser"), 2),
        "Mug": Thing(("Desk", "SideTable", "Shelf", "Dresser"), 2, holds=True),
        "Pen": Thing(("Desk", "Drawer", "Shelf", "SideTable", "Dresser", "GarbageCan"), 3),
        "Pencil": Thing(("Desk", "Drawer", "Shelf", "SideTable", "Dresser", "GarbageCan"), 3),
        "Pillow": Thing(("Bed", "ArmChair"), 3),
        "TissueBox": Thing(("SideTable", "Desk", "Dresser", "Shelf", "Drawer"), 2),
        "Watch": Thing(("SideTable", "Drawer", "Desk", "Dresser", "Shelf", "Safe"), 3),
    },
    "bathroom": {
        "Candle": Thing(("CounterTop", "Toilet", "Shelf", "Cabinet", "Drawer", "Cart"), 3),
        "Cloth": Thing(("Cabinet", "Drawer", "CounterTop", "SinkBasin", "BathtubBasin", "Cart"), 3, _WASHED),
        "DishSponge": Thing(("SinkBasin", "Cabinet", "CounterTop", "Cart", "Drawer"), 2, _WASHED),
        "HandTowel": Thing(("HandTowelHolder", "CounterTop", "GarbageCan", "Cabinet"), 2),
        "ScrubBrush": Thing(("Toilet", "CounterTop", "Cart"), 1),
        "SoapBar": Thing(("SinkBasin", "BathtubBasin", "CounterTop", "Cabinet", "Toilet", "GarbageCan"), 3, _WASHED),
        "SoapBottle": Thing(("CounterTop", "Cabinet", "Shelf", "Toilet", "Drawer", "Cart", "GarbageCan"), 3),
        "SprayBottle": Thing(("Cabinet", "CounterTop", "Toilet", "Shelf", "Drawer", "GarbageCan", "Cart"), 3),
        "TissueBox": Thing(("CounterTop", "Toilet", "Cabinet", "Drawer", "Shelf"), 2),
        "ToiletPaper": Thing(("ToiletPaperHanger", "Cabinet", "Toilet", "CounterTop", "Drawer", "GarbageCan"), 3),
        "Towel": Thing(("TowelHolder", "BathtubBasin", "Cabinet"), 1),
    },
}  # fmt: skip
"""The things that a room of a kind may have."""

STATIONS: Mapping[str, str] = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
"""Where each of the three is done."""


def likely_places(thing: str) -> tuple[str, ...]:
    """The receptacles where a thing (in its short form, `coffeemachine`) is looked for, the likeliest first, in any
    room; () of a thing that no room has."""
    found: dict[str, None] = {}
    for things in THINGS.values():
        for name, kind in things.items():
            if name.lower() == thing:
                found.update(dict.fromkeys(place.lower() for place in kind.places))
    return tuple(found)
