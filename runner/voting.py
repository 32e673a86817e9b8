"""Majority votes over chains (self-consistency, Wang et al. 2022; ReAct paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Chain:
    """One sampled chain: its draw index, whole text, the answer taken from it, and the vote that counts as.

    `vote` is the canonical form of the answer, None for an invalid chain, which is counted and never votes.
    `weight`, above 0 and at most 1, is how much the vote counts; None: all chains count alike.
    """

    draw: int
    text: str
    answer: str | None
    vote: str | None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Votes:
    """The outcome of a vote. `winner` is the leader's answer as its earliest chain wrote it."""

    chains: tuple[Chain, ...]
    tally: dict[str, int]
    winner: str | None
    leader: str | None
    tied: bool
    n: int = 0
    """Chains that the method asks for if nothing stops it earlier."""
    stopped_by: str = "all"
    """The rule that left chains out; `all` where all n were drawn."""
    weights: dict[str, float] | None = None
    """Sum of weights by vote, where chains have weights: those decide who leads."""

    @property
    def majority(self) -> int:
        """How many chains gave the leading answer."""
        return 0 if self.leader is None else self.tally[self.leader]

    @property
    def agreed(self) -> bool:
        """Whether the leading answer has at least half of the chains, invalid ones counted: CoT-SC -> ReAct keeps
        it only then (ReAct paper, 3.2, B). Where a rule left chains out, half of those drawn."""
        return bool(self.chains) and self.majority >= len(self.chains) / 2

    @property
    def invalid(self) -> int:
        return sum(chain.vote is None for chain in self.chains)

    def as_dict(self) -> dict[str, Any]:
        """The `votes` field of a trajectory."""
        return {
            "n": self.n,
            "n_drawn": len(self.chains),
            "stopped_by": self.stopped_by,
            "invalid": self.invalid,
            "tied": self.tied,
            "tally": self.tally,
            "weights": self.weights,
            "chains": [_as_dict(chain) for chain in self.chains],
        }


def _as_dict(chain: Chain) -> dict[str, Any]:
    found = {"draw": chain.draw, "text": chain.text, "answer": chain.answer, "vote": chain.vote}
    return found if chain.weight is None else {**found, "weight": chain.weight}


def count(chains: Sequence[Chain], n: int = 0, stopped_by: str = "all") -> Votes:
    """The majority vote, of `n` chains that were asked for (0: of these). Ties go to the leader whose first
    draw is earliest, whatever order the chains are given in; invalid chains don't vote. Where chains have
    weights, the answer with the largest sum of them leads."""
    ordered = sorted(chains, key=lambda chain: chain.draw)
    tally: dict[str, int] = {}
    weights: dict[str, float] | None = {} if any(c.weight is not None for c in ordered) else None
    for chain in ordered:
        if chain.vote is not None:
            tally[chain.vote] = tally.get(chain.vote, 0) + 1
            if weights is not None:
                weights[chain.vote] = weights.get(chain.vote, 0.0) + (
                    1.0 if chain.weight is None else chain.weight
                )
    scores: Mapping[str, float] = tally if weights is None else weights
    most = max(scores.values(), default=0)
    leaders = [vote for vote, votes in scores.items() if votes == most]
    leader = leaders[0] if leaders else None
    winner = next((c.answer for c in ordered if leader is not None and c.vote == leader), None)
    return Votes(
        tuple(ordered), tally, winner, leader, len(leaders) > 1, n or len(ordered), stopped_by, weights
    )
