"""ScienceWorld's 30 tasks and 7,207 variations, so that they can be listed without Java.

The simulator divides a task's variations in order: of each n // 4 the first two quarters are for training, the
third for development, and all that is left for test. `tests/envs/test_scienceworld.py` asks the simulator itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the 30 tasks: its number in the paper's table (`1-1`), its name, how many variations it has, and
    whether it needs electrical actions, which one of the simplifications takes away."""

    number: str
    name: str
    variations: int

    @property
    def electrical(self) -> bool:
        return "power-component" in self.name or "conductivity" in self.name

    def split(self, split: Split) -> range:
        """The variations that belong to a part."""
        quarter = self.variations // 4
        return {
            "train": range(2 * quarter),
            "dev": range(2 * quarter, 3 * quarter),
            "test": range(3 * quarter, self.variations),
        }[split]

    def part_of(self, variation: int) -> Split:
        """The part to which a variation belongs."""
        return next(split for split in SPLITS if variation in self.split(split))


KINDS = (
    Kind("1-1", "boil", 30),
    Kind("1-2", "melt", 30),
    Kind("1-3", "freeze", 30),
    Kind("1-4", "change-the-state-of-matter-of", 30),
    Kind("2-1", "use-thermometer", 540),
    Kind("2-2", "measure-melting-point-known-substance", 436),
    Kind("2-3", "measure-melting-point-unknown-substance", 300),
    Kind("3-1", "power-component", 20),
    Kind("3-2", "power-component-renewable-vs-nonrenewable-energy", 20),
    Kind("3-3", "test-conductivity", 900),
    Kind("3-4", "test-conductivity-of-unknown-substances", 600),
    Kind("4-1", "find-living-thing", 300),
    Kind("4-2", "find-non-living-thing", 300),
    Kind("4-3", "find-plant", 300),
    Kind("4-4", "find-animal", 300),
    Kind("5-1", "grow-plant", 126),
    Kind("5-2", "grow-fruit", 126),
    Kind("6-1", "chemistry-mix", 32),
    Kind("6-2", "chemistry-mix-paint-secondary-color", 36),
    Kind("6-3", "chemistry-mix-paint-tertiary-color", 36),
    Kind("7-1", "lifespan-longest-lived", 125),
    Kind("7-2", "lifespan-shortest-lived", 125),
    Kind("7-3", "lifespan-longest-lived-then-shortest-lived", 125),
    Kind("8-1", "identify-life-stages-1", 14),
    Kind("8-2", "identify-life-stages-2", 10),
    Kind("9-1", "inclined-plane-determine-angle", 168),
    Kind("9-2", "inclined-plane-friction-named-surfaces", 1386),
    Kind("9-3", "inclined-plane-friction-unnamed-surfaces", 162),
    Kind("10-1", "mendelian-genetics-known-plant", 120),
    Kind("10-2", "mendelian-genetics-unknown-plant", 480),
)

BY_WORD = {word: kind for kind in KINDS for word in (kind.name, kind.number)}
"""The tasks by name and by number."""

SIMPLIFICATIONS = (
    "teleportAction",
    "noElectricalAction",
    "openDoors",
    "selfWateringFlowerPots",
    "openContainers",
)
EASY = SIMPLIFICATIONS[:4]
"""What the simulator makes of `easy`. (Its documentation says all five; it leaves containers closed.)"""


def enabled(simplifications: str, kind: Kind) -> str:
    """The list that a task is played with: `easy` written out, which keeps what an electrical task needs."""
    if simplifications != "easy":
        return simplifications
    return ",".join(name for name in EASY if not (kind.electrical and name == "noElectricalAction"))
