"""`overnight new`: what it writes runs as it stands."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from runner import library
from runner.errors import JobError
from runner.job import Job
from runner.models.base import Call
from runner.models.scripted import scripted
from runner.registry import method_class, world_class
from runner.scaffold import write


def written(what: str, name: str, folder: Path) -> tuple[Path, str]:
    """The file, and the word for it that the last line tells."""
    first, last = write(what, name, folder)
    path = Path(first.removeprefix("wrote "))
    assert path.is_file()
    return path, last.rpartition("= ")[2].strip('"')


def hints(prompt: str) -> tuple[int, int]:
    """The bounds that the guesses so far leave."""
    low, high, guess = 1, 20, 0
    for line in prompt.splitlines():
        if line.startswith("Action ") and "Guess[" in line:
            guess = int(line.rpartition("Guess[")[2].rstrip("]"))
        elif line.endswith(": Higher."):
            low = guess + 1
        elif line.endswith(": Lower."):
            high = guess - 1
    return low, high


def bisecting(call: Call) -> str:
    low, high = hints(call.request.prompt)
    return f" It is from {low} to {high}.\nAction: Guess[{(low + high) // 2}]"


@pytest.mark.parametrize("name", ["guessing", "higher", "a_b2"])
async def test_a_new_world_is_solved_by_react(name: str, tmp_path: Path) -> None:
    path, word = written("world", name, tmp_path)
    world = world_class(word)()
    assert world.name == name
    job = Job.of(world, method_class("react")(), scripted(bisecting))
    run = await library.run(job, outputs=tmp_path, progress=False)
    rows = list(run.trajectories)
    assert [row["status"] for row in rows] == ["finished"] * 7
    assert [row["answer"] for row in rows] == [str(k) for k in range(1, 21, 3)]
    assert all(row["scores"] == {"em": 1.0} and row["reward"] == 1.0 for row in rows)
    assert rows[0]["input"] == "Which number from 1 to 20 is it?"
    assert path.name == f"{name}.py"


async def test_a_new_world_says_how_to_act_to_a_model_that_cannot(tmp_path: Path) -> None:
    _, word = written("world", "numbers", tmp_path)
    job = Job.of(world_class(word)(), method_class("act")(steps=2), scripted([" Guess[seven]"]), limit=1)
    (row,) = (await library.run(job, outputs=tmp_path, progress=False)).trajectories
    assert row["status"] == "step_limit"
    assert "Guess a number like this: Guess[7]" in row["steps"][0]["observation"]


@pytest.mark.parametrize("name", ["doubt", "max_tokens"])
async def test_a_new_method_runs_from_a_job_file_beside_it(name: str, tmp_path: Path) -> None:
    path, word = written("method", name, tmp_path)
    assert word.startswith(str(tmp_path.as_posix()))
    job_file = tmp_path / "job.toml"
    job_file.write_text(
        "limit = 2\n[envs.hotpotqa]\n"
        f'[methods.{name}]\nmethod = "{path.name}:{word.rpartition(":")[2]}"\nmax_tokens = 50\n'
        '[models.policy]\nprovider = "scripted"\nreplies = ["Perhaps.\\nAnswer: no", "Surely.\\nAnswer: yes"]\n'
    )
    run = await library.run(job_file, outputs=tmp_path / "out", progress=False)
    rows = list(run.trajectories)
    assert [(row["status"], row["answer"], row["usage"]["calls"]) for row in rows] == [
        ("finished", "no", 2)
    ] * 2
    assert "Let me check that once more" not in rows[0]["steps"][0]["thought"]


def test_a_new_job_is_a_valid_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    first, last = write("job", "mine", tmp_path)
    path = tmp_path / "mine.toml"
    assert (first, last) == (f"wrote {path}", f"overnight plan {path}")
    job = Job.read(path)
    assert job.settings.name == "mine"
    assert job.settings.limit == 10
    assert sorted(job.methods) == ["cot_sc", "react"]


def test_every_file_is_under_forty_lines_and_is_formatted_as_python(tmp_path: Path) -> None:
    list(write("job", "x1", tmp_path))
    list(write("world", "x2", tmp_path))
    list(write("method", "x3", tmp_path))
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["x1.toml", "x2.py", "x3.py"]
    for path in paths:
        text = path.read_text()
        assert len(text.splitlines()) < 40
        assert "{{" not in text
        if path.suffix == ".py":
            ast.parse(text)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("precious")
    for what in ("world", "method"):
        with pytest.raises(JobError, match=r"mine\.py is there already"):
            list(write(what, "mine", tmp_path))
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["", "2nd", "a-b", "a b", "../up", "a.b", "ä", "x\n", 'a"b'])
def test_a_name_that_python_or_toml_would_not_take_is_refused(name: str, tmp_path: Path) -> None:
    for what in ("job", "world", "method"):
        with pytest.raises(JobError, match="cannot be a name here"):
            list(write(what, name, tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["task", "session", "world", "observation", "method", "field", "none"])
def test_a_class_would_not_hide_what_its_file_uses(name: str, tmp_path: Path) -> None:
    for what in ("world", "method"):
        with pytest.raises(JobError, match="the file uses"):
            list(write(what, name, tmp_path))
    list(write("job", name, tmp_path))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be written"):
        list(write("job", "mine", tmp_path / "nowhere"))
