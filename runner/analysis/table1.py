"""Table 1 of the ReAct paper from a run's rows, beside the paper's own numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import OvernightError
from runner.results import Run, load, unfinished
from runner.summing import interval

METHODS: Mapping[str, str] = {
    "standard": "Standard",
    "cot": "CoT",
    "cot_sc": "CoT-SC",
    "act": "Act",
    "react": "ReAct",
    "cot_sc_then_react": "CoT-SC -> ReAct",
    "react_then_cot_sc": "ReAct -> CoT-SC",
}
"""The rows, in the paper's order."""

PAPER: Mapping[str, Mapping[str, float]] = {
    "hotpotqa": {
        "standard": 28.7, "cot": 29.4, "cot_sc": 33.4, "act": 25.7, "react": 27.4,
        "cot_sc_then_react": 34.2, "react_then_cot_sc": 35.1,
    },
    "fever": {
        "standard": 57.1, "cot": 56.3, "cot_sc": 60.4, "act": 58.9, "react": 60.9,
        "cot_sc_then_react": 64.6, "react_then_cot_sc": 62.0,
    },
}  # fmt: skip
"""Per cent, of PaLM-540B: exact match on HotpotQA, accuracy on FEVER (Yao et al. 2023, Table 1)."""

COLUMNS: Mapping[str, str] = {"hotpotqa": "HotpotQA EM", "fever": "FEVER accuracy"}
PAPER_CHAINS = 21


@dataclass(frozen=True, slots=True)
class Score:
    """A method's mean score over questions and its 95 % interval, in [0, 1]. `errors`: episodes that ended in an
    error; they score 0 and count."""

    mean: float
    low: float
    high: float
    questions: int
    errors: int


@dataclass(frozen=True)
class Table1:
    """`scores[env][method]`: what the runs gave, of one model. `worlds[env]` is `hotpotqa` or `fever`."""

    runs: list[str]
    model: str
    worlds: dict[str, str]
    scores: dict[str, dict[str, Score]]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """`paper` is in per cent, as printed there; the scores are shares."""
        return {
            "runs": self.runs,
            "model": self.model,
            "columns": [
                {
                    "env": env,
                    "measure": COLUMNS[world],
                    "rows": [
                        {
                            "method": method,
                            "label": label,
                            "paper": PAPER[world][method],
                            **(_as_dict(self.scores[env].get(method)) or {"missing": True}),
                        }
                        for method, label in METHODS.items()
                    ],
                }
                for env, world in self.worlds.items()
            ],
            "notes": self.notes,
        }

    def __str__(self) -> str:
        return _text(self)


def table1(run: Run | str | Path, *more: Run | str | Path) -> list[Table1]:
    """The table of a run, or of several together (HotpotQA in one and FEVER in another, say; of an episode that two
    runs have the later run's row counts): one for each model.

    Intervals are Wilson's, over questions: scores are 0 or 1. With several trials a question's mean counts, and the
    interval is normal. Raises OvernightError where no run has a HotpotQA or FEVER row.
    """
    runs = [each if isinstance(each, Run) else load(each) for each in (run, *more)]
    kinds = [_Kinds(each) for each in runs]
    cells: dict[tuple[str, str, str], dict[tuple[str, int], tuple[float, bool]]] = defaultdict(dict)
    for each, of in zip(runs, kinds, strict=True):
        for row in each.trajectories:
            kind = of.methods.get(row["method"])
            if kind is not None and row["env"] in of.worlds:
                ended = (float(row["scores"].get("em", 0.0)), row["status"] == "error")
                cells[row["model"], row["env"], kind][row["task_id"], row["trial"]] = ended
    if not cells:
        raise OvernightError(
            f"{', '.join(str(each.path) for each in runs)}: no row of a method of the ReAct paper on HotpotQA or FEVER"
        )
    worlds = {env: world for of in kinds for env, world in of.worlds.items()}
    tables = []
    for model in dict.fromkeys(model for model, _, _ in cells):
        scores = {
            env: {kind: _score(cells[model, env, kind]) for kind in METHODS if (model, env, kind) in cells}
            for env in worlds
            if any((model, env, kind) in cells for kind in METHODS)
        }
        named = list(dict.fromkeys(name for of in kinds for name in (of.models.get(model),) if name)) or [
            model
        ]
        shown = {env: worlds[env] for env in scores}
        tables.append(
            Table1(
                [str(each.path) for each in runs],
                ", ".join(named),
                shown,
                scores,
                _notes(runs, kinds, scores),
            )
        )
    return tables


class _Kinds:
    """What the tables of a run's job are, by their names."""

    def __init__(self, run: Run) -> None:
        job = run.manifest["job"]
        self.worlds: dict[str, str] = {}
        for name, table in job.get("envs", {}).items():
            world = table.get("world", name)
            world = table.get("scorer", "hotpotqa") if world == "recording" else world
            if world in PAPER:
                self.worlds[name] = world
        words = {name: table.get("method", name) for name, table in job.get("methods", {}).items()}
        self.methods: dict[str, str] = {}
        self.passed_over: list[str] = []
        for kind in METHODS:
            named = [name for name, word in words.items() if word == kind]
            if named:
                chosen = kind if kind in named else named[0]
                self.methods[chosen] = kind
                self.passed_over += [name for name in named if name != chosen]
        self.samples = {
            kind: int(job["methods"][name].get("samples", PAPER_CHAINS))
            for name, kind in self.methods.items()
            if kind in ("cot_sc", "cot_sc_then_react", "react_then_cot_sc")
        }
        self.models = {
            name: table.get("model", "") or table.get("provider", name)
            for name, table in job.get("models", {}).items()
        }


def _score(ended: Mapping[tuple[str, int], tuple[float, bool]]) -> Score:
    by_task: dict[str, list[float]] = defaultdict(list)
    for (task, _), (score, _) in ended.items():
        by_task[task].append(score)
    means = [sum(scores) / len(scores) for scores in by_task.values()]
    return Score(**interval(means), questions=len(means), errors=sum(error for _, error in ended.values()))


def _notes(
    runs: Sequence[Run], kinds: Iterable[_Kinds], scores: Mapping[str, Mapping[str, Score]]
) -> list[str]:
    notes = []
    for of in kinds:
        others = {f"{METHODS[kind]} {n}" for kind, n in of.samples.items() if n != PAPER_CHAINS}
        if others:
            notes.append(f"chains: {', '.join(sorted(others))}; the paper's {PAPER_CHAINS}")
        if of.passed_over:
            notes.append(f"left out, as another method of their kind is shown: {', '.join(of.passed_over)}")
    notes += unfinished(runs)
    errors = sum(score.errors for column in scores.values() for score in column.values())
    if errors:
        notes.append(
            f"{errors} episodes ended in an error; they score 0 and count (overnight resume runs them again)"
        )
    for env, column in scores.items():
        if len({score.questions for score in column.values()}) > 1:
            counts = ", ".join(f"{METHODS[kind]} {score.questions}" for kind, score in column.items())
            notes.append(f"{env}: methods stand at different numbers of questions: {counts}")
    return list(dict.fromkeys(notes))


def _as_dict(score: Score | None) -> dict[str, Any] | None:
    return None if score is None else {name: getattr(score, name) for name in Score.__slots__}


def _text(table: Table1) -> str:
    first = max(map(len, METHODS.values()))
    top, head, rule = [" " * first], ["method".ljust(first)], ["-" * first]
    columns = []
    for env, world in table.worlds.items():
        column = table.scores[env]
        title = f"{COLUMNS[world]}, {max(score.questions for score in column.values())} questions"
        if list(table.worlds.values()).count(world) > 1:
            title = f"{env}: {title}"
        cells = {kind: _cells(column.get(kind), PAPER[world][kind]) for kind in METHODS}
        names = ("this run" if len(table.runs) == 1 else "these runs", "95 % interval", "PaLM-540B")
        widths = [max(len(names[k]), *(len(c[k]) for c in cells.values())) for k in range(3)]
        widths[1] += max(0, len(title) - sum(widths) - 4)
        top.append(title.center(sum(widths) + 4).rstrip().ljust(sum(widths) + 4))
        head.append("  ".join(name.rjust(width) for name, width in zip(names, widths, strict=True)))
        rule.append("  ".join("-" * width for width in widths))
        columns.append(
            {
                kind: "  ".join(cell.rjust(width) for cell, width in zip(c, widths, strict=True))
                for kind, c in cells.items()
            }
        )
    lines = ["    ".join(top).rstrip(), "    ".join(head), "    ".join(rule)]
    lines += [
        "    ".join([label.ljust(first), *(column[kind] for column in columns)])
        for kind, label in METHODS.items()
    ]
    missing = {
        env: [label for kind, label in METHODS.items() if kind not in table.scores[env]]
        for env in table.worlds
    }
    said = [f"missing in {env}: {', '.join(labels)}" for env, labels in missing.items() if labels]
    return "\n".join([f"ReAct paper, Table 1; model {table.model}", *lines, *said, *table.notes])


def _cells(score: Score | None, paper: float) -> tuple[str, str, str]:
    if score is None:
        return "missing", "-", f"{paper:.1f}"
    return f"{100 * score.mean:.1f}", f"{100 * score.low:.1f} to {100 * score.high:.1f}", f"{paper:.1f}"
