"""Stopping rules against brute force: never while a continuation changes the verdict, always once none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import comb
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.stopping import Stopping, _State, beta, lossless, parse, window
from runner.voting import Chain, Votes, count

ANSWERS = ("a", "b", "c", None)
Sequence_ = tuple[str | None, ...]


def votes(said: Sequence[str | None], n: int = 0, weights: Sequence[float] | None = None) -> Votes:
    chains = [
        Chain(i, f"text {i}", vote, vote, None if weights is None else weights[i])
        for i, vote in enumerate(said)
    ]
    return count(chains, n)


@cache
def verdict(said: Sequence_, halves: bool) -> tuple[str | None, bool]:
    """What all draws say, without the code under test: the leader (ties to the earliest first draw) and, where
    it matters, whether it has half of all."""
    valid = [vote for vote in said if vote is not None]
    leader = max(valid, key=lambda vote: (valid.count(vote), -valid.index(vote)), default=None)
    return leader, halves and valid.count(leader or "") >= len(said) / 2


@cache
def verdicts(prefix: Sequence_, n: int, halves: bool) -> frozenset[tuple[str | None, bool]]:
    """All verdicts that continuations of a prefix lead to; `d` and `e` are answers that nobody gave so far."""
    if len(prefix) == n:
        return frozenset([verdict(prefix, halves)])
    return frozenset().union(*(verdicts((*prefix, vote), n, halves) for vote in (*ANSWERS, "d")))


def prefixes(n: int) -> Iterator[Sequence_]:
    for k in range(n + 1):
        yield from product(ANSWERS, repeat=k)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
def test_lossless_stops_exactly_where_no_continuation_changes_the_verdict(n: int, halves: bool) -> None:
    """All sequences of up to 7 draws over three answers and invalid, whatever may follow."""
    rule = lossless(halves=halves)
    for prefix in prefixes(min(n, 6)):
        decided = len(verdicts(prefix, n, halves)) == 1
        assert (rule(votes(prefix, n), n - len(prefix)) == 0) == decided, prefix


@pytest.mark.parametrize("halves", [False, True])
def test_a_lossless_window_is_the_smallest_after_which_it_could_stop(halves: bool) -> None:
    n, rule = 6, lossless(halves=halves)

    @cache
    def soonest(prefix: Sequence_) -> int:
        if len(verdicts(prefix, n, halves)) == 1:
            return 0
        return 1 + min(soonest((*prefix, vote)) for vote in (*ANSWERS, "d"))

    for prefix in prefixes(5):
        assert rule(votes(prefix, n), n - len(prefix)) == soonest(prefix), prefix


@given(
    st.lists(st.sampled_from(ANSWERS), max_size=21),
    st.integers(0, 21),
    st.booleans(),
    st.sampled_from(["lossless", "beta(0.95)", "window(5)"]),
)
def test_asking_as_the_rules_say_comes_to_an_end_and_lossless_to_the_verdict_of_all(
    said: list[str | None], more: int, halves: bool, word: str
) -> None:
    n = len(said)
    stopping = parse(word, halves=halves)
    drawn, requests = 0, 0
    while asked := stopping.more(votes(said[:drawn], n), n - drawn):
        drawn, requests = drawn + asked, requests + 1
        assert drawn <= n and requests <= n
    if word == "lossless":
        partial, whole = votes(said[:drawn], n), votes(said, n)
        assert partial.winner == whole.winner
        assert not halves or partial.agreed == whole.agreed or n == 0


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.sampled_from([0.25, 0.5, 1.0])), max_size=5))
def test_weighted_votes_stop_only_where_chains_of_any_weight_change_nothing(
    said: list[tuple[str | None, float]],
) -> None:
    n, rule = 6, lossless()
    more = [(vote, weight) for vote in (*ANSWERS, "d") for weight in (0.25, 1.0)]
    known, weights = [vote for vote, _ in said], [weight for _, weight in said]
    left = n - len(said)
    stops = rule(votes(known, n, weights), left) == 0 if said else False
    leaders = {
        votes([*known, *(v for v, _ in rest)], n, [*weights, *(w for _, w in rest)]).leader
        for rest in ([one] * left for one in more)  # the extremes: all that follow say one thing
    }
    if stops:
        assert len(leaders) == 1
    elif said:
        assert len(leaders) > 1 or not left


def test_the_first_window_of_21_is_11_and_one_more_after_a_dissenter() -> None:
    rule = lossless()
    assert rule(votes([], 21), 21) == 11
    assert rule(votes(["a"] * 11, 21), 10) == 0
    assert rule(votes(["b", *["a"] * 10], 21), 10) == 1  # 11 a against b, which was drawn first
    assert rule(votes([None] * 11, 21), 10) == 5


def test_half_of_all_chains_is_decided_by_who_cannot_reach_it_any_more() -> None:
    said = ["a", "b", "a", "c", "a", "d", "e", "f", "g", "h", "a", None, "i", "j", "k", "l"]
    assert lossless(halves=False)(votes(said, 21), 5) > 0
    assert lossless(halves=True)(votes(["a"] * 4, 7), 3) == 0
    assert lossless(halves=True)(votes(["a"] * 3, 6), 3) == 0
    assert lossless(halves=True)(votes(["a"] * 3, 7), 4) == 1
    assert not votes(["a", "b", None], 3).agreed and votes(["a", "b"], 2).agreed


@pytest.mark.parametrize("a, b", [(4, 0), (6, 1), (8, 2), (9, 3), (11, 4), (12, 5), (14, 6)])
def test_beta_stops_where_the_paper_does(a: int, b: int) -> None:
    """The published thresholds of confidence 0.95; the closed form is checked against the integral."""
    rule, many = beta(0.95), 1000
    assert rule(votes(["a"] * a + ["b"] * b), many) == 0
    assert rule(votes(["a"] * (a - 1) + ["b"] * b), many) == 1
    density = [(k / 4000) ** a * (1 - k / 4000) ** b for k in range(4001)]
    ahead = sum(density[2001:]) / sum(density)
    assert ahead == pytest.approx(sum(comb(a + b + 1, k) for k in range(a + 1)) / 2 ** (a + b + 1), abs=2e-3)


def test_beta_asks_for_the_fewest_that_could_do_and_counts_no_invalid_chain() -> None:
    rule = beta(0.95)
    assert rule(votes([], 21), 21) == 4
    assert rule(votes(["a", "a", None, "a"], 21), 17) == 1
    assert rule(votes(["a", "b", "a", "a"], 21), 17) == 3
    assert rule(votes(["a"] * 2, 3), 1) == 0  # nothing can change any more
    assert beta(0.95, halves=True)(votes(["a"] * 4 + [None] * 4, 21), 13) > 0


def test_windows_stop_at_the_first_that_agrees() -> None:
    rule = window(5)
    assert rule(votes([], 21), 21) == 5
    assert rule(votes(["a"] * 5, 21), 16) == 0
    assert rule(votes(["a", "a", "a", "a", None], 21), 16) == 5
    assert rule(votes(["a", "b", "a", "a", "a", "b", "b", "b", "b", "b"], 21), 11) == 0
    assert rule(votes(["a"] * 3, 21), 18) == 2


@pytest.mark.parametrize(
    "word, says",
    [
        ("lossles", "is no rule; write"),
        ("beta(1.5)", "between 0.5 and 1"),
        ("beta", "is no rule"),
        ("window(0)", "at least 1"),
        ("window(2.5)", "is no rule"),
        ("beta(0.9.5)", "is no rule"),
        ("nowhere.py:rule", "there is no file nowhere.py"),
        ("no_such_module:rule", "could not be loaded"),
        ("runner.voting:__name__", "is no function"),
        ("runner.voting:nobody", "runner.voting has no nobody"),
    ],
)
def test_a_word_that_is_no_rule_is_told_what_is(word: str, says: str) -> None:
    with pytest.raises(ValueError, match="until = ") as error:
        parse(word)
    assert says in str(error.value)


def test_a_function_of_ones_own_decides(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def three(votes, left):\n    return 3 - len(votes.chains)\n")
    stopping = parse(f"{file}:three")
    assert stopping.more(votes([], 21), 21) == 3
    assert stopping.more(votes(["a"] * 3, 21), 18) == 0
    assert stopping.more(votes(["a"] * 5, 21), 16) == 0  # less than nothing is nothing
    assert stopping.more(votes([], 21), 2) == 2  # and never more than there is


def test_a_function_that_gives_no_number_is_named() -> None:
    with pytest.raises(Exception, match="gave 'enough'; it is to give the number"):
        Stopping("mine.py:bad", lambda votes, left: "enough").more(votes([], 3), 3)  # type: ignore[arg-type,return-value]


def test_a_window_of_very_many_chains_looks_no_further_than_it_asks() -> None:
    looks: list[int] = []
    state = _State.of(votes(["a", "b", "c"] * 100, 2000), 1700)
    assert state.soonest(lambda after: bool(looks.append(after.drawn)), True, 5) == 5
    assert max(looks) == 304
