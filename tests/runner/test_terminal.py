"""Signals, closed terminals and broken pipes: a run ends in order or goes on, and says how by its exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.outputs import read_manifest, read_trajectories
from tests.killing import timeless
from tests.troubled import EPISODES, begun, undisturbed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    rows = undisturbed(tmp_path_factory.mktemp("whole"))
    assert len(rows) == EPISODES
    return rows


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_ends_in_order_and_resumes(
    number: signal.Signals, tmp_path: Path, whole: list[Any]
) -> None:
    with begun(tmp_path) as trouble:
        trouble.until_half()
        trouble.process.send_signal(number)
        if number == signal.SIGHUP:  # the kernel and the shell both tell it
            trouble.process.send_signal(number)
        code, said = trouble.ends()
        assert code == 130 and "Traceback" not in said
        assert said.count("interrupted; go on with: overnight resume") == 1
        manifest = read_manifest(trouble.run)
        assert (manifest["status"], manifest["totals"]["cut_off_attempts"]) == ("interrupted", 0)
        assert manifest["totals"]["failed_attempts"] == 0, "calls in flight are waited for"
        assert trouble.resumes() == whole


def test_a_terminal_that_is_closed_ends_the_run_in_order(tmp_path: Path, whole: list[Any]) -> None:
    """All three standard files are the terminal, which the run owns; its window is closed half-way."""
    ours, its = pty.openpty()

    def own() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(its), os.O_RDWR))

    with begun(tmp_path, words=(), stdin=its, stdout=its, stderr=its, prepare=own) as trouble:
        os.close(its)
        trouble.until_half()
        os.close(ours)
        code, _ = trouble.ends()
        assert code == 130
        assert read_manifest(trouble.run)["status"] == "interrupted"
        assert trouble.resumes() == whole


def test_under_nohup_neither_the_signal_nor_broken_pipes_change_anything(
    tmp_path: Path, whole: list[Any]
) -> None:
    often = "import runner.progress as p; p.EVERY_LINE = 0.01; from runner.cli import main; main()"
    ignoring = {"prepare": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), "stdout": subprocess.PIPE}
    with begun(tmp_path, words=(), python=("-c", often), **ignoring) as trouble:
        assert trouble.process.stdout is not None and trouble.process.stderr is not None
        trouble.process.stdout.close()
        trouble.process.stderr.close()
        trouble.until_half()
        trouble.process.send_signal(signal.SIGHUP)
        assert trouble.ends()[0] == 0
        assert [timeless(row) for row in read_trajectories(trouble.run)] == whole


def test_a_broken_pipe_leaves_an_interrupted_runs_exit_code(tmp_path: Path, whole: list[Any]) -> None:
    with begun(tmp_path, stdout=subprocess.PIPE) as trouble:
        assert trouble.process.stdout is not None and trouble.process.stderr is not None
        trouble.process.stdout.close()
        trouble.process.stderr.close()
        trouble.until_half()
        trouble.process.send_signal(signal.SIGTERM)
        assert trouble.ends()[0] == 130
        assert trouble.resumes() == whole


def closed(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def test_standard_files_that_are_closed_are_not_taken_for_the_runs_own(
    tmp_path: Path, whole: list[Any]
) -> None:
    """What a library prints to the numbers 1 and 2 must not land in the ledger."""
    chatter = """
import os
from runner.cli import main
from runner.scheduler import Scheduler
begin = Scheduler.run
async def run(self, plan):
    for number in (1, 2):
        os.write(number, b"chatter of a library")
    await begin(self, plan)
Scheduler.run = run
main()
"""
    with begun(tmp_path, words=(), python=("-c", chatter), prepare=closed(0, 1, 2)) as trouble:
        code, said = trouble.ends()
        assert code == 0, said
        assert [timeless(row) for row in read_trajectories(trouble.run)] == whole
        for name in ("ledger.jsonl", "trajectories.jsonl"):
            for line in (trouble.run / name).read_text().splitlines():
                assert isinstance(json.loads(line), dict)
