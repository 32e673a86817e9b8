"""The fake server as a process of its own, as the tests that kill runs use it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import orjson

from runner.models.base import Call, Params, Reply, Request, Text, Turn
from runner.models.openai import OpenAI
from runner.testing import FakeOpenAI, pure_answer


async def asked_twice(url: str, tmp: Path) -> tuple[Reply, Reply]:
    model = OpenAI(model="m", base_url=url)
    await model.open(tmp)
    call = Call(Request("m", (Turn("prompt", Text("Why?")),), Params()), n=3, seed=7)
    replies = await model.call(call), await model.call(call)
    await model.close()
    return replies


def test_as_a_process_it_logs_each_request_and_answers_purely(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.testing", "--log", str(log)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first, again = asyncio.run(asked_twice(process.stdout.readline().strip(), tmp_path))
    finally:
        process.kill()
        process.communicate()
    assert first.choices == again.choices
    assert len({choice.text for choice in first.choices}) == 3
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert [(line["k"], line["n"], line["seed"], line["path"]) for line in lines] == [
        (0, 3, 7, "/v1/completions"),
        (1, 3, 7, "/v1/completions"),
    ]


def test_a_pure_answer_depends_on_prompt_seed_and_index_only() -> None:
    body = {"prompt": "p", "seed": 1, "n": 2}
    assert pure_answer(body, 0) == pure_answer(dict(body), 9)
    assert pure_answer(body, 0) != pure_answer({**body, "seed": 2}, 0)
    assert pure_answer({"prompt": "...\nThought 1:"}, 0)[0].count("Action 1: Search[") == 1
    assert "Finish[" in pure_answer({"prompt": "...\nThought 3:"}, 0)[0]


async def test_it_counts_draws_and_calls_at_once(tmp_path: Path) -> None:
    async with FakeOpenAI() as server:
        model = OpenAI(model="m", base_url=server.url)
        await model.open(tmp_path)
        for n in (1, 5):
            await model.call(Call(Request("m", (Turn("user", Text("Hi")),), Params()), n=n))
        await model.close()
    assert (server.draws, len(server.requests), server.peak) == (6, 2, 1)
