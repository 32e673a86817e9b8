"""What a job would ask for, before anything is asked: counted by running its methods against a stand-in.

The stand-in model answers every draw with text that decides nothing, so each method takes its longest way:
all steps, both halves of a hybrid. Draws that methods share are counted once, as the ledger would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from envs.base import Observation, Session, Task, World
from runner.episode import Ended, Episode
from runner.errors import OvernightError
from runner.job import Job, Planned
from runner.ledger import Draw, Ledger
from runner.models.base import Request
from runner.models.passage import Passage
from runner.place import Place

SAMPLE = 20
"""Episodes of each cell that are tried; the counts are scaled from them."""
CHARACTERS_PER_TOKEN = 4.0
OBSERVATION = "An observation of about the usual length, which says this and that of no consequence. " * 4


@dataclass
class Estimate:
    """At most so many calls and tokens. `episodes` and `tasks` are exact."""

    tasks: int = 0
    episodes: int = 0
    calls: int = 0
    draws: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cells: dict[str, int] = field(default_factory=dict)
    """Episodes by `env/method/model`."""

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class _Counting:
    """A stand-in for the sampler that counts."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str, int]] = set()
        self.calls = self.prompt_tokens = self.completion_tokens = 0

    async def sample(
        self, passage: Passage, request: Request, scope: str, first: int, n: int, priority: int
    ) -> list[Draw]:
        new = [i for i in range(first, first + n) if (scope, request.hash, i) not in self.seen]
        self.seen.update((scope, request.hash, i) for i in new)
        calls = -(-len(new) // passage.model.max_n)
        self.calls += calls
        self.prompt_tokens += round(calls * len(request.prompt) / CHARACTERS_PER_TOKEN)
        self.completion_tokens += len(new) * request.params.max_tokens
        text = f" It is not clear yet, so there is more to find.\nAction: Search[nothing {len(self.seen)}]"
        return [Draw(scope, request.hash, i, text) for i in range(first, first + n)]


class _Silent(Session):
    async def step(self, action: str) -> Observation:
        return Observation(OBSERVATION)


class Captured(Exception):
    """The first request of an episode, on its way out."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.hash)
        self.request = request


class _Capturing:
    async def sample(
        self, passage: Passage, request: Request, scope: str, first: int, n: int, priority: int
    ) -> list[Draw]:
        raise Captured(request)


async def estimate(job: Job) -> Estimate:
    """Counts for the whole job. Raises what planning it raises (JobError, DataError)."""
    whole = Estimate()
    for env in job.worlds:
        cells = [cell for cell in job.cells if cell.env == env]
        tasks = sum(1 for _ in job.tasks(env))
        counting = _Counting()
        sample = list(islice(job.tasks(env), SAMPLE))
        with tempfile.TemporaryDirectory() as scratch:
            ledger = Ledger(Path(scratch) / "ledger.jsonl")
            for task in sample:
                for cell in cells:
                    await _try(job, Planned(0, cell, 0, task), counting, ledger)
            ledger.close()
        scale = tasks * job.settings.trials / len(sample)
        whole.tasks += tasks
        whole.episodes += tasks * job.settings.trials * len(cells)
        whole.calls += round(counting.calls * scale)
        whole.draws += round(len(counting.seen) * scale)
        whole.prompt_tokens += round(counting.prompt_tokens * scale)
        whole.completion_tokens += round(counting.completion_tokens * scale)
        for cell in cells:
            whole.cells[f"{cell.env}/{cell.method}/{cell.model}"] = tasks * job.settings.trials
    return whole


async def first_request(job: Job, task_id: str, method: str) -> Request:
    """The exact request with which a method begins a task. Raises OvernightError for an unknown id."""
    for env in job.worlds:
        for task in job.worlds[env].tasks():
            if task.id != task_id:
                continue
            cell = next(cell for cell in job.cells if cell.env == env and cell.method == method)
            with tempfile.TemporaryDirectory() as scratch:
                ledger = Ledger(Path(scratch) / "ledger.jsonl")
                try:
                    await _try(job, Planned(0, cell, 0, task), _Capturing(), ledger)
                except Captured as captured:
                    return captured.request
                finally:
                    ledger.close()
            raise OvernightError(f"method {method!r} asks the model nothing for task {task_id}")
    some = ", ".join(task.id for env in job.worlds for task in islice(job.worlds[env].tasks(), 3))
    raise OvernightError(f"no task {task_id!r}; ids look like {some}")


async def _try(job: Job, planned: Planned, sampling: Any, ledger: Ledger) -> None:
    world = _quiet(job.worlds[planned.cell.env])
    roles: Mapping[str, Passage] = {
        "policy": Passage("policy", job.models[planned.cell.model]),
        **{role: Passage(role, job.models[model]) for role, model in job.settings.roles.items()},
    }
    cell = planned.cell
    place = Place(
        run="plan", id=f"{planned.id}#{id(planned)}", index=0, config="", env=cell.env, method=cell.method,
        model=cell.model, trial=planned.trial, world=world, roles=roles, sampling=sampling, ledger=ledger,
    )  # fmt: skip
    episode = Episode(planned.task, place)
    try:
        await job.methods[cell.method].solve(episode)
    except Ended:
        pass
    finally:
        await episode.close()


def _quiet(world: World) -> World:
    """The same world whose sessions answer at once, without an engine or the network."""
    if not world.acts:
        return world

    def session(self: World, task: Task) -> Session:
        return _Silent()

    kind: Any = type(
        f"Quiet{type(world).__name__}", (type(world),), {"session": session, "__module__": __name__}
    )
    quiet = kind.model_construct(**dict(world))
    quiet.__pydantic_private__ = world.__pydantic_private__
    return quiet  # type: ignore[no-any-return]
