"""ScienceWorld against recorded solutions: the same scores, and the same things seen.

OVERNIGHT_SCIENCEWORLD_GOLD names another recording of the same form: JSON lines of `task`, `variation`,
`simplification`, `taskDesc`, `obs0`, `final_score` and `steps`, [action, observation, reward, score, done] each.

The simulator itself does not say the same letters twice: things of one name are listed in the order of Java's
identity hashes, and bees choose flowers by that order, too. So observations are compared as the things they list,
in any order; and where bees decide what grows, one in ten may differ, scores never.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs.data import find
from envs.scienceworld import java
from envs.scienceworld.engine import ScienceWorldEngine
from envs.scienceworld.world import ScienceWorld
from runner import loop
from tests.hosted import disturbed

RECORDING = "scienceworld/gold_easy_15.jsonl"
BEES = ("grow-fruit", "mendelian")
FEW = 3
WAYS = (
    *(
        "look around",
        "inventory",
        "wait1",
        "open cupboard",
        "pick up thermometer",
        "look in table",
        "read picture",
    ),
    *(f"go to {place}" for place in ("kitchen", "hallway", "workshop", "outside", "greenhouse")),
    *(f"teleport to {place}" for place in ("kitchen", "workshop", "art studio", "bathroom")),
)
"""Actions that change something in every task, and end none."""


@pytest.fixture(scope="module")
def recorded(published):
    with published(RECORDING, "OVERNIGHT_SCIENCEWORLD_GOLD").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


@pytest.fixture(scope="module")
def simulator():
    if problem := java.missing():
        pytest.skip(problem)
    engine = ScienceWorldEngine()
    yield engine
    engine.close()


def things(text):
    """What an observation lists, how often; its order is left out."""
    return Counter(part.strip(" .") for part in re.split(r"[\n\t,():]|^\d+", text, flags=re.MULTILINE))


def replayed(engine, row):
    """Replays a recording; returns how many of how many observations differ. Asserts the scores."""
    first = engine.begin(
        "gold",
        {
            "task": row["task"],
            "variation": row["variation"],
            "simplifications": row.get("simplification", "easy"),
        },
    )
    description = row["taskDesc"].removeprefix("Task Description:\n")
    different = int(things(first) != things(f"{description}\n{row['obs0']}"))
    total = 0.0
    for k, (action, text, _, score, done) in enumerate(row["steps"], 1):
        seen, reward, over, more = engine.step("gold", action)
        total += reward
        place = f"{row['task']}, variation {row['variation']}, step {k}: {action!r}"
        assert (more["score"], over) == (score, done), place
        assert total == score, place
        if things(seen) != things(text):
            assert row["task"].startswith(BEES), f"{place}\n{seen}\n-- recorded --\n{text}"
            different += 1
    engine.end("gold")
    assert total == row["final_score"] == 100
    return different, 1 + len(row["steps"])


def test_recorded_solutions_are_seen_and_scored_again(recorded, simulator):
    """The shortest three; `python -m tests.full scienceworld` replays all."""
    rows = sorted(recorded, key=lambda row: len(row["steps"]))[:FEW]
    for row in rows:
        different, of = replayed(simulator, row)
        assert different * 10 <= of


def full() -> dict[str, Any]:
    """For `tests.full`: all recorded solutions, one after another in one Java machine."""
    path = Path(os.environ.get("OVERNIGHT_SCIENCEWORLD_GOLD") or find(RECORDING))
    engine = ScienceWorldEngine()
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        counts = {f"{row['task']}-{row['variation']}": replayed(engine, row) for row in rows}
    finally:
        engine.close()
    for name, (different, of) in counts.items():
        print(f"{name}: {of - different} of {of} observations, every score")
    return {
        "solutions": len(counts),
        "observations": sum(of for _, of in counts.values()),
        "different": {name: different for name, (different, _) in counts.items() if different},
    }


def full_hosted() -> dict[str, Any]:
    """For `tests.full`: 64 episodes at once, in eight Java machines of which one is killed every five seconds."""
    world = ScienceWorld(workers=8, per_worker=8, heap=128)
    return loop.run(lambda: disturbed(world, WAYS, episodes=64, steps=20, every=5.0))
