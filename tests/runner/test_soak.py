"""A run at faults of 5 % that is interrupted when it has done much: no call is lost, and nothing is left open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import soak
from tests.killing_often import Growth, wait

DRAWS = 240


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_at_five_percent_faults_no_call_is_lost_and_descriptors_stay(tmp_path: Path) -> None:
    open_files: list[int] = []

    def until(outputs: Path, process: subprocess.Popen[bytes]) -> None:
        wait(process, lambda: bool(list(outputs.glob("*/ledger.jsonl"))))
        (ledger,) = outputs.glob("*/ledger.jsonl")
        drawn = Growth(ledger, b'"kind":"draw"')
        for goal in range(DRAWS // 4, DRAWS + 1, DRAWS // 4):
            wait(process, lambda goal=goal: drawn.count() >= goal)
            open_files.append(len(os.listdir(f"/proc/{process.pid}/fd")))  # noqa: PTH208

    _, counts = soak.soaked(tmp_path, until, in_flight=16, delay=0.01)
    assert counts["draws"] >= DRAWS and counts["faults"] > 4 and counts["kinds_of_faults"] > 3
    assert counts["statuses"] == {"finished": counts["episodes"]}
    assert {counts[what] for what in soak.NONE} == {0}, counts
    assert max(open_files) <= 16 + 40, "a connection a call, and a few files"
