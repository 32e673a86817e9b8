"""Table 4 of the ReAct paper from runs on WebShop: score and success rate, beside the paper's own numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import OvernightError
from runner.results import Run, load, unfinished
from runner.summing import interval

METHODS: Mapping[str, str] = {"act": "Act", "react": "ReAct", "react_im": "ReAct-IM"}
PAPER: Mapping[str, tuple[float, float]] = {"act": (62.3, 30.1), "react": (66.6, 40.0)}
"""Score and success rate of PaLM-540B on the 500 test goals (Yao et al. 2023, Table 4)."""
OTHERS: Mapping[str, tuple[float, float]] = {
    "IL": (59.9, 29.1),
    "IL+RL": (62.4, 28.7),
    "Human expert": (82.1, 59.6),
}
"""What the paper compares with (Yao et al. 2022)."""
GOALS = 500


@dataclass(frozen=True, slots=True)
class Shopping:
    """How a method did: mean `reward` and share of `success`, both in [0, 1], each {mean, low, high} with a 95 %
    interval over goals. `unbought`: episodes that ended without a purchase; `errors`: in an error. Both score 0 and
    count."""

    reward: dict[str, float]
    success: dict[str, float]
    goals: int
    unbought: int
    errors: int


@dataclass(frozen=True)
class Table4:
    """The methods' results in one `[envs.…]` table of the world `webshop`, of one model."""

    runs: list[str]
    model: str
    env: str
    methods: dict[str, Shopping]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """`paper` and `others` are times 100, as printed there; the rest are shares."""
        return {
            "runs": self.runs,
            "model": self.model,
            "env": self.env,
            "rows": [
                {
                    "method": method,
                    "score": found.reward,
                    "success": found.success,
                    "goals": found.goals,
                    "unbought": found.unbought,
                    "errors": found.errors,
                    "paper": PAPER.get(method),
                }
                for method, found in self.methods.items()
            ],
            "others": dict(OTHERS),
            "notes": self.notes,
        }

    def __str__(self) -> str:
        return _text(self)


def table4(run: Run | str | Path, *more: Run | str | Path) -> list[Table4]:
    """The table of a run, or of several together (of an episode that two have, the later run's row counts): one for
    each model and `[envs.…]` table.

    An episode without a purchase, or one that ended in an error, scores 0 and counts. Raises OvernightError where no
    run has a row of act, react or react_im on WebShop.
    """
    runs = [each if isinstance(each, Run) else load(each) for each in (run, *more)]
    cells: dict[tuple[str, str], dict[str, dict[tuple[str, int], Mapping[str, Any]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    names: dict[str, str] = {}
    for each in runs:
        job = each.manifest["job"]
        shops = {name for name, table in job.get("envs", {}).items() if table.get("world", name) == "webshop"}
        methods = {name: table.get("method", name) for name, table in job.get("methods", {}).items()}
        for name, table in job.get("models", {}).items():
            names[name] = table.get("model", "") or table.get("provider", name)
        for row in each.trajectories:
            method = methods.get(row["method"], "")
            if method in METHODS and row["env"] in shops:
                cells[row["model"], row["env"]][method][row["task_id"], row["trial"]] = row
    if not cells:
        raise OvernightError(
            f"{', '.join(str(each.path) for each in runs)}: no row of act, react or react_im on WebShop"
        )
    tables = []
    for (model, env), of in sorted(cells.items()):
        found = {method: _shopping(list(of[method].values())) for method in METHODS if method in of}
        paths = [str(each.path) for each in runs]
        tables.append(Table4(paths, names.get(model, model), env, found, _notes(runs, found)))
    return tables


def _shopping(rows: list[Mapping[str, Any]]) -> Shopping:
    by_goal: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_goal[row["task_id"]].append(row)

    def mean(score: str) -> dict[str, float]:
        each = [sum(float(row["scores"].get(score, 0.0)) for row in of) / len(of) for of in by_goal.values()]
        return interval(each)

    return Shopping(
        reward=mean("reward"),
        success=mean("success"),
        goals=len(by_goal),
        unbought=sum(row["status"] not in ("error", "finished") for row in rows),
        errors=sum(row["status"] == "error" for row in rows),
    )


def _notes(runs: list[Run], methods: Mapping[str, Shopping]) -> list[str]:
    notes = []
    missing = [METHODS[method] for method in PAPER if method not in methods]
    if missing:
        notes.append(f"missing: {', '.join(missing)}")
    for method, found in methods.items():
        if found.goals != GOALS:
            notes.append(f"{METHODS[method]}: goals: {found.goals:,} (the paper's test split has {GOALS})")
        if found.unbought:
            notes.append(
                f"{METHODS[method]}: episodes that bought nothing: {found.unbought:,}; they score 0 and count"
            )
        if found.errors:
            notes.append(
                f"{METHODS[method]}: episodes that ended in an error: {found.errors:,}; they score 0 and count "
                "(overnight resume runs them again)"
            )
    notes += unfinished(runs)
    return notes


def _text(table: Table4) -> str:
    lines = []
    for method, found in table.methods.items():
        cells = [f"{100 * each['mean']:.1f}" for each in (found.reward, found.success)]
        told = [
            f"{100 * each['low']:.1f} to {100 * each['high']:.1f}" for each in (found.reward, found.success)
        ]
        lines.append((METHODS[method], *cells, *told))
        if method in PAPER:
            lines.append(("  PaLM-540B", *(f"{number:.1f}" for number in PAPER[method]), "", ""))
    lines += [(name, *(f"{number:.1f}" for number in numbers), "", "") for name, numbers in OTHERS.items()]
    head = ("method", "score", "success", "score, 95 % interval", "success, 95 % interval")
    widths = [max(len(line[k]) for line in (head, *lines)) for k in range(len(head))]

    def one(line: tuple[str, ...]) -> str:
        cells = [
            cell.ljust(width) if k in (0, 3, 4) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    goals = max(found.goals for found in table.methods.values())
    return "\n".join(
        [
            f"ReAct paper, Table 4: WebShop, score and success times 100; model {table.model}; goals: {goals:,}",
            one(head),
            one(tuple("-" * width for width in widths)),
            *map(one, lines),
            *table.notes,
        ]
    )
