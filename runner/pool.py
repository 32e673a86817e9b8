"""The one pool of chains that a job's sampling methods draw from: whose settings it has, and which draws it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from envs.base import Task
from runner.episode import Episode, Until
from runner.errors import OvernightError
from runner.job import Cell, Job
from runner.ledger import Ledger
from runner.lines import Draw
from runner.methods.cot_sc import CotSC
from runner.methods.hybrid import Hybrid
from runner.methods.prompts import Prompt
from runner.models.base import Request
from runner.models.passage import Passage
from runner.place import Place
from runner.sampling import Sampling
from runner.voting import Chain


class _Asked(Exception):
    """The first request of an episode, on its way out, and the scope of its draws."""

    def __init__(self, request: Request, scope: str) -> None:
        super().__init__(request.hash)
        self.request = request
        self.scope = scope


class _Asking(Episode):
    """An episode that only tells what it would ask for first: no clock runs, nothing is drawn."""

    def __init__(self, task: Task, place: Place) -> None:
        self.task, self.world, self.place, self.life = task, place.world, place, 0
        self.flags = set()

    async def sample(
        self, prompt: Prompt, n: int = 1, *, stream: str = "", until: Until | None = None, **how: Any
    ) -> list[Draw]:
        request = self.request(prompt, **how)
        raise _Asked(request, f"{self.scope}/{stream}" if stream else self.scope)


class Pool:
    """The chains of one world and model, as `method` (CoT-SC where the job has it, else a hybrid) samples them.

    `samples`: the most that any of the methods which share them draws. `apart`: sampling methods of the job
    whose chains have other settings, and so are no part of this.
    """

    def __init__(self, job: Job, env: str, model: str) -> None:
        found = chain_methods(job)
        if not found:
            raise OvernightError("this job has no method that samples chains (cot_sc, or a hybrid of it)")
        self.job = job
        self.method = next(
            (name for name in found if isinstance(job.methods[name], CotSC)), next(iter(found))
        )
        self.chains = found[self.method]
        self.env, self.model = env, model
        self.cell = Cell(env, self.method, model)
        alike = {name: chains for name, chains in found.items() if _like(chains) == _like(self.chains)}
        self.samples = max(chains.samples for chains in alike.values())
        self.apart = [name for name in found if name not in alike]
        self._passage = Passage(model, job.models[model])

    def request(self, task: Task, trial: int = 0) -> tuple[str, Request]:
        """Scope and request of a task's chains: as the method itself asks, so that it is the same to the letter."""
        solving = self.chains.solve(self._asking(task, trial))
        try:
            solving.send(None)
        except _Asked as asked:
            return asked.scope, asked.request
        finally:
            solving.close()
        raise OvernightError(f"method {self.method!r} asks for no chain of task {task.id}")

    def chain(self, task: Task, draw: Draw) -> Chain:
        """What a draw votes for, and with which weight, as the method itself sees it."""
        return self.chains.chain(self._asking(task, 0), draw)

    def _asking(self, task: Task, trial: int) -> Episode:
        return _Asking(
            task,
            Place(
                run="", id="", index=0, config="", env=self.env, method=self.method, model=self.model, trial=trial,
                world=self.job.worlds[self.env], roles={"policy": self._passage}, sampling=cast(Sampling, None),
                ledger=cast(Ledger, None),
            ),
        )  # fmt: skip


def chain_methods(job: Job) -> Mapping[str, CotSC]:
    """By name: the chain sampling of each method that has one."""
    found = {}
    for name, method in job.methods.items():
        if isinstance(method, CotSC):
            found[name] = method
        elif isinstance(method, Hybrid):
            found[name] = method.cot_sc
    return found


def pools(job: Job) -> list[Pool]:
    """One for each world and policy model. Raises OvernightError for a job without chains."""
    return [Pool(job, env, model) for env in job.worlds for model in job.policies]


def _like(chains: CotSC) -> tuple[float, int]:
    return chains.temperature, chains.max_tokens
