"""What a run gave: its rows, a data frame, and a summary by cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.analysis.money import Chains, Pooled, money, right_answers
from runner.errors import OvernightError
from runner.execution import run_path
from runner.outputs import locked, read_manifest, read_trajectories

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not. Reading it changes nothing."""

    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """`run.json`: the job, versions, totals, status."""
        return read_manifest(self.path)

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted`, `budget` (spent), `stopped` (a cell ended early),
        `waiting` (for batches, or for the results of an exported file), or `died` (killed)."""
        status = str(self.manifest.get("status", "died"))
        return "died" if status == "running" and not locked(self.path) else status

    @property
    def trajectories(self) -> Iterator[dict[str, Any]]:
        """The rows in plan order, one an episode (the last line of each id)."""
        return read_trajectories(self.path)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Scores and usage by cell, computed from the rows (see `summarise`), and the run's `money`."""
        found = summarise(self.trajectories)
        chains = found.pop("chains")
        return {**found, "money": money(found["cells"], chains, self.manifest.get("totals", {}))}

    def frame(self) -> pandas.DataFrame:
        """One row an episode, nested fields flattened (`scores.em`, `usage.prompt`). Needs
        `overnight[analysis]`."""
        try:
            import pandas
        except ImportError as error:
            raise OvernightError("frames need pandas: pip install 'overnight[analysis]'") from error
        return pandas.json_normalize(list(self.trajectories), max_level=1)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.status})"


def load(path: str | Path) -> Run:
    """A run by its folder (or a file in it). Raises RunError where there is none."""
    run = Run(run_path(path))
    read_manifest(run.path)
    return run


@dataclass
class CellSums:
    """Sums over the episodes of one cell. An episode that ended in an error gave no answer: it scores 0 and
    counts in every denominator, until a resume runs it again."""

    n: int = 0
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


def summarise(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`{"cells": [{env, method, model, n, scores: {em: {mean, low, high}}, statuses, steps, calls, tokens, …}]}`

    `steps` and `seconds` are means an episode, `calls`, `tokens` and `cost_usd` sums of what the cell's episodes
    used, shared draws counted in each that used them; in `chains`, beside the cells, each counts once.
    """
    cells: dict[tuple[str, str, str], CellSums] = {}
    pooled = Pooled()
    for row in rows:
        pooled.add(row)
        cells.setdefault((row["env"], row["method"], row["model"]), CellSums()).add(row)
    return {
        "cells": [
            {"env": env, "method": method, "model": model, **sums.as_dict()}
            for (env, method, model), sums in cells.items()
        ],
        "chains": pooled.as_dict(),
    }


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


def named_by(summary: Mapping[str, Any]) -> list[str]:
    """What tells the cells of a run apart: the method, and world and model where there are several."""
    cells = summary["cells"]
    return [key for key in ("env", "model") if len({cell[key] for cell in cells}) > 1] + ["method"]


WARNED = {
    "sent_without_temperature": "without the temperature that the job asks for, as the model refuses it",
    "sent_without_top_p": "without the top_p that the job asks for, as the model refuses it",
    "sent_without_logprobs": "without log-probabilities, as the model refuses them",
    "sent_differs": "with draws of one request that were sent with different parameters",
    "identical_draws": "with the same text in every draw (temperature 0? a cache? one seed for all?)",
    "only_thoughts": "with a reply of thoughts alone, cut short perhaps by a stop string (max_stops = 0 sends none)",
}
"""Flags of rows that make a run another experiment than it seems to be, in words."""


ALIKE = 0.9
"""Share of episodes whose chains are all one text that tells a fault of sampling: easy questions have some, and the
more so where few chains are drawn."""


def warnings(summary: Mapping[str, Any]) -> Iterator[str]:
    """A line for each cell and flag that a person must know of before believing the scores."""
    names = named_by(summary)
    for cell in summary["cells"]:
        for flag, words in WARNED.items():
            count = cell["flags"].get(flag, 0)
            if count and (flag != "identical_draws" or count >= ALIKE * cell["n"]):
                what = " ".join(cell[name] for name in names)
                yield f"warning: {what}: {count:,} of {cell['n']:,} episodes {words}"


def table(summary: Mapping[str, Any]) -> str:
    """The summary as a plain text table: method, n, EM, F1, steps, calls, tokens, what it cost (by list, and for each
    right answer; where anything did), seconds, errors."""
    cells = summary["cells"]
    names = named_by(summary)
    priced = any(cell["cost_usd"] for cell in cells)
    measures = list(dict.fromkeys(name for cell in cells for name in cell["scores"]))
    head = [
        *names,
        "n",
        *(_heading(name) for name in measures),
        "steps",
        "calls",
        "tokens",
        *(("USD", "USD/right") if priced else ()),
        "seconds",
        "errors",
    ]
    lines = [head]
    for cell in cells:
        scores = [
            f"{100 * cell['scores'][name]['mean']:.1f}" if name in cell["scores"] else "-"
            for name in measures
        ]
        tokens = cell["tokens"]["prompt"] + cell["tokens"]["completion"]
        lines.append(
            [
                *(cell[name] for name in names),
                str(cell["n"]),
                *scores,
                f"{cell['steps']:.1f}",
                f"{cell['calls']:,}",
                f"{tokens:,}",
                *((_usd(cell["cost_usd"]), _usd(cell["usd_per_right_answer"])) if priced else ()),
                f"{cell['seconds']:.1f}",
                str(cell["statuses"].get("error", 0)),
            ]
        )
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    text = [
        "  ".join(
            value.ljust(width) if k < len(names) else value.rjust(width)
            for k, (value, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([text[0], rule, *text[1:]])


def _usd(amount: float | None) -> str:
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if amount >= 100 else f"{amount:.3g}"


def _heading(name: str) -> str:
    return {"em": "EM", "f1": "F1", "em_lenient": "EM~"}.get(name, name)
