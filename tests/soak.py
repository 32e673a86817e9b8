"""A long run at faults of 5 %, looked at from outside: memory, descriptors, lost calls, wrong rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from runner.jsonl import rows
from runner.outputs import read_manifest, read_trajectories
from tests import stepping
from tests.killing import overnight

SEED = 7
SHARE = 0.05
EVERY = 10.0
"""Seconds between samples."""
NONE = (
    "requests_without_a_line", "tries_without_an_end", "answers_without_a_reply", "draws_no_row_uses",
    "draws_of_rows_not_on_record", "wrong_draws", "cut_off",
)  # fmt: skip
"""Counts of `lost` that are 0 where no call was lost and nothing is wrong."""
EPISODES = 300_000
"""More than are run: the run is interrupted in order when its time is over."""


def sample(pid: int, began: float) -> dict[str, float]:
    """What the system says of a process: seconds since the beginning, resident MB, open descriptors, threads."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return {
        "seconds": round(monotonic() - began, 1),
        "rss_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 (names alone)
        "threads": int(status["Threads"]),
    }


def lost(run: Path, seen: dict[str, Any]) -> dict[str, Any]:
    """What a run's ledger and rows say, against what the server saw: those of `NONE` are 0 where none was lost."""
    kinds: Counter[str] = Counter()
    used: set[tuple[str, int]] = set()
    drawn: set[tuple[str, int]] = set()
    for row in rows(run / "ledger.jsonl"):
        kind = row["kind"]
        kinds[kind if kind != "attempt" else "begun" if row["error"] is None else "failed"] += 1
        if kind == "draw":
            drawn.add((row["hash"], row["i"]))
    statuses: Counter[str] = Counter()
    episodes = 0
    for row in read_trajectories(run):
        episodes += 1
        statuses[row["status"]] += 1
        for step in row["steps"]:
            used.update((hash, i) for hash, i in step["draws"])
    totals = read_manifest(run)["totals"]
    return {
        "episodes": episodes,
        "statuses": dict(statuses),
        "requests": seen["requests"],
        "faults": sum(seen["faults"].values()),
        "kinds_of_faults": len(seen["faults"]),
        "draws": kinds["draw"],
        "failed_tries": kinds["failed"],
        "requests_without_a_line": seen["requests"] - kinds["begun"],
        "tries_without_an_end": kinds["begun"] - kinds["reply"] - kinds["failed"],
        "answers_without_a_reply": seen["answered"] - kinds["reply"],
        "draws_no_row_uses": len(drawn - used),
        "draws_of_rows_not_on_record": len(used - drawn),
        "wrong_draws": len(stepping.wrong_draws(run, SEED)),
        "cut_off": totals["cut_off_attempts"],
    }


def soaked(
    folder: Path, until: Callable[[Path, subprocess.Popen[bytes]], None], *, in_flight: int, delay: float
) -> tuple[Path, dict[str, Any]]:
    """Run against a server with faults until `until` returns, then interrupt in order. The run, and its counts."""
    with stepping.server(delay=delay, faults=SHARE) as server:
        file = folder / "soak.toml"
        settings = {"timeout": 2.0, "attempts": 14}
        file.write_text(stepping.job(server.url, EPISODES, in_flight, seed=SEED, **settings))
        process = overnight("run", str(file), "--outputs", "soak", "--quiet", cwd=folder)
        try:
            until(folder / "soak", process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            _, complaint = process.communicate()
    assert process.returncode == 130, complaint.decode()
    (run,) = (folder / "soak").iterdir()
    return run, lost(run, server.seen)


def thirds(samples: Sequence[dict[str, float]], what: str) -> dict[str, float]:
    """Means of a figure over the first third and the last one, and the largest of all."""
    values = [each[what] for each in samples]
    third = max(len(values) // 3, 1)
    first, last = sum(values[:third]) / third, sum(values[-third:]) / third
    return {"first_third": round(first, 1), "last_third": round(last, 1), "most": max(values)}


def summed_up(
    samples: Sequence[dict[str, float]], counts: dict[str, Any], minutes: float, in_flight: int
) -> dict[str, Any]:
    """The figures of a soak. `kb_a_draw`: by how much memory grew from the first third to the last, for each draw
    between; what a run remembers of where its draws are is in it."""
    grown = {what: thirds(samples, what) for what in ("rss_mb", "descriptors", "threads", "ledger_mb")}
    more = {what: grown[what]["last_third"] - grown[what]["first_third"] for what in ("rss_mb", "ledger_mb")}
    draws = counts["draws"] * more["ledger_mb"] / max(samples[-1]["ledger_mb"], 1e-9)
    return {
        "minutes": minutes,
        "in_flight": in_flight,
        "share_of_faults": SHARE,
        **grown,
        "kb_a_draw": round(1024 * more["rss_mb"] / max(draws, 1), 3),
        **counts,
        "each_minute": samples[:: max(round(60 / EVERY), 1)],
    }


def main(minutes: float = 60.0, in_flight: int = 40, delay: float = 0.5) -> dict[str, Any]:
    """For `tests.full`: prints and returns the figures."""
    samples: list[dict[str, float]] = []

    def watch(outputs: Path, process: subprocess.Popen[bytes]) -> None:
        began = monotonic()
        while monotonic() - began < 60 * minutes:
            try:
                process.wait(EVERY)
                return
            except subprocess.TimeoutExpired:
                samples.append(sample(process.pid, began))
                written = sum(file.stat().st_size for file in outputs.glob("*/ledger.jsonl"))
                samples[-1]["ledger_mb"] = round(written / 1e6, 1)

    with tempfile.TemporaryDirectory() as scratch:
        _, counts = soaked(Path(scratch), watch, in_flight=in_flight, delay=delay)
    figures = summed_up(samples, counts, minutes, in_flight)
    sys.stdout.buffer.write(orjson.dumps({k: v for k, v in figures.items() if k != "each_minute"}) + b"\n")
    return figures
