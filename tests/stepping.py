"""A world of eight steps, and a server of its own process whose answers depend on the request alone.

`python -m tests.stepping [--log FILE] [--delay SECONDS] [--faults SHARE]` prints its address, serves until its
standard input ends, and then prints what it saw as JSON. The log has a line a request, written before the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import queue
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from envs.base import Observation, Session, Task, World
from runner.faults import Faults
from runner.jsonl import rows
from runner.ledger import Ledger
from runner.sampling import seed_of
from runner.testing import Delay, FakeOpenAI, Recorded, Script, prompt_of

STEPS = 8
_STEP = re.compile(r"(Thought|Action) (\d+):\s*$")

JOB = """
name = "steps"
seed = {seed}
[models.policy]
provider = "openai"
model = "fake"
api = "completions"
base_url = "{url}"
{model}
[envs.steps]
world = "{file}:Steps"
count = {count}
[methods.react]
[limits]
max_episodes = {in_flight}
"""


class Steps(World):
    """Questions that take eight steps, each with a page to read."""

    name = "steps"
    acts = True
    steps = STEPS
    count: int = 100

    def tasks(self) -> Iterator[Task]:
        for k in range(self.count):
            yield Task(id=f"t{k}", input=f"Which number is {k}?", target=str(k % 5))

    def session(self, task: Task) -> Session:
        return Reading()

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": float(answer == task.target)}


class Reading(Session):
    """Says something to each search."""

    async def step(self, action: str) -> Observation:
        if action.lower().startswith("finish["):
            self.answer = action[7:-1]
            return Observation("Done.", 1.0, True)
        return Observation(f"{action} is a page of some length, which says little that is of use.")


def answer(prompt: str, seed: Any) -> str:
    """What the server says to a prompt that ends in `Thought k:`; a search for k < 8, and then an answer."""
    number = int.from_bytes(hashlib.sha256(f"{prompt}\0{seed}".encode()).digest()[:4], "big")
    found = _STEP.search(prompt)
    if found is None:
        return f" Thinking of {number}.\nAnswer: {number % 5}"
    at = int(found[2])
    action = f"Search[Topic {number % 1000}]" if at < STEPS else f"Finish[{number % 5}]"
    return f" Thought {number}.\nAction {at}: {action}" if found[1] == "Thought" else f" {action}"


def script(body: dict[str, Any], k: int) -> list[str]:
    return [answer(prompt_of(body, whole=True), body.get("seed"))] * int(body.get("n") or 1)


def job(url: str, count: int, in_flight: int, *, seed: int = 7, **model: Any) -> str:
    """The text of a job file: so many episodes, of which so many run at once."""
    settings = {"in_flight": in_flight, **model}
    lines = "\n".join(f"{key} = {orjson.dumps(value).decode()}" for key, value in settings.items())
    return JOB.format(seed=seed, url=url, model=lines, file=Path(__file__), count=count, in_flight=in_flight)


class Server:
    """The server's process: its address, and in the end what it saw."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.url = process.stdout.readline().strip()
        self.seen: dict[str, Any] = {}

    def stop(self) -> None:
        out, _ = self._process.communicate()
        self.seen = orjson.loads(out)


@contextmanager
def server(log: Path | None = None, delay: float = 0.0, faults: float = 0.0) -> Iterator[Server]:
    """A server in a process of its own. `seen` is there when it is left: requests, answered, faults by kind."""
    words = ["--delay", str(delay), "--faults", str(faults), *(["--log", str(log)] if log else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stepping", *words],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    running = Server(process)
    try:
        yield running
    finally:
        running.stop()


def digest(prompt: str) -> str:
    """A prompt's name in logs of requests."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:16]


@dataclass
class Beside:
    """A server in a thread of this process: its address, how often each (prompt, seed) was asked so far, and what
    lets it answer those that it holds."""

    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    release: Callable[[], object] = lambda: None


@contextmanager
def beside(delay: float = 0.0, script: Script = script, hold: int | None = None) -> Iterator[Beside]:
    """The server, which answers all but the first `hold` requests only when it is released."""
    found = Beside()
    ready: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def note(request: Recorded) -> None:
        found.asked[f"{digest(request.prompt)} {request.body.get('seed')}"] += 1

    async def serve() -> None:
        over, released, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

        async def answer(body: dict[str, Any], k: int) -> Any:
            if hold is not None and k >= hold:
                await released.wait()
            said = script(body, k)
            return said if isinstance(said, Delay) else Delay(delay, said)

        async with FakeOpenAI(answer, on_request=note) as server:
            found.url = server.url
            found.release = lambda: loop.call_soon_threadsafe(released.set)
            ready.put(lambda: loop.call_soon_threadsafe(over.set))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    stop = ready.get()
    try:
        yield found
    finally:
        stop()
        thread.join()


def wrong_draws(run: Path, seed: int) -> list[tuple[str, str, int]]:
    """Draws of a run's ledger that are not what the server answers to their prompt and seed, or are there twice."""
    ledger, seen = Ledger(run / "ledger.jsonl"), Counter[tuple[str, str, int]]()
    wrong = []
    try:
        for row in rows(run / "ledger.jsonl"):
            if row["kind"] != "draw":
                continue
            key = row["scope"], row["hash"], row["i"]
            seen[key] += 1
            request = ledger.request(row["hash"])
            assert request is not None
            right = answer(request.prompt, seed_of(seed, *key))
            if not right.startswith(row["text"]) or not row["text"] or seen[key] > 1:
                wrong.append(key)
    finally:
        ledger.close()
    return wrong


async def _serve(delay: float, share: float, log: int | None) -> None:
    def slow(body: dict[str, Any], k: int) -> Any:
        return spoilt if isinstance(spoilt := faults(body, k), Delay) else Delay(delay, spoilt)

    def note(request: Recorded) -> None:
        server.requests.clear()  # an hour's would fill the memory
        server.requests.append(request)
        Count.requests += 1
        if log is not None:
            os.write(
                log,
                orjson.dumps({"prompt": digest(request.prompt), "seed": request.body.get("seed")}) + b"\n",
            )

    class Count:
        requests = 0

    class Numbered(FakeOpenAI):
        def answer(self, request: Recorded) -> Any:
            return self.script(request.body, Count.requests)

    faults = Faults(script, share=share, seed=1)
    async with Numbered(slow, on_request=note) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    seen = {"requests": Count.requests, "answered": faults.answered, "faults": dict(faults.served)}
    sys.stdout.write(orjson.dumps(seen).decode() + "\n")


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.stepping")
    words.add_argument("--log", help="file that gets one JSON line a request")
    words.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    words.add_argument("--faults", type=float, default=0.0, help="share of answers that are faults")
    given = words.parse_args()
    log = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if given.log else None
    run = _serve(given.delay, given.faults, log)
    try:
        import uvloop
    except ImportError:
        asyncio.run(run)
    else:
        uvloop.run(run)


if __name__ == "__main__":
    main()
