"""Votes: the same verdict whatever the order of the chains, and nothing invalid ever wins."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runner.voting import Chain, count


def chains(*votes: str | None) -> list[Chain]:
    """Chains 0, 1, ... with these votes; each wrote its answer in a way of its own."""
    return [Chain(i, f"text {i}", vote and f"{vote} ({i})", vote) for i, vote in enumerate(votes)]


def test_the_majority_wins_as_its_first_chain_wrote_it() -> None:
    votes = count(chains("b", "a", "b", "a", "a"))
    assert (votes.leader, votes.winner, votes.majority, votes.tied) == ("a", "a (1)", 3, False)
    assert votes.tally == {"b": 2, "a": 3}


def test_a_tie_goes_to_the_earliest_draw_whatever_the_order_of_the_list() -> None:
    tied = chains("b", "c", "a", "a", "b")
    for given_ in (tied, tied[::-1], sorted(tied, key=lambda chain: str(chain.vote))):
        votes = count(given_)
        assert (votes.leader, votes.winner, votes.tied) == ("b", "b (0)", True)


def test_an_invalid_chain_never_votes_and_is_counted() -> None:
    votes = count(chains(None, "a", None, None))
    assert (votes.leader, votes.majority, votes.invalid, votes.tied) == ("a", 1, 3, False)
    assert votes.tally == {"a": 1}
    assert (votes.as_dict()["n_drawn"], votes.as_dict()["invalid"]) == (4, 3)


def test_chains_that_are_all_invalid_have_no_winner() -> None:
    votes = count(chains(None, None))
    assert (votes.leader, votes.winner, votes.majority, votes.invalid, votes.tied) == (
        None,
        None,
        0,
        2,
        False,
    )


def test_no_chains_have_no_winner() -> None:
    votes = count([])
    assert (votes.leader, votes.winner, votes.majority, votes.invalid, votes.tied) == (
        None,
        None,
        0,
        0,
        False,
    )
    assert votes.as_dict()["n_drawn"] == 0


def test_the_empty_answer_is_a_vote_and_no_invalid_one() -> None:
    votes = count([Chain(0, "", "", ""), Chain(1, "", None, None)])
    assert (votes.leader, votes.winner, votes.invalid) == ("", "", 1)


def test_the_record_has_every_chain_with_text_answer_and_vote() -> None:
    record = json.loads(json.dumps(count(chains("a", None)[::-1]).as_dict()))
    assert record["chains"] == [
        {"draw": 0, "text": "text 0", "answer": "a (0)", "vote": "a"},
        {"draw": 1, "text": "text 1", "answer": None, "vote": None},
    ]
    assert record["stopped_by"] == "all"


VOTES = st.lists(st.none() | st.sampled_from(["a", "b", "c", ""]), max_size=12)


@given(VOTES, st.data())
def test_the_verdict_does_not_depend_on_the_order_of_the_list(
    given_: list[str | None], data: st.DataObject
) -> None:
    votes = count(chains(*given_))
    other = count(data.draw(st.permutations(chains(*given_))))
    assert other == votes
    assert json.dumps(other.as_dict()) == json.dumps(votes.as_dict())  # the order of the tally, too


@given(VOTES)
def test_the_verdict_is_a_plurality_of_the_valid_votes(given_: list[str | None]) -> None:
    votes = count(chains(*given_))
    valid = [vote for vote in given_ if vote is not None]
    assert votes.tally == Counter(valid)
    assert votes.invalid + sum(votes.tally.values()) == len(given_)
    if valid:
        most = max(Counter(valid).values())
        leaders = [vote for vote in Counter(valid) if valid.count(vote) == most]
        assert votes.majority == most
        assert votes.leader == min(leaders, key=valid.index)
        assert votes.tied == (len(leaders) > 1)
        assert votes.winner == f"{votes.leader} ({given_.index(votes.leader)})" or not votes.leader
