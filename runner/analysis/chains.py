"""What a run knows of each question: its chains' votes, and what CoT and ReAct made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.base import Task
from runner.analysis.curves import Point, resampled, win_chances
from runner.draws import PastDraws
from runner.lines import draw_of
from runner.methods.base import Method
from runner.methods.cot import Cot
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.models.base import Model, Usage
from runner.pool import Pool
from runner.results import Run
from runner.voting import Chain


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

    def points(self) -> list[Point]:
        """The vote with 1, 2, ... of the chains, exactly."""
        chances = win_chances([count for count, _ in self.answers], self.invalid)
        points = []
        for k in range(sum(count for count, _ in self.answers) + self.invalid):
            of = [(score, *chances[count][k]) for count, score in self.answers]
            wins = sum(score * win for score, win, _ in of)
            majorities = sum(score * majority for score, _, majority in of)
            points.append((wins, majorities, max(0.0, 1.0 - sum(majority for _, _, majority in of))))
        return points


@dataclass(frozen=True, slots=True)
class Question:
    """One task and trial. `votes`, at [k - 1] the vote with k chains, is None where chains are missing (`missing` of
    them), and where the request was refused, so that there is none to draw (`missing` is 0)."""

    task_id: str
    trial: int
    votes: list[Point] | None
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

    def for_more(self, missing: Sequence[int], model: Model) -> tuple[int, float | None]:
        """Tokens and USD of so many more draws of each of some questions: their prompts once a call, all lengths
        as the mean of these. None where no price is known."""
        n = sum(missing)
        if not self.draws:
            return 0, None
        calls = sum(-(-each // model.max_n) for each in missing)
        more = Usage(
            prompt=round(self.usage.prompt / max(self.usage.calls, 1) * calls),
            completion=round(self.usage.completion / self.draws * n),
        )
        usd = None if self.usd is None else model.cost(more)
        if usd is None and self.usd is not None:  # a provider that tells what each reply cost
            usd = self.usd * n / self.draws
        return more.prompt + more.completion, usd


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
"""Endings of an episode whose request the provider does not answer, and would not a second time."""


def outcomes(run: Run, pools: list[Pool]) -> Mapping[tuple[str, str], Outcomes]:
    """By world and model. ReAct's are its own rows', else those of the first half of ReAct -> CoT-SC."""
    methods = pools[0].job.methods
    react, hybrid, cot = (_named(methods, kind) for kind in (React, ReactThenCotSC, Cot))
    found = {
        (pool.env, pool.model): Outcomes(has_react=bool(react or hybrid), has_cot=bool(cot)) for pool in pools
    }
    for row in run.trajectories:
        of = found.get((row["env"], row["model"]))
        if of is None:
            continue
        method, key = row["method"], (row["task_id"], row["trial"])
        if "em" not in row["scores"] and row["scores"]:
            of.measure = next(iter(row["scores"]))
        if method == react:
            of.react[key] = _outcome(row, of.measure)
        elif method == hybrid and react is None:
            own = _outcome(row, of.measure)
            of.react[key] = own if own.error or row["votes"] is None else Outcome(False, 0.0)
        elif method == cot:
            of.cot[key] = _outcome(row, of.measure)
        elif method == pools[0].method and row["status"] in REFUSED and row["votes"] is None:
            of.refused.add(key)
    return found


def _named(methods: Mapping[str, Method], kind: type[Method]) -> str | None:
    """The method of a kind: the one called as the kind is, else the first."""
    names = [name for name, method in methods.items() if type(method) is kind]
    return kind.name if kind.name in names else next(iter(names), None)


def _outcome(row: Mapping[str, Any], measure: str) -> Outcome:
    answered = row["answer"] is not None and bool(str(row["answer"]).strip())
    return Outcome(answered, float(row["scores"].get(measure, 0.0)), row["status"] == "error")


def questions(pool: Pool, draws: PastDraws, of: Outcomes, spent: Spent) -> Iterator[Question]:
    """The questions of a pool in plan order; what their chains took is added to `spent`."""
    for task in pool.job.tasks(pool.env):
        for trial in range(pool.job.settings.trials):
            key = (task.id, trial)
            if key in of.refused:
                votes, missing = None, 0
            else:
                votes, missing = _votes(task, trial, pool, draws, of.measure, spent)
            yield Question(task.id, trial, votes, missing, of.react.get(key), of.cot.get(key))


def _votes(
    task: Task, trial: int, pool: Pool, draws: PastDraws, measure: str, spent: Spent
) -> tuple[list[Point] | None, int]:
    scope, request = pool.request(task, trial)
    world = pool.job.worlds[pool.env]
    chains: list[Chain] = []
    for i in range(pool.samples):
        row = draws.draw(scope, request.hash, i)
        if row is not None:
            spent.add(row)
            chains.append(pool.chain(task, draw_of(row)))
    if len(chains) < pool.samples:
        return None, pool.samples - len(chains)
    scores = [world.score(task, chain.answer).get(measure, 0.0) for chain in chains]
    if any(chain.weight is not None for chain in chains):
        weighted = [
            (c.vote, 1.0 if c.weight is None else c.weight, s) for c, s in zip(chains, scores, strict=True)
        ]
        return resampled(weighted, scope), 0
    by_vote: dict[str, list[float]] = defaultdict(list)
    for chain, score in zip(chains, scores, strict=True):
        if chain.vote is not None:
            by_vote[chain.vote].append(score)
    answers = tuple((len(own), sum(own) / len(own)) for own in by_vote.values())
    return Ballot(answers, sum(chain.vote is None for chain in chains)).points(), 0
