"""Waves as files, for anything that eats them: written by `overnight batch export`, read back by `import`."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runner.batch.log import Batch, BatchLog
from runner.batch.passage import BatchPassage
from runner.batch.reading import outcome
from runner.batch.shapes import Shape, line_in, result_in
from runner.errors import CellStopped, EpisodeFailed, RunError, Transient, Unsupported
from runner.job import Job
from runner.ledger import Ledger
from runner.models.base import Call, Reply
from runner.models.http import HttpModel
from runner.models.queue import Ticket
from runner.models.wire import Prepared


class FileForm:
    """A file in somebody's shape, of any size."""

    most_requests = 1 << 40
    most_bytes = 1 << 50

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def line(self, key: str, asked: Prepared) -> bytes:
        return line_in(self.shape, key, asked)


class FilePassage(BatchPassage):
    """A model whose waves become files; batches that are out at its provider stay where they are. A call that
    earlier files failed for good, or as often as `attempts` allows, fails its episode."""

    async def ask(self, call: Call, ticket: Ticket) -> Reply:
        place = (call.scope, call.request.hash, call.first, call.n)
        if (why := self.log.failed.get(place)) is not None:
            raise EpisodeFailed(why)
        if (tries := self.log.tries[place]) >= self.model.attempts:
            raise EpisodeFailed(f"gave up after {tries} files without an answer")
        return await super().ask(call, ticket)

    def _begin(self, batch: Batch) -> None:
        export = self.manner.export
        assert export is not None
        to = next(path for path in _names(export.to, self.name) if path not in export.written)
        try:
            shutil.copyfile(self.log.file_of(batch), to)
        except OSError as error:
            raise RunError(f"{to}: cannot be written ({error.strerror})") from error
        export.written[to] = len(batch.entries)
        self.log.step(batch, "exported", file=str(to))


def _names(first: Path, model: str) -> Iterator[Path]:
    """Where the files of an export go: the first as it was named, then by model, then by number."""
    yield first
    yield first.with_stem(f"{first.stem}-{model}")
    yield from (first.with_stem(f"{first.stem}-{model}-{k}") for k in itertools.count(2))


@dataclass
class Imported:
    """What a file of results gave. `failed` counts reasons, `missing` requests that are in no line of it."""

    kept: int = 0
    again: int = 0
    """Lines whose draws were on record already."""
    failed: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    missing: int = 0


def read_results(job: Job, log: BatchLog, ledger: Ledger, file: Path) -> Imported:
    """Write the results in a file to the ledger. Lines may be of any shape and in any order, also of several
    exports; a file that breaks off (vLLM's run-batch was killed) gives what it has."""
    given = Imported()
    answered: dict[str, set[str]] = {}
    failed: dict[str, list[tuple[str, str, bool]]] = {}
    for line in _lines(file):
        result = result_in(line)
        found = None if result is None else log.find(result.key)
        if result is None or found is None:
            given.unread += 1
            continue
        batch, entry = found
        scope, request_hash, first, n = entry.place
        answered.setdefault(batch.nonce, set())
        if ledger.has(scope, request_hash, first):
            given.again += 1
            answered[batch.nonce].add(result.key)
            continue
        request = ledger.request(request_hash)
        model = job.models.get(batch.model)
        if request is None or not isinstance(model, HttpModel):
            given.unread += 1
            continue
        call = Call(request, n, None, scope, first)
        got = outcome(batched(model), log, batch, result, call)
        if isinstance(got, Reply):
            ledger.write_reply(call, range(first, first + n), got)
            given.kept += 1
            answered[batch.nonce].add(result.key)
            continue
        got.batch = batch.nonce
        ledger.write_attempt(call, got, possible_cost=got.billed)
        for_good = not isinstance(got, (Transient, Unsupported, CellStopped))
        given.failed[str(got)] += 1
        failed.setdefault(batch.nonce, []).append((result.key, str(got), for_good))
    if not answered:
        raise RunError(
            f"{file}: no line of it answers a request of this run; is it the results of its export?"
        )
    ledger.sync()
    for nonce, keys in answered.items():
        batch = log.batches[nonce]
        lines = failed.get(nonce, [])
        given.missing += len(batch.entries.keys() - keys - {key for key, _, _ in lines})
        if batch.open:
            raise RunError(
                f"batch {batch.id or nonce} is its provider's; resume the run, it fetches the results"
            )
        log.step(batch, "settled", failed=lines)
    return given


def batched(model: HttpModel) -> HttpModel:
    """The same model in batch mode."""
    return model if model.mode == "batch" else model.model_copy(update={"mode": "batch"})


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as lines:
            for line in lines:
                if line.strip():
                    yield line
    except OSError as error:
        raise RunError(f"{file}: cannot be read ({error.strerror})") from error
