"""Worked examples for prompts, written for this project and played in the simulator.

`python -m envs.scienceworld.exemplars` plays what stands in `PLAYS` and writes `exemplars.json`. They are played
without simplifications, so that they hold with any.
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
    """One step of a play. A thought with `kept` also stands where thinking is sparse; `aim` is all that is thought
    where thoughts only give feedback (ReAct-IM): what is to be done next."""

    thought: str
    action: str
    aim: str
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Play:
    """A task's name, one of its training variations, what it asks for, and the steps that do it."""

    task: str
    variation: int
    goal: str
    moves: tuple[Move, ...]


PLAYS = (
    Play(
        "power-component",
        5,
        "turn on the green light bulb",
        (
            Move(
                "I have to focus on the green light bulb first, and then build a circuit that lights it. I am in the "
                "workshop, where the bulb, wires and a battery are, so I can focus at once.",
                "focus on green light bulb",
                "focus on the green light bulb",
                kept=True,
            ),
            Move(
                "Now the circuit. Current has to run from one end of the battery through a wire, the bulb and a "
                "second wire to its other end. I begin at the anode with the black wire.",
                "connect battery anode to black wire terminal 1",
                "connect the battery to a wire",
                kept=True,
            ),
            Move(
                "The other end of the black wire goes to the bulb's cathode.",
                "connect black wire terminal 2 to cathode in green light bulb",
                "connect the wire to the bulb",
            ),
            Move(
                "The bulb's anode needs the second wire, the blue one.",
                "connect blue wire terminal 1 to anode in green light bulb",
                "connect a second wire to the bulb",
            ),
            Move(
                "The blue wire's free end closes the circuit at the battery's cathode.",
                "connect blue wire terminal 2 to battery cathode",
                "connect the second wire to the battery",
            ),
            Move(
                "The circuit is closed. I wait a moment for the bulb to be powered.",
                "wait1",
                "wait until the bulb is on",
                kept=True,
            ),
        ),
    ),
    Play(
        "find-living-thing",
        13,
        "find a living thing and move it to the green box in the living room",
        (
            Move(
                "I have to find something alive, focus on it, and put it into the green box in the living room. "
                "Animals are likely to be outside. The way there is through the kitchen, whose door is closed.",
                "open door to kitchen",
                "find a living thing",
                kept=True,
            ),
            Move("The door is open, so I can go through.", "go to kitchen", "find a living thing"),
            Move("From the kitchen a door leads outside.", "open door to outside", "find a living thing"),
            Move("It is open now.", "go to outside", "find a living thing"),
            Move("I am outside and look for something alive.", "look around", "find a living thing"),
            Move(
                "The dove egg is a living thing. The task says to focus on it before it is moved.",
                "focus on dove egg",
                "focus on the living thing",
                kept=True,
            ),
            Move("Next I take it with me.", "pick up dove egg", "take the living thing"),
            Move(
                "Now to the living room, where the green box is. The hallway leads there, and from here I get to the "
                "hallway through the greenhouse or the kitchen. The kitchen's door is already open.",
                "go to kitchen",
                "go to the living room",
                kept=True,
            ),
            Move("The next door is the hallway's.", "open door to hallway", "go to the living room"),
            Move("It is open.", "go to hallway", "go to the living room"),
            Move(
                "The living room's door may be closed.", "open door to living room", "go to the living room"
            ),
            Move("I go in.", "go to living room", "go to the living room"),
            Move(
                "I am in the living room and have the egg. It goes into the green box.",
                "move dove egg in inventory to green box",
                "move the living thing to the green box",
                kept=True,
            ),
        ),
    ),
    Play(
        "chemistry-mix-paint-secondary-color",
        1,
        "create green paint",
        (
            Move(
                "Green is made of blue and yellow. Both are here in cups, and the bowl on the table is empty, so I can "
                "mix them in it. First the blue paint.",
                "pour cup containing blue paint in bowl",
                "put blue paint into the bowl",
                kept=True,
            ),
            Move(
                "Now the yellow paint.",
                "pour cup containing yellow paint in bowl",
                "put yellow paint into the bowl",
            ),
            Move("Both are in the bowl. They have to be mixed.", "mix bowl", "mix the paints"),
            Move(
                "That made green paint. Now I am done and focus on it.",
                "focus on green paint",
                "focus on the green paint",
                kept=True,
            ),
        ),
    ),
)


def play(engine: Any, play: Play) -> dict[str, Any]:
    """A play with what the simulator said: `task`, `variation`, `first`, and `steps` with `action`, `observation` and
    the thoughts of each style. Raises ValueError for one that does not solve its task."""
    task = {"task": play.task, "variation": play.variation, "simplifications": ""}
    first = engine.begin("play", task)
    steps, total = [], 0.0
    for move in play.moves:
        text, reward, _, _ = engine.step("play", move.action)
        total += reward
        step = {"thought": move.thought, "kept": move.kept, "action": move.action, "observation": text}
        steps.append(step | {"feedback": f"I need to {play.goal}. I need to {move.aim} next."})
    engine.end("play")
    if total != 100:
        raise ValueError(f"{play.task}, variation {play.variation}: scored {total:g} of 100")
    return {"task": play.task, "variation": play.variation, "first": first, "steps": steps}


@functools.cache
def plays() -> list[dict[str, Any]]:
    """The plays as they were written down."""
    found: list[dict[str, Any]] = orjson.loads(FILE.read_bytes())
    return found


def sparse(played: dict[str, Any], style: str) -> str:
    """A play as the prompt of an episode shows it, in a style: `act` has no thoughts, `react` the ones that are kept,
    `react_im` feedback before each action."""
    lines = [played["first"]]
    for step in played["steps"]:
        thought = {"react": step["thought"] if step["kept"] else "", "react_im": step["feedback"]}.get(
            style, ""
        )
        if thought:
            lines.append(f"> think: {thought}\nOK.")
        lines.append(f"> {step['action']}\n{step['observation']}")
    return "\n".join(lines) + "\n"


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
