"""CPU of starting up: `python -m tests.benchmarks.startup [--runs N]`.

Prints user + system seconds of the whole process, minimum and median, for `overnight --help` (to stay under
0.3 s), for importing the library's front, and for a bare Python beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "overnight --help": ["-m", "runner", "--help"],
    "import runner.library": ["-c", "import runner.library"],
}


def cpu_seconds(words: list[str]) -> float:
    before = os.times()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True, cwd=Path.cwd())
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.startup")
    words.add_argument("--runs", type=int, default=9)
    runs = words.parse_args().runs
    for name, command in COMMANDS.items():
        cpu_seconds(command)  # once for the byte code and the disk
        taken = [cpu_seconds(command) for _ in range(runs)]
        sys.stdout.write(
            f"{name:24} min {min(taken):.3f} s  median {statistics.median(taken):.3f} s of CPU\n"
        )


if __name__ == "__main__":
    main()
