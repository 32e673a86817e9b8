"""Every command and snippet of the README does what it says."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

import runner
from envs.base import World
from runner import library
from runner.analysis.table1 import METHODS
from runner.cli import main
from runner.job import Job
from runner.methods.base import Method
from runner.methods.cot import Cot
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.models.base import Model
from runner.models.scripted import scripted
from runner.testing import pure_answer
from runner.testing_batches import FakeOpenAIBatches, answers

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
SCRIPTED = """
[models.policy]
provider = "scripted"
replies = [" So it is clear.\\nAction 1: Finish[yes]", " It is so.\\nAnswer: yes", " Hm.\\nAnswer: no"]
"""


def snippets(kind):
    return [text for found, text in BLOCKS if found == kind]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder like a checkout, whose jobs ask a scripted model instead of the embedded one (that has its own
    test)."""
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    for name in ("quickstart.toml", "table1.toml", "webshop.toml", "webarena.toml"):
        job = tmp_path / "jobs" / name
        text, count = re.subn(
            r"^\[models\.policy\]\n(\w.*\n)+", lambda _: SCRIPTED, job.read_text("utf-8"), flags=re.M
        )
        assert count == 1
        job.write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def marked(mark):
    """The commands of the block behind a mark."""
    (found,) = re.findall(rf"<!-- {mark} -->\n```bash\n(.*?)```", TEXT, re.S)
    return found.splitlines()


def test_overnight_commands_work_as_written(desk):
    """In order, each on the folder that the last `run` printed."""
    folder, ran = None, 0
    elsewhere = {
        *marked("batch"),
        *marked("files"),
        *marked("shop"),
        *marked("webarena"),
    }  # these have tests of their own
    for command in COMMANDS:
        if not command.startswith("overnight ") or command in elsewhere:
            continue
        if "<run>" in command:
            assert folder is not None
            command = command.replace("outputs/<run>", str(folder))
        done = subprocess.run(
            [sys.executable, "-m", "runner", *shlex.split(command)[1:]],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout.strip(), command
        for line in done.stdout.splitlines():
            if line.startswith("outputs/") and Path(line).is_dir():
                folder = Path(line)
        ran += 1
    assert ran >= 8
    assert folder is not None and (folder / "trajectories.jsonl").exists()


async def overnight(command, folder, **more):
    """A command of the README in a process of its own; gives its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runner", *shlex.split(command.replace("outputs/<run>", str(folder)))[1:],
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_the_batch_commands_work_as_written(desk):
    job = desk / "jobs" / "batch.toml"
    async with FakeOpenAIBatches(pure_answer) as server:
        own = f'mode = "batch"\nbase_url = "{server.url}"\nbatch = {{ shortest_pause = 0.01 }}'
        job.write_text(job.read_text("utf-8").replace('mode = "batch"', own), "utf-8")
        submit, status, resume = marked("batch")
        code, out = await overnight(submit, None, OPENAI_API_KEY="k")
        assert code == 6, out
        assert "batch_0 is under way since" in out and len(server.batches) == 1
        (folder,) = (desk / "outputs").iterdir()
        code, out = await overnight(status, folder)
        assert code == 0 and "batch batch_0 of policy: submitted" in out and "go on with" in out
        code, out = await overnight(resume, folder, OPENAI_API_KEY="k")
        assert code == 0 and "cot_sc" in out, out
    assert len(list(runner.load(folder).trajectories)) == 10


def test_the_batch_commands_by_files_work_as_written(desk):
    (first, answer, read, again), folder, waves = marked("files"), None, 0

    def said(command):
        words = shlex.split(command.replace("outputs/<run>", str(folder)))[1:]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return done.output

    out = said(first)
    while "RESULTS" in out:
        (folder,) = Path("outputs").iterdir()
        assert shlex.split(answer)[2:6] == ["-i", "wave.jsonl", "-o", "results.jsonl"]
        requests = Path("wave.jsonl").read_bytes()
        Path("results.jsonl").write_bytes(answers(requests, FakeOpenAIBatches(pure_answer), shape="vllm"))
        assert "replies kept" in said(read)
        waves += 1
        out = said(again)
    assert waves == 3
    assert runner.load(folder).status == "finished" and "react" in out


async def test_webarenas_job_runs_as_written(desk):
    if find_spec("playwright") is None:
        pytest.skip("needs overnight[webarena]")
    from envs.webarena.chromium import MISSING, program

    if program() is None:
        pytest.skip(MISSING)
    (command,) = marked("webarena")
    code, out = await overnight(command, None)
    assert code == 0, out
    (folder,) = (desk / "outputs").iterdir()
    assert len(list(runner.load(folder).trajectories)) == 2


async def test_the_shop_opens_as_written(desk):
    (command,) = marked("shop")
    words = shlex.split(command.replace("--port 8000", "--port 0"))[1:]
    assert "0" in words
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runner", *words,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        url = (await process.stdout.readline()).decode().split("/fixed_0")[0]
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            assert "Instruction:" in (await client.get("/fixed_0")).text
    finally:
        process.kill()
        await process.wait()


def test_the_set_up_commands_install_what_pyproject_offers():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = set(pyproject["project"]["optional-dependencies"])
    set_up = [command for command in COMMANDS if command.startswith("python3 -m venv")]
    assert len(set_up) == 2
    for command in set_up:
        (asked,) = re.findall(r"pip install -e '\.\[([\w,]+)\]'", command)
        assert set(asked.split(",")) <= extras
    assert (
        set_up[0].endswith("overnight run jobs/quickstart.toml") and (ROOT / "jobs/quickstart.toml").exists()
    )
    assert set_up[1].endswith("python -m pytest")


@pytest.mark.parametrize("text", snippets("toml"), ids=lambda text: text.split("\n", 1)[0][:30])
def test_job_snippets_are_valid(text, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.chdir(tmp_path)
    task = {"sites": ["shopping"], "start_url": "__SHOPPING__", "intent": "Look"}
    task["eval"] = {"eval_types": ["url_match"], "reference_url": "__SHOPPING__"}
    (tmp_path / "test.raw.json").write_text(json.dumps([{"task_id": k, **task} for k in (21, 22, 23)]))
    (tmp_path / "questions.csv").write_text("nr,text,gold\n1,One and one?,2\n2,Two and two?,4\n")
    raw = tomllib.loads(text)
    raw.setdefault("models", {"policy": {"provider": "scripted", "replies": ["x"]}})
    for name in raw.get("roles", {}).values():
        raw["models"].setdefault(name, {"provider": "scripted", "replies": ["x"]})
    raw.setdefault("envs", {"hotpotqa": {}})
    raw.setdefault("methods", {"react": {}} if "webarena" in raw["envs"] else {"cot": {}})
    job = Job.parse(raw)
    assert list(job.plan())


def test_the_python_of_the_notebook_section_runs(desk):
    (code,) = [text for text in snippets("python") if "await runner.run" in text]
    compiled = compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "notebook"}
    found = eval(compiled, names)  # a coroutine, as the code awaits at its top level
    assert inspect.iscoroutine(found)
    asyncio.run(found)
    assert len(names["frame"]) == 6
    assert names["earlier"].status == "finished"


def test_the_python_of_table_1_and_figure_2_runs(desk):
    (code,) = [text for text in snippets("python") if "await runner.complete" in text]
    job = Job.read("jobs/table1.toml", ["limit=2"])
    run = asyncio.run(library.run(job, outputs="outputs", progress=False))
    run.path.rename("outputs/table1")
    names = {"__name__": "notebook"}
    asyncio.run(eval(compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names))
    assert len(names["figure"].panels) == 2 and Path("figure2.pdf").stat().st_size > 1000


def test_the_table_1_job_has_all_seven_methods_and_an_endpoint_in_place_of_its_model():
    text = (ROOT / "jobs/table1.toml").read_text("utf-8")
    job = Job.read(ROOT / "jobs/table1.toml")
    assert set(job.methods) == set(METHODS) and list(job.worlds) == ["hotpotqa", "fever"]
    (endpoint,) = re.findall(r"^# (\[models\.policy\]\n(?:# .*\n)+)", text, re.MULTILINE)
    table = tomllib.loads(endpoint.replace("# ", ""))["models"]["policy"]
    assert Job.parse({**job.raw, "models": {"policy": table}}).models["policy"].model == "gpt-4o-mini"


def defined(base):
    """The class of that kind which a README snippet defines, and how many lines it takes."""
    for text in snippets("python"):
        names = {"__name__": "readme"}
        if "await runner." in text:
            continue
        exec(compile(text, "README.md", "exec"), names)
        for value in names.values():
            if isinstance(value, type) and issubclass(value, base) and value is not base:
                return value, len(text.strip().splitlines())
    raise AssertionError(f"the README defines no {base.__name__}")


async def test_the_readmes_world_can_be_played(tmp_path):
    kind, lines = defined(World)
    assert lines < 40
    model = scripted(lambda call: " I guess.\nAction 1: Guess[3]")
    job = Job.of(kind(highest=4), React(steps=1), model)
    run = await library.run(job, outputs=tmp_path, progress=False)
    assert [row["scores"]["em"] for row in run.trajectories] == [0.0, 0.0, 1.0, 0.0]


async def test_the_readmes_method_answers(tmp_path):
    from envs.hotpotqa import HotpotQA

    kind, lines = defined(Method)
    assert lines < 40
    model = scripted(lambda call: " So.\nAnswer: second" if "once more" in call.request.prompt else " So.")
    run = await library.run(Job.of(HotpotQA(), kind(), model, limit=2), outputs=tmp_path, progress=False)
    assert [row["answer"] for row in run.trajectories] == ["second", "second"]
    assert len(model.calls) == 4


async def test_the_readmes_stopping_rule_stops_and_its_figures_are_the_measured_ones(tmp_path):
    from envs.hotpotqa import HotpotQA

    (rule,) = [text for text in snippets("python") if "def enough" in text]
    file = tmp_path / "rules.py"
    file.write_text(rule)
    model = scripted(lambda call: ["Answer: yes"] * call.n, max_n=50)
    method = CotSC(until=f"{file}:enough")
    run = await library.run(Job.of(HotpotQA(), method, model, limit=1), outputs=tmp_path, progress=False)
    assert [(call.first, call.n) for call in model.calls] == [(0, 5)]
    assert [row["votes"]["stopped_by"] for row in run.trajectories] == [f"{file}:enough"]

    kept = json.loads((ROOT / "tests" / "full" / "chains.json").read_text("utf-8"))
    for word, found in kept.items():
        (row,) = [line for line in TEXT.splitlines() if line.startswith(f'| `"{word}"`')]
        verdict, saved, requests = (cell.strip() for cell in row.split("|")[3:6])
        assert float(verdict.removesuffix(" %")) == pytest.approx(100 * found["same_verdict"], abs=0.006)
        assert float(saved.removesuffix(" %")) == pytest.approx(100 * found["saved"], abs=0.06)
        assert float(requests) == pytest.approx(found["requests"], abs=0.006)


async def test_the_readmes_provider_replies(tmp_path):
    from envs.hotpotqa import HotpotQA

    kind, lines = defined(Model)
    assert lines < 40
    run = await library.run(Job.of(HotpotQA(), Cot(), kind(), limit=2), outputs=tmp_path, progress=False)
    assert [row["answer"] for row in run.trajectories] == ["Thought:", "Thought:"]
    assert run.manifest["totals"]["paid"]["prompt"] > 0


def test_files_and_words_that_the_readme_names_exist():
    from envs import WORLDS
    from envs.data import DATASETS
    from runner.methods import METHODS

    for name in re.findall(r"`(jobs/[\w./]+)`", TEXT) + re.findall(r"\]\(([\w./]+)\)", TEXT):
        assert (ROOT / name).exists(), name
    for name in METHODS:
        assert f"| `{name}` |" in TEXT
    for name in WORLDS:
        assert f"| `{name}` |" in TEXT
    assert set(re.findall(r"overnight fetch (\w[\w-]*)", TEXT)) <= set(DATASETS)


def test_the_readmes_figures_are_the_measured_ones():
    from tests.benchmarks.peers import tables
    from tests.benchmarks.peers.__main__ import FIGURES, readme_tables

    assert readme_tables(TEXT) == tables.for_readme(json.loads(FIGURES.read_bytes()))


def test_the_readmes_figures_of_the_large_shop_are_the_measured_ones():
    found = json.loads((ROOT / "tests" / "full" / "webshop.json").read_text("utf-8"))
    files, make, search = found["files"], found["make"], found["search"]
    (told,) = re.findall(
        r"With ([\d,]+) invented products (.*?)\(`python -m tests\.full webshop`\)", TEXT, re.S
    )
    assert int(told[0].replace(",", "")) == search["products"]
    numbers = [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) (?:GB|ms|minutes)", told[1])]
    assert numbers == [
        round((files["items_mb"] + files["attributes_mb"]) / 1000, 1),
        round(make["cpu_s"] / 60),
        round(make["index_mb"] / 1000, 1),
        round(search["cpu_p50_ms"]),
        round(search["cpu_p99_ms"]),
        round(search["most_rss_mb"] / 1000, 1),
        round(search["file_pages_mb"] / 1000, 1),
    ]
