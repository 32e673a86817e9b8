"""WebArena through the runner: episodes in a worker's browser, one that is killed, a judge."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("playwright") is None:
    pytest.skip("Playwright is not installed", allow_module_level=True)

from envs.webarena.chromium import MISSING, program
from envs.webarena.world import WebArena
from runner import library
from runner.job import Job
from runner.methods.act import Act
from runner.models.scripted import scripted
from tests.hosted import children, workers

if program() is None:
    pytest.skip(MISSING, allow_module_level=True)


def browsers():
    """Processes of Chromium below our workers."""
    todo, found = workers(), []
    while todo:
        below = children(todo.pop())
        todo += below
        for each in below:
            with suppress(OSError):  # ended meanwhile
                if b"chrom" in Path(f"/proc/{each}/cmdline").read_bytes():
                    found.append(each)
    return found


def script(call):
    """Goes to the wish list by way of the first product; then stops."""
    text = str(call.request.prompt).rsplit("Here is the task.", 1)[1]
    turns = text.count("\nAction:")
    if turns == 1:
        return f" click [{re.search(r'.([0-9]+). button .Add to Wish List', text)[1]}]"
    return " stop []" if turns == 3 else " go_back"


async def test_episodes_run_and_survive_a_killed_browser(tmp_path):
    """A browser that dies amid two episodes costs nothing but time."""
    killed = []

    def policy(call):
        said = script(call)
        if "go_back" in said and not killed:
            killed.extend(browsers())
            for process in killed:
                with suppress(ProcessLookupError):  # those of a browser end with it
                    os.kill(process, signal.SIGKILL)
        return said

    world = WebArena(workers=1, whole_page=True, only=["wish-16", "newsletter-20"])
    run = await library.run(Job.of(world, Act(), scripted(policy)), outputs=tmp_path, progress=False)
    assert killed
    rows = {row["task_id"]: row for row in run.trajectories}
    assert {row["status"] for row in rows.values()} == {"finished"}
    assert [step["action"] for step in rows["wish-16"]["steps"]][1:] == ["go_back", "stop []"]
    assert all(row["scores"] == {"reward": 0.0, "success": 0.0} for row in rows.values())


async def test_the_last_step_is_judged_and_a_judge_is_asked(tmp_path):
    """An episode whose steps are used up is judged as it stands; what only a judge can tell is asked of that role."""
    asked = []

    def policy(call):
        text = str(call.request.prompt)
        return " stop [May 18, 2023]" if "On which day" in text.rsplit("Here is", 1)[1] else " scroll [down]"

    def judge(call):
        asked.append(str(call.request.prompt))
        return "correct"

    world = WebArena(workers=1, whole_page=True, only=["first_order-8", "newsletter-20"])
    job = Job.of(world, Act(steps=2), scripted(policy), roles={"judge": scripted(judge)})
    run = await library.run(job, outputs=tmp_path, progress=False)
    rows = {row["task_id"]: row for row in run.trajectories}
    assert rows["first_order-8"]["scores"]["success"] == 1.0
    assert len(asked) == 1
    assert "May 18, 2023" in asked[0]
    assert rows["newsletter-20"]["status"] == "step_limit"
    assert [step["action"] for step in rows["newsletter-20"]["steps"]] == ["scroll [down]"] * 2 + ["stop []"]
    again = await library.rescore(run.path, job=job)
    assert {row["task_id"]: row["scores"] for row in again.trajectories} == {
        name: row["scores"] for name, row in rows.items()
    }
