"""What a job will cost and how long it takes at least, from what it would ask for: shown before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.batch.settings import FACTOR
from runner.estimate import Estimate, ModelCount
from runner.job import Job
from runner.models.asking import ANY, Cache, used
from runner.models.base import Model, Usage
from runner.results import Run, load

ASSUMED_SAVED = 0.43
ASSUMED_REQUESTS = 1.49
ASSUMPTION = (
    "an assumption, measured on 500 LastLetters questions with GPT-3.5; a run in `reuse` tells your own"
)
"""Of 21 chains at temperature 0.7, whose windows took 1.49 requests a question."""


@dataclass
class ModelForecast:
    """One model's part. USD is None where its price is not known, `minutes` where no limit is."""

    usd: float | None = None
    minutes: float | None = None
    bound_by: str = ""
    """The limit that takes longest."""


@dataclass
class Ways:
    """A question's chains asked for in different ways, in USD at list price: `prompt` and `chain` tokens each."""

    n: int
    prompt: int
    chain: int
    single: float
    single_cached: float
    """With a provider's cache that keeps whole prompts; `openai_cached`: with OpenAI's, from 1,024 tokens on."""
    openai_cached: float
    together: float
    windows: float
    """As the lossless rule asks."""
    windows_cached: float


@dataclass
class Forecast:
    """`usd`: all replies at their full length. `lossless_usd`: directly, without the chains that the lossless rule
    spares; `batch_usd`: everything, all chains drawn, at a batch API's half price, in `waves` submissions."""

    usd: float | None = None
    minutes: float | None = None
    models: dict[str, ModelForecast] = field(default_factory=dict)
    waves: int = 0
    saved_share: float = ASSUMED_SAVED
    saved_from: str = ASSUMPTION
    lossless_usd: float | None = None
    batch_usd: float | None = None
    ways: dict[str, Ways] = field(default_factory=dict)
    """By model, where it is asked for chains and its price is known."""


def forecast(job: Job, found: Estimate, seconds: float | None = None) -> Forecast:
    """Prices and times of an estimate. `seconds`: a guess of how long a call takes, which `in_flight` needs to say
    anything about time."""
    told = Forecast(waves=max(found.waves.values(), default=0))
    measured = _measured(job)
    if measured is not None:
        told.saved_share, told.saved_from = measured
    for name, count in found.models.items():
        model = job.models[name]
        usage = Usage(prompt=count.prompt_tokens, completion=count.completion_tokens, calls=count.calls)
        minutes, why = (None, "") if _batched(model) else shortest(model, usage, seconds)
        told.models[name] = ModelForecast(model.cost(usage), minutes, why)
        if count.questions and (model.cost(usage) or 0) > 0:
            told.ways[name] = _ways(_direct(model), count, told.saved_share)
    told.usd = _sum(one.usd for one in told.models.values())
    known = [one.minutes for one in told.models.values() if one.minutes is not None]
    told.minutes = max(known) if known else None
    if told.usd is not None:
        of = [(_direct(job.models[name]), count) for name, count in found.models.items()]
        told.lossless_usd = _sum(m.cost(_lossless(count, m.max_n, told.saved_share)) for m, count in of)
        told.batch_usd = _sum(
            None if (usd := m.cost(_in_one(count, m.max_n))) is None else usd * _factor(m) for m, count in of
        )
    return told


def _batched(model: Model) -> bool:
    return getattr(model, "mode", "direct") == "batch"


def _direct(model: Model) -> Model:
    """The same model at its standard price."""
    return model.model_copy(update={"mode": "direct"}) if _batched(model) else model


def _factor(model: Model) -> float:
    """What a batched call of the model costs of its standard price."""
    return float(getattr(getattr(model, "batch", None), "factor", FACTOR))


def shortest(model: Model, usage: Usage, seconds: float | None = None) -> tuple[float | None, str]:
    """Minutes that the limits of the job allow at best for so much, and the one that takes longest; None where the
    job sets none. Limits of a model's several endpoints add up; one without a limit knows none."""
    tokens = usage.prompt + usage.completion
    asked: dict[str, float] = {
        "requests_per_minute": usage.calls,
        "tokens_per_minute": tokens,
        "input_tokens_per_minute": usage.prompt,
        "output_tokens_per_minute": usage.completion,
        "requests_per_day": usage.calls,
    }
    if seconds is not None:
        asked["in_flight"] = usage.calls * seconds / 60
    longest, why = None, ""
    lines = [line for line, _ in model.lines()]
    for name, amount in asked.items():
        limits = [getattr(line, name) for line in lines]
        if None in limits:
            continue
        minutes = amount / sum(limits)
        if name == "requests_per_day":  # no pace: the first day's may be used at once
            minutes = max(math.ceil(minutes) - 1, 0) * 24 * 60.0
        if longest is None or minutes > longest:
            longest, why = minutes, name
    return longest, why


def _lossless(count: ModelCount, max_n: int, share: float) -> Usage:
    """What a model is asked for where the rule spares this share of the chains."""
    drawn = count.chain_draws * (1 - share)
    calls = drawn if max_n == 1 else max(ASSUMED_REQUESTS * count.questions, drawn / max_n)
    return _with_chains(count, calls, 1 - share)


def _in_one(count: ModelCount, max_n: int) -> Usage:
    """What a model is asked for where all chains of a question are asked for at once."""
    each = round(count.chain_draws / count.questions) if count.questions else 0
    return _with_chains(count, count.questions * math.ceil(each / max_n), 1.0)


def _with_chains(count: ModelCount, calls: float, share: float) -> Usage:
    """The model's part with so many calls for its chains, and this share of them drawn."""
    prompts = calls * count.chain_prompt_tokens / count.chain_calls if count.chain_calls else 0.0
    return Usage(
        prompt=round(count.prompt_tokens - count.chain_prompt_tokens + prompts),
        completion=round(count.completion_tokens - count.chain_completion_tokens * (1 - share)),
    )


def _ways(model: Model, count: ModelCount, share: float) -> Ways:
    n = round(count.chain_draws / count.questions)
    prompt = round(count.chain_prompt_tokens / count.chain_calls)
    chain = round(count.chain_completion_tokens / count.chain_draws)
    first = n // 2 + 1  # the fewest chains after which a vote can be settled
    rest = max(round(n * (1 - share)) - first, 0)
    windows = [first, rest] if rest else [first]

    def usd(asked: list[int], cache: Cache | None = None) -> float:
        return model.cost(used(asked, prompt, chain, cache)) or 0.0

    return Ways(
        n=n,
        prompt=prompt,
        chain=chain,
        single=usd([1] * n),
        single_cached=usd([1] * n, ANY),
        openai_cached=usd([1] * n, Cache()),
        together=usd([n]),
        windows=usd(windows),
        windows_cached=usd(windows, ANY),
    )


def _measured(job: Job) -> tuple[float, str] | None:
    """The share of chains that the lossless rule spared in the earlier runs that the job reuses."""
    asked = drawn = 0
    names = []
    for folder in job.settings.reuse:
        run = load(Path(folder))
        n, m = _spared_in(run)
        asked, drawn = asked + n, drawn + m
        if n:
            names.append(run.path.name)
    if not asked:
        return None
    return 1 - drawn / asked, f"measured in {', '.join(names)}: {drawn:,} of {asked:,} chains drawn"


def _spared_in(run: Run) -> tuple[int, int]:
    """Chains asked for and drawn, each question's once for each method that voted losslessly."""
    job: Mapping[str, Any] = run.manifest["job"]
    batched = any(table.get("mode") == "batch" for table in job.get("models", {}).values())
    usual = "all" if batched else "lossless"
    lossless = {n for n, table in job.get("methods", {}).items() if table.get("until", usual) == "lossless"}
    asked = drawn = 0
    for row in run.trajectories:
        votes = row["votes"]
        if votes is not None and "n" in votes and row["method"] in lossless:
            asked, drawn = asked + votes["n"], drawn + votes["n_drawn"]
    return asked, drawn


def _sum(amounts: Any) -> float | None:
    found = list(amounts)
    return None if None in found else sum(found)


# -- for people --------------------------------------------------------------------------------------------------
def told(found: Estimate) -> list[str]:
    """An estimate's forecast, a line each."""
    of = found.forecast
    if of is None:
        return []
    lines = ["price: not known" if of.usd is None else f"price: at most ${_usd(of.usd)} by list"]
    limits = {name: one for name, one in of.models.items() if one.minutes is not None}
    for name, one in limits.items():
        lines.append(f"time: {name} takes at least {_time(one.minutes or 0)} for that, by {one.bound_by}")
    if not limits:
        lines.append("time: no limit is set that says (requests or tokens a minute)")
    longest = max(found.waves, key=lambda name: found.waves[name], default="")
    if of.waves:
        waves = "1 wave" if of.waves == 1 else f"{of.waves} waves, one after the other ({longest})"
        lines.append(f"in batch mode: {waves}")
    if any(count.questions for count in found.models.values()) and of.usd:
        lines.append(
            f"lossless, direct: about ${_usd(of.lossless_usd or 0)}; all chains in a batch, usually at half price: "
            f"${_usd(of.batch_usd or 0)}"
        )
        lines.append(f"  ({100 * of.saved_share:.0f} % of the chains spared: {of.saved_from})")
    for name, way in of.ways.items():
        lines.append(
            f"{name}, {way.n} chains of a question ({way.prompt:,} prompt tokens): {way.n} single calls "
            f"${_usd(way.single)}, from a cache ${_usd(way.single_cached)}; one call ${_usd(way.together)}; "
            f"lossless windows ${_usd(way.windows)}"
        )
    return lines


def _usd(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 10 else f"{amount:.3g}"


def _time(minutes: float) -> str:
    units: list[tuple[float, str, Callable[[float], float]]] = [
        (1.0, "s", lambda m: m * 60), (90.0, "min", lambda m: m), (48 * 60.0, "h", lambda m: m / 60)
    ]  # fmt: skip
    for most, unit, scaled in units:
        if minutes < most:
            return f"{scaled(minutes):.3g} {unit}"
    return f"{minutes / 60 / 24:.3g} days"
