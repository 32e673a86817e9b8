"""What a run gave: its rows, a data frame, and a summary by cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.analysis.money import money
from runner.errors import OvernightError
from runner.execution import run_path
from runner.outputs import locked, read_manifest, read_trajectories
from runner.summing import summarise

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
        return self.priced(summarise(self.trajectories))

    def priced(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """The summary, of the sums over all rows."""
        cells = sums["cells"]
        return {"cells": cells, "money": money(cells, sums["chains"], self.manifest.get("totals", {}))}

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


def unfinished(runs: Iterable[Run]) -> list[str]:
    """A line for each run that is not done: how it stands, and how far it is."""
    lines = []
    for run in runs:
        if run.status != "finished":
            planned = run.manifest.get("totals", {}).get("planned")
            of_all = "" if planned is None else f" of {planned:,}"
            rows = sum(1 for _ in run.trajectories)
            lines.append(f"{run.path} is not done ({run.status}): {rows:,}{of_all} episodes so far")
    return lines


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
