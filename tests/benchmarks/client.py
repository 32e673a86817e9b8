"""One measured run in a process of its own: `python -m tests.benchmarks.client KIND ADDRESS IN_FLIGHT CALLS`.

KIND: `bare`, a loop over pyreqwest that writes a JSON line a reply, which is as little as can be; `standard`, one
call an episode with everything switched on; `react`, eight calls an episode over the embedded encyclopedia;
`chains`, 21 chains a call. Prints JSON: CPU and wall seconds, the largest resident size, the loop's lag.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envs.base import Observation, Session, Task, World

PROMPT = "word " * 200
EXTRA = {"react": 8, "chains": 21}


class Bench(World):
    """Tasks of a 1 KB prompt, answered at once or after searches that find 300 characters."""

    name = "bench"
    acts = True
    count: int = 1000

    def tasks(self) -> Iterator[Task]:
        for k in range(self.count):
            yield Task(id=f"t{k}", input=f"{k} {PROMPT}", target="42")

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": float(answer == task.target)}

    def session(self, task: Task) -> Session:
        return Desk()


class Desk(Session):
    async def step(self, action: str) -> Observation:
        verb, _, words = action.removesuffix("]").partition("[")
        if verb == "finish":
            self.answer = words
            return Observation("", done=True)
        return Observation(f"result of {words} {'z' * 300}")


async def bare(address: str, in_flight: int, calls: int) -> None:
    import orjson
    from pyreqwest.client import ClientBuilder

    client = ClientBuilder().max_connections(in_flight + 10).build()
    url, left = f"{address}/chat/completions", iter(range(calls))
    with tempfile.TemporaryDirectory() as folder:
        out = os.open(f"{folder}/out.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        async def work() -> None:
            for k in left:
                messages = [{"role": "user", "content": f"{k} {PROMPT}"}]
                body = orjson.dumps(
                    {"model": "mock", "messages": messages, "temperature": 0, "max_tokens": 256}
                )
                request = client.post(url).header("content-type", "application/json").body_bytes(body).build()
                response = await request.send()
                reply = orjson.loads(bytes(await response.bytes()))
                row = {"id": k, "text": reply["choices"][0]["message"]["content"], "usage": reply["usage"]}
                os.write(out, orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(in_flight, calls)):
                tasks.create_task(work())
        os.close(out)


def job(kind: str, address: str, in_flight: int, calls: int) -> Any:
    from runner.job import Job

    episodes = max(calls // EXTRA.get(kind, 1), 1)
    model = {
        "provider": "openai",
        "model": "mock",
        "base_url": address,
        "in_flight": in_flight,
        "key_env": "",
        "price": {"input": 1.0, "output": 2.0},
    }
    settings: dict[str, Any] = {
        "name": "bench",
        "models": {"mock": model},
        "limits": {"max_episodes": in_flight},
    }
    if kind == "react":
        model["api"] = "completions"
        settings["envs"] = {"hotpotqa": {}}
        settings["trials"] = -(-episodes // 77)
        settings["methods"] = {"react": {"steps": 8}}
    else:
        settings["envs"] = {"bench": {"world": "tests.benchmarks.client:Bench", "count": episodes}}
        settings["methods"] = (
            {"standard": {}} if kind == "standard" else {"cot_sc": {"samples": 21, "until": "all"}}
        )
        model["max_n"] = 21 if kind == "chains" else 1
    return Job.parse(settings)


def ours(kind: str, address: str, in_flight: int, calls: int) -> dict[str, Any]:
    from functools import partial

    from runner import library, loop

    sys.stderr = io.TextIOWrapper(io.BytesIO())  # a terminal that takes all
    with tempfile.TemporaryDirectory() as folder:
        run = loop.run(partial(library.run, job(kind, address, in_flight, calls), outputs=Path(folder)))
        totals = run.manifest["totals"]
        return {
            "errors": totals["errors"],
            "calls": totals["calls"],
            "lag_ms": totals["loop_lag_p99_ms"],
            "pace": totals["pace"],
        }


def main(kind: str, address: str, in_flight: int, calls: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cpu, wall = time.process_time(), time.monotonic()
    more: dict[str, Any] = {}
    if kind == "bare":
        gc.set_threshold(50_000, 20, 50)
        import uvloop

        uvloop.run(bare(address, in_flight, calls))
    else:
        more = ours(kind, address, in_flight, calls)
    found = {
        "cpu": time.process_time() - cpu,
        "wall": time.monotonic() - wall,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **more,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
