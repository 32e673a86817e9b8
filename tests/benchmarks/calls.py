"""What a model call costs: `python -m tests.benchmarks.calls --in-flight N --calls M --json FILE`.

Runs a bare loop over pyreqwest and overnight with everything on (gate, retries, ledger, trajectories, bars) in turn
against one cheap server, each in a process of its own, and prints CPU per call (user and system, net of a run of
one call), calls a second, the largest resident size, the loop's lag, and how the wall time compares with the
shortest possible (the largest of calls x latency / in flight, and one episode's calls x latency).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.client import EXTRA
from tests.benchmarks.server import serving


def once(kind: str, address: str, in_flight: int, calls: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "tests.benchmarks.client", kind, address, str(in_flight), str(calls)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(
    kind: str, address: str, in_flight: int, calls: int, latency: float, runs: int
) -> dict[str, Any]:
    """The median of several runs of ours, alternating with the bare loop."""
    start, bare_start = once(kind, address, in_flight, 1)["cpu"], once("bare", address, in_flight, 1)["cpu"]
    made = calls // EXTRA["chains"] if kind == "chains" else calls
    ours, bare = [], []
    for _ in range(runs):
        bare.append(once("bare", address, in_flight, made))
        ours.append(once(kind, address, in_flight, calls))
    cost = statistics.median((each["cpu"] - start) / made * 1e6 for each in ours)
    floor = statistics.median((each["cpu"] - bare_start) / made * 1e6 for each in bare)
    wall = statistics.median(each["wall"] for each in ours)
    depth = EXTRA["react"] if kind == "react" else 1
    shortest = max(made * latency / in_flight, depth * latency)
    last = ours[-1]
    return {
        "kind": kind,
        "in_flight": in_flight,
        "calls": made,
        "cpu_us_per_call": round(cost, 1),
        "bare_loop_us_per_call": round(floor, 1),
        "ratio_to_bare": round(cost / floor, 3),
        "calls_per_s": round(made / wall, 1),
        "rss_mb": round(last["rss_mb"], 1),
        "loop_lag_p99_ms": last.get("lag_ms"),
        "ratio_to_shortest": round(wall / shortest, 3),
        "errors": last.get("errors"),
    }


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.calls")
    words.add_argument("--kind", default="standard", choices=["standard", "react", "chains"])
    words.add_argument("--in-flight", type=int, default=1000)
    words.add_argument("--calls", type=int, default=10_000)
    words.add_argument("--latency", type=float, default=0.2, help="seconds")
    words.add_argument("--runs", type=int, default=3)
    words.add_argument("--json", type=Path)
    given = words.parse_args()
    with serving(given.latency) as server:
        found = measured(given.kind, server.address, given.in_flight, given.calls, given.latency, given.runs)
    for name, value in found.items():
        sys.stdout.write(f"{name:24} {value}\n")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
