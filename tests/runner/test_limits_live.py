"""A limit over real sockets: a server that enforces it over a sliding window of 5 s, pressed for 20 s.

(`python -m tests.full limits` presses it for three minutes, also with limits that change half-way.)
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.faults import Limited
from tests.limits import pressed

WINDOW, SECONDS, REQUESTS = 5.0, 20.0, 50.0
STEADY = 0.04
"""Seconds of lag below which what the server saw is the gate's doing: the gate allows for 1 % of a window."""


async def test_a_known_limit_is_used_to_the_full_and_never_exceeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.models.line.limits_of", lambda model: {("requests", WINDOW): REQUESTS})
    for attempt in range(3):  # a machine that stalls says nothing of the gate: look again
        limited = Limited(requests=REQUESTS, window=WINDOW)
        found = await pressed(tmp_path / str(attempt), limited, SECONDS, settings={"in_flight": 200})
        print(found)
        if found.lag < STEADY:
            assert found.refused == 0
            assert found.use_after >= 0.95
            return
        if found.refused == 0 and found.use_after >= 0.95:
            return
    assert found.refused <= 0.02 * found.answered, "even on a machine that stalls"


async def test_an_unknown_limit_is_found_and_used_with_few_refusals(tmp_path: Path) -> None:
    for attempt in range(2):
        limited = Limited(requests=2 * REQUESTS, window=WINDOW)
        found = await pressed(tmp_path / str(attempt), limited, SECONDS, settings={})
        print(found)
        well = found.refused_share <= 0.02 and found.use_after >= 0.85
        if well or found.lag < STEADY:
            assert well, found
            return
    if found.lag > WINDOW / 5:
        pytest.skip(
            f"this machine stalled for {found.lag:.1f} s, of a window of {WINDOW:g} s: nothing can be told of the gate"
        )
    assert found.answered >= 4 * REQUESTS, "even on a machine that stalls, where refusals are heard late"
