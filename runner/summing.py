"""Sums over the rows of a run: what each cell scored, used and cost. Fed row by row, in any order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.analysis.money import Chains, Pooled, right_answers

MOST_ERRORS = 1000
"""Texts of errors of one cell that are told apart."""
Z = 1.959964
"""Standard deviations of a 95 % interval."""


@dataclass(slots=True)
class Values:
    """Numbers, summed up: how many, their mean and spread, and where they lie."""

    n: int = 0
    mean: float = 0.0
    spread: float = 0.0
    """Sum of squared deviations from the mean (Welford's recurrence)."""
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    ones: int = 0
    shares: bool = True
    """Whether all are 0 or 1."""

    def add(self, value: float, times: int = 1) -> None:
        if not times:
            return
        self.n += times
        away = value - self.mean
        self.mean += away * times / self.n
        self.spread += times * away * (value - self.mean)
        self.total += value * times
        self.low, self.high = min(self.low, value), max(self.high, value)
        if value == 1.0:
            self.ones += times
        elif value:
            self.shares = False

    def interval(self) -> dict[str, float]:
        """Mean and its 95 % interval: Wilson's for shares of 0/1 values, else normal, both within [0, 1] where all
        values are. Raises ZeroDivisionError without a value."""
        n = self.n
        mean = self.ones / n if self.shares else self.total / n
        if self.shares:
            centre = (mean + Z * Z / (2 * n)) / (1 + Z * Z / n)
            half = Z / (1 + Z * Z / n) * math.sqrt(mean * (1 - mean) / n + Z * Z / (4 * n * n))
            low, high = max(0.0, centre - half), min(1.0, centre + half)
        else:
            half = Z * math.sqrt(max(self.spread, 0.0) / max(n - 1, 1) / n)
            low, high = mean - half, mean + half
            if self.low >= 0 and self.high <= 1:
                low, high = max(0.0, low), min(1.0, high)
        return {"mean": round(mean, 6), "low": round(low, 6), "high": round(high, 6)}


@dataclass
class CellSums:
    """Sums over the episodes of one cell. An episode that ended in an error gave no answer: it scores 0 and
    counts in every denominator, until a resume runs it again."""

    n: int = 0
    first: float = math.inf
    """The first place that one of them has in plan order."""
    scores: dict[str, Values] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    usage: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cost: float = 0.0
    priced: bool = True
    chains: Chains = field(default_factory=Chains)
    flags: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        self.statuses[row["status"]] += 1
        if row["flags"]:
            self.flags.update(row["flags"])
        if row["error"] is not None:
            self.errors[f"{row['error']['type']}: {row['error']['message']}"[:300]] += 1
            if len(self.errors) > 2 * MOST_ERRORS:  # those that came once, each with a text of its own
                self.errors = Counter(dict(self.errors.most_common(MOST_ERRORS)))
        for name, count in row["usage"].items():
            self.usage[name] += count
        if row["cost_usd"] is None:
            self.priced = False
        else:
            self.cost += row["cost_usd"]
        self.n += 1
        self.first = min(self.first, row["index"])
        self.chains.add(row)
        self.steps += row["n_steps"]
        self.seconds += row["seconds"]
        for name, value in row["scores"].items():
            values = self.scores.get(name)
            if values is None:
                values = self.scores[name] = Values()
            values.add(value)

    def as_dict(self) -> dict[str, Any]:
        n = max(self.n, 1)
        right = right_answers({name: values.total for name, values in self.scores.items()})
        scores = {}
        for name, values in self.scores.items():
            whole = replace(values)
            whole.add(0.0, self.n - values.n)
            scores[name] = whole.interval()
        return {
            "n": self.n,
            "scores": scores,
            "statuses": dict(self.statuses),
            "steps": round(self.steps / n, 2),
            "calls": self.usage["calls"],
            "tokens": {k: self.usage[k] for k in ("prompt", "completion", "cached", "reasoning")},
            "seconds": round(self.seconds / n, 2),
            "cost_usd": round(self.cost, 6) if self.priced else None,
            "usd_per_right_answer": round(self.cost / right, 6) if self.priced and right else None,
            "chains": self.chains.as_dict(),
            "flags": dict(self.flags),
            "errors": dict(self.errors.most_common(10)),
        }


class Summing:
    """The sums of all cells, one row after another."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, str], CellSums] = {}
        self._pooled = Pooled()

    def add(self, row: Mapping[str, Any]) -> None:
        self._pooled.add(row)
        cell = row["env"], row["method"], row["model"]
        sums = self._cells.get(cell)
        if sums is None:
            sums = self._cells[cell] = CellSums()
        sums.add(row)

    def as_dict(self) -> dict[str, Any]:
        """See `summarise`."""
        return {
            "cells": [
                {"env": env, "method": method, "model": model, **sums.as_dict()}
                for (env, method, model), sums in sorted(self._cells.items(), key=lambda of: of[1].first)
            ],
            "chains": self._pooled.as_dict(),
        }


def summarise(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`{"cells": [{env, method, model, n, scores: {em: {mean, low, high}}, statuses, steps, calls, tokens, …}]}`,
    the cells in plan order.

    `steps` and `seconds` are means an episode, `calls`, `tokens` and `cost_usd` sums of what the cell's episodes
    used, shared draws counted in each that used them; in `chains`, beside the cells, each counts once.
    """
    summing = Summing()
    for row in rows:
        summing.add(row)
    return summing.as_dict()


def interval(values: Iterable[float]) -> dict[str, float]:
    """Mean and its 95 % interval (see `Values.interval`)."""
    sums = Values()
    for value in values:
        sums.add(value)
    return sums.interval()
