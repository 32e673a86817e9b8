"""A run of very many episodes: its memory, a resume after `kill -9`, and how soon the first request goes out.

`python -m tests.full million [--episodes N]`: a data set of N rows, one call an episode. The run and its resumes are
processes of their own; replies come from within them, so that nothing but overnight is measured. The first request
is awaited at a socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from runner import library, loop
from runner.execution import Execution
from runner.job import Job
from runner.models.http import HttpModel
from runner.models.transport import Response

EPISODES = 1_000_000
AT_ONCE = 1000
LEFT = 1000
"""Episodes that are owed when the run is killed."""
JOB = """
name = "million"
[models.policy]
provider = "openai"
model = "mock"
base_url = "{url}"
key_env = ""
in_flight = {at_once}
price = {{input = 1.0, output = 2.0}}
[envs.questions]
world = "qa"
data = "rows.jsonl"
answer = "text"
[methods.standard]
[limits]
max_episodes = {at_once}
"""
REPLY = {
    "id": "x",
    "object": "chat.completion",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 1, "total_tokens": 61},
}  # fmt: skip


class Answers:
    """A transport that says the same to all, to those who asked within 2 ms together, and when it was first asked."""

    def __init__(self) -> None:
        self.body = orjson.dumps(REPLY)
        self.first: float | None = None
        self.first_cpu = 0.0
        self._asked: list[asyncio.Future[None]] = []

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if self.first is None:
            self.first, self.first_cpu = time.time(), time.process_time()
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_later(0.002, self._answer)
        self._asked.append(loop.create_future())
        await self._asked[-1]
        return Response(200, {"content-type": "application/json"}, self.body)

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            if not each.done():
                each.set_result(None)

    async def close(self) -> None:
        pass


def rss_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def write_rows(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for k in range(count):
            question = (
                f"A farm has {k} hens and each lays {k % 7} eggs in a week. " * 3 + "How many are that?"
            )
            file.write(json.dumps({"id": f"q{k}", "question": question, "answer": k % 50}) + "\n")


def child(folder: Path, kill_at: int, every: int) -> dict[str, Any]:
    """Run the job of a folder, or resume its run. With `kill_at` the process kills itself when so many are done."""
    began = float(os.environ.get("BEGAN", time.time()))
    job, answers = Job.read(folder / "job.toml"), Answers()
    for model in job.models.values():
        assert isinstance(model, HttpModel)
        model.use(answers)
    marks: list[dict[str, float]] = []

    async def watch(execution: Execution) -> None:
        at = every
        while True:
            counts = execution.counts
            if counts.done >= at:
                marks.append({"done": counts.done, "s": round(time.time() - began, 1), "rss_mb": rss_mb()})
                (folder / "marks.json").write_bytes(orjson.dumps(marks))
                at = counts.done - counts.done % every + every
            if kill_at and counts.done >= kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(0.02)

    runs = list((folder / "outputs").glob("*/run.json"))
    if runs:
        run = loop.run(partial(library.resume, runs[0].parent, job=job, progress=watch))
    else:
        run = loop.run(partial(library.run, job, outputs=folder / "outputs", progress=watch))
    totals = run.manifest["totals"]
    return {
        "status": run.status,
        "done": totals["done"],
        "calls": totals["calls"],
        "errors": totals["errors"],
        "cut_off": totals["cut_off_attempts"],
        "first_request_s": None if answers.first is None else round(answers.first - began, 2),
        "first_request_cpu_s": round(answers.first_cpu, 2),
        "seconds": round(time.time() - began, 1),
        "cpu_s": round(time.process_time(), 1),
        "rss_mb": rss_mb(),
        "most_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "loop_lag_p99_ms": totals["loop_lag_p99_ms"],
        "marks": marks,
    }


def started(folder: Path, kill_at: int = 0, every: int = 0) -> dict[str, Any]:
    """What `child` says, in a process of its own; of one that killed itself what it had noted by then."""
    words = [sys.executable, "-m", "tests.million", str(folder), str(kill_at), str(every or EPISODES)]
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, "BEGAN": str(time.time())},
        cwd=Path(__file__).parents[1],
    )
    if kill_at:
        assert done.returncode == -signal.SIGKILL, done
        return {"marks": orjson.loads((folder / "marks.json").read_bytes())}
    assert done.returncode == 0, done
    found: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def first_request(folder: Path) -> tuple[float, float]:
    """Seconds from the start of `overnight run` to the first byte of a request, with all rows to read; and the CPU
    seconds that it took."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        (folder / "first.toml").write_text(JOB.format(url=url, at_once=AT_ONCE))
        words = [sys.executable, "-m", "runner", "run", str(folder / "first.toml")]
        began = time.monotonic()
        process = subprocess.Popen(
            [*words, "--outputs", str(folder / "first"), "--quiet"],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        try:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
            seconds = time.monotonic() - began
        finally:
            process.kill()
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = -signal.SIGKILL
    return round(seconds, 3), round(used.ru_utime + used.ru_stime, 3)


def full(episodes: int = EPISODES) -> dict[str, Any]:
    """For `tests.full`: prints and returns the figures."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_rows(folder / "rows.jsonl", episodes)
        (folder / "job.toml").write_text(JOB.format(url="http://127.0.0.1:9/v1", at_once=AT_ONCE))
        busy = round(os.getloadavg()[0], 1)
        figures: dict[str, Any] = {
            "episodes": episodes,
            "in_flight": AT_ONCE,
            "load_of_the_machine_before": busy,
        }
        firsts = [first_request(folder) for _ in range(3)]
        figures["first_request_s"], figures["first_request_cpu_s"] = map(min, zip(*firsts, strict=True))
        say(f"first request after {figures['first_request_s']} s\n")
        figures["run"] = started(folder, episodes - LEFT, every=episodes // 10)
        say(f"run: {figures['run']}\n")
        (run,) = (folder / "outputs").iterdir()
        for name in ("trajectories.jsonl", "ledger.jsonl", "ledger.index"):
            size = (run / name).stat().st_size if (run / name).exists() else 0
            figures["run"][f"{name} mb"] = round(size / 2**20, 1)
        shutil.copytree(run, folder / "kept")
        figures["resume"] = started(folder)
        say(f"resume: {figures['resume']}\n")
        shutil.rmtree(run)
        shutil.move(folder / "kept", run)
        (run / "ledger.index").unlink(missing_ok=True)
        figures["resume_without_index"] = started(folder)
        say(f"resume without the index: {figures['resume_without_index']}\n")
    return figures


def say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    say(json.dumps(child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))) + "\n")
