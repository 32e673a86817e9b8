"""Runs that something happens to half-way, as processes of their own, and what a resume makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from runner.cli import main
from runner.jsonl import rows
from runner.outputs import read_trajectories
from runner.testing import Script
from tests import stepping
from tests.killing import SEED, cut_off, timeless
from tests.killing_often import Growth, wait

ROOT = Path(__file__).parent.parent
EPISODES = 12
IN_FLIGHT = 4
HALF = 25
"""After so many of the run's 96 draws it happens: the server holds its answers until then."""


@dataclass
class Trouble:
    """A run under way: its process, the folder it works in, and the server it asks."""

    process: subprocess.Popen[bytes]
    folder: Path
    server: stepping.Beside

    @property
    def run(self) -> Path:
        (run,) = (self.folder / "outputs").iterdir()
        return run

    def until_half(self, draws: int = HALF) -> None:
        """Wait until so many draws are on record; no more than `HALF` come until it `ends`."""
        wait(self.process, lambda: bool(list((self.folder / "outputs").glob("*/ledger.jsonl"))))
        growth = Growth(self.run / "ledger.jsonl", b'"kind":"draw"')
        wait(self.process, lambda: growth.count() >= draws)
        assert self.process.poll() is None

    def ends(self) -> tuple[int, str]:
        """Its exit code and what it said on standard error, where that is a pipe that is open."""
        self.server.release()
        if self.process.stderr is None or self.process.stderr.closed:
            return self.process.wait(60), ""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()

    def resumes(self, run: Path | None = None) -> list[dict[str, Any]]:
        """The rows, without times, after a resume that must end well; and nothing may have been paid twice but what
        was in flight when the process ended."""
        run = run or self.run
        done = CliRunner().invoke(main, ["resume", str(run), "--quiet"])
        assert done.exit_code == 0, done.output
        under_way = cut_off(run)
        twice = {key: count - 1 for key, count in self.server.asked.items() if count > 1}
        assert all(count <= under_way[key] for key, count in twice.items())
        assert len({(r["scope"], r["hash"], r["i"]) for r in rows(run / "ledger.jsonl") if r["kind"] == "draw"}) == (
            EPISODES * stepping.STEPS
        )  # fmt: skip
        return [timeless(row) for row in read_trajectories(run)]


@contextmanager
def begun(
    folder: Path,
    *,
    words: Sequence[str] = ("--quiet",),
    python: Sequence[str] = ("-m", "runner"),
    env: Mapping[str, str] | None = None,
    delay: float = 0.03,
    script: Script = stepping.script,
    half: bool = True,
    prepare: Callable[[], Any] | None = None,
    **how: Any,
) -> Iterator[Trouble]:
    """`overnight run` in a process of its own against a server that stays until the end. `prepare` runs in the new
    process before the command does; `half`: answers are held back half-way, until it `ends`; `how` is `Popen`'s."""
    with stepping.beside(delay, script, HALF if half else None) as server:
        job = written(folder, server.url)
        process = subprocess.Popen(
            [sys.executable, *python, "run", str(job), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            preexec_fn=prepare,
            **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **how},
        )
        try:
            yield Trouble(process, folder, server)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def written(folder: Path, url: str) -> Path:
    job = folder / "job.toml"
    job.write_text(stepping.job(url, EPISODES, IN_FLIGHT, seed=SEED))
    return job


def undisturbed(folder: Path) -> list[dict[str, Any]]:
    """The rows of the same run to which nothing happened."""
    with stepping.beside() as server:
        words = ["run", str(written(folder, server.url)), "--quiet", "--outputs", str(folder / "outputs")]
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (run,) = (folder / "outputs").iterdir()
    return [timeless(row) for row in read_trajectories(run)]
