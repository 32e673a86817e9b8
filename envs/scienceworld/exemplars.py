"""Worked examples for prompts, written for this project and played in the simulator.

`python -m envs.scienceworld.exemplars` plays what stands in `PLAYS` and writes `exemplars.json`. They are played
without simplifications, so that they hold with any. Thoughts that say nothing new are left out where thinking is
sparse: each step says whether its thought is kept there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

FILE = Path(str(resources.files("envs.scienceworld") / "exemplars.json"))


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a play. A thought with `kept` also stands where thinking is sparse."""

    thought: str
    action: str
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Play:
    """A task's name, one of its training variations, and the steps that solve it."""

    task: str
    variation: int
    moves: tuple[Move, ...]


PLAYS = (
    Play(
        "power-component",
        5,
        (
            Move(
                "I have to focus on the green light bulb first, and then build a circuit that lights it. I am in the "
                "workshop, where the bulb, wires and a battery are, so I can focus at once.",
                "focus on green light bulb",
                kept=True,
            ),
            Move(
                "Now the circuit. Current has to run from one end of the battery through a wire, the bulb and a "
                "second wire to its other end. I begin at the anode with the black wire.",
                "connect battery anode to black wire terminal 1",
                kept=True,
            ),
            Move(
                "The other end of the black wire goes to the bulb's cathode.",
                "connect black wire terminal 2 to cathode in green light bulb",
            ),
            Move(
                "The bulb's anode needs the second wire, the blue one.",
                "connect blue wire terminal 1 to anode in green light bulb",
            ),
            Move(
                "The blue wire's free end closes the circuit at the battery's cathode.",
                "connect blue wire terminal 2 to battery cathode",
            ),
            Move(
                "The circuit is closed. I wait a moment for the bulb to be powered.",
                "wait1",
                kept=True,
            ),
        ),
    ),
    Play(
        "find-living-thing",
        13,
        (
            Move(
                "I have to find something alive, focus on it, and put it into the green box in the living room. "
                "Animals are likely to be outside. The way there is through the kitchen, whose door is closed.",
                "open door to kitchen",
                kept=True,
            ),
            Move("The door is open, so I can go through.", "go to kitchen"),
            Move("From the kitchen a door leads outside.", "open door to outside"),
            Move("It is open now.", "go to outside"),
            Move("I am outside and look for something alive.", "look around"),
            Move(
                "The dove egg is a living thing. The task says to focus on it before it is moved.",
                "focus on dove egg",
                kept=True,
            ),
            Move("Next I take it with me.", "pick up dove egg"),
            Move(
                "Now to the living room, where the green box is. The hallway leads there, and from here I get to the "
                "hallway through the greenhouse or the kitchen. The kitchen's door is already open.",
                "go to kitchen",
                kept=True,
            ),
            Move("The next door is the hallway's.", "open door to hallway"),
            Move("It is open.", "go to hallway"),
            Move("The living room's door may be closed.", "open door to living room"),
            Move("I go in.", "go to living room"),
            Move(
                "I am in the living room and have the egg. It goes into the green box.",
                "move dove egg in inventory to green box",
                kept=True,
            ),
        ),
    ),
    Play(
        "chemistry-mix-paint-secondary-color",
        1,
        (
            Move(
                "Green is made of blue and yellow. Both are here in cups, and the bowl on the table is empty, so I can "
                "mix them in it. First the blue paint.",
                "pour cup containing blue paint in bowl",
                kept=True,
            ),
            Move("Now the yellow paint.", "pour cup containing yellow paint in bowl"),
            Move("Both are in the bowl. They have to be mixed.", "mix bowl"),
            Move("That made green paint. Now I am done and focus on it.", "focus on green paint", kept=True),
        ),
    ),
)


def play(engine: Any, play: Play) -> dict[str, Any]:
    """A play with what the simulator said: `task`, `variation`, `first`, and `steps` of thought, action,
    observation and whether the thought is kept. Raises ValueError for one that does not solve its task."""
    task = {"task": play.task, "variation": play.variation, "simplifications": ""}
    first = engine.begin("play", task)
    steps, total = [], 0.0
    for move in play.moves:
        text, reward, _, _ = engine.step("play", move.action)
        total += reward
        steps.append([move.thought, move.action, text, move.kept])
    engine.end("play")
    if total != 100:
        raise ValueError(f"{play.task}, variation {play.variation}: scored {total:g} of 100")
    return {"task": play.task, "variation": play.variation, "first": first, "steps": steps}


@functools.cache
def plays() -> list[dict[str, Any]]:
    """The plays as they were written down."""
    found: list[dict[str, Any]] = orjson.loads(FILE.read_bytes())
    return found


def main() -> None:
    """Play them all and write them down."""
    from envs.scienceworld.engine import ScienceWorldEngine

    engine = ScienceWorldEngine()
    try:
        FILE.write_bytes(
            orjson.dumps([play(engine, each) for each in PLAYS], option=orjson.OPT_INDENT_2) + b"\n"
        )
    finally:
        engine.close()


if __name__ == "__main__":
    main()
