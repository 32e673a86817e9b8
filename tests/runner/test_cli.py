"""The command, as a person meets it: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from runner.cli import main
from runner.results import warnings
from tests.killing import IN_FLIGHT, JOB, SEED, lines, overnight, server, wait_for_lines

ROOT = Path(__file__).parent.parent.parent

SMALL = """
name = "small"
limit = 2
[models.policy]
provider = "scripted"
replies = [" So.\\nAction 1: Finish[yes]", " So.\\nAnswer: yes"]
[envs.hotpotqa]
[methods.react]
[methods.cot_sc]
samples = 2
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def call(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def folder_of(result):
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("outputs")]
    return Path(line)


def test_run_prints_a_table_and_the_folder(job):
    result = call("run", job)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split() == [
        *("method", "n", "EM", "F1", "EM~", "steps", "calls", "tokens", "seconds", "errors")
    ]
    assert (folder_of(result) / "trajectories.jsonl").exists()


def test_status_says_how_a_run_stands_in_words_and_in_json(job):
    folder = folder_of(call("run", job))
    words = call("status", folder).stdout
    assert "finished, 4 of 4 episodes" in words and "paid for: 6 calls" in words
    found = json.loads(call("status", folder, "--json").stdout)
    assert found["status"] == "finished" and found["totals"]["done"] == 4
    assert {cell["method"] for cell in found["cells"]} == {"react", "cot_sc"}


def test_plan_counts_what_methods_share_once_and_asks_nothing(job):
    found = json.loads(
        call("plan", job, "--json", "--set", "methods.nine={method='cot_sc',samples=9}").stdout
    )
    assert (found["tasks"], found["episodes"]) == (2, 6)
    assert found["draws"] == 2 * (7 + 9)
    assert not Path("outputs").exists()


def test_render_prints_the_exact_first_prompt(job):
    text = call(
        "render", job, "--task", "enc-q001", "--method", "react", "--set", "models.policy.api='completions'"
    )
    assert text.exit_code == 0
    assert text.stdout.endswith("\nThought 1:") and "Question: " in text.stdout
    chat = call("render", job, "--task", "enc-q001", "--method", "react").stdout
    assert chat.startswith("--- system\n") and "--- user\n" in chat


def test_a_wrong_word_is_answered_with_the_nearest_and_nothing_is_written(job):
    job.write_text(SMALL.replace("samples = 2", "sampels = 2"))
    result = call("run", job)
    assert result.exit_code == 2
    assert "small.toml, line 10 (methods.cot_sc.sampels)" in result.stderr
    assert "did you mean 'samples'?" in result.stderr and "Traceback" not in result.output
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "smal.toml"), 2, "did you mean 'small.toml'?"),
        (("resume", "outputs/none"), 3, "no run here"),
        (("status", "."), 3, "no run here"),
        (("render", "small.toml", "--task", "zzz", "--method", "react"), 1, "no task 'zzz'"),
        (("render", "small.toml", "--task", "enc-q001", "--method", "raect"), 2, "did you mean 'react'?"),
        (("run", "small.toml", "--set", "limit"), 2, "key=value"),
        (("run", "small.toml", "--set", "envs.hotpotqa.data='missing.json'"), 2, "missing.json"),
    ],
)
def test_mistakes_get_one_clear_message_and_an_exit_code(job, words, code, said):
    result = call(*words)
    assert result.exit_code == code, result.output
    assert said in result.stderr and "Traceback" not in result.output


def test_episodes_in_error_are_counted_and_the_exit_code_says_so(job):
    result = call("run", job, "--set", "models.policy.replies=[]")
    assert result.exit_code == 4  # a scripted model without replies stops its cell
    assert "overnight resume outputs/" in result.stderr


def test_cells_of_several_models_are_named_apart_at_the_end(job):
    result = call("run", job, "--set", 'models.other={provider="scripted", model="b", replies=[]}')
    assert re.search(r"^  other cot_sc: [12] error$", result.stdout, re.M), result.stdout


def test_what_makes_it_another_experiment_is_said_at_the_end_and_by_status(job):
    """Twenty-one chains that are one, as of a server with a cache, must not look like a vote."""
    result = call(
        "run",
        job,
        "--set",
        "models.policy.replies=[' Answer: x']",
        "--set",
        "limit=1",
        "--set",
        "methods.cot_sc.until=all",
    )
    line = "warning: cot_sc: 1 of 1 episodes with the same text in every draw"
    assert line in result.stderr
    assert line in call("status", folder_of(result)).stdout


@pytest.mark.parametrize("alike, warned", [(0, False), (5, False), (8, False), (9, True), (10, True)])
def test_a_few_easy_questions_are_no_fault_of_sampling(alike, warned):
    flags = {"identical_draws": alike, "only_thoughts": 1}
    cell = {"env": "e", "method": "cot_sc", "model": "m", "n": 10, "flags": flags}
    found = list(warnings({"cells": [cell]}))
    assert any(f"{alike} of 10 episodes with the same text" in line for line in found) == warned
    assert any("1 of 10 episodes with a reply of thoughts alone" in line for line in found)


def test_list_names_methods_worlds_and_models():
    words = call("list").stdout
    assert "react_then_cot_sc" in words and "hotpotqa" in words and "anthropic" in words
    assert "react" not in call("list", "worlds").stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom runner.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'httpx', 'pydantic', 'anyio', 'tqdm', 'pandas', 'xllamacpp', 'orjson'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "resume" in done.stdout


@pytest.fixture
def long_run(tmp_path):
    """A run against a slow local server, in a process of its own, once it has asked a few times."""
    log = tmp_path / "log"
    with server(log, delay=0.15) as url:
        path = tmp_path / "job.toml"
        path.write_text(JOB.format(tasks=20, url=url, max_n=1, in_flight=IN_FLIGHT, seed=SEED))
        process = overnight("run", str(path), cwd=tmp_path)
        wait_for_lines(log, 5, process)
        try:
            yield process, tmp_path
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()


def the_run(folder):
    (run,) = (folder / "outputs").iterdir()
    return run


def test_one_ctrl_c_drains_and_exits_130_and_the_run_resumes(long_run):
    process, folder = long_run
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said.decode()
    assert b"overnight resume" in said and b"Traceback" not in said
    manifest = json.loads((the_run(folder) / "run.json").read_text())
    assert manifest["status"] == "interrupted"
    rows = [json.loads(line) for line in (the_run(folder) / "trajectories.jsonl").read_text().splitlines()]
    assert 0 < len(rows) < 60 and {row["status"] for row in rows} <= {"finished", "no_answer", "step_limit"}
    done = overnight("resume", str(the_run(folder)), cwd=folder)
    _, said = done.communicate()
    assert done.returncode == 0, said.decode()
    assert lines(the_run(folder) / "trajectories.jsonl") == 60


def test_two_ctrl_c_stop_now_and_exit_130(tmp_path):
    """No answer comes for ten minutes: what only waits for the calls in flight does not end in time."""
    log, job = tmp_path / "log", tmp_path / "job.toml"
    often = "import runner.progress as p; p.EVERY_LINE = 0.1; from runner.cli import main; main()"
    with server(log, delay=600) as url:
        job.write_text(JOB.format(tasks=20, url=url, max_n=1, in_flight=IN_FLIGHT, seed=SEED))
        process = subprocess.Popen(
            [sys.executable, "-c", often, "run", str(job)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            wait_for_lines(log, IN_FLIGHT, process)
            process.send_signal(signal.SIGINT)
            assert any(b"Ctrl-C again stops now" in line for line in islice(process.stderr, 600))
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 130, said.decode()
    assert b"overnight resume" in said and b"Traceback" not in said
    manifest = json.loads((the_run(tmp_path) / "run.json").read_text())
    assert manifest["status"] == "interrupted" and manifest["totals"]["done"] == 0
    assert manifest["totals"]["possibly_billed_attempts"] == lines(log) == IN_FLIGHT


def test_a_run_in_progress_is_seen_and_its_folder_refused_to_others(long_run):
    process, folder = long_run
    assert "running" in call("status", the_run(folder)).stdout
    result = call("resume", the_run(folder))
    assert result.exit_code == 3 and f"process {process.pid} is working on this run" in result.stderr


def test_status_of_a_live_run_names_the_calls_that_take_longest(tmp_path):
    log = tmp_path / "log"
    with server(log, delay=600) as url:
        path = tmp_path / "job.toml"
        path.write_text(JOB.format(tasks=2, url=url, max_n=1, in_flight=IN_FLIGHT, seed=SEED))
        process = overnight("run", str(path), cwd=tmp_path)
        try:
            wait_for_lines(log, 2, process)
            now = None
            while not now or not now["longest_calls"]:
                assert process.poll() is None
                now = json.loads((the_run(tmp_path) / "run.json").read_text()).get("now")
            words = call("status", the_run(tmp_path)).stdout
        finally:
            process.kill()
            process.communicate()
    assert "now: 0.0 calls/s" in words and "s under way: hotpotqa/enc-q" in words and url in words


def test_a_killed_run_is_told_from_a_running_one(long_run):
    process, folder = long_run
    process.kill()
    process.communicate()
    words = call("status", the_run(folder)).stdout
    assert "died" in words and "overnight resume" in words


def test_rows_from_an_open_pipe_are_run_as_they_come_and_ctrl_c_ends_the_waiting(tmp_path):
    job = tmp_path / "pipe.toml"
    job.write_text(
        '[models.policy]\nprovider = "scripted"\nreplies = [" Answer: 2"]\n'
        '[envs.qa]\ndata = "-"\nanswer = "number"\n[methods.standard]\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "run", str(job)],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    for k in range(3):
        process.stdin.write(b'{"id": "%d", "question": "One and one?", "answer": 2}\n' % k)
        process.stdin.flush()
    while not list(tmp_path.glob("outputs/*/trajectories.jsonl")):
        assert process.poll() is None, process.stderr.read()
    (rows,) = tmp_path.glob("outputs/*/trajectories.jsonl")
    wait_for_lines(rows, 3, process)
    assert lines(rows) == 3 and process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)  # its input is closed only after it has ended
    assert process.returncode == 130, said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_standard_output_is_said_in_one_line_and_the_run_is_whole(job):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "runner", "run", str(job), "--quiet"],
            stdout=full, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert b"No space left" in done.stderr and b"Traceback" not in done.stderr
    (run,) = Path("outputs").iterdir()
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


def test_without_a_terminal_progress_is_plain_lines(job):
    done = subprocess.run(
        [sys.executable, "-m", "runner", "run", str(job)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"\r" not in done.stderr


def test_rescore_says_which_rows_it_could_not_make_anew(job):
    rule = Path("rule.py")
    rule.write_text("def some(votes, left):\n    return 1 - len(votes.chains)\n")
    folder = folder_of(call("run", job, "--set", "methods.cot_sc.until=rule.py:some"))
    assert "keep the rows" not in call("rescore", folder).stderr
    rule.write_text("def some(votes, left):\n    return 2 - len(votes.chains)\n")
    result = call("rescore", folder)
    assert "2 episodes keep the rows they had" in result.stderr and result.exit_code == 0
