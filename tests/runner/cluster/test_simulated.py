"""Limits over many workers, in virtual time: never exceeded and used to the full, also where workers are lost."""

from __future__ import annotations

import pytest

from tests.cluster_simulated import simulate


@pytest.mark.parametrize("lose_every", [None, 10.0], ids=["none lost", "lost at random"])
def test_ten_workers_use_one_limit_to_the_full_and_never_exceed_it(lose_every: float | None) -> None:
    found = simulate(10, 200, 600, 20, lose_every=lose_every)
    assert found["ended"] == 2000
    assert found["refused"] == 0 and found["most_in_a_minute"] <= 600
    assert found["use_of_the_limit"] >= 0.95
    assert found["asked_twice_and_not_in_flight_at_a_loss"] == 0
    assert found["left_in_flight"] == 0
    assert (found["workers_lost"] > 5) == (lose_every is not None)
