"""A run of thousands of calls at once that is killed again and again: during calls, while it begins, while it ends."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from runner.outputs import read_manifest, read_trajectories
from tests import stepping
from tests.killing import SEED, asked, cut_off, finish, overnight, timeless


class Growth:
    """How often something (a line's end) stands in a file, without reading anything twice."""

    def __init__(self, path: Path, what: bytes = b"\n") -> None:
        self.path, self.what = path, what
        self._read = self._found = 0

    def count(self) -> int:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                while chunk := file.read(1 << 20):
                    whole = chunk[: chunk.rfind(b"\n") + 1]
                    if not whole:
                        break
                    self._read += len(whole)
                    self._found += whole.count(self.what)
                    file.seek(self._read)
        return self._found


@dataclass
class Outcome:
    """What a run that was killed so often came to. `kills` are by when they fell: in the beginning, during calls, in
    the end."""

    trajectories: list[dict[str, Any]]
    kills: dict[str, int]
    asked: int
    twice: int
    """Requests that the server saw again."""
    cut_off: int
    """Tries that the ledger counts as under way when a process died."""
    unexplained: list[str] = field(default_factory=list)
    """Requests that were seen more often than they were in flight at a kill, and once besides."""


def undisturbed(folder: Path, episodes: int, in_flight: int) -> list[dict[str, Any]]:
    """The rows of the same run in one go, without times."""
    with stepping.server() as server:
        job = folder / "whole.toml"
        job.write_text(stepping.job(server.url, episodes, in_flight, seed=SEED))
        finish(overnight("run", str(job), "--outputs", "whole", "--quiet", cwd=folder))
    (run,) = (folder / "whole").iterdir()
    return [timeless(row) for row in read_trajectories(run)]


def killed(
    folder: Path,
    episodes: int,
    in_flight: int,
    kills: int,
    seed: int,
    delay: float,
    ending: int,
    code: str = "",
) -> Outcome:
    """Run, kill -9 at `kills` random moments, resume to the end.

    `ending` of the kills fall when all rows are written. Of the others one in six falls within the first second of a
    process, whatever it does then; one in six while it sends its first `in_flight` requests; and the rest after
    a random number of further draws, so many in the mean that the whole run is met. `code` runs before each command.
    """
    chance = random.Random(seed)
    log = folder / "requests.log"
    fell = {"beginning": 0, "calls": 0, "ending": 0}
    draws: Growth | None = None
    run, tries = folder, 0
    with stepping.server(log, delay) as server:
        seen = Growth(log)
        job = folder / "killed.toml"
        job.write_text(stepping.job(server.url, episodes, in_flight, seed=SEED))
        words = ("run", str(job), "--outputs", "killed", "--quiet")
        while (number := sum(fell.values())) < kills and (tries := tries + 1) <= 2 * kills:
            process = overnight(*words, cwd=folder, code=code)
            if number >= kills - ending:
                rows = Growth(run / "trajectories.jsonl")
                wait(process, lambda rows=rows: rows.count() >= episodes, chance.uniform(0, 0.05))
                moment = "ending"
            elif draws is not None and (kind := chance.random()) < 1 / 6:
                wait(process, lambda: True, chance.uniform(0, 1))
                moment = "beginning"
            elif draws is None or kind < 2 / 6:
                goal = seen.count() + chance.randint(1, in_flight)
                wait(process, lambda goal=goal: seen.count() >= goal)
                moment = "calls"
            else:
                left = episodes * stepping.STEPS - draws.count()
                goal = draws.count() + chance.randint(0, 2 * left // (kills - ending - number))
                wait(process, lambda goal=goal, draws=draws: draws.count() >= goal)
                moment = "calls"
            process.send_signal(signal.SIGKILL)
            _, complaint = process.communicate()
            assert process.returncode in (-signal.SIGKILL, 0), complaint.decode()
            fell[moment] += process.returncode == -signal.SIGKILL
            (run,) = (folder / "killed").iterdir()
            draws = draws or Growth(run / "ledger.jsonl", b'"kind":"draw"')
            words = ("resume", str(run), "--quiet")
        finish(overnight(*words, cwd=folder, code=code))
    counts = asked(log)
    twice = {key: count - 1 for key, count in counts.items() if count > 1}
    under_way = cut_off(run)
    return Outcome(
        trajectories=[timeless(row) for row in read_trajectories(run)],
        kills=fell,
        asked=sum(counts.values()),
        twice=sum(twice.values()),
        cut_off=read_manifest(run)["totals"]["cut_off_attempts"],
        unexplained=[key for key, count in twice.items() if count > under_way[key]],
    )


def wait(process: subprocess.Popen[bytes], until: Callable[[], bool], seconds: float = 0.0) -> None:
    """Until `until` is true, and so many seconds more; or until the process has ended by itself."""
    at: float | None = None
    while process.poll() is None:
        if at is None and until():
            at = monotonic()
        if at is not None and monotonic() - at >= seconds:
            return
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            continue


def main(episodes: int = 2000, in_flight: int = 1000, kills: int = 100) -> dict[str, Any]:
    """For `tests.full`: prints and returns the counts."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = undisturbed(Path(scratch), episodes, in_flight)
        outcome = killed(Path(scratch), episodes, in_flight, kills, seed=100, delay=0.3, ending=kills // 20)
    figures = {
        "episodes": episodes,
        "calls_an_episode": stepping.STEPS,
        "in_flight": in_flight,
        "kills": outcome.kills,
        "requests": outcome.asked,
        "asked_twice": outcome.twice,
        "counted_as_cut_off": outcome.cut_off,
        "asked_twice_without_a_kill": len(outcome.unexplained),
        "trajectories_equal": outcome.trajectories == whole,
    }
    sys.stdout.buffer.write(orjson.dumps(figures) + b"\n")
    return figures
