"""Verdicts of fewer chains than were drawn, exactly: the mean over all subsets of the draws, in all orders.

A curve of accuracy against the number of chains k could take the first k draws, which wastes the others, or
resample subsets, which adds noise of its own. Neither is needed: under a random k-subset in random order only the
number of chains that each answer has in it matters, and of leaders with equally many each is equally likely to
have been drawn first. So the chance that an answer leads is a sum over hypergeometric counts, taken here by
multiplying one polynomial per answer: no enumeration, no seed, for any number of different answers.

Where chains have weights, what leads is no matter of counts, and `resampled` takes the mean over random orders.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from math import comb
from typing import TypeAlias

Counts: TypeAlias = tuple[int, ...]
"""How many chains gave each answer, largest first."""
Chances: TypeAlias = tuple[tuple[float, float], ...]
"""At [k - 1], for k chains: the chance that an answer wins the vote, and that it wins with at least k/2 of them."""


Point: TypeAlias = tuple[float, float, float]
"""Of a vote with some number of chains: the winner's expected score; the same where it has at least half of them,
else 0; the chance that none has."""

ORDERS = 400
"""Random orders of the chains, where a mean is taken over some."""


def resampled(chains: Sequence[tuple[str | None, float, float]], seed: str) -> list[Point]:
    """For k = 1..n weighted chains (vote, weight, score): means over `ORDERS` random orders, of each its first k.

    The answer with the largest sum of weights wins, of equal ones the one that was drawn first; half of the chains
    is a matter of their number, as in the vote itself. Scores are those of the winner's earliest chain.
    """
    chance = random.Random(seed)
    order = list(chains)
    sums = [[0.0, 0.0, 0.0] for _ in order]
    for _ in range(ORDERS):
        chance.shuffle(order)
        weights: dict[str, float] = {}
        counts: Counter[str] = Counter()
        scores: dict[str, float] = {}
        for k, (vote, weight, score) in enumerate(order, 1):
            if vote is not None:
                weights[vote] = weights.get(vote, 0.0) + weight
                counts[vote] += 1
                scores.setdefault(vote, score)
            point = sums[k - 1]
            leader = max(weights, key=weights.__getitem__, default=None)  # the first of equal ones
            if leader is not None:
                point[0] += scores[leader]
            if leader is not None and 2 * counts[leader] >= k:
                point[1] += scores[leader]
            else:
                point[2] += 1
    return [(a / ORDERS, b / ORDERS, c / ORDERS) for a, b, c in sums]


def win_chances(counts: Sequence[int], invalid: int) -> Mapping[int, Chances]:
    """By its count: the chances of an answer among answers of these counts and `invalid` chains without a vote.

    Ties go to the answer whose first draw is earliest; k/2 is of all k chains, those without a vote among them.
    """
    return _win_chances(tuple(sorted(counts, reverse=True)), invalid)


@lru_cache(maxsize=1 << 14)
def _win_chances(counts: Counts, invalid: int) -> Mapping[int, Chances]:
    return {own: _chances(own, _without(counts, own), invalid) for own in dict.fromkeys(counts)}


def _without(counts: Counts, own: int) -> Counts:
    at = counts.index(own)
    return counts[:at] + counts[at + 1 :]


def _chances(own: int, others: Counts, invalid: int) -> Chances:
    total = own + sum(others) + invalid
    wins, majorities = [0.0] * (total + 1), [0.0] * (total + 1)
    blanks = [comb(invalid, j) for j in range(invalid + 1)]
    for x in range(1, own + 1):  # the answer's chains in the subset
        ways = comb(own, x)
        # by_ties[t][d]: ways in which the others have d chains, none more than x, t of them exactly x
        by_ties: list[list[int]] = [[1]]
        for other in others:
            below = [comb(other, j) for j in range(min(x, other + 1))]
            grown = [_times(poly, below) for poly in by_ties]
            if other >= x:
                level = [0] * x + [comb(other, x)]
                none: list[int] = []
                tied = [none, *(_times(poly, level) for poly in by_ties)]
                grown = [_plus(a, b) for a, b in zip_longest(grown, tied, fillvalue=none)]
            by_ties = grown
        for ties, poly in enumerate(by_ties):
            for d, count in enumerate(_times(poly, blanks)):
                k = x + d
                chance = ways * count / (comb(total, k) * (1 + ties))
                wins[k] += chance
                if 2 * x >= k:
                    majorities[k] += chance
    return tuple(zip(wins[1:], majorities[1:], strict=True))


def _times(a: list[int], b: list[int]) -> list[int]:
    if not a or not b:
        return []
    product = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        if x:
            for j, y in enumerate(b):
                product[i + j] += x * y
    return product


def _plus(a: list[int], b: list[int]) -> list[int]:
    return [x + y for x, y in zip_longest(a, b, fillvalue=0)]
