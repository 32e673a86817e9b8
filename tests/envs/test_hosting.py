"""Engines in worker processes: places, deadlines, crashes, leaks; and Gym-like classes of one's own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop

from envs.base import Lost, WorldError
from envs.hosting import Host
from runner import library

CORRIDOR = "tests.engines:Corridor"


@asynccontextmanager
async def hosted(
    engine: str = CORRIDOR, settings: dict[str, Any] | None = None, **how: Any
) -> AsyncIterator[Host]:
    host = Host(engine, settings or {}, **how)
    try:
        yield host
    finally:
        await host.close()


async def walk(host: Host, *actions: str, name: str = "a corridor") -> list[str]:
    session = host.session({"name": name})
    try:
        return [await session.reset(), *[(await session.step(action)).text for action in actions]]
    finally:
        await session.close()


async def test_an_episode_goes_through_a_worker() -> None:
    async with hosted(workers=1) as host:
        session = host.session({"name": "the hall"})
        assert await session.reset() == "the hall, room 0"
        seen = [await session.step("go") for _ in range(4)]
        assert [(each.text, each.reward, each.done) for each in seen] == [
            ("room 1", 0.0, False), ("room 2", 0.0, False), ("room 3", 0.0, False), ("room 4", 1.0, True),
        ]  # fmt: skip
        assert session.more == {"at": 4}
        await session.close()


async def test_an_engines_own_error_is_the_episodes_and_nobody_elses() -> None:
    async with hosted(workers=1) as host:
        with pytest.raises(WorldError, match=r"ValueError: no such thing \(engines\.py:"):
            await walk(host, "raise")
        assert await walk(host, "go") == ["a corridor, room 0", "room 1"]
        assert host.replaced == 0


async def test_what_an_engine_prints_and_writes_disturbs_nobody() -> None:
    async with hosted(workers=1) as host:
        assert (await walk(host, "print"))[-1] == "room 0"
        assert "overnight-engine-" in (await walk(host, "where"))[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of others' memory")
async def test_what_a_worker_starts_counts_to_its_memory() -> None:
    async with hosted(workers=1, memory_mb=140) as host:
        session = host.session({"name": "a corridor"})
        await session.reset()
        await session.step("child 120")
        assert (await session.step("go")).text == "room 1"
        await session.close()
        assert (await walk(host, "go"))[-1] == "room 1"
        assert host.replaced == 1


def test_an_action_asked_of_a_worker_that_has_just_died_goes_to_another_one() -> None:
    """In the loop that runs have, where a closed transport raises; before the end of the worker is noticed."""

    async def one() -> None:
        async with hosted(workers=1) as host:
            sessions = [host.session({"name": "a corridor"}) for _ in range(3)]
            for session in sessions:
                await session.reset()
            (worker,) = host._all
            noticed = asyncio.Event()
            worker.process.wait = noticed.wait  # type: ignore[assignment, method-assign]
            os.kill(worker.process.pid, signal.SIGKILL)
            while not worker._reader.at_eof():
                await asyncio.sleep(0)
            asking = []
            for session in sessions:  # the first one's message finds nobody, and the transport closes
                asking.append(asyncio.create_task(session.step("go")))
                for _ in range(20):
                    await asyncio.sleep(0)
            assert worker.open
            noticed.set()
            assert [(await each).text for each in asking] == ["room 1"] * 3
            assert host.replaced == 1
            for session in sessions:
                await session.close()

    uvloop.run(one())


async def test_a_worker_that_is_killed_while_it_starts_costs_no_episode(monkeypatch: Any) -> None:
    killed = []
    create = asyncio.create_subprocess_exec

    async def murderous(*words: Any, **how: Any) -> Any:
        process = await create(*words, **how)
        if len(killed) < 4:
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", murderous)
    async with hosted(workers=1) as host:
        assert (await walk(host, "go"))[-1] == "room 1"
    assert len(killed) == 4


async def test_an_engine_that_cannot_be_made_is_not_tried_by_every_episode(monkeypatch: Any) -> None:
    started = 0
    create = asyncio.create_subprocess_exec

    async def counted(*words: Any, **how: Any) -> Any:
        nonlocal started
        started += 1
        return await create(*words, **how)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
    async with hosted(settings={"fails": "no luck"}, workers=2) as host:
        errors: list[str] = []

        async def one() -> None:
            try:
                await walk(host, "go")
            except WorldError as error:
                errors.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(one)
        assert len(errors) == 50
        assert all("no engine could be made: ValueError: no luck" in error for error in errors)
        assert started <= 4


@pytest.mark.parametrize("engine", [CORRIDOR, "tests.engines:Alone"])
async def test_many_episodes_share_few_workers(engine: str) -> None:
    async with hosted(engine, workers=2) as host:
        found: list[list[str]] = []

        async def one(k: int) -> None:
            found.append(await walk(host, "go", "go", name=f"n{k}"))

        async with anyio.create_task_group() as tasks:
            for k in range(20):
                tasks.start_soon(one, k)
        assert sorted(found) == sorted([f"n{k}, room 0", "room 1", "room 2"] for k in range(20))
        assert len(host._all) <= 2
        assert all(worker.episodes == 0 for worker in host._all)


async def test_a_worker_that_is_killed_costs_no_episode() -> None:
    async with hosted(workers=2, per_worker=3) as host:
        sessions = [host.session({"name": f"n{k}"}) for k in range(6)]
        for session in sessions:
            await session.reset()
            await session.step("go")
        for worker in list(host._all):
            os.kill(worker.process.pid, signal.SIGKILL)
        seen = [(await session.step("go")).text for session in sessions]
        assert seen == ["room 2"] * 6
        assert host.replaced == 2
        for session in sessions:
            await session.close()


async def test_an_action_that_kills_its_worker_once_is_taken_again(tmp_path: Path) -> None:
    async with hosted(workers=1) as host:
        assert await walk(host, "go", f"crash_once {tmp_path / 'mark'}", "go") == [
            "a corridor, room 0", "room 1", "room 1", "room 2",
        ]  # fmt: skip


async def test_workers_that_are_lost_while_an_episode_is_brought_back_are_not_its_last_actions_fault(
    tmp_path: Path,
) -> None:
    """Each of the first three ends its worker when it is taken again, so that four are lost before the last one."""
    again = [f"crash_the_second_time {tmp_path / str(k)}" for k in range(3)]
    async with hosted(workers=1) as host:
        assert (await walk(host, *again, f"crash_once {tmp_path / 'mark'}", "go"))[-1] == "room 1"
        assert host.replaced == 4


async def test_workers_that_are_killed_from_outside_are_not_the_fault_of_the_action_they_were_at(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    async with hosted(workers=1) as host:
        episode = asyncio.ensure_future(walk(host, "go", f"wait_for {mark}", "go"))
        for killed in range(4):
            while not (host._all and host.replaced == killed and host._all[0]._asked):
                await asyncio.sleep(0.01)
            os.kill(host._all[0].process.pid, signal.SIGKILL)
            while host.replaced == killed:
                await asyncio.sleep(0.01)
        mark.touch()
        assert await episode == ["a corridor, room 0", "room 1", "room 1", "room 2"]


async def test_an_action_that_always_kills_its_worker_ends_its_episode_with_the_engines_last_words() -> None:
    async with hosted(workers=1) as host:
        with pytest.raises(WorldError, match=r"(?s)action 'crash' cost 3 workers.*the engine's last words"):
            await walk(host, "go", "crash")
        assert await walk(host, "go") == ["a corridor, room 0", "room 1"]


async def test_an_action_that_hangs_costs_its_worker_and_the_others_go_on() -> None:
    async with hosted(workers=1, step_seconds=0.5) as host:
        other = host.session({})
        await other.reset()
        with pytest.raises(WorldError, match=r"longer than step_seconds = 0\.5"):
            await walk(host, "hang")
        assert (await other.step("go")).text == "room 1"
        await other.close()


async def test_a_worker_over_its_memory_is_replaced_and_its_episodes_go_on() -> None:
    async with hosted(workers=1, memory_mb=140) as host:
        other = host.session({"name": "other"})
        await other.reset()
        await other.step("go")
        assert await walk(host, "leak 200") == ["a corridor, room 0", "room 0"]
        assert (await other.step("go")).text == "room 2"
        assert host.replaced == 1
        await other.close()


async def test_where_a_fresh_engine_shows_something_else_the_episode_is_lost() -> None:
    async with hosted(settings={"dice": True}, workers=1) as host:
        session = host.session({})
        await session.reset()
        await session.step("go")
        os.kill(host._all[0].process.pid, signal.SIGKILL)
        with pytest.raises(Lost):
            await session.step("go")
        await session.close()


async def test_an_engine_that_cannot_be_made_says_why() -> None:
    async with hosted(settings={"fails": "no Java here"}, workers=2) as host:
        with pytest.raises(WorldError, match=r"no engine could be made: ValueError: no Java here"):
            await walk(host)
    async with hosted("no.such:Thing") as host:
        with pytest.raises(WorldError, match=r"(?s)no engine could be made.*No module named"):
            await walk(host)


async def test_one_who_is_cancelled_leaves_no_place_taken() -> None:
    async with hosted(workers=1, per_worker=1) as host:
        held = host.session({})
        await held.reset()
        with anyio.move_on_after(0.05):
            await walk(host)  # waits for the only place
        await held.close()
        assert await walk(host, "go") == ["a corridor, room 0", "room 1"]


async def test_closing_ends_the_workers_and_those_who_wait() -> None:
    host = Host(CORRIDOR, {}, workers=1, per_worker=1)
    held = host.session({})
    await held.reset()
    process = host._all[0].process
    waiting = asyncio.ensure_future(walk(host))
    await asyncio.sleep(0.05)
    await host.close()
    with pytest.raises(WorldError, match="closed"):
        await waiting
    assert process.returncode is not None


def test_workers_die_with_their_owner() -> None:
    script = (
        "import asyncio\nfrom envs.hosting import Host\n"
        "async def main():\n"
        "    host = Host('tests.engines:Corridor', {}, workers=1)\n"
        "    session = host.session({})\n    await session.reset()\n"
        "    print((await session.step('pid')).text, flush=True)\n"
        "    await session.step('hang')\n"
        "asyncio.run(main())\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the worker outlived its owner")


# -- classes of one's own ----------------------------------------------------------------------------------
def job(kind: str, **more: Any) -> dict[str, Any]:
    replies = [" Go on.\nAction 1: right", " Go on.\nAction 2: right"]
    return {
        "models": {"m": {"provider": "scripted", "replies": replies}},
        "envs": {"mine": {"world": "gym", "class": kind, "workers": 1, **more}},
        "methods": {"react": {"steps": 4}},
    }


@pytest.mark.parametrize("kind", ["tests.engines:OldGym", "tests.engines:Gymnasium"])
async def test_a_gym_like_class_is_a_world(tmp_path: Path, kind: str) -> None:
    run = await library.run(job(kind, count=3), outputs=tmp_path, progress=False)
    rows = list(run.trajectories)
    assert [row["task_id"] for row in rows] == ["0", "1", "2"]
    assert [row["scores"] for row in rows] == [{"reward": 1.0, "success": 1.0}] * 3
    assert [step["observation"] for step in rows[0]["steps"]] == ["at 1", "at 2"]


async def test_a_gym_like_class_in_a_file_takes_rows_and_arguments(tmp_path: Path) -> None:
    data = tmp_path / "tasks.jsonl"
    data.write_text('{"id": "a", "input": "Go right.", "seed": 7}\n{"id": "b", "seed": 8}\n')
    file = Path(__file__).parent.parent / "engines.py"
    wanted = job(f"{file}:OldGym", data=str(data), arguments={"goal": 1})
    run = await library.run(wanted, outputs=tmp_path, progress=False)
    rows = list(run.trajectories)
    assert [(row["task_id"], row["n_steps"], row["scores"]["success"]) for row in rows] == [
        ("a", 1, 1.0),
        ("b", 1, 1.0),
    ]
