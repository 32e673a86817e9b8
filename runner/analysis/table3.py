"""Table 3 of the ReAct paper from runs on ALFWorld, beside the paper's own numbers.

The paper tries six prompts for each kind of task, all ordered pairs of its three examples, and reports the average
over the six and the best of them. Its "best of 6" is each column's own: the column All, which is that of the best
prompt for all tasks together, lies below the mean of the other columns' bests, weighted by their tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from envs.alfworld.goals import KINDS
from runner.errors import OvernightError
from runner.results import Run, load, unfinished
from runner.summing import interval

Of: TypeAlias = Literal["average", "best"]
METHODS: Mapping[str, str] = {"act": "Act", "react": "ReAct", "react_im": "ReAct-IM"}
COLUMNS: tuple[str, ...] = (*(kind.column for kind in KINDS), "All")
PAPER: Mapping[tuple[str, Of], Sequence[int]] = {
    ("act", "best"): (88, 42, 74, 67, 72, 41, 45),
    ("react", "average"): (65, 39, 83, 76, 55, 24, 57),
    ("react", "best"): (92, 58, 96, 86, 78, 41, 71),
    ("react_im", "average"): (55, 59, 60, 55, 23, 24, 48),
    ("react_im", "best"): (62, 68, 87, 57, 39, 33, 53),
}
"""Per cent of tasks solved by PaLM-540B, in the order of `COLUMNS` (Yao et al. 2023, Table 3)."""
BUTLER: Mapping[str, Sequence[int]] = {
    "BUTLER_g (best of 8)": (33, 26, 70, 76, 17, 12, 22),
    "BUTLER (best of 8)": (46, 39, 74, 100, 22, 24, 37),
}
"""What the paper compares with: imitation learning (Shridhar et al. 2021, Table 4)."""
PROMPTS = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """All tasks with one prompt: `examples` are the numbers of those that stand in it. `solved[column]` is the share
    of tasks that were solved, in [0, 1], with its 95 % interval; columns without a task are missing."""

    examples: tuple[int, ...]
    solved: dict[str, dict[str, float]]
    tasks: dict[str, int]
    errors: int


@dataclass(frozen=True)
class Table3:
    """The attempts of each method, of one model."""

    runs: list[str]
    model: str
    attempts: dict[str, list[Attempt]]
    notes: list[str] = field(default_factory=list)

    def row(self, method: str, of: Of) -> dict[str, float]:
        """Share of tasks solved by column: the mean over the attempts, or each column's best attempt."""
        found = {}
        for column in COLUMNS:
            shares = [each.solved[column]["mean"] for each in self.attempts[method] if column in each.solved]
            if shares:
                found[column] = max(shares) if of == "best" else sum(shares) / len(shares)
        return found

    def as_dict(self) -> dict[str, Any]:
        """`paper` is in per cent, as printed there; the rest are shares."""
        return {
            "runs": self.runs,
            "model": self.model,
            "rows": [
                {
                    "method": method,
                    "of": of,
                    "attempts": len(self.attempts[method]),
                    "solved": self.row(method, of),
                    "paper": dict(zip(COLUMNS, PAPER.get((method, of), ()), strict=False)) or None,
                }
                for method in self.attempts
                for of in _BOTH
            ],
            "attempts": [
                {
                    "method": method,
                    "examples": list(each.examples),
                    "solved": each.solved,
                    "tasks": each.tasks,
                    "errors": each.errors,
                }
                for method, attempts in self.attempts.items()
                for each in attempts
            ],
            "butler": {label: dict(zip(COLUMNS, numbers, strict=True)) for label, numbers in BUTLER.items()},
            "notes": self.notes,
        }

    def __str__(self) -> str:
        return _text(self)


_BOTH: tuple[Of, Of] = ("average", "best")
_Ended: TypeAlias = "dict[tuple[str, int], tuple[str, float, bool]]"
"""(task, trial) to (column, solved, whether it ended in an error)."""


def table3(run: Run | str | Path, *more: Run | str | Path) -> list[Table3]:
    """The table of a run, or of several together (of an episode that two have, the later run's row counts): one for
    each model.

    A prompt is an `[envs.…]` table of the world `alfworld` with its own `examples`. An episode that ended in an error
    solved nothing and counts. Raises OvernightError where no run has a row of act, react or react_im on ALFWorld.
    """
    runs = [each if isinstance(each, Run) else load(each) for each in (run, *more)]
    cells: dict[tuple[str, str], dict[tuple[int, ...], _Ended]] = defaultdict(lambda: defaultdict(dict))
    names: dict[str, str] = {}
    for each in runs:
        job = each.manifest["job"]
        prompts = {
            name: tuple(table.get("examples", (1, 0)))
            for name, table in job.get("envs", {}).items()
            if table.get("world", name) == "alfworld"
        }
        methods = {name: table.get("method", name) for name, table in job.get("methods", {}).items()}
        for name, table in job.get("models", {}).items():
            names[name] = table.get("model", "") or table.get("provider", name)
        for row in each.trajectories:
            method = methods.get(row["method"], "")
            if method in METHODS and row["env"] in prompts:
                ended = (_column(row), float(row["scores"].get("success", 0.0)), row["status"] == "error")
                cells[row["model"], method][prompts[row["env"]]][row["task_id"], row["trial"]] = ended
    if not cells:
        raise OvernightError(
            f"{', '.join(str(each.path) for each in runs)}: no row of act, react or react_im on ALFWorld"
        )
    tables = []
    for model in dict.fromkeys(model for model, _ in cells):
        attempts = {
            method: [_attempt(examples, ended) for examples, ended in sorted(cells[model, method].items())]
            for method in METHODS
            if (model, method) in cells
        }
        tables.append(
            Table3(
                [str(each.path) for each in runs], names.get(model, model), attempts, _notes(runs, attempts)
            )
        )
    return tables


def _column(row: Mapping[str, Any]) -> str:
    name = (row["target"] or {}).get("type") or row["task_id"]
    return next((kind.column for kind in KINDS if str(name).startswith(kind.name)), "")


def _attempt(examples: tuple[int, ...], ended: _Ended) -> Attempt:
    by_task: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (task, _), (column, solved, _) in ended.items():
        by_task[column, task].append(solved)
    means: dict[str, list[float]] = defaultdict(list)
    for (column, _), scores in by_task.items():
        mean = sum(scores) / len(scores)
        means["All"].append(mean)
        if column:
            means[column].append(mean)
    return Attempt(
        examples,
        {column: interval(means[column]) for column in COLUMNS if column in means},
        {column: len(means[column]) for column in COLUMNS if column in means},
        sum(error for _, _, error in ended.values()),
    )


def _notes(runs: Sequence[Run], attempts: Mapping[str, Sequence[Attempt]]) -> list[str]:
    notes = []
    for method, each in attempts.items():
        if len(each) != PROMPTS:
            prompts = ", ".join("+".join(map(str, one.examples)) for one in each)
            notes.append(
                f"{METHODS[method]}: {len(each)} of the paper's {PROMPTS} prompts (examples {prompts})"
            )
        if len(counts := {one.tasks["All"] for one in each}) > 1:
            notes.append(f"{METHODS[method]}: prompts stand at different numbers of tasks: {_listed(counts)}")
    missing = [label for method, label in METHODS.items() if method not in attempts]
    if missing:
        notes.append(f"missing: {', '.join(missing)}")
    notes += unfinished(runs)
    errors = sum(one.errors for each in attempts.values() for one in each)
    if errors:
        notes.append(
            f"{errors} episodes ended in an error; they solved nothing and count (overnight resume runs them again)"
        )
    return notes


def _listed(counts: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(counts)))


def _text(table: Table3) -> str:
    lines: list[tuple[str, list[str], str]] = []
    for method, attempts in table.attempts.items():
        for of in _BOTH:
            row = table.row(method, of)
            cells = [f"{100 * row[column]:.0f}" if column in row else "-" for column in COLUMNS]
            told = _interval(attempts) if of == "best" else ""
            lines.append((f"{METHODS[method]} ({of} of {len(attempts)})", cells, told))
            if numbers := PAPER.get((method, of)):
                lines.append((f"  PaLM-540B ({of} of {PROMPTS})", [str(number) for number in numbers], ""))
    lines += [(label, [str(number) for number in numbers], "") for label, numbers in BUTLER.items()]
    first = max(len(label) for label, _, _ in lines)
    widths = [max(len(column), 3) for column in COLUMNS]
    interval_of = "All, 95 % interval"

    def one(label: str, cells: Sequence[str], told: str) -> str:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return f"{label.ljust(first)}  {numbers}  {told}".rstrip()

    tasks = max(each.tasks["All"] for attempts in table.attempts.values() for each in attempts)
    return "\n".join(
        [
            f"ReAct paper, Table 3: ALFWorld, per cent of {tasks} tasks solved; model {table.model}",
            one("method", COLUMNS, interval_of),
            one("-" * first, ["-" * width for width in widths], "-" * len(interval_of)),
            *(one(*line) for line in lines),
            *table.notes,
        ]
    )


def _interval(attempts: Sequence[Attempt]) -> str:
    """That of the best attempt, as if it had been the only one."""
    best = max((each.solved["All"] for each in attempts), key=lambda solved: solved["mean"])
    return f"{100 * best['low']:.0f} to {100 * best['high']:.0f}"
