"""What a person sees of a run that goes on: the words of a line, and what a pipe or a terminal gets."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, ClassVar

import anyio
import pytest
from tqdm import tqdm

import runner.progress
from runner import library
from runner.errors import Transient, Unsupported
from runner.execution import Counts, Execution
from runner.job import Job
from runner.models.base import Call
from runner.progress import Progress
from runner.vitals import Vitals
from tests.killing import IN_FLIGHT, JOB, SEED, lines, server

ROOT = Path(__file__).parent.parent.parent


def execution(
    *, running: int = 0, flying: int = 0, waiting: int = 0, retrying: tuple[str, ...] = (), interrupted: int = 0,
    took: float = 60.0, **counts: Any,
) -> Any:  # fmt: skip
    """What a line is made from, as a run has it `took` seconds after it began."""
    passage = SimpleNamespace(flying=flying, waiting=waiting, retrying=dict(enumerate(retrying)))
    return SimpleNamespace(
        counts=Counts(began=monotonic() - took, **counts),
        passages={"policy": passage},
        scheduler=SimpleNamespace(in_flight=running),
        notices={},
        interrupted=interrupted,
    )


def line(**state: Any) -> str:
    return Progress(io.StringIO()).line(execution(**state))


# -- a line's words ------------------------------------------------------------------------------------


def test_a_line_says_how_much_is_done_and_what_is_under_way() -> None:
    said = line(total=40, done=10, running=5, flying=3)
    assert said.startswith("overnight: 10/40 episodes in 1:00, about 3:00 left, ")
    assert said.endswith("5 running, 3 calls in flight")


def test_before_the_plan_is_counted_there_is_no_total_and_no_time_left() -> None:
    said = line(total=None, done=10)
    assert said.startswith("overnight: 10 episodes in 1:00, 0 running")


def test_before_the_first_episode_has_ended_no_time_left_is_made_up() -> None:
    assert "left" not in line(total=40, running=9)
    assert "left" not in line(total=40, already=30, running=9)


@pytest.mark.parametrize(
    ("counts", "left"),
    [
        ({"total": 110, "already": 100, "done": 5}, "1:00"),  # 5 of 10 in a minute, not 105 of 110
        ({"total": 110, "already": 0, "done": 100}, "0:06"),
        ({"total": 100, "already": 20, "done": 20, "skipped": 60}, "0:00"),  # skipped ones are never run
        ({"total": 10_000, "already": 0, "done": 10}, "16:39:00"),
    ],
)
def test_the_time_left_goes_by_what_this_process_did(counts: dict[str, int], left: str) -> None:
    assert f"about {left} left" in line(**counts)


def test_episodes_that_were_done_before_count_as_done() -> None:
    assert "105/110 episodes" in line(total=110, already=100, done=5)


def test_what_waits_and_what_failed_is_said_only_where_there_is_some() -> None:
    quiet = line(total=9, done=3)
    assert not any(word in quiet for word in ("queued", "retry", "error", "Ctrl-C"))
    busy = line(total=9, done=3, errors=2, waiting=7, retrying=("http://x: 500", "http://x: 429 slow down"))
    assert "7 queued" in busy and "2 errors" in busy
    assert "2 waiting to retry (http://x: 429 slow down)" in busy


def test_a_long_reason_is_cut_and_a_line_stays_one_line() -> None:
    said = line(total=9, retrying=("word " * 200,))
    assert "1 waiting to retry (" in said and len(said) < 200 and "\n" not in said


def test_calls_of_all_models_are_counted() -> None:
    state = execution(flying=3, waiting=1, retrying=("busy",))
    other = execution(flying=4, waiting=2)
    state.passages["judge"] = other.passages["policy"]
    said = Progress(io.StringIO()).line(state)
    assert "7 calls in flight, 3 queued, 1 waiting to retry (busy)" in said


def test_a_drain_says_how_to_stop_now() -> None:
    assert "Ctrl-C" not in line(total=9, interrupted=0)
    said = line(total=9, interrupted=1, errors=2)
    assert re.search(
        r" in 1:00, stopping when these have ended; Ctrl-C again stops now, 2 errors, 0 run", said
    )


def test_what_presses_most_comes_first_as_a_narrow_terminal_cuts_the_rest() -> None:
    state = execution(running=5, waiting=37, errors=2)
    reading = Vitals(2.0, 900.0, (("http://x", "requests a minute", 3.0, 60.0),),
                     ("policy: waiting 45 s (429), 37 calls",), ("$1.00 of $5",), ())  # fmt: skip
    state.pulse = SimpleNamespace(take=lambda: reading)
    assert Progress(io.StringIO()).line(state).split("in 1:00, ")[1] == (
        "2 errors, 5 running, 0 calls in flight, policy: waiting 45 s (429), 37 calls, "
        "2.0 calls/s, 900 tokens/s, 5% of 60 requests a minute, $1.00 of $5"
    )


# -- a run ---------------------------------------------------------------------------------------------


def job(script: Any, limit: int = 6) -> Job:
    made = Job.parse(
        {
            "limit": limit,
            "models": {"policy": {"provider": "scripted"}},
            "envs": {"hotpotqa": {}},
            "methods": {"standard": {}},
        }
    )
    made.models["policy"]._script = script  # type: ignore[attr-defined]
    return made


async def until(condition: Any) -> None:
    while not condition():
        await anyio.sleep(0.005)


async def test_a_run_tells_what_is_in_flight_and_why_calls_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six episodes one ends, one fails, one pauses before another try, and three wait for an answer."""
    monkeypatch.setattr("runner.models.passage.random.uniform", lambda low, high: 600.0)
    calls = 0

    async def script(call: Call) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            return " yes"
        if calls == 2:
            raise RuntimeError("no")
        if calls == 3:
            raise Transient("the server is busy")
        await anyio.sleep_forever()
        return ""

    said: list[str] = []

    async def watch(running: Execution) -> None:
        await until(lambda: running.counts.done == 2 and running.passages["policy"].retrying)
        await until(lambda: running.passages["policy"].flying == 3 and running.counts.total)
        said.append(Progress(io.StringIO()).line(running))
        running.interrupt()
        said.append(Progress(io.StringIO()).line(running))
        running.interrupt()

    run = await library.run(job(script), outputs=tmp_path, progress=watch)
    assert run.status == "interrupted"
    before, after = said
    assert re.match(r"overnight: 2/6 episodes in \d+:\d\d, about \d+:\d\d left, ", before)
    now = "1 errors, 4 running, 3 calls in flight, 1 waiting to retry (the server is busy)"
    assert before.endswith(f" left, {now}")
    assert after.endswith(f" left, stopping when these have ended; Ctrl-C again stops now, {now}")


async def test_a_resumed_run_counts_what_was_done_and_not_in_its_pace(tmp_path: Path) -> None:
    first = await library.run(job(lambda call: " yes", limit=4), outputs=tmp_path, progress=False)

    async def slow(call: Call) -> str:
        if "held" in said:
            await anyio.sleep_forever()
        said["held"] = ""
        return " yes"

    said: dict[str, str] = {}

    async def watch(running: Execution) -> None:
        await until(lambda: running.counts.done == 1 and running.counts.total)
        running.counts.began = monotonic() - 60
        said["line"] = Progress(io.StringIO()).line(running)
        running.interrupt()
        running.interrupt()

    await library.resume(first.path, job=job(slow, limit=7), accept_changes=True, progress=watch)
    assert said["line"].startswith("overnight: 5/7 episodes in 1:00, about 2:00 left, ")


async def shown_of(tmp_path: Path, stream: Any, complete: Any) -> library.Run:
    """Run until `complete()` of what was shown, then let the model answer."""
    answer = anyio.Event()

    async def script(call: Call) -> str:
        await answer.wait()
        return " yes"

    async def watch(running: Execution) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Progress(stream), running)
            await until(complete)
            answer.set()

    return await library.run(job(script), outputs=tmp_path, progress=watch)


async def test_a_log_gets_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.progress, "EVERY_LINE", 0.01)
    log = io.StringIO()
    found = await shown_of(tmp_path, log, lambda: log.getvalue().count("/6 episodes") >= 3)
    assert found.status == "finished"
    written = log.getvalue()
    assert "\r" not in written and written.endswith("\n")
    said = [line for line in written.splitlines() if line != str(found.path)]
    assert len(said) >= 3 and all(re.match(r"overnight: \d+(/6)? episodes in ", line) for line in said)
    assert re.search(r"^overnight: 0/6 episodes in \d+:\d\d, 6 running, 6 calls in flight$", written, re.M)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """One of unknown width, which gets whole bars, often."""
    monkeypatch.setattr(runner.progress, "EVERY_BAR", 0.01)
    monkeypatch.delenv("COLUMNS", raising=False)
    return Terminal()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_terminal_gets_a_bar_that_ends_full(tmp_path: Path, terminal: Terminal) -> None:
    await shown_of(tmp_path, terminal, lambda: "6 running, 6 calls in flight" in terminal.getvalue())
    frames = terminal.getvalue().split("\r")
    bars = [frame for frame in frames if re.search(r"\d/6 ", frame)]
    assert len(bars) > 1 and "100%" in bars[-1] and bars[-1].endswith("\n")
    assert frames[-1].startswith("0 running, 0 calls in flight") and frames[-1].endswith("\n")


async def test_a_bar_starts_at_what_was_done_before(tmp_path: Path, terminal: Terminal) -> None:
    first = await library.run(job(lambda call: " yes", limit=4), outputs=tmp_path, progress=False)

    async def script(call: Call) -> str:
        await until(lambda: "4/7" in terminal.getvalue())
        return " yes"

    await library.resume(
        first.path, job=job(script, limit=7), accept_changes=True, progress=Progress(terminal)
    )
    bars = [frame for frame in terminal.getvalue().split("\r") if "ep/s" in frame or "s/ep" in frame]
    assert "7/7" in bars[-1] and not any(f" {done}/7" in frame for done in range(1, 4) for frame in bars)


class NotebookBar(tqdm):  # type: ignore[type-arg]
    """A terminal's bar that keeps to a notebook's rule: its length is what `reset` says, its thread the kernel's."""

    length: float | None = None
    threads: ClassVar[set[int]] = set()

    def reset(self, total: float | None = None) -> None:
        self.length = total
        super().reset(total=total)

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.add(threading.get_ident())
        return super().refresh(*args, **kwargs)

    def close(self) -> None:
        if not self.disable:
            self.fp.write(f"[{self.n} of {self.length}]")
        super().close()


async def test_a_notebook_gets_a_bar_that_has_a_length_and_is_drawn_by_its_own_thread(
    tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setattr("tqdm.auto.tqdm", NotebookBar)
    await shown_of(tmp_path, terminal, lambda: "6 running, 6 calls in flight" in terminal.getvalue())
    assert "[6 of 6]" in terminal.getvalue()
    assert NotebookBar.threads == {threading.get_ident()}


@pytest.mark.parametrize("on_terminal", [True, False])
async def test_a_refused_temperature_is_told_at_once_and_once(
    tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    monkeypatch.setattr(runner.progress, "EVERY_LINE", 0.01)
    monkeypatch.setattr(terminal, "isatty", lambda: on_terminal)
    told = "warning: m at x refuses `temperature`"
    calls = 0

    async def script(call: Call) -> str:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise Unsupported("m at x refuses `temperature`", "temperature")
        await until(lambda: told in terminal.getvalue())
        return " yes"

    await library.run(job(script), outputs=tmp_path, progress=Progress(terminal))
    assert terminal.getvalue().count(told) == 1


async def test_progress_can_be_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    await library.run(job(lambda call: " yes"), outputs=tmp_path, progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_pipe_gets_plain_lines_while_the_run_goes_on(tmp_path: Path) -> None:
    """The whole command, its standard error a pipe that is read as it is written."""
    log, file = tmp_path / "log", tmp_path / "job.toml"
    often = "import runner.progress as p; p.EVERY_LINE = 0.05; from runner.cli import main; main()"
    with server(log, delay=0.2) as url:
        file.write_text(JOB.format(tasks=4, url=url, max_n=1, in_flight=IN_FLIGHT, seed=SEED))
        done = subprocess.run(
            [sys.executable, "-c", often, "run", str(file)],
            cwd=tmp_path,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=50,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert b"\r" not in done.stderr and b"\x1b" not in done.stderr
    (folder,) = (tmp_path / "outputs").iterdir()
    said = [line for line in done.stderr.decode().splitlines() if line != f"outputs/{folder.name}"]
    assert said and all(line.startswith("overnight: ") for line in said)
    counted = [
        int(found[1])
        for line in said
        if (found := re.match(r"overnight: (\d+)/12 episodes in \d+:\d\d", line))
    ]
    assert counted and counted == sorted(counted) and set(counted) <= set(range(13))
    assert any(re.search(r"[1-9]\d* running, [1-9]\d* calls in flight", line) for line in said)
    assert lines(log) > 0
