"""One measured run of one peer: a process of its own against a server of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.client import PROMPT
from tests.benchmarks.peers.environments import Peer, python_of
from tests.benchmarks.server import serving

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parent / "scripts"
AT_MOST = 300.0
"""Seconds that a run may take before it is ended and counts as failed."""
QUIET = {
    "OPENAI_API_KEY": "none",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TELEMETRY_ENABLED": "false",
    "NO_PROXY": "*",
}
"""What keeps peers from asking anybody but the server."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run took: CPU of the process and those it waited for (user and system, seconds), wall seconds from
    its start to its end, largest resident size; what it says it wrote; what the server saw. `failed` says how it
    went wrong, where it did."""

    cpu: float
    wall: float
    rss_mb: float
    written: int = 0
    errors: int = 0
    failed: str = ""
    seen: Mapping[str, Any] = field(default_factory=dict)


def run(
    peer: Peer, folder: Path, samples: int, in_flight: int, latency: float, *, steps: bool = False
) -> Ran:
    """One run of `samples` episodes in an environment below `folder`; `latency` in seconds."""
    with tempfile.TemporaryDirectory() as desk, serving(latency) as server:
        tasks = Path(desk) / "tasks.jsonl"
        tasks.write_text("".join(task(k) for k in range(samples)), encoding="utf-8")
        given = [str(tasks), desk, server.address, str(in_flight), "steps" if steps else "one"]
        words = [str(python_of(peer, folder)), str(SCRIPTS / peer.script), *given, *peer.words]
        ran = child(words, Path(desk), environment(Path(desk), own=not peer.environment))
    return Ran(**{**ran, "seen": server.seen})


def task(k: int) -> str:
    return json.dumps({"id": f"t{k}", "question": f"{k} {PROMPT}", "answer": "42"}) + "\n"


def environment(desk: Path, own: bool) -> dict[str, str]:
    """The variables of a run, whose caches and logs lie in its own folder. Our modules are for us only."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }
    homes = {name: str(desk / "home") for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME")}
    return {**kept, **QUIET, **homes, **({"PYTHONPATH": str(ROOT)} if own else {})}


def child(
    words: Sequence[str], desk: Path, environment: Mapping[str, str], at_most: float = AT_MOST
) -> dict[str, Any]:
    """Run a command to its end, the last line of whose output is what it wrote, as JSON: the fields of `Ran`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        process = subprocess.Popen(
            words, stdout=out, stderr=err, cwd=desk, env=environment, start_new_session=True
        )
        alarm = threading.Timer(at_most, os.killpg, (process.pid, signal.SIGKILL))
        alarm.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            alarm.cancel()
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said, complained = _lines(out), _lines(err)
    found = {"cpu": used.ru_utime + used.ru_stime, "wall": wall, "rss_mb": used.ru_maxrss / 1024}
    if process.returncode == -signal.SIGKILL and wall >= at_most:
        return {**found, "failed": f"not done within {at_most:g} s"}
    if process.returncode:
        return {
            **found,
            "failed": f"exit code {process.returncode}: {(complained or said or [''])[-1][:200]}",
        }
    try:
        told = json.loads(said[-1])
        return {**found, "written": int(told["written"]), "errors": int(told["errors"])}
    except (IndexError, ValueError, KeyError, TypeError):
        return {**found, "failed": f"said no figures: {(said or [''])[-1][:200]}"}


def _lines(file: Any) -> list[str]:
    file.seek(0)
    return str(file.read().decode(errors="replace")).strip().splitlines()
