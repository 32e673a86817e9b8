"""`python -m envs.alfworld`: play the worked examples and write them into their file.

To be run after a change of the households or of the player's words. Three examples for each kind of task, each in a
household of the training split, none in a room of another.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson

from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.examples import FILE
from envs.alfworld.goals import KINDS
from envs.alfworld.households import Household, household
from envs.alfworld.problem import problem
from envs.alfworld.seeker import VOICES, Voice, seek
from envs.alfworld.session import shown, without_banner

SEED = 7
"""Of the examples' households: another than any job's default, so that no example is a task."""
LENGTHS = range(5, 13)
"""Actions of an example: some search, but not so much that it fills the prompt."""


def play(engine: AlfworldEngine, of: Household, voice: Voice) -> tuple[str, list[dict[str, Any]], bool]:
    """(first observation, turns, whether it was won)."""
    first = without_banner(
        engine.begin("example", {"problem": problem(of), "goal": of.text, "wording": "put"})
    )
    turns, won = [], False
    player = seek(first, voice=voice)
    try:
        move = next(player)
        while not won:
            text, _, won, _ = engine.step("example", move.action)
            turns.append(
                {
                    "thoughts": move.thoughts,
                    "pursuit": move.pursuit,
                    "action": move.action,
                    "observation": shown(text),
                }
            )
            move = player.send(text)
    except StopIteration:
        pass
    finally:
        engine.end("example")
    return first, turns, won


def examples() -> list[dict[str, Any]]:
    """The rows of the file: for each kind, the first fitting households in their order."""
    engine, rows = AlfworldEngine(), []
    try:
        for k, kind in enumerate(KINDS):
            taken: set[str] = set()
            number = k
            while len(taken) < len(VOICES):
                of = household(SEED, "train", number)
                number += len(KINDS)
                thing = of.wanted[0].kind
                if thing in taken:
                    continue
                first, turns, won = play(engine, of, VOICES[len(taken)])
                if won and len(turns) in LENGTHS and len(turns) > len(of.walkthrough()):
                    rows.append(
                        {
                            "kind": kind.short,
                            "number": len(taken),
                            "household": of.id,
                            "first": first,
                            "turns": turns,
                        }
                    )
                    taken.add(thing)
    finally:
        engine.close()
    return rows


if __name__ == "__main__":
    made = examples()
    FILE.write_bytes(orjson.dumps(made, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.write(f"{FILE.name}: {len(made)} examples\n")
