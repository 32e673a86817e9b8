"""How much room a server that enforces limits has, by hand."""

from __future__ import annotations

from runner.faults import Limited
from tests.limits import room


def test_room_is_what_a_sender_who_never_waits_in_vain_gets() -> None:
    limited = Limited(requests=3, window=10.0)
    limited.arrivals = [(0.0, 1, True), (5.0, 1, True), (6.0, 1, False)]
    # one place is free now and in 10 s, the others when those at 0 and at 5 have left, and again 10 s later
    assert room(limited, 8.0, 12.0) == 2  # now, and at 10
    assert room(limited, 8.0, 21.0) == 5  # at 8, 10, 15, 18 and 20
    limited.requests = 1  # halved, and more: nothing before the last has left
    assert room(limited, 8.0, 14.0) == 0
    assert room(limited, 8.0, 26.0) == 2  # at 15 and 25
