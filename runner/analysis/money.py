"""Where the money of a run went: what was paid, what its episodes would have cost each alone, what was spared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.compact import Numbers


def right_answers(totals: Mapping[str, float]) -> float:
    """The deciding one of the sums of each score: of exact match where there is one, else of a task's reward."""
    name = next((name for name in ("em", "reward") if name in totals), next(iter(totals), ""))
    return totals.get(name, 0.0)


def chain_tokens(row: Mapping[str, Any]) -> float:
    """Generated tokens of a row's chains. Where the episode also acted, its tokens are shared out by length of
    text."""
    chains = sum(len(chain["text"]) for chain in row["votes"]["chains"])
    acted = sum(len(step[part] or "") for step in row["steps"] for part in ("thought", "action"))
    whole = float(row["usage"]["completion"])
    return whole * chains / (chains + acted) if acted and chains else whole


@dataclass
class Chains:
    """Chains asked for and drawn, of one cell or of all methods that share them. The tokens spared are of
    generated text, at the mean of the chains that were drawn."""

    n: int = 0
    drawn: int = 0
    stopped_by: Counter[str] = field(default_factory=Counter)
    tokens: float = 0.0
    counted: int = 0
    """Draws whose tokens are in `tokens`."""

    def add(self, row: Mapping[str, Any]) -> None:
        votes = row["votes"]
        if votes is None:
            return
        self.n += votes.get("n", votes["n_drawn"])
        self.drawn += votes["n_drawn"]
        self.counted += votes["n_drawn"]
        self.stopped_by[votes["stopped_by"]] += 1
        self.tokens += chain_tokens(row)

    @property
    def saved(self) -> int:
        return self.n - self.drawn

    def as_dict(self) -> dict[str, Any] | None:
        """None where no vote was held."""
        if not self.n:
            return None
        mean = self.tokens / self.counted if self.counted else 0.0
        return {
            "n": self.n,
            "drawn": self.drawn,
            "saved": self.saved,
            "tokens_saved": round(mean * self.saved),
            "stopped_by": dict(self.stopped_by),
        }


class Pooled:
    """The chains of a run, each counted once however many methods voted on it: of a question as many were asked
    for, and drawn, as the method that went furthest did."""

    def __init__(self) -> None:
        self._questions = Numbers()
        self._sums = Chains()

    def add(self, row: Mapping[str, Any]) -> None:
        votes = row["votes"]
        if votes is None:
            return
        key = repr((row["env"], row["task_id"], row["model"], row["trial"]))
        n, drawn = votes.get("n", votes["n_drawn"]), votes["n_drawn"]
        before = self._questions.put(key, n << 32 | drawn)
        if before is not None:
            n_before, drawn_before = before >> 32, before & 0xFFFFFFFF
            n, drawn = max(n, n_before), max(drawn, drawn_before)
            self._questions.put(key, n << 32 | drawn)
            n, drawn = n - n_before, drawn - drawn_before
        self._sums.n += n
        self._sums.drawn += drawn
        self._sums.tokens += chain_tokens(row)
        self._sums.counted += votes["n_drawn"]

    def as_dict(self) -> dict[str, Any] | None:
        found = self._sums.as_dict()
        if found is not None:
            del found["stopped_by"]
        return found


def money(
    cells: list[dict[str, Any]], chains: dict[str, Any] | None, totals: Mapping[str, Any]
) -> dict[str, Any]:
    """`list_usd` is what the episodes would cost each alone, `paid_usd` what all processes of the run paid; the
    tokens between the two came from the ledger (less those of chains that were bought for a curve and that no episode
    used). None where a price, or the run's totals, are not known."""
    costs = [cell["cost_usd"] for cell in cells]
    used = {kind: sum(cell["tokens"][kind] for cell in cells) for kind in ("prompt", "completion")}
    paid = totals.get("paid", {})
    return {
        "list_usd": None if None in costs else round(sum(costs), 6),
        "paid_usd": totals.get("paid_usd") if not totals.get("replies_without_a_price") else None,
        "used_tokens": sum(used.values()),
        "paid_tokens": paid.get("prompt", 0) + paid.get("completion", 0),
        "ledger_tokens": sum(max(used[kind] - paid.get(kind, 0), 0) for kind in used) if paid else None,
        "provider_cache_tokens": paid.get("cached", 0),
        "taken_draws": totals.get("taken_from_earlier_runs", 0),
        "chains": chains,
    }


def told(found: Mapping[str, Any]) -> list[str]:
    """The same for people, a line each; only what there is something to say of."""
    lines = []
    if chains := found["chains"]:
        share = 100 * chains["saved"] / chains["n"]
        if chains["saved"]:
            lines.append(
                f"chains: {chains['drawn']:,} of {chains['n']:,} drawn; stopping early saved {chains['saved']:,} "
                f"({share:.0f} %), about {chains['tokens_saved']:,} generated tokens"
            )
    tokens = []
    if found["ledger_tokens"]:
        tokens.append(f"{found['ledger_tokens']:,} served from the ledger")
    if found["provider_cache_tokens"]:
        tokens.append(f"{found['provider_cache_tokens']:,} read from the provider's cache")
    if tokens:
        lines.append(
            f"tokens: {found['used_tokens']:,} used, {found['paid_tokens']:,} paid for; " + ", ".join(tokens)
        )
    if found["taken_draws"]:
        lines.append(f"draws taken from earlier runs: {found['taken_draws']:,}")
    listed, paid = found["list_usd"], found["paid_usd"]
    if listed and paid is not None:
        lines.append(f"USD: {listed:,.4f} by list for all episodes, {paid:,.4f} paid")
    return lines
