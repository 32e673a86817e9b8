"""Draws the chains that no episode asked for: what early stopping left out, for curves that need all of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from runner.analysis.chains import outcomes
from runner.errors import CellStopped, ModelError, RunEnds
from runner.execution import Execution
from runner.job import Job, Planned
from runner.outputs import RunFolder
from runner.pool import Pool, pools
from runner.results import load


class Completion(Execution):
    """Each question's chains 0..n-1, asked for as its method asks: the same scope, request and seeds, past the same
    gates and budgets, into the run's ledger. What is there already is not asked for. No row is written: each
    episode keeps the votes that it was decided by."""

    def __init__(self, job: Job, folder: RunFolder) -> None:
        super().__init__(job, folder)
        found = pools(job)
        self._pools: dict[Any, Pool] = {pool.cell: pool for pool in found}
        ended = outcomes(load(folder.path), found)
        self._refused = {pool.cell: ended[pool.env, pool.model].refused for pool in found}
        self._before: Mapping[str, Any] = folder.manifest.get("totals", {})
        self.failed: list[str] = []
        """Why chains could not be drawn, in words; one entry a question."""

    def _owed(self) -> Iterator[Planned]:
        for planned in self.job.plan():
            if planned.cell in self.stopped:
                self.counts.skipped += planned.cell in self._pools
            elif planned.cell in self._pools and not self._is_refused(planned):
                yield planned

    def _is_refused(self, planned: Planned) -> bool:
        """Whether the run was told already that its chains are not to be had."""
        return (planned.task.id, planned.trial) in self._refused[planned.cell]

    def _planned(self) -> int:
        return sum(planned.cell in self._pools for planned in self.job.plan())

    async def _solve(self, planned: Planned) -> None:
        if planned.cell in self.stopped:
            self.counts.skipped += 1
            return
        pool = self._pools[planned.cell]
        scope, request = pool.request(planned.task, planned.trial)
        passage = self.passages[planned.cell.model]
        try:
            await self.sampler.sample(passage, request, scope, 0, pool.samples, planned.index)
        except RunEnds:
            self.counts.skipped += 1
            return
        except ModelError as error:
            self.failed.append(f"{scope}: {error}")
            self.counts.errors += 1
            if isinstance(error, CellStopped):
                self._stop(planned.cell, str(error))
        except Exception as error:
            self.folder.log(f"{scope}: {traceback.format_exc()}")
            self.failed.append(f"{scope}: {type(error).__name__}: {error}")
            self.counts.errors += 1
        self.counts.done += 1

    def totals(self) -> Mapping[str, Any]:
        """The run's totals with what was paid since; its episodes are counted as they were."""
        episodes = ("planned", "done_before", "done", "errors", "left_for_resume")
        return {**super().totals(), **{key: self._before[key] for key in episodes if key in self._before}}
