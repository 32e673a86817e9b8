"""When enough chains are drawn: rules that tell how many more a vote needs.

A rule looks at the votes of a complete prefix of the draw order and at how many draws are left, and answers with
the smallest number of further draws after which it could stop; 0 stops. So what it asks for comes in few requests
of many choices each, and what was left out is never more than it could have been one by one.

Measured on 250 questions with 40 chains each (`tests/published/test_chains.py` prints it): see the README.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import TypeAlias

from runner import modules
from runner.errors import EpisodeFailed
from runner.voting import Votes

Rule: TypeAlias = Callable[[Votes, int], int]
"""From the votes so far and the number of draws left to how many more are to be drawn now; 0 stops."""

WORDS = "'lossless', 'all', 'beta(0.95)', 'window(5)' or 'path/to/file.py:function'"


@dataclass(frozen=True, slots=True)
class Stopping:
    """A rule and the word for it, which rows carry as `stopped_by`."""

    word: str
    rule: Rule

    def more(self, votes: Votes, left: int) -> int:
        """How many of the `left` draws to ask for now. Raises EpisodeFailed where the rule gives no number."""
        if left <= 0:
            return 0
        more = self.rule(votes, left)
        if not isinstance(more, int):
            raise EpisodeFailed(
                f"until = {self.word!r} gave {more!r:.60}; it is to give the number of further draws, 0 to stop"
            )
        return min(max(int(more), 0), left)


def parse(word: str, *, halves: bool = False) -> Stopping:
    """The rule that a job's `until` names. `halves`: whether the leader has half of all chains matters, too.

    Raises ValueError that names what is possible.
    """
    name, _, argument = word.strip().partition("(")
    if name in ("all", "lossless") and not argument:
        return Stopping(name, everything if name == "all" else lossless(halves=halves))
    if match := re.fullmatch(r"(?:beta\(\s*(\d*\.?\d+)|window\(\s*(\d+))\s*\)", word.strip()):
        try:
            if match[1]:
                return Stopping(word.strip(), beta(float(match[1]), halves=halves))
            return Stopping(word.strip(), window(int(match[2]), halves=halves))
        except ValueError as error:
            raise ValueError(f"until = {word!r}: {error}") from None
    if ":" in word:
        return Stopping(word, _named(word))
    raise ValueError(f"until = {word!r} is no rule; write {WORDS}")


def _named(word: str) -> Rule:
    place, _, name = word.rpartition(":")
    try:
        found = getattr(modules.at(place), name)
    except FileNotFoundError:
        raise ValueError(f"until = {word!r}: there is no file {place}") from None
    except AttributeError as error:
        if error.name != name:
            raise ValueError(f"until = {word!r} could not be loaded: {error}") from error
        raise ValueError(f"until = {word!r}: {place} has no {name}") from None
    except Exception as error:  # whatever a module does when it is imported
        raise ValueError(f"until = {word!r} could not be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"until = {word!r} is no function")
    return found  # type: ignore[no-any-return]


# -- the rules -------------------------------------------------------------------------------------------------
def everything(votes: Votes, left: int) -> int:
    """Draw them all."""
    return left


def lossless(*, halves: bool = False) -> Rule:
    """Stop when nothing that the remaining draws could say changes the verdict: the leading answer and, with
    `halves`, whether it has half of all chains.

    No rival, seen or unseen, can pass the leader any more, nor tie with it and have been drawn earlier. Invalid
    chains use up draws and count among all chains. Weights are at most 1.
    """

    def rule(votes: Votes, left: int) -> int:
        state = _State.of(votes, left)
        return 0 if state.settled(halves) else state.soonest(lambda after: after.settled(halves), halves)

    return rule


def beta(confidence: float, *, halves: bool = False) -> Rule:
    """Adaptive-Consistency (Aggarwal et al. 2023): stop when the leader is ahead of the runner-up for good with
    this probability, under a uniform prior. With `halves` the same is asked of the leader's share of all chains
    and one half. Also stops where nothing can change any more.
    """
    if not 0.5 < confidence < 1:
        raise ValueError("a confidence lies between 0.5 and 1")

    def sure(state: _State) -> bool:
        if state.settled(halves):
            return True
        leader = state.leader
        if leader is None:
            return False
        first = state.counts[leader]
        second = max((count for vote, count in state.counts.items() if vote != leader), default=0)
        if _ahead(first, second) < confidence:
            return False
        share = _ahead(first, state.drawn - first)
        return not halves or share >= confidence or share <= 1 - confidence

    def rule(votes: Votes, left: int) -> int:
        state = _State.of(votes, left)
        return 0 if sure(state) else state.soonest(sure, halves)

    return rule


def window(size: int, *, halves: bool = False) -> Rule:
    """Early-Stopping Self-Consistency (Li et al. 2024): draw windows of `size`; stop when all of one agree. A
    window with an invalid chain does not. Also stops where nothing can change any more."""
    if size < 1:
        raise ValueError("a window holds at least 1 chain")

    def rule(votes: Votes, left: int) -> int:
        drawn = len(votes.chains)
        state = _State.of(votes, left)
        last = {chain.vote for chain in votes.chains[drawn - size :]}
        whole = drawn > 0 and drawn % size == 0
        if state.settled(halves) or (whole and len(last) == 1 and None not in last):
            return 0
        return state.soonest(lambda after: after.settled(halves), halves, size - drawn % size)

    return rule


@cache
def _ahead(a: int, b: int) -> float:
    """P(p > 1/2) for p ~ Beta(a + 1, b + 1): that an answer with a votes against b is the more probable."""
    n = a + b + 1
    return float(sum(comb(n, k) for k in range(a + 1)) / 2**n)


# -- what a rule looks at ----------------------------------------------------------------------------------------
UNSEEN = ""
"""Stands for an answer that no chain has given yet. (Its place in `order` is last.)"""


@dataclass(frozen=True, slots=True)
class _State:
    """Votes so far: `scores` decide who leads (equal to the counts where chains have no weights), the order of
    first draws decides ties."""

    counts: Mapping[str, int]
    scores: Mapping[str, float]
    order: Mapping[str, int]
    drawn: int
    left: int

    @classmethod
    def of(cls, votes: Votes, left: int) -> _State:
        named = {f"={vote}": count for vote, count in votes.tally.items()}  # no answer is UNSEEN
        scores = named if votes.weights is None else {f"={v}": s for v, s in votes.weights.items()}
        order = {vote: k for k, vote in enumerate(named)}
        return cls(named, scores, order, len(votes.chains), left)

    @property
    def leader(self) -> str | None:
        return max(self.scores, key=lambda vote: (self.scores[vote], -self.order[vote]), default=None)

    def settled(self, halves: bool) -> bool:
        """Whether no continuation changes the leader or, with `halves`, whether it has half of all chains."""
        if not self.left:
            return True
        leader = self.leader
        if leader is None or self.left > self.scores[leader]:
            return False
        for vote, score in self.scores.items():
            if vote != leader:
                ahead = self.scores[leader] - score - self.left
                if ahead < 0 or (ahead == 0 and self.order[vote] < self.order[leader]):
                    return False
        half, now = (self.drawn + self.left) / 2, self.counts[leader]
        return not halves or now >= half or now + self.left < half

    def soonest(self, stops: Callable[[_State], bool], halves: bool, most: int | None = None) -> int:
        """The smallest number of further draws after which `stops` could hold, `most` at most. It does soonest if
        all agree, or, where a half matters, if so many are invalid that nobody can reach it."""
        most = self.left if most is None else min(most, self.left)
        for k in range(1, most):
            for vote in (*self.counts, UNSEEN):
                for agreeing in range(k, -1, -1) if halves else (k,):
                    if stops(self._after(vote, agreeing, k)):
                        return k
        return most

    def _after(self, vote: str, agreeing: int, k: int) -> _State:
        """k draws later, so many of which were for one answer and the others invalid."""
        counts, scores, order = dict(self.counts), dict(self.scores), dict(self.order)
        if agreeing:
            counts[vote] = counts.get(vote, 0) + agreeing
            scores[vote] = scores.get(vote, 0) + agreeing
            order.setdefault(vote, len(order))
        return _State(counts, scores, order, self.drawn + k, self.left - k)
