"""Other runners beside ours: `python -m tests.benchmarks.peers [--samples N] [--in-flight N] [--peers NAME...]`.

Everyone does the same job against the same cheap server, each run in processes of its own: N samples of one call
with a prompt of 1 KB, or with `--steps` episodes of eight calls that act with a tool, as many at once as
`--in-flight` says, trajectories written. Peers take turns, each a run of one sample and one of all, `--runs`
times, and the best of each counts. Figures are CPU of the process (user and system) per call net of the run of one
sample, calls a second net of start-up, the largest resident size, calls in flight and connections as the server
saw them, what start-up takes.

Peers are measured where they are installed: `--install [NAME...]` makes an environment for each below
`--environments`. `--scaling [IN_FLIGHT...]` measures ours beside the bare loop at several numbers in flight.
`--readme` writes the figures of `peers.json` into the README.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.openfiles import OTHERS
from tests.benchmarks import calls
from tests.benchmarks.peers import tables
from tests.benchmarks.peers.environments import (
    FLOOR,
    OURS,
    PEERS,
    default_folder,
    install,
    lacking,
    versions,
)
from tests.benchmarks.peers.measuring import Ran, run
from tests.benchmarks.server import STEPS, serving

LEVELS = (1, 10, 100, 1000, 10_000)
RATE = 1000
"""Calls a second that are asked for at most in the scaling table, so that the latency binds and not the CPU: with
very many in flight calls take longer."""
SECONDS = 10
"""How long a run of the scaling table lasts, if that is three waves of calls."""


def main() -> int:
    given = words().parse_args()
    if given.readme:
        write_readme()
        return 0
    allow_files()
    if given.install is not None:
        return 1 if install(given.install or PEERS, given.environments) else 0
    if given.scaling is not None:
        part = "scaling"
        parts = scaling(given.scaling or LEVELS, given.latency, given.runs)
        columns = tables.SCALING
    else:
        part = "steps" if given.steps else "peers"
        parts = compared(given)
        columns = tables.PEERS
    found: dict[str, Any] = {}
    for found in parts:
        if given.json:
            write(given.json, part, found)
    sys.stdout.write(tables.text(found["rows"], columns))
    return 0


README = Path(__file__).parents[3] / "README.md"
FIGURES = Path(__file__).parents[1] / "peers.json"
BEGINS, ENDS = "<!-- figures: python -m tests.benchmarks.peers --readme -->\n", "<!-- end of figures -->"


def readme_tables(text: str) -> str:
    """What the README has of figures."""
    return text.partition(BEGINS)[2].partition(ENDS)[0]


def write_readme() -> None:
    text = README.read_text(encoding="utf-8")
    figures = tables.for_readme(json.loads(FIGURES.read_bytes()))
    README.write_text(text.replace(readme_tables(text), figures), encoding="utf-8")


def words() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers")
    words.add_argument("--samples", type=int, default=2000)
    words.add_argument("--in-flight", type=int, default=1000)
    words.add_argument("--latency", type=float, default=0.2, help="seconds")
    words.add_argument("--runs", type=int, default=2)
    words.add_argument("--readme", action="store_true", help="write the figures into the README")
    words.add_argument("--steps", action="store_true", help="eight calls an episode")
    words.add_argument(
        "--peers",
        nargs="+",
        default=list(PEERS),
        choices=PEERS,
        metavar="NAME",
        help=f"of {', '.join(repr(name) for name in PEERS)}; the first two always are",
    )
    words.add_argument("--scaling", nargs="*", type=int, metavar="IN_FLIGHT")
    words.add_argument("--install", nargs="*", choices=PEERS, metavar="NAME")
    words.add_argument("--environments", type=Path, default=default_folder(), metavar="DIR")
    words.add_argument("--json", type=Path, metavar="FILE", help="write the figures; its other parts stay")
    return words


def compared(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The figures after each round of runs, the last ones being those of all."""
    names, missing = chosen(given.peers, given.environments, given.steps)
    for name, why in missing.items():
        sys.stderr.write(f"{name} is skipped: {why}\n")
    depth = STEPS if given.steps else 1
    alone: dict[str, list[Ran]] = {name: [] for name in names}
    loaded: dict[str, list[Ran]] = {name: [] for name in names}
    told = {name: versions(PEERS[name], given.environments) for name in names}
    for name in names:  # the first run of all reads from the disk and may compile
        run(PEERS[name], given.environments, 1, given.in_flight, 0.0, steps=given.steps)
    for _ in range(given.runs):
        for name in names:
            if any(ran.failed for ran in (*alone[name], *loaded[name])):
                continue
            how = {"steps": given.steps}
            for kept, samples in ((alone, 1), (loaded, given.samples)):
                ran = run(PEERS[name], given.environments, samples, given.in_flight, given.latency, **how)
                kept[name].append(ran)
                sys.stderr.write(f"{name}, {samples}: {ran.failed or f'{ran.cpu:.2f} s of CPU'}\n")
        rows = [
            tables.row(name, alone[name], loaded[name], given.samples, depth, given.latency) for name in names
        ]
        yield {
            **about(),
            "samples": given.samples,
            "calls_per_sample": depth,
            "in_flight": given.in_flight,
            "latency_s": given.latency,
            "best_of": given.runs,
            "rows": tables.beside_ours(rows),
            "skipped": missing,
            "versions": told,
        }


def chosen(names: Sequence[str], folder: Path, steps: bool) -> tuple[list[str], dict[str, str]]:
    """Whom to measure, ours and the bare loop before all, and why not the others."""
    wanted = [name for name in PEERS if name in (OURS, FLOOR, *names)]
    missing = {
        name: lacking(PEERS[name], folder) or (steps and not PEERS[name].steps and "it has no agent") or ""
        for name in wanted
    }
    missing = {name: why for name, why in missing.items() if why}
    return [name for name in wanted if name not in missing], missing


def scaling(levels: Sequence[int], latency: float, runs: int) -> Iterator[dict[str, Any]]:
    """Ours beside the bare loop at each number in flight, the median of alternating runs."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    rows: list[dict[str, Any]] = []
    for in_flight in levels:
        if in_flight + OTHERS > hard:
            sys.stderr.write(f"{in_flight} in flight is skipped: the system allows {hard} open files\n")
            continue
        takes = max(latency, in_flight / RATE)
        made = max(int(SECONDS * in_flight / takes), 3 * in_flight)
        with serving(takes) as server:
            found = calls.measured("standard", server.address, in_flight, made, takes, runs)
        rows.append({"latency_s": takes, **found})
        sys.stderr.write(f"{in_flight}: {found['cpu_us_per_call']} us of CPU a call\n")
        yield {**about(), "median_of": runs, "rows": rows}


def about() -> dict[str, Any]:
    """When and on what."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine}


def write(path: Path, part: str, found: dict[str, Any]) -> None:
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**kept, part: found}, indent=2) + "\n", encoding="utf-8")


def allow_files() -> None:
    """As many open files as the system allows, for this process and those that it starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
