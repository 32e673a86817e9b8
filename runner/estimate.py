"""What a job would ask for, before anything is asked: counted by running its methods against a stand-in.

The stand-in model answers every draw with text that decides nothing, so each method takes its longest way:
all steps, both halves of a hybrid. Draws that methods share are counted once, as the ledger would.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from envs.base import Observation, Session, Task, World
from runner.episode import Ended, Episode, Until
from runner.errors import OvernightError
from runner.job import Job, Planned
from runner.ledger import Ledger
from runner.lines import Draw
from runner.methods.prompts import Prompt
from runner.models.base import Request
from runner.models.passage import Passage
from runner.place import Place

if TYPE_CHECKING:
    from runner.forecast import Forecast

SAMPLE = 20
"""Episodes of each cell that are tried; the counts are scaled from them."""
CHARACTERS_PER_TOKEN = 4.0
OBSERVATION = "An observation of about the usual length, which says this and that of no consequence. " * 4


@dataclass
class ModelCount:
    """What one model would be asked for, at most. `chain…`: the part of it in draws of which a method takes
    several of one request, for `questions` tasks and trials."""

    calls: int = 0
    draws: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    questions: int = 0
    chain_calls: int = 0
    chain_draws: int = 0
    chain_prompt_tokens: int = 0
    chain_completion_tokens: int = 0

    def add(self, other: ModelCount, scale: float) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + round(value * scale))


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
    models: dict[str, ModelCount] = field(default_factory=dict)
    waves: dict[str, int] = field(default_factory=dict)
    """By method: its longest chain of calls of which each needs the one before, all draws of a request being one."""
    forecast: Forecast | None = None
    """What that costs and how long it takes."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Counting:
    """A stand-in for the sampler that counts, by model, and how deep the calls of the episode in hand are."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.depth = 0
        self._asked: set[tuple[str, str]] = set()
        self._calls: dict[tuple[str, str], tuple[str, int, int, int]] = {}

    def begin(self) -> None:
        """Another episode."""
        self.depth = 0
        self._asked.clear()

    async def sample(
        self, passage: Passage, request: Request, scope: str, first: int, n: int, priority: int
    ) -> list[Draw]:
        key = (scope, request.hash)
        depth = self.depth + (key not in self._asked)
        self._asked.add(key)
        new = [i for i in range(first, first + n) if i not in self.seen[key]]
        self.seen[key].update(new)
        calls = -(-len(new) // passage.model.max_n)
        prompt = round(calls * len(request.prompt) / CHARACTERS_PER_TOKEN)
        before = self._calls.get(key, (passage.name, 0, 0, 0))
        self._calls[key] = (passage.name, before[1] + calls, before[2] + prompt, request.params.max_tokens)
        await checkpoint()  # samplers side by side begin at one depth
        self.depth = max(self.depth, depth)
        return [Draw(scope, request.hash, i, _undecided(request.hash, i)) for i in range(first, first + n)]

    def counted(self) -> dict[str, ModelCount]:
        """By model: all that was asked for so far."""
        found: dict[str, ModelCount] = defaultdict(ModelCount)
        for key, (name, calls, prompt, longest) in self._calls.items():
            of, draws = found[name], len(self.seen[key])
            of.calls += calls
            of.draws += draws
            of.prompt_tokens += prompt
            of.completion_tokens += draws * longest
            if draws > 1:
                of.questions += 1
                of.chain_calls += calls
                of.chain_draws += draws
                of.chain_prompt_tokens += prompt
                of.chain_completion_tokens += draws * longest
        return found


class _Tried(Episode):
    """An episode whose rules stop nothing: whatever it may draw is drawn, in the windows that they ask for."""

    async def sample(
        self, prompt: Prompt, n: int = 1, *, until: Until | None = None, **how: Any
    ) -> list[Draw]:
        def never_stops(draws: Sequence[Draw], left: int) -> int:
            return left if until is None else until(draws, left) or left

        return await super().sample(prompt, n, until=never_stops, **how)


def _undecided(request_hash: str, i: int) -> str:
    """A reply without an answer of any kind, a number in it least of all, and unlike any other draw's: so no vote
    finds a majority, and no action comes twice."""
    words = hashlib.sha256(f"{request_hash} {i}".encode()).hexdigest()[:12].translate(_LETTERS)
    return f" It is not clear yet, so there is more to find.\nAction: Search[nothing {words}]"


_LETTERS = str.maketrans("0123456789", "ghijklmnop")


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
                    counting.begin()
                    await _try(job, Planned(0, cell, 0, task), counting, ledger)
                    whole.waves[cell.method] = max(whole.waves.get(cell.method, 0), counting.depth)
            ledger.close()
        scale = tasks * job.settings.trials / len(sample)
        whole.tasks += tasks
        whole.episodes += tasks * job.settings.trials * len(cells)
        for name, count in counting.counted().items():
            whole.models.setdefault(name, ModelCount()).add(count, scale)
        for cell in cells:
            whole.cells[f"{cell.env}/{cell.method}/{cell.model}"] = tasks * job.settings.trials
    for of in whole.models.values():
        whole.calls += of.calls
        whole.draws += of.draws
        whole.prompt_tokens += of.prompt_tokens
        whole.completion_tokens += of.completion_tokens
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
        "policy": Passage(planned.cell.model, job.models[planned.cell.model]),
        **{role: Passage(model, job.models[model]) for role, model in job.settings.roles.items()},
    }
    cell = planned.cell
    place = Place(
        run="plan", id=f"{planned.id}#{id(planned)}", index=0, config="", env=cell.env, method=cell.method,
        model=cell.model, trial=planned.trial, world=world, roles=roles, sampling=sampling, ledger=ledger,
    )  # fmt: skip
    episode = _Tried(planned.task, place)
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
