"""The batches of one run: its log, the passages of its models in batch mode, and when to leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from runner.batch.anthropic import AnthropicBatches
from runner.batch.api import Api
from runner.batch.files import FileForm, FilePassage
from runner.batch.log import BatchLog
from runner.batch.manner import Hooks, Manner, is_batched
from runner.batch.openai import OpenAIBatches
from runner.batch.passage import BatchPassage
from runner.batch.rest import Rest
from runner.batch.shapes import shape_for
from runner.errors import BatchesOpen
from runner.ledger import Ledger
from runner.models.base import Call, Model
from runner.models.http import HttpModel
from runner.models.passage import OnFailure, Passage
from runner.sampling import Sampler
from runner.scheduler import Scheduler

APIS: Mapping[str, Any] = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}


class Batches:
    """Made before the run's models are opened, begun when its sampler is there."""

    def __init__(self, folder: Path, ledger: Ledger, hooks: Hooks, manner: Manner) -> None:
        self.log = BatchLog(folder)
        self.ledger = ledger
        self.hooks = hooks
        self.manner = manner
        self.passages: list[BatchPassage] = []
        self._apis: list[Api] = []
        self.why: str | None = None
        """Why the run was left before its end, if it was."""

    def passage(self, name: str, model: Model, on_failure: OnFailure) -> Passage:
        """The passage of a model in batch mode."""
        assert isinstance(model, HttpModel)
        given = (name, model, self.log, self.ledger, self.hooks, self.manner, on_failure)
        made = BatchPassage(*given) if self.manner.export is None else FilePassage(*given)
        self.passages.append(made)
        return made

    def needs_no(self, model: Model) -> bool:
        """Whether a model needs not be opened: files are written without a key."""
        return self.manner.export is not None and is_batched(model)

    def begin(self, scheduler: Scheduler, sampler: Sampler) -> None:
        """Take up what earlier processes left; call it before the passages serve."""
        rest = Rest(scheduler, sampler)
        for passage in self.passages:
            rest.passages.append(passage)
            for call in self._take_up(passage, rest):
                sampler.restore(passage, call)
        self._rest = rest

    def _take_up(self, passage: BatchPassage, rest: Rest) -> list[Call]:
        if self.manner.export is not None:
            return passage.take_up(rest, FileForm(shape_for(passage.http, self.manner.export.shape)), None)
        api: Api = APIS[passage.http.batches](passage.http)
        self._apis.append(api)
        return passage.take_up(rest, api, api)

    async def leave(self) -> None:
        """End the waiting once nothing is left to do but that, where this process does not wait."""
        if self.manner.wait and self.manner.export is None:
            return
        await self._rest.left()
        export = self.manner.export
        if export is not None and export.written:
            self.stop("its requests are in a file")
        else:
            self.stop(f"{self._open()}; it resumes when they have ended")

    def stop(self, why: str) -> None:
        """Whoever waits for a batch is told that the run ends. The batches stay."""
        self.why = self.why or why
        for passage in self.passages:
            passage.stop(BatchesOpen(why))

    def interrupt(self) -> None:
        """As `stop`, as a person asked for it."""
        self.stop(f"interrupted; {self._open()}")

    def _open(self) -> str:
        count = sum(batch.stage in ("submitted", "ended") for p in self.passages for batch in p.batches)
        return f"{count} {'batch is' if count == 1 else 'batches are'} under way"

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for api in self._apis:
                await api.close()
        self.log.close()

    def told(self) -> list[dict[str, Any]]:
        """All batches, for `run.json`."""
        return [batch.as_dict() for batch in self.log.batches.values()]

    def words(self) -> Iterator[str]:
        """What is waited for, for the progress line."""
        for passage in self.passages:
            for batch in passage.batches:
                done = batch.counts.get("done", 0) + batch.counts.get("failed", 0)
                of = f"{done:,} of {len(batch.entries):,}"
                yield f"batch {batch.id or batch.nonce}: {batch.status or batch.stage}, {of}"
            if passage.courier is not None and passage.courier.trouble is not None:
                yield passage.courier.trouble


def summary(batches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines for `overnight status`: each batch with its stage, its counts and since when."""
    for batch in batches:
        counts = batch.get("counts") or {}
        done = counts.get("done", 0), counts.get("failed", 0)
        said = f" ({batch['status']})" if batch.get("status") else ""
        yield (
            f"  batch {batch['id'] or batch['file'] or batch['nonce']} of {batch['model']}: {batch['stage']}{said} "
            f"since {batch['since']}, {done[0]:,} of {batch['requests']:,} requests done, {done[1]:,} failed"
        )
