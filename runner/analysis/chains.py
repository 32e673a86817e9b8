"""What a run knows of each question: its chains' votes, and what CoT and ReAct made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from envs.base import Task, World
from runner.analysis.curves import win_chances
from runner.draws import PastDraws
from runner.methods.cot import Cot
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.models.base import Usage
from runner.pool import Pool
from runner.results import Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended: whether it gave an answer, and its score; `error` for one that a resume runs again."""

    answered: bool
    score: float
    error: bool = False


@dataclass(frozen=True, slots=True)
class Ballot:
    """A question's chains: of each answer the number of chains and their mean score, and the chains without one."""

    answers: tuple[tuple[int, float], ...]
    invalid: int

    @property
    def n(self) -> int:
        return sum(count for count, _ in self.answers) + self.invalid

    def wins(self) -> list[tuple[float, float, float]]:
        """For k = 1..n chains: the expected score of the vote's winner; the same where it has at least k/2 of the
        chains, else 0; and the chance that none has."""
        chances = win_chances([count for count, _ in self.answers], self.invalid)
        points = []
        for k in range(self.n):
            of = [(score, *chances[count][k]) for count, score in self.answers]
            points.append(
                (
                    sum(score * wins for score, wins, _ in of),
                    sum(score * majority for score, _, majority in of),
                    max(0.0, 1.0 - sum(majority for _, _, majority in of)),
                )
            )
        return points


@dataclass(frozen=True, slots=True)
class Question:
    """One task and trial. `ballot` is None where chains are missing (`missing` of them), and where the request was
    refused, so that there is none to draw (`missing` is 0)."""

    task_id: str
    trial: int
    ballot: Ballot | None
    missing: int
    react: Outcome | None
    cot: Outcome | None


@dataclass
class Spent:
    """Draws that were read and what was used for them."""

    draws: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        self.draws += 1
        self.usage += Usage(**row["usage"])
        cost = row["cost_usd"]
        self.usd = None if self.usd is None or cost is None else self.usd + cost

    def for_draws(self, n: int) -> tuple[int, float | None]:
        """Tokens and USD of n more at the mean of these; None where no price is known."""
        if not self.draws:
            return 0, None
        tokens = self.usage.prompt + self.usage.completion
        return round(tokens * n / self.draws), None if self.usd is None else self.usd * n / self.draws


@dataclass
class Outcomes:
    """Of one world and model, by task and trial: how its ReAct and CoT episodes ended, and which questions were
    refused when their chains were asked for."""

    react: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    cot: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    measure: str = "em"
    has_react: bool = False
    has_cot: bool = False


REFUSED = ("filtered", "context_overflow")


def outcomes(run: Run, pools: list[Pool]) -> Mapping[tuple[str, str], Outcomes]:
    """By world and model. ReAct's are its own rows', else those of the first half of ReAct -> CoT-SC."""
    found: dict[tuple[str, str], Outcomes] = {(pool.env, pool.model): Outcomes() for pool in pools}
    methods = pools[0].job.methods
    alone = any(isinstance(method, React) for method in methods.values())
    for of in found.values():
        of.has_react = alone or any(isinstance(method, ReactThenCotSC) for method in methods.values())
        of.has_cot = any(isinstance(method, Cot) for method in methods.values())
    for row in run.trajectories:
        of = found.get((row["env"], row["model"]), Outcomes())
        method, key = methods.get(row["method"]), (row["task_id"], row["trial"])
        if "em" not in row["scores"] and row["scores"]:
            of.measure = next(iter(row["scores"]))
        if isinstance(method, React):
            of.react.setdefault(key, _outcome(row, of.measure))
        elif isinstance(method, ReactThenCotSC) and not alone:
            own = _outcome(row, of.measure)
            of.react[key] = own if own.error or row["votes"] is None else Outcome(False, 0.0)
        elif isinstance(method, Cot):
            of.cot.setdefault(key, _outcome(row, of.measure))
        elif row["method"] == pools[0].method and row["status"] in REFUSED and row["votes"] is None:
            of.refused.add(key)
    return found


def _outcome(row: Mapping[str, Any], measure: str) -> Outcome:
    answered = row["answer"] is not None and bool(str(row["answer"]).strip())
    return Outcome(answered, float(row["scores"].get(measure, 0.0)), row["status"] == "error")


def questions(pool: Pool, draws: PastDraws, of: Outcomes, spent: Spent) -> Iterator[Question]:
    """The questions of a pool in plan order; what their chains took is added to `spent`."""
    world = pool.job.worlds[pool.env]
    for task in pool.job.tasks(pool.env):
        for trial in range(pool.job.settings.trials):
            key = (task.id, trial)
            if key in of.refused:
                ballot, missing = None, 0
            else:
                ballot, missing = _ballot(world, task, pool, draws, of.measure, spent, trial)
            yield Question(task.id, trial, ballot, missing, of.react.get(key), of.cot.get(key))


def _ballot(
    world: World, task: Task, pool: Pool, draws: PastDraws, measure: str, spent: Spent, trial: int
) -> tuple[Ballot | None, int]:
    scope, request = pool.request(task, trial)
    votes: dict[str, list[float]] = defaultdict(list)
    invalid = missing = 0
    for i in range(pool.samples):
        row = draws.draw(scope, request.hash, i)
        if row is None:
            missing += 1
            continue
        spent.add(row)
        answer = world.extract(task, row["text"])
        vote = world.canonical(task, answer)
        if vote is None:
            invalid += 1
        else:
            votes[vote].append(world.score(task, answer).get(measure, 0.0))
    if missing:
        return None, missing
    answers = tuple((len(scores), sum(scores) / len(scores)) for scores in votes.values())
    return Ballot(answers, invalid), 0
