"""Majority votes over chains (self-consistency, Wang et al. 2022; ReAct paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Chain:
    """One sampled chain: its draw index, whole text, the answer taken from it, and the vote that counts as.

    `vote` is the canonical form of the answer, None for an invalid chain, which is counted and never votes.
    """

    draw: int
    text: str
    answer: str | None
    vote: str | None


@dataclass(frozen=True, slots=True)
class Votes:
    """The outcome of a vote. `winner` is the leader's answer as its earliest chain wrote it."""

    chains: tuple[Chain, ...]
    tally: dict[str, int]
    winner: str | None
    leader: str | None
    tied: bool
    stopped_by: str = "all"

    @property
    def majority(self) -> int:
        """How many chains gave the leading answer."""
        return 0 if self.leader is None else self.tally[self.leader]

    @property
    def invalid(self) -> int:
        return sum(chain.vote is None for chain in self.chains)

    def as_dict(self) -> dict[str, Any]:
        """The `votes` field of a trajectory."""
        return {
            "n_drawn": len(self.chains),
            "stopped_by": self.stopped_by,
            "invalid": self.invalid,
            "tied": self.tied,
            "tally": self.tally,
            "chains": [
                {"draw": c.draw, "text": c.text, "answer": c.answer, "vote": c.vote} for c in self.chains
            ],
        }


def count(chains: Sequence[Chain]) -> Votes:
    """The majority vote. Ties go to the leader whose first draw is earliest, whatever order the chains are
    given in; invalid chains don't vote."""
    ordered = sorted(chains, key=lambda chain: chain.draw)
    tally: dict[str, int] = {}
    for chain in ordered:
        if chain.vote is not None:
            tally[chain.vote] = tally.get(chain.vote, 0) + 1
    most = max(tally.values(), default=0)
    leaders = [vote for vote, votes in tally.items() if votes == most]
    leader = leaders[0] if leaders else None
    winner = next((c.answer for c in ordered if leader is not None and c.vote == leader), None)
    return Votes(tuple(ordered), tally, winner, leader, tied=len(leaders) > 1)
