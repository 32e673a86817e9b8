"""Figure 2 of the ReAct paper from one run: accuracy of the three sampling methods against the number of chains.

All points come from the same n draws of each question. A point is the exact mean over all subsets of that many
draws in all orders (`curves`), by the vote's own rule for ties; where CoT-SC -> ReAct asks whether the leader has
half of the chains, it is half of the subset's. (Votes with weights are resampled instead.) At n chains a point may
differ from Table 1 where votes are tied: it is the mean over orders, and the run had one.

Intervals are 95 % percentile bootstraps over questions, 1,000 resamples with a fixed seed: which questions were
asked is chance, the chains of each are used up whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.analysis.chains import Outcomes, Question, Spent, outcomes, questions
from runner.draws import PastDraws
from runner.errors import OvernightError, RunError
from runner.job import Job
from runner.methods.hybrid import Hybrid
from runner.methods.react import React
from runner.pool import Pool, pools
from runner.results import Run, load

RESAMPLES = 1000
SEED = 2022
METHODS = ("cot_sc", "cot_sc_then_react", "react_then_cot_sc")
LABELS = {
    "cot_sc": "CoT-SC",
    "cot_sc_then_react": "CoT-SC -> ReAct",
    "react_then_cot_sc": "ReAct -> CoT-SC",
    "cot": "CoT",
    "react": "ReAct",
}


class ChainsMissing(OvernightError):
    """A curve needs all chains of all questions, and some were never drawn. `draws` of them, of `tasks` (ids by
    world); `tokens` and `usd` by the lengths of the run's own chains (None: no price is known)."""

    def __init__(
        self, message: str, draws: int, tasks: dict[str, list[str]], tokens: int, usd: float | None
    ) -> None:
        super().__init__(message)
        self.draws = draws
        self.tasks = tasks
        self.tokens = tokens
        self.usd = usd


@dataclass(frozen=True, slots=True)
class Point:
    """A mean over questions and its 95 % interval, in [0, 1] where scores are."""

    mean: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return {"mean": round(self.mean, 6), "low": round(self.low, 6), "high": round(self.high, 6)}


@dataclass(frozen=True)
class Panel:
    """The curves of one world and model. `curves[method][k - 1]` is the point of k chains; `levels` are CoT's and
    ReAct's, which draw none."""

    env: str
    model: str
    title: str
    questions: int
    curves: dict[str, list[Point]]
    levels: dict[str, Point]
    notes: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        return len(self.curves["cot_sc"])

    def as_dict(self) -> dict[str, Any]:
        return {
            "env": self.env,
            "model": self.model,
            "title": self.title,
            "questions": self.questions,
            "chains": list(range(1, self.samples + 1)),
            "curves": {name: [point.as_dict() for point in curve] for name, curve in self.curves.items()},
            "levels": {name: point.as_dict() for name, point in self.levels.items()},
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Figure:
    """What `figure2` found: one panel for each world and model."""

    run: str
    panels: list[Panel]

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "method": f"exact over subsets of the draws; bootstrap over questions, {RESAMPLES} resamples",
            "panels": [panel.as_dict() for panel in self.panels],
        }

    def save(self, path: str | Path) -> None:
        """A picture; the name's ending says of which kind (png, svg, pdf). Needs `overnight[analysis]`."""
        from runner.analysis.picture import draw

        draw(self, Path(path))

    def __str__(self) -> str:
        return "\n\n".join(_text(panel) for panel in self.panels)


def figure2(run: Run | str | Path, *, job: Job | None = None) -> Figure:
    """The figure of a run, with as many chains as its sampling methods are set to draw.

    `job` is needed where the run was made from objects that have no name in a registry. Raises ChainsMissing where
    chains were left out, by early stopping or as the run is not done, and RunError where ReAct's episodes are;
    needs `overnight[analysis]`.
    """
    _numpy()
    run = run if isinstance(run, Run) else load(run)
    job = job or Job.parse(run.manifest["job"], file=run.path / "run.json")
    found = pools(job)
    ended = outcomes(run, found)
    draws = PastDraws(run.path)
    try:
        read = []
        for pool in found:
            spent = Spent()
            read.append((pool, list(questions(pool, draws, ended[pool.env, pool.model], spent)), spent))
    finally:
        draws.close()
    _all_there(run.path, read, ended)
    return Figure(
        str(run.path), [_panel(pool, asked, ended[pool.env, pool.model]) for pool, asked, _ in read]
    )


def _all_there(path: Path, read: list[tuple[Pool, list[Question], Spent]], ended: Any) -> None:
    """Raises ChainsMissing or RunError where something that the figure needs is not on record."""
    tasks: dict[str, list[str]] = {}
    draws = tokens = without_react = asked = 0
    usd: float | None = 0.0
    for pool, found, spent in read:
        lacking = [question for question in found if question.missing]
        asked += len(found)
        if lacking:
            tasks.setdefault(pool.env, []).extend(dict.fromkeys(question.task_id for question in lacking))
            missing = [question.missing for question in lacking]
            owed = sum(missing)
            more, price = spent.for_more(missing, pool.job.models[pool.model])
            draws, tokens = draws + owed, tokens + more
            usd = None if usd is None or price is None else usd + price
        if ended[pool.env, pool.model].has_react:
            without_react += sum(question.react is None for question in found)
    if draws:
        raise ChainsMissing(_missing(path, draws, tasks, asked, tokens, usd), draws, tasks, tokens, usd)
    if without_react:
        raise RunError(
            f"{path}: {without_react} of {asked} questions have no ReAct episode yet; finish the run first: "
            f"overnight resume {path}"
        )


def _missing(
    path: Path, draws: int, tasks: dict[str, list[str]], asked: int, tokens: int, usd: float | None
) -> str:
    count = sum(map(len, tasks.values()))
    named = [f"{env} {', '.join(ids[:3])}" for env, ids in tasks.items()]
    more = count - sum(min(len(ids), 3) for ids in tasks.values())
    ids = "; ".join(named) + (f" and {more} more" if more else "")
    price = "at a price that is not known" if usd is None else f"about ${usd:,.4f}" if usd else "$0"
    cost = (
        f"They come to about {tokens:,} tokens, {price}, by the lengths of this run's chains"
        if tokens
        else "No chain was drawn yet that would tell what they cost"
    )
    return (
        f"{path}: the figure needs all chains, and {draws:,} of them were never drawn, as the votes of {count:,} of "
        f"{asked:,} questions were settled before or their episodes are not done ({ids}). {cost}. "
        f"Draw them with: overnight figure2 {path} --complete"
    )


# -- one panel ---------------------------------------------------------------------------------------------------
def _panel(pool: Pool, asked: Sequence[Question], of: Outcomes) -> Panel:
    names = METHODS if of.has_react else METHODS[:1]
    values: dict[str, list[list[float]]] = {name: [] for name in names}
    levels: dict[str, list[list[float]]] = {"cot": [], "react": []}
    for question in asked:
        for name, points in _expected(question, pool.samples).items():
            if name in values:
                values[name].append(points)
        for name, outcome in (("cot", question.cot), ("react", question.react)):
            if outcome is not None:
                levels[name].append([outcome.score])
    trials = pool.job.settings.trials
    curves = {name: _points(rows, trials) for name, rows in values.items()}
    flat = {name: _points(rows, trials)[0] for name, rows in levels.items() if len(rows) == len(asked)}
    return Panel(
        pool.env,
        pool.job.models[pool.model].model or pool.model,
        title(pool, of),
        len(asked) // trials,
        curves,
        flat,
        _notes(pool, asked, of),
    )


def _expected(question: Question, samples: int) -> dict[str, list[float]]:
    """By method: the expected score with 1..samples chains."""
    react = question.react
    refused = [(0.0, 0.0, 0.0)] * samples  # no chain was to be had, so no method goes on from one
    wins = refused if question.votes is None else question.votes
    alone = [score for score, _, _ in wins]
    if react is None:
        return {"cot_sc": alone}
    first = [react.score if react.answered or react.error else score for score in alone]
    second = [score + open_ * react.score for _, score, open_ in wins]
    return {"cot_sc": alone, "cot_sc_then_react": second, "react_then_cot_sc": first}


def title(pool: Pool, of: Outcomes) -> str:
    """`HotpotQA EM`, `FEVER accuracy`, or the world's own name and measure."""
    word = getattr(pool.job.worlds[pool.env], "scorer", pool.job.worlds[pool.env].name)
    return {"hotpotqa": "HotpotQA EM", "fever": "FEVER accuracy"}.get(word, f"{pool.env} {of.measure}")


def _notes(pool: Pool, asked: Sequence[Question], of: Outcomes) -> list[str]:
    notes = []
    if not of.has_react:
        notes.append("no ReAct in this run: CoT-SC -> ReAct and ReAct -> CoT-SC need it")
    if not of.has_cot:
        notes.append("no CoT in this run")
    errors = sum(question.react is not None and question.react.error for question in asked)
    if errors:
        notes.append(
            f"{errors} ReAct episodes ended in an error and score 0 (overnight resume runs them again)"
        )
    refused = sum(question.votes is None for question in asked)
    if refused:
        notes.append(f"{refused} questions' chains were refused by the provider and score 0")
    methods = pool.job.methods
    own = next((method for method in methods.values() if type(method) is React), None)
    others = [n for n, m in methods.items() if isinstance(m, Hybrid) and own is not None and m.react != own]
    if others:
        notes.append(
            f"{', '.join(others)}: ReAct with other settings than the run's ReAct, whose is used here"
        )
    if pool.apart:
        notes.append(
            f"{', '.join(pool.apart)}: chains with other settings than {pool.method}'s, whose are used here"
        )
    return notes


def _points(rows: list[list[float]], trials: int) -> list[Point]:
    """Means over questions and their intervals, by column. Trials of one question are averaged first."""
    np = _numpy()
    values = np.array(rows, dtype=float)
    values = values.reshape(-1, trials, values.shape[1]).mean(axis=1)
    low, high = np.percentile(_resampled(values), [2.5, 97.5], axis=0)
    mean = values.mean(axis=0)
    return [Point(float(m), float(a), float(b)) for m, a, b in zip(mean, low, high, strict=True)]


def _resampled(values: Any) -> Any:
    """Column means of `RESAMPLES` resamples of the rows."""
    np = _numpy()
    chance = np.random.default_rng(SEED)
    n = len(values)
    means = np.empty((RESAMPLES, values.shape[1]))
    for k in range(RESAMPLES):
        weights = np.bincount(chance.integers(0, n, n), minlength=n)
        means[k] = weights @ values / n
    return means


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise OvernightError("figure2 needs numpy: pip install 'overnight[analysis]'") from error
    return numpy


# -- as text -----------------------------------------------------------------------------------------------------
def _text(panel: Panel) -> str:
    names = list(panel.curves)
    head = ["chains", *(LABELS[name] for name in names)]
    lines = [head]
    for k in range(panel.samples):
        lines.append([str(k + 1), *(_cell(panel.curves[name][k]) for name in names)])
    widths = [max(len(line[c]) for line in lines) for c in range(len(head))]
    rows = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    rule = "  ".join("-" * width for width in widths)
    levels = [f"{LABELS[name]}: {_cell(point)}" for name, point in panel.levels.items()]
    return "\n".join(
        [
            f"{panel.title}, {panel.questions} questions, model {panel.model}; mean and 95 % interval in per cent",
            rows[0],
            rule,
            *rows[1:],
            *levels,
            *panel.notes,
        ]
    )


def _cell(point: Point) -> str:
    return f"{100 * point.mean:.1f} ({100 * point.low:.1f} to {100 * point.high:.1f})"
