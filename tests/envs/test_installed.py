"""What a world needs and is not installed is told in one line, before anything of a run is written."""

from __future__ import annotations

import importlib.util

import pytest
from click.testing import CliRunner

from runner.cli import main

JOB = """
name = "none"
limit = 1
[models.policy]
provider = "scripted"
replies = ["look"]
[envs.WORLD]
[methods.react]
"""


@pytest.fixture
def bare(monkeypatch):
    """A machine on which none of the extras' packages is installed."""
    find = importlib.util.find_spec
    lacking = ("alfworld", "textworld", "fast_downward", "scienceworld", "playwright", "numpy", "rapidfuzz")

    def without(name, *more):
        return None if name.split(".")[0] in lacking else find(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    for world in ("webshop", "webarena"):
        monkeypatch.setattr(f"envs.{world}.world.find_spec", without)


@pytest.mark.parametrize("world", ["alfworld", "scienceworld", "webshop", "webarena"])
def test_a_run_that_cannot_begin_leaves_no_folder(world, bare, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB.replace("WORLD", world))
    done = CliRunner().invoke(main, ["run", "job.toml"])
    assert done.exit_code == 2
    (line,) = done.output.strip().splitlines()
    assert f"pip install 'overnight[{world}]'" in line
    assert not list(tmp_path.glob("outputs/*"))


def test_the_shop_says_what_it_lacks(bare):
    done = CliRunner().invoke(main, ["shop", "--port", "0"])
    assert done.exit_code == 2
    assert "pip install 'overnight[webshop]'" in done.output
    assert "Traceback" not in done.output
