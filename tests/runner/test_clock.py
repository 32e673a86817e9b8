"""The system's clock is set back while a run goes on: nothing waits for it, and no figure becomes negative."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runner import outputs
from runner.faults import Faults
from runner.outputs import RunFolder, read_manifest, read_trajectories
from tests import stepping
from tests.killing import timeless
from tests.troubled import EPISODES, HALF, begun, undisturbed

SET_BACK = """
import datetime, os, time
real = time.time
def now():
    return real() - (2 * 86400 if os.path.exists("set-back") else 0)
class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(now(), tz)
time.time, datetime.datetime = now, Clock
from runner.cli import main
main()
"""
"""The command, with a clock that loses two days when a file appears."""

KINDS = ["429, a date", "429, words", "429, seconds", "503", "limits of -1", "slow"]
"""Faults that tell times, each in its way."""


def test_a_run_whose_clock_is_set_back_ends_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = undisturbed(tmp_path / "whole")
    faults = Faults(stepping.script, share=0.1, seed=3, kinds=KINDS)
    with begun(tmp_path, python=("-c", SET_BACK), script=faults) as trouble:
        trouble.until_half(HALF // 2)  # the rest may be faults
        (tmp_path / "set-back").touch()
        code, said = trouble.ends()
        assert code == 0, said
    rows = list(read_trajectories(trouble.run))
    assert [told(row) for row in map(timeless, rows)] == [told(row) for row in whole] and len(
        rows
    ) == EPISODES
    assert all(row["seconds"] >= 0 and row["waited_seconds"] >= 0 for row in rows)
    manifest = read_manifest(trouble.run)
    assert manifest["ended"] < manifest["started"], "it was set back"
    assert manifest["totals"]["seconds"] >= 0 and sum(faults.served.values()) > 3
    assert manifest["totals"]["failed_attempts"] == sum(
        count for kind, count in faults.served.items() if kind[0] in "45"
    )


def told(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "usage"}  # a fault may leave it out


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Stopped:
            return cls(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    monkeypatch.setattr(outputs, "datetime", Stopped)
    folders = [RunFolder.create(tmp_path, "a") for _ in range(3)]
    assert [folder.path.name for folder in folders] == [
        "a-20260304-050607",
        "a-20260304-050607-2",
        "a-20260304-050607-3",
    ]
    for folder in folders:
        folder.close()
