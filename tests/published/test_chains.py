"""Stopping rules on real chains: the verdicts of all 21 for a share of the draws.

OVERNIGHT_CHAINS names a file: JSON lines (also .gz) of {"question", "answer", "generated_answer": [text, ...]} with
at least 21 chains each. OVERNIGHT_SHUFFLES says in how many orders the chains are drawn (20 where a file is named,
else 4); `python -m tests.full chains` takes 20 and keeps the figures.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from envs.data import find
from runner import library, loop
from runner.job import Job

CHAINS = "chains/last_letters_gpt35_40chains_0_249.jsonl.gz"
RULES = ("all", "lossless", "beta(0.95)", "window(5)")


@dataclass(frozen=True)
class Figures:
    """What a rule did, over all questions and orders of their chains."""

    same_verdict: float
    """Share of votes with the verdict of all 21."""
    saved: float
    """Share of the 21 draws that were not made."""
    requests: float
    """Per question."""
    right: float
    """Exact match."""


@pytest.fixture(scope="module")
def chains(published: Any) -> Path:
    return Path(published(CHAINS, "OVERNIGHT_CHAINS"))


def votes(chains: Path, until: str, shuffles: int, outputs: Path) -> tuple[dict[str, Any], float]:
    """By episode, what its vote came to; and the model calls a question."""
    settings = {
        "name": "chains",
        "trials": shuffles,
        "envs": {
            "letters": {
                "world": "qa",
                "data": str(chains),
                "answer": "text",
                "fields": {"input": "question", "target": "answer"},
            }
        },
        "methods": {"cot_sc": {"samples": 21, "until": until}},
        "models": {"recorded": {"provider": "replay", "transcript": str(chains), "shuffle": 1}},
    }
    run = loop.run(lambda: library.run(Job.parse(settings), outputs=outputs))
    rows = {
        row["id"]: (row["answer"], row["votes"]["n_drawn"], row["scores"]["em"]) for row in run.trajectories
    }
    return rows, run.manifest["totals"]["calls"] / len(rows)


def figures(chains: Path, shuffles: int) -> dict[str, Figures]:
    found, whole = {}, {}
    for rule in RULES:
        with tempfile.TemporaryDirectory() as outputs:
            rows, requests = votes(chains, rule, shuffles, Path(outputs))
        whole = whole or rows
        assert rows.keys() == whole.keys()
        found[rule] = Figures(
            same_verdict=sum(rows[id_][0] == whole[id_][0] for id_ in rows) / len(rows),
            saved=1 - sum(drawn for _, drawn, _ in rows.values()) / (21 * len(rows)),
            requests=requests,
            right=sum(right for *_, right in rows.values()) / len(rows),
        )
    return found


def table(found: dict[str, Figures]) -> str:
    lines = [f"{'until':12} {'verdict of all':>15} {'draws saved':>12} {'requests':>9} {'right':>7}"]
    lines += [
        f"{rule:12} {f.same_verdict:15.2%} {f.saved:12.1%} {f.requests:9.2f} {f.right:7.2%}"
        for rule, f in found.items()
    ]
    return "\n".join(lines)


def test_rules_give_the_verdict_of_all_chains_for_a_share_of_the_draws(chains: Path) -> None:
    usual = "20" if os.environ.get("OVERNIGHT_CHAINS") else "4"
    found = figures(chains, int(os.environ.get("OVERNIGHT_SHUFFLES") or usual))
    print(f"\n{table(found)}")
    lossless, beta, window = found["lossless"], found["beta(0.95)"], found["window(5)"]
    assert found["all"].saved == 0
    assert lossless.same_verdict == 1.0
    assert lossless.saved >= 0.40
    assert lossless.requests <= 1.6
    assert beta.same_verdict >= 0.995
    assert beta.saved >= 0.70
    assert window.same_verdict >= 0.99
    assert window.saved >= 0.60


def full() -> dict[str, Any]:
    """For `tests.full`: twenty orders of the chains."""
    found = figures(Path(os.environ.get("OVERNIGHT_CHAINS") or find(CHAINS)), 20)
    print(table(found))
    return {
        rule: {name: round(value, 5) for name, value in asdict(each).items()} for rule, each in found.items()
    }
