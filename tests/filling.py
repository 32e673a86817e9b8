"""A run on a disk that is full again and again, and gets a little more room each time."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from runner.outputs import read_manifest, read_trajectories
from tests import stepping
from tests.killing import SEED, asked, cut_off, overnight, timeless
from tests.killing_often import undisturbed

STEP = 1_500_000
"""Bytes that are added each time."""


class Room:
    """A folder on a disk of its own, as large as is said: a tmpfs where one can be mounted; else the size of each
    file is limited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = STEP
        mount = shutil.which("mount")
        words = [mount or "mount", "-t", "tmpfs", "-o", f"size={STEP}", "tmpfs", str(folder)]
        self.mounted = bool(mount) and subprocess.run(words, capture_output=True, check=False).returncode == 0

    def grow(self) -> None:
        self.size += STEP
        if self.mounted:
            subprocess.run(["mount", "-o", f"remount,size={self.size}", str(self.folder)], check=True)

    def prepare(self) -> None:
        """In the process that is to run."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.RLIM_INFINITY))

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.folder)], check=True)


@contextmanager
def room(folder: Path) -> Iterator[Room]:
    folder.mkdir()
    found = Room(folder)
    try:
        yield found
    finally:
        found.close()


def filled(folder: Path, episodes: int, in_flight: int, put_aside: Callable[[Path], Any]) -> dict[str, Any]:
    """Run on a disk that is too small; after each end make room and resume, until the run is whole. `put_aside` is
    given the run's folder in the end."""
    log = folder / "requests.log"
    ends: list[str] = []
    with stepping.server(log, 0.02) as server, room(folder / "disk") as disk:
        job = folder / "job.toml"
        job.write_text(stepping.job(server.url, episodes, in_flight, seed=SEED))
        words = ["run", str(job), "--outputs", str(disk.folder), "--quiet"]
        while True:
            process = overnight(*words, cwd=folder, prepare=disk.prepare)
            _, said = process.communicate()
            if process.returncode == 0:
                break
            complaints = [line for line in said.decode().splitlines() if line.startswith("overnight: ")]
            assert process.returncode == 3 and len(complaints) == 1 and b"Traceback" not in said, (
                said.decode()
            )
            ends.append(complaints[0])
            runs = [path for path in disk.folder.iterdir() if (path / "run.json").exists()]
            if runs:
                words = ["resume", str(runs[0]), "--quiet"]
            disk.grow()
        (run,) = disk.folder.iterdir()
        under_way, counts = cut_off(run), asked(log)
        put_aside(run)
        found = {
            "on_a_disk_of_its_own": disk.mounted,
            "times_full": len(ends),
            "bytes_in_the_end": sum(file.stat().st_size for file in run.iterdir()),
            "cut_off": read_manifest(run)["totals"]["cut_off_attempts"],
        }
    twice = {key: count - 1 for key, count in counts.items() if count > 1}
    return {
        **found,
        "requests": sum(counts.values()),
        "asked_twice": sum(twice.values()),
        "asked_twice_without_being_counted": sum(count > under_way[key] for key, count in twice.items()),
        "complaints": sorted({line.split("/")[-1] for line in ends}),
    }


def main(episodes: int = 2000, in_flight: int = 200) -> dict[str, Any]:
    """For `tests.full`: prints and returns the counts."""
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as scratch:
        whole = undisturbed(Path(scratch), episodes, in_flight)
        figures = filled(
            Path(scratch), episodes, in_flight, lambda run: rows.extend(map(timeless, read_trajectories(run)))
        )
    figures = {"episodes": episodes, "in_flight": in_flight, **figures, "trajectories_equal": rows == whole}
    sys.stdout.buffer.write(orjson.dumps(figures) + os.linesep.encode())
    return figures
