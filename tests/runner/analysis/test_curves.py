"""Chances to win a vote with fewer chains, against going through all orders of the draws with the vote itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.analysis.curves import resampled, win_chances
from runner.voting import Chain, count

LETTERS = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=6)


def brute(letters):
    """(answer, k) -> chance to win, and to win with at least k/2; over all orders, by the project's own vote."""
    wins, majorities = defaultdict(float), defaultdict(float)
    orders = list(permutations(letters))
    for order in orders:
        for k in range(1, len(order) + 1):
            votes = count([Chain(i, "", vote, vote) for i, vote in enumerate(order[:k])])
            if votes.leader is not None:
                wins[votes.leader, k] += 1 / len(orders)
                if votes.majority >= k / 2:
                    majorities[votes.leader, k] += 1 / len(orders)
    return wins, majorities


@given(LETTERS)
@settings(max_examples=60, deadline=None)
def test_chances_are_those_of_all_orders_of_the_draws(letters):
    wins, majorities = brute(letters)
    counts = Counter(letter for letter in letters if letter is not None)
    chances = win_chances(list(counts.values()), letters.count(None))
    for letter, own in counts.items():
        for k in range(1, len(letters) + 1):
            win, majority = chances[own][k - 1]
            assert win == pytest.approx(wins[letter, k]), (letter, k)
            assert majority == pytest.approx(majorities[letter, k]), (letter, k)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_some_answer_wins_unless_no_chain_of_the_subset_has_one(counts, invalid):
    chances = win_chances(counts, invalid)
    total = sum(counts) + invalid
    for k in range(1, total + 1):
        some = sum(chances[own][k - 1][0] for own in counts)
        none = 1.0
        for j in range(k):
            none *= max(invalid - j, 0) / (total - j)
        assert some == pytest.approx(1 - none)
        assert all(chances[own][k - 1][1] <= chances[own][k - 1][0] + 1e-12 for own in counts)


def test_two_chains_are_no_better_than_one_and_twenty_one_different_answers_are_no_burden():
    """maj@2 = maj@1: a second, different chain wins as often as it loses."""
    chances = win_chances([14, 7], 0)
    assert chances[14][0][0] == pytest.approx(14 / 21) == pytest.approx(chances[14][1][0])
    assert chances[14][2][0] > 14 / 21 and chances[14][20] == (1.0, 1.0)
    even = win_chances([1] * 21, 0)
    assert even[1][20][0] == pytest.approx(1 / 21) and even[1][20][1] == 0.0


def test_weighted_votes_are_resampled_and_come_near_the_mean_over_all_orders():
    """Two weak chains for a wrong answer, one strong for the right one, one invalid."""
    chains = [("wrong", 0.3, 0.0), ("wrong", 0.3, 0.0), ("right", 0.9, 1.0), (None, 1.0, 0.0)]
    found = resampled(chains, "seed")
    assert found == resampled(chains, "seed") != resampled(chains, "another")
    wins, majorities, open_ = zip(*found, strict=True)
    exact = []
    for k in range(1, 5):
        orders = list(permutations(chains))
        exact.append(sum(any(vote == "right" for vote, _, _ in order[:k]) for order in orders) / len(orders))
    assert wins == pytest.approx(exact, abs=0.08) and wins[3] == 1.0
    # The right answer leads by weight with one chain of four, which is no half of them.
    assert majorities[3] == 0.0 and open_[3] == 1.0
    assert majorities[0] == wins[0]
