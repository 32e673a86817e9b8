"""How long an episode may work: its waiting for limits and between tries is not counted."""

from __future__ import annotations

import anyio
import pytest

from envs.base import Task, World
from runner import library
from runner.errors import Transient
from runner.job import Job
from runner.methods.standard import Standard
from runner.models.scripted import scripted


class Echo(World):
    """Tasks that are answered by repeating their word."""

    name = "echo"
    count: int = 4

    def tasks(self):
        for k in range(self.count):
            yield Task(id=f"t{k}", input=f"Say word{k}.", target=f"word{k}")

    def score(self, task, answer):
        return {"em": float(answer == task.target)}


async def statuses(tmp_path, model, seconds, count=3):
    job = Job.of(Echo(count=count), Standard(), model, limits={"episode_seconds": seconds})
    found = await library.run(job, outputs=tmp_path, progress=False)
    return [row["status"] for row in found.trajectories]


async def test_an_episode_that_works_too_long_ends_with_a_status(tmp_path):
    assert await statuses(tmp_path, scripted(["x"], delay=0.3), 0.1) == ["time_limit"] * 3


async def test_queueing_is_not_counted(tmp_path):
    model = scripted(["x"], delay=0.2, in_flight=1)
    assert "time_limit" not in await statuses(tmp_path, model, 0.5, count=5)


async def test_pauses_between_tries_are_not_counted(tmp_path):
    failed = []

    def flaky(call):
        if not failed:
            failed.append(call)
            raise Transient("503", retry_after=0.6, status=503)
        return "x"

    assert await statuses(tmp_path, scripted(flaky), 0.5, count=1) != ["time_limit"]


async def test_a_world_that_hangs_is_cut_off(tmp_path):
    class Hanging(Standard):
        async def solve(self, episode):
            await episode.sample("Q?")
            await anyio.sleep(60)

    with anyio.fail_after(10):
        job = Job.of(Echo(count=2), {"standard": Hanging()}, scripted(["x"]), limits={"episode_seconds": 0.3})
        found = await library.run(job, outputs=tmp_path, progress=False)
    assert [row["status"] for row in found.trajectories] == ["time_limit"] * 2


def test_the_limit_is_checked():
    with pytest.raises(Exception, match="episode_seconds"):
        Job.of(Echo(count=1), Standard(), scripted(["x"]), limits={"episode_seconds": 0})
