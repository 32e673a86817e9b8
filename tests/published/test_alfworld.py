"""ALFWorld against its real games: recorded walkthroughs are seen again to the letter, and win.

OVERNIGHT_ALFWORLD_GAMES names another file of games, OVERNIGHT_ALFWORLD_WALKTHROUGHS another one of walkthroughs of the
same forms: JSON lines of `id`, `task`, `pddl_problem` (and `task_type`, `split`); and of `id`, `obs0`, `admissible0`,
`steps`, [action, observation, how many actions can be done then] each, and `won`.
"""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envs.alfworld.engine import NOTHING, AlfworldEngine
from envs.alfworld.games import Records
from envs.alfworld.goals import Wording
from envs.alfworld.households import PLANS, Household, household
from envs.alfworld.problem import problem
from envs.alfworld.world import Alfworld
from envs.data import find
from runner import loop
from tests.hosted import disturbed

GAMES = "alfworld/valid_unseen.jsonl.gz"
WALKTHROUGHS = "alfworld/walkthroughs_valid_unseen_first67.jsonl.gz"
A_DOZEN = 12
OWN = 48
"""Households of each split that `full` plays: of each kind eight, half of them in either wording."""
WAYS = (
    "look",
    "inventory",
    "think: hm.",
    *(
        f"go to {place} {k}"
        for place in ("cabinet", "drawer", "countertop", "shelf", "bed", "desk")
        for k in (1, 2)
    ),
    *(f"open {place} 1" for place in ("cabinet", "drawer", "fridge", "safe", "microwave")),
    *(
        f"take {thing} 1 from {place} 1"
        for thing in ("mug", "book", "apple")
        for place in ("desk", "countertop")
    ),
    "put mug 1 in/on desk 1",
    "use desklamp 1",
)
"""Actions of which some do something in every household."""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("alfworld") is None, reason="needs overnight[alfworld]"
)


def rows_of(path: Path) -> list[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def games_of(path: Path) -> dict[str, dict[str, Any]]:
    """What the engine takes, by the game's id."""
    source = Records(path, "", "put")
    return {task.id: source.game(task) for task in source.tasks()}


@pytest.fixture(scope="module")
def games(published):
    return games_of(published(GAMES, "OVERNIGHT_ALFWORLD_GAMES"))


@pytest.fixture(scope="module")
def walkthroughs(published):
    return rows_of(published(WALKTHROUGHS, "OVERNIGHT_ALFWORLD_WALKTHROUGHS"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """With a folder of translations, as runs have it."""
    made = AlfworldEngine(str(tmp_path_factory.mktemp("translations")))
    yield made
    made.close()


def replayed(
    engine: AlfworldEngine, game: dict[str, Any], row: dict[str, Any], thought_after: int = -1
) -> int:
    """Replays a walkthrough; how many observations were compared. With a thought after so many actions, which must
    change nothing."""
    assert engine.begin("walk", game) == row["obs0"], row["id"]
    if "admissible0" in row:
        assert engine.admissible("walk") == row["admissible0"], row["id"]
    won = over = False
    for k, (action, text, *more) in enumerate(row["steps"]):
        place = f"{row['id']}, step {k + 1}: {action!r}"
        if k == thought_after:
            before = engine.admissible("walk")
            assert engine.step("walk", "think: what now?")[:3] == (NOTHING, 0.0, False), place
            assert engine.admissible("walk") == before, place
        assert not over, place
        seen, reward, over, _ = engine.step("walk", action)
        won = reward == 1.0
        assert seen == text, place
        if more:
            assert len(engine.admissible("walk")) == more[0], place
    engine.end("walk")
    assert won and over and row.get("won", True), row["id"]
    return 1 + len(row["steps"])


def test_recorded_walkthroughs_are_seen_again_and_win(engine, games, walkthroughs):
    """A dozen of all kinds; `python -m tests.full alfworld` replays all."""
    some = walkthroughs[:: max(len(walkthroughs) // A_DOZEN, 1)][:A_DOZEN]
    for row in some:
        replayed(engine, games[row["id"]], row)


def test_the_public_prompts_stand_before_a_task_as_in_the_public_code(published):
    file = published("prompts/react/alfworld_3prompts.json")
    texts = json.loads(file.read_text("utf-8"))
    first = "Interact with a household to solve a task. Here are two examples.\n"
    for a, b in itertools.permutations(range(3), 2):
        world = Alfworld(prompts=[file], opening=first, examples=[a, b], households=6)
        for task in world.tasks():
            for style in ("act", "react"):
                names = [f"{style}_{task.metadata['type']}_{number}" for number in (a, b)]
                whole = first + "".join(texts[name] for name in names) + "\nHere is the task.\n"
                assert world.shots(style, task) == whole


def test_a_translation_that_another_worker_made_serves_as_well(games, walkthroughs, tmp_path):
    """In processes of their own, as an engine's quicker parts are put in once a process."""
    row = min(walkthroughs, key=lambda row: len(row["steps"]))
    (tmp_path / "game.json").write_text(json.dumps([games[row["id"]], row]), encoding="utf-8")
    words = (
        "import json, sys; from envs.alfworld.engine import AlfworldEngine; from tests.published import test_alfworld;"
        "game, row = json.load(open(sys.argv[1])); engine = AlfworldEngine(sys.argv[2]);"
        "print(test_alfworld.replayed(engine, game, row))"
    )
    folder = tmp_path / "translations"
    folder.mkdir()
    for turn in range(3):
        command = [sys.executable, "-c", words, str(tmp_path / "game.json"), str(folder)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
        )
        assert int(done.stdout) == 1 + len(row["steps"])
        (kept,) = folder.iterdir()
        if turn == 1:  # what is damaged is made anew
            kept.write_bytes(kept.read_bytes()[:100])


def test_a_thought_amid_a_walkthrough_changes_nothing_but_a_step(engine, games, walkthroughs):
    for row in sorted(walkthroughs, key=lambda row: len(row["steps"]))[:3]:
        for after in (0, len(row["steps"]) // 2, len(row["steps"]) - 1):
            replayed(engine, games[row["id"]], row, after)


def solved(engine: AlfworldEngine, of: Household, wording: Wording) -> bool:
    """Whether a household of ours is won by its own walkthrough, at its last action, with no action in vain."""
    engine.begin("own", {"problem": problem(of), "goal": of.text, "wording": wording})
    seen = [engine.step("own", action) for action in of.walkthrough(wording)]
    engine.end("own")
    ends = [done and reward == 1.0 for _, reward, done, _ in seen]
    return ends == [False] * (len(seen) - 1) + [True] and NOTHING not in [text for text, *_ in seen]


def full() -> dict[str, Any]:
    """For `tests.full`: all walkthroughs, and households of ours of each split, kind and wording, one after another in
    one process."""
    walks = rows_of(Path(os.environ.get("OVERNIGHT_ALFWORLD_WALKTHROUGHS") or find(WALKTHROUGHS)))
    games = games_of(Path(os.environ.get("OVERNIGHT_ALFWORLD_GAMES") or find(GAMES)))
    engine = AlfworldEngine()
    try:
        seen = sum(replayed(engine, games[row["id"]], row) for row in walks)
        thoughtful = sum(replayed(engine, games[row["id"]], row, len(row["steps"]) // 2) for row in walks)
        own = [household(77, split, k) for split in PLANS for k in range(OWN)]
        lost = [of.id for k, of in enumerate(own) if not solved(engine, of, "move" if k // 6 % 2 else "put")]
        assert lost == []
    finally:
        engine.close()
    print(
        f"{len(walks)} walkthroughs, {seen} observations equal, all won; with a thought in the middle as well"
    )
    print(f"{len(own)} households of ours, all won by their own walkthroughs")
    return {
        "walkthroughs": len(walks),
        "won": len(walks),
        "observations": seen,
        "with_a_thought": thoughtful,
        "households": len(own),
        "households_won": len(own) - len(lost),
    }


def full_hosted() -> dict[str, Any]:
    """For `tests.full`: 200 episodes at once, in sixteen workers of which one is killed every five seconds."""
    world = Alfworld(workers=16, per_worker=13, households=200)
    return loop.run(lambda: disturbed(world, WAYS, episodes=200, steps=12, every=5.0))
