"""Runs that are killed at random moments and resumed, against a local server that logs what it was asked."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from runner.jsonl import rows
from runner.outputs import read_manifest, read_trajectories
from runner.sampling import seed_of

IN_FLIGHT = 16
SEED = 7
JOB = """
name = "killed"
seed = {seed}
limit = {tasks}
[models.policy]
provider = "openai"
model = "fake"
api = "completions"
base_url = "{url}"
in_flight = {in_flight}
max_n = {max_n}
[envs.hotpotqa]
[methods.react]
[methods.cot_sc]
samples = 5
[methods.react_then_cot_sc]
samples = 5
steps = 2
[limits]
max_episodes = 24
"""

TIMINGS = ("seconds", "waited_seconds", "run")


@contextmanager
def server(log: Path, delay: float = 0.02):
    """A server in a process of its own; yields its URL."""
    command = [
        sys.executable,
        "-m",
        "runner.testing",
        "--port",
        "0",
        "--log",
        str(log),
        "--delay",
        str(delay),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


SMALL_INDEX = "from runner import places as p; p.SMALL, p.PARTS, p.STEP, p.KEPT, p.EVERY = 40, 2, 8, 10, 0.0"
"""What makes a command keep the index of its ledger in a file, however small the run."""


def overnight(
    *words: str, cwd: Path, prepare: Callable[[], object] | None = None, code: str = ""
) -> subprocess.Popen[bytes]:
    """The command, in a process of its own, in which `prepare` and then the Python in `code` runs before."""
    how = ["-c", f"{code}\nfrom runner.cli import main; main()"] if code else ["-m", "runner"]
    return subprocess.Popen(
        [sys.executable, *how, *words],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        preexec_fn=prepare,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint.decode()


@dataclass
class Outcome:
    """What a killed and resumed run came to."""

    trajectories: list[dict[str, Any]]
    episodes: int
    kills: int
    asked: int
    twice: int
    """Requests that the server saw more than once."""
    cut_off: int
    """Tries that the ledger counts as under way when a process died."""
    unexplained: list[str] = field(default_factory=list)
    """Requests seen more than once that were not in flight at a kill."""


def undisturbed(folder: Path, tasks: int, max_n: int = 1) -> list[dict[str, Any]]:
    """The trajectories of the same job, run in one go."""
    log = folder / "whole.log"
    with server(log) as url:
        job = folder / "whole.toml"
        job.write_text(JOB.format(tasks=tasks, url=url, max_n=max_n, in_flight=IN_FLIGHT, seed=SEED))
        finish(overnight("run", str(job), "--outputs", "whole", "--quiet", cwd=folder))
    (run,) = (folder / "whole").iterdir()
    return [timeless(row) for row in read_trajectories(run)]


def killed(folder: Path, tasks: int, kills: int, seed: int, max_n: int = 1) -> Outcome:
    """Run the job, kill -9 it `kills` times after a random number of further requests, resume to the end."""
    chance = random.Random(seed)
    log = folder / "killed.log"
    with server(log) as url:
        job = folder / "killed.toml"
        job.write_text(JOB.format(tasks=tasks, url=url, max_n=max_n, in_flight=IN_FLIGHT, seed=SEED))
        per_kill = max(2, tasks * 9 // (kills + 1))
        words = ("run", str(job), "--outputs", "killed", "--quiet")
        done = 0
        for _ in range(kills):
            process = overnight(*words, cwd=folder)
            wait_for_lines(log, lines(log) + chance.randint(1, per_kill), process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            done += process.returncode == -signal.SIGKILL
            (run,) = (folder / "killed").iterdir()
            words = ("resume", str(run), "--quiet")
        finish(overnight(*words, cwd=folder))
    seen = asked(log)
    twice = {key: count - 1 for key, count in seen.items() if count > 1}
    under_way = cut_off(run)
    return Outcome(
        trajectories=[timeless(row) for row in read_trajectories(run)],
        episodes=len(list(read_trajectories(run))),
        kills=done,
        asked=sum(seen.values()),
        twice=sum(twice.values()),
        cut_off=read_manifest(run)["totals"]["cut_off_attempts"],
        unexplained=[key for key, count in twice.items() if count > under_way[key]],
    )


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what may differ between two runs of the same."""
    kept = {key: value for key, value in row.items() if key not in TIMINGS}
    kept["steps"] = [{k: v for k, v in step.items() if k != "seconds"} for step in row["steps"]]
    return kept


def asked(log: Path) -> Counter[str]:
    """How often each (prompt, seed) reached the server."""
    return Counter(f"{row['prompt']} {row['seed']}" for row in rows(log))


def cut_off(run: Path) -> Counter[str]:
    """How often each (prompt, seed) was begun and neither answered nor failed, by the run's ledger."""
    parts: dict[str, str] = {}
    prompts: dict[str, str] = {}
    begun: Counter[tuple[str, str, int]] = Counter()
    for row in rows(run / "ledger.jsonl"):
        parts.update(row.get("parts") or {})
        if row["kind"] == "request":
            text = "".join(parts[name] for _, names in row["turns"] for name in names)
            prompts[row["hash"]] = hashlib.sha256(text.encode()).hexdigest()[:16]
        elif row["kind"] in ("reply", "attempt"):
            begins = row["kind"] == "attempt" and row["error"] is None
            begun[row["scope"], row["hash"], row["first"]] += 1 if begins else -1
    return Counter(
        {
            f"{prompts[hash]} {seed_of(SEED, scope, hash, first)}": count
            for (scope, hash, first), count in begun.items()
            if count > 0
        }
    )


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Until the file has so many lines, or the process has ended by itself."""
    while lines(path) < count and process.poll() is None:
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            continue


def main(kills: int, tasks: int) -> dict[str, Any]:
    """For `tests.full`: prints and returns the counts."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        whole = undisturbed(folder, tasks)
        outcome = killed(folder, tasks, kills, seed=20)
        figures = {
            "episodes": outcome.episodes,
            "kills": outcome.kills,
            "requests": outcome.asked,
            "asked_twice": outcome.twice,
            "counted_as_cut_off": outcome.cut_off,
            "asked_twice_without_a_kill": len(outcome.unexplained),
            "trajectories_equal": outcome.trajectories == whole,
        }
    sys.stdout.buffer.write(orjson.dumps(figures) + b"\n")
    return figures
