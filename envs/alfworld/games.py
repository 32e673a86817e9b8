"""Where games come from: households of our own, a folder of ALFWorld's games, or a file of records.

A game becomes a `Task` whose metadata tell what it is; what the engine needs is fetched when an episode begins.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from envs.alfworld.goals import Kind, Wording, kind_of, parse_goal
from envs.alfworld.households import Split, household
from envs.alfworld.logic import split_goal, wording_of
from envs.base import DataError, Task, WorldError
from envs.data import find
from envs.tables import read_rows

VARIABLE = "ALFWORLD_DATA"
GAME = "game.tw-pddl"
FOLDERS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "valid_train"),
    "seen": ("valid_seen", "seen"),
    "unseen": ("valid_unseen", "unseen"),
}
"""What a split is called in the data."""


def split_named(name: str) -> str:
    """`train`, `seen` or `unseen` for the data's name of a split; other names as they are."""
    return next((split for split, names in FOLDERS.items() if name in names), name)


class Games(ABC):
    """A source of games."""

    @abstractmethod
    def tasks(self) -> Iterator[Task]:
        """All games in the source's own order. Raises DataError where there is none."""

    @abstractmethod
    def game(self, task: Task) -> dict[str, Any]:
        """What the engine takes for a task: problem or household, goal, and the wording or the game's own domain and
        grammar."""


class Households(Games):
    """`count` households of a seed and split (see `envs.alfworld.households`)."""

    def __init__(self, seed: int, split: Split, count: int, wording: Wording) -> None:
        self._seed, self._split, self._count, self._wording = seed, split, count, wording

    def tasks(self) -> Iterator[Task]:
        for number in range(self._count):
            of = household(self._seed, self._split, number)
            yield Task(
                id=of.id,
                input=of.text,
                target=_target(of.kind, of.wanted[0].kind, of.target or of.tool),
                split=self._split,
                metadata={
                    "type": of.kind.short,
                    "room": of.room,
                    "plan": f"{of.room}{of.plan}",
                    "number": number,
                    "wording": self._wording,
                },
            )

    def game(self, task: Task) -> dict[str, Any]:
        """The household by its name: its worker makes it, as that takes milliseconds."""
        household = [self._seed, self._split, task.metadata["number"]]
        return {"household": household, "goal": task.input, "wording": self._wording}


class Records(Games):
    """Rows {"id", "task_type", "task", "pddl_problem", "split"} of a file, and "pddl_domain" and "grammar" where they
    have them. Rows whose "solvable" is false are left out. `split` keeps one split; "" keeps all."""

    def __init__(self, file: Path, split: str, wording: Wording) -> None:
        self._file, self._split, self._wording = file, split, wording

    def tasks(self) -> Iterator[Task]:
        """Raises DataError naming file, row and field, also where no row is of the split."""
        splits: Counter[str] = Counter()
        first: dict[str, int] = {}
        for number, row in read_rows(self._file):
            place = f"{self._file}: row {number}"
            for name in ("id", "task", "pddl_problem"):
                if not isinstance(row.get(name), str) or not row[name]:
                    raise DataError(f"{place}: field {name!r} must be a text that is not empty")
            split = split_named(str(row.get("split", "")))
            splits[split] += 1
            if row.get("solvable") is False or (self._split and split != self._split):
                continue
            if row["id"] in first:
                raise DataError(f"{place}: the id {row['id']!r} is that of row {first[row['id']]}, too")
            first[row["id"]] = number
            kind = _kind(str(row.get("task_type") or row["id"]), row["task"], place)
            own = {name: row[name] for name in ("pddl_domain", "grammar") if row.get(name)}
            if len(own) == 1:
                raise DataError(f"{place}: of 'pddl_domain' and 'grammar' there must be both or none")
            wording = wording_of(own["grammar"]) if own else self._wording
            yield Task(
                id=row["id"],
                input=row["task"],
                target=_target_of(kind, row["task"]),
                split=split or self._split,
                metadata={
                    "type": kind.short,
                    "wording": wording,
                    "problem": row["pddl_problem"],
                    **own,
                },
            )
        if not first:
            there = ", ".join(f"{count} of {split or 'no split'}" for split, count in splits.items())
            raise DataError(f"{self._file}: no game of split {self._split!r}; it has {there or 'no rows'}")

    def game(self, task: Task) -> dict[str, Any]:
        more = task.metadata
        game = {"problem": more["problem"], "goal": task.input, "wording": more["wording"]}
        if "grammar" in more:
            grammar, goal = split_goal(more["grammar"])
            game |= {"domain": more["pddl_domain"], "grammar": grammar, "goal": goal}
        return game


class Folder(Games):
    """The games `game.tw-pddl` below a folder, as `alfworld-download` leaves them. Left out, as in alfworld's own
    reader: games that are not marked as solvable, and those with sliced or movable things."""

    def __init__(self, folder: Path, split: str) -> None:
        self._folder, self._split = games_folder(folder, split), split

    def tasks(self) -> Iterator[Task]:
        """In the order of their paths. Raises DataError where none is left."""
        left_out: Counter[str] = Counter()
        found = False
        for file in sorted(self._folder.rglob(GAME)):
            id = file.parent.relative_to(self._folder).as_posix()
            if "movable" in id or "Sliced" in id:
                left_out["with movable or sliced things"] += 1
                continue
            content, data = _read_game(file)
            if data.get("solvable") is not True:
                left_out["not marked as solvable"] += 1
                continue
            found = True
            goal = _split_goal(data, file)[1]
            kind = _kind(_task_type(file) or id, goal, str(file))
            yield Task(
                id=id,
                input=goal,
                target=_target_of(kind, goal),
                split=split_named(self._folder.name) if self._split else "",
                metadata={
                    "type": kind.short,
                    "wording": wording_of(data["grammar"]),
                    "game": hashlib.sha256(content).hexdigest()[:16],
                },
            )
        if not found:
            why = ", ".join(f"{count} are {reason}" for reason, count in left_out.items())
            raise DataError(
                f"{self._folder}: no {GAME} that can be played{f' ({why})' if why else ''}; `source` is a folder of "
                "ALFWorld's games, with splits in folders train, valid_seen, valid_unseen"
            )

    def game(self, task: Task) -> dict[str, Any]:
        file = self._folder / task.id / GAME
        content, data = _read_game(file)
        if hashlib.sha256(content).hexdigest()[:16] != task.metadata["game"]:
            raise WorldError(f"{file} has changed since the run began; begin a new run")
        grammar, goal = _split_goal(data, file)
        return {
            "problem": data["pddl_problem"],
            "domain": data["pddl_domain"],
            "grammar": grammar,
            "goal": goal,
        }


def alfworld_data() -> Path:
    """The folder that ALFWORLD_DATA names. Raises DataError."""
    given = os.environ.get(VARIABLE)
    if not given:
        raise DataError(
            f"source = {VARIABLE!r}: the environment variable {VARIABLE} is not set; set it to the folder that "
            "alfworld-download filled, or give `source` that folder's path"
        )
    if not Path(given).expanduser().is_dir():
        raise DataError(f"{VARIABLE} names {given}, which is no folder")
    return Path(given).expanduser()


def games_folder(folder: Path, split: str) -> Path:
    """The folder of a split's games: within `folder` itself, or within its one `json_...` folder; `folder` itself
    where it has no splits. Raises DataError where several fit."""
    releases = sorted(each for each in folder.glob("json_*") if each.is_dir())
    if len(releases) > 1:
        names = ", ".join(each.name for each in releases)
        raise DataError(f"{folder} holds several releases ({names}); give `source` the path of one of them")
    for base in (*releases, folder):
        for name in FOLDERS.get(split, (split,)):
            if name and (base / name).is_dir():
                return base / name
    return folder


def located(source: str) -> Path:
    """A file or folder by its path, or within the data folder. Raises DataError."""
    try:
        return find(source)
    except (OSError, ValueError) as error:
        raise DataError(f"{source[:200]!r} can't be a path ({error.args[-1]})") from error


def _read_game(file: Path) -> tuple[bytes, dict[str, Any]]:
    try:
        content = file.read_bytes()
        data = orjson.loads(content)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise DataError(f"{file}: not JSON ({error}); was the file cut off? fetch it again") from error
    if not isinstance(data, dict):
        raise DataError(f"{file}: not a JSON object; a game has pddl_domain, grammar and pddl_problem")
    for name in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(data.get(name), str):
            raise DataError(
                f"{file}: field {name!r} is missing; a game has pddl_domain, grammar and pddl_problem"
            )
    return content, data


def _split_goal(data: Mapping[str, Any], file: Path) -> tuple[str, str]:
    try:
        return split_goal(data["grammar"])
    except ValueError as error:
        raise DataError(f"{file}: field 'grammar': {error}") from error


def _task_type(file: Path) -> str:
    beside = file.with_name("traj_data.json")
    try:
        return str(orjson.loads(beside.read_bytes()).get("task_type", ""))
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return ""


def _kind(name: str, goal: str, place: str) -> Kind:
    kind = kind_of(name) or ((parsed := parse_goal(goal)) and parsed.kind) or None
    if kind is None:
        raise DataError(
            f"{place}: {name!r} begins with none of the six kinds of tasks, and the goal tells none"
        )
    return kind


def _target(kind: Kind, thing: str, where: str) -> dict[str, str]:
    return {"type": kind.name, "object": thing.lower(), "where": where.lower()}


def _target_of(kind: Kind, text: str) -> dict[str, str]:
    goal = parse_goal(text)
    return _target(
        kind, "" if goal is None else goal.thing, "" if goal is None else goal.receptacle or goal.lamp
    )
