"""Sums over the rows of a run: what each cell scored, used and cost. Fed row by row, in any order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.analysis.money import Chains, Pooled, right_answers


@dataclass
class CellSums:
    """Sums over the episodes of one cell. An episode that ended in an error gave no answer: it scores 0 and
    counts in every denominator, until a resume runs it again."""

    n: int = 0
    first: float = math.inf
    """The first place that one of them has in plan order."""
    scores: dict[str, list[float]] = field(default_factory=dict)
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
            self.scores.setdefault(name, []).append(value)

    def as_dict(self) -> dict[str, Any]:
        n = max(self.n, 1)
        right = right_answers(self.scores)
        return {
            "n": self.n,
            "scores": {
                name: interval(values + [0.0] * (self.n - len(values)))
                for name, values in self.scores.items()
            },
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


def interval(values: list[float]) -> dict[str, float]:
    """Mean and its 95 % interval: Wilson's for shares of 0/1 values, else normal, both within [0, 1] where
    all values are."""
    n = len(values)
    mean = sum(values) / n
    z = 1.959964
    if all(value in (0.0, 1.0) for value in values):
        centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
        low, high = max(0.0, centre - half), min(1.0, centre + half)
    else:
        spread = sum((value - mean) ** 2 for value in values) / max(n - 1, 1)
        half = z * math.sqrt(spread / n)
        low, high = mean - half, mean + half
        if all(0 <= value <= 1 for value in values):
            low, high = max(0.0, low), min(1.0, high)
    return {"mean": round(mean, 6), "low": round(low, 6), "high": round(high, 6)}
