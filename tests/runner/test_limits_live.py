"""A limit over real sockets: a server that enforces it over a sliding window of 5 s, pressed for 20 s.

(`python -m tests.full limits` presses it for three minutes, also where the job does not know the limit.)
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.faults import Limited
from tests.limits import pressed

WINDOW, SECONDS, REQUESTS = 5.0, 20.0, 50.0


async def test_a_known_limit_is_used_to_the_full_and_never_exceeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.models.line.limits_of", lambda model: {("requests", WINDOW): REQUESTS})
    found = await pressed(
        tmp_path, Limited(requests=REQUESTS, window=WINDOW), SECONDS, settings={"in_flight": 200}
    )
    print(found)
    assert found.refused == 0
    assert found.use_after >= 0.95
    assert found.largest <= REQUESTS
