"""Many episodes of a hosted world at once, while workers are killed: the same trajectories as undisturbed."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from envs.hosting import HostedWorld
from runner import library
from runner.job import Job
from runner.methods.react import React
from runner.models.base import Call
from runner.models.scripted import scripted


def wanderer(actions: Sequence[str], *, sparse: bool = False) -> Callable[[Call], str]:
    """A policy that takes one of the actions, by its prompt alone: what it does shows all that it saw. `sparse`: it
    writes one line a turn."""

    def policy(call: Call) -> str:
        seen = hashlib.sha256(str(call.request.prompt).encode()).digest()
        action = actions[int.from_bytes(seen[:4]) % len(actions)]
        return f" {action}" if sparse else f" I go on.\nAction 1: {action}"

    return policy


def children(of: int) -> list[int]:
    """The processes that a process has started (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == of:
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
    return found


def workers() -> list[int]:
    """Processes of engines that this process has started."""
    mine = []
    for process in children(os.getpid()):
        try:
            if b"envs.worker" in Path(f"/proc/{process}/cmdline").read_bytes():
                mine.append(process)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return mine


def megabytes(process: int, *, of_its_own: bool = False) -> float:
    """What a process and all that it started hold in memory; those that it started, without what they share (of a
    browser's processes that is most)."""
    own = 0.0
    try:
        resident, shared = Path(f"/proc/{process}/statm").read_bytes().split()[1:3]
        pages = int(resident) - (int(shared) if of_its_own else 0)
        own = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass
    return own + sum(megabytes(child, of_its_own=True) for child in children(process))


def megabytes_of(processes: Sequence[int]) -> float:
    """All of them together."""
    return sum(map(megabytes, processes))


async def played(
    world: HostedWorld,
    policy: Callable[[Call], str | Awaitable[str]],
    *,
    episodes: int,
    steps: int,
    delay: float = 0.0,
    totals: dict[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """Rows by task, of a run with all its episodes at once. `totals` gets the run's."""
    job = Job.of(
        world,
        React(steps=steps),
        scripted(policy, delay=delay),
        limit=episodes,
        shuffle_seed=233,
        limits={"max_episodes": episodes},
    )
    with tempfile.TemporaryDirectory() as folder:
        run = await library.run(job, outputs=folder, progress=False)
        if totals is not None:
            totals |= run.manifest["totals"]
        return {row["task_id"]: row for row in run.trajectories}


def what_happened(row: dict[str, Any]) -> tuple[Any, ...]:
    """What must not depend on which worker an episode was in."""
    steps = [(step["thought"], step["action"], step["observation"]) for step in row["steps"]]
    return row["status"], row["scores"], row["error"], steps


async def disturbed(
    world: HostedWorld, actions: Sequence[str], *, episodes: int, steps: int, every: float, seed: int = 233
) -> dict[str, Any]:
    """Plays all episodes at once with a model that takes 200 ms: undisturbed, then with a worker killed at random each
    `every` seconds. Raises AssertionError where an episode is lost or comes out otherwise. Returns figures."""
    figures: dict[str, Any] = {"episodes": episodes, "steps": steps, "every": every}
    outcomes = []
    for kills in (False, True):
        dice, count, held = random.Random(seed), 0, []
        totals: dict[str, Any] = {}
        began = time.monotonic()

        async def trouble(kills: bool = kills, dice: random.Random = dice, held: list[float] = held) -> None:
            nonlocal count
            while True:
                await anyio.sleep(every)
                running = await to_thread.run_sync(workers)  # reading all of /proc takes a while
                held.append(await to_thread.run_sync(megabytes_of, running))
                if kills and running:
                    os.kill(dice.choice(running), signal.SIGKILL)
                    count += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trouble)
            rows = await played(
                world,
                wanderer(actions, sparse=world.sparse),
                episodes=episodes,
                steps=steps,
                delay=0.2,
                totals=totals,
            )
            tasks.cancel_scope.cancel()
        outcomes.append({task: what_happened(row) for task, row in rows.items()})
        name = "disturbed" if kills else "undisturbed"
        figures[name] = {
            "seconds": round(time.monotonic() - began, 1),
            "kills": count,
            "loop_lag_p99_ms": totals["loop_lag_p99_ms"],
            "actions": sum(row["n_steps"] for row in rows.values()),
            "most_megabytes": round(max(held, default=0.0)),
            "megabytes": [round(each) for each in held],
        }
        print(f"{name}: {figures[name]}", flush=True)
    calm, troubled = outcomes
    assert len(calm) == episodes
    lost = [each[2]["message"] for each in (*calm.values(), *troubled.values()) if each[2] is not None]
    assert lost == [], f"{len(lost)} episodes were lost: {lost[:3]}"
    assert troubled == calm
    assert figures["disturbed"]["kills"] > 0
    taken = {action for _, _, _, steps in calm.values() for _, action, _ in steps if action is not None}
    assert taken <= set(actions) and len(taken) > len(actions) // 2, (
        "the policy's actions do not reach the world"
    )
    return figures
