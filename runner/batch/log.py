"""The life of each batch, a line on disk for every step: `batches.jsonl` in the run's folder.

    intended ---> uploaded ---> submitted ---> ended ---> settled
        |             |             |
        +-------------+-------------+---------> dropped            (its calls are asked for anew)
        |
        +---> exported ---> settled                                (a file; no provider in it)

A step is on the disk (fsync) before the next one is begun, so a process that is killed anywhere is followed by
one that knows what may have happened. The lines have a file of their own, not the ledger: an intent names up to
100,000 calls and is of no interest once its batch is settled, while the ledger is read whole whenever a run is
opened; and `overnight status` reads these few lines alone.

`intended` carries the nonce and, for each request in the batch, which draws it is for. A request's custom_id is
`<nonce>-<its number>`, so a result tells by itself where it belongs.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from runner.jsonl import Appender, rows

Stage: TypeAlias = Literal["intended", "uploaded", "submitted", "ended", "settled", "exported", "dropped"]

NEXT: Mapping[Stage, tuple[Stage, ...]] = {
    "intended": ("uploaded", "submitted", "exported", "dropped"),
    "uploaded": ("intended", "submitted", "dropped"),
    "submitted": ("intended", "submitted", "ended", "dropped"),
    "ended": ("intended", "settled", "dropped"),
    "exported": ("settled", "dropped"),
    "settled": ("settled",),
    "dropped": ("settled",),
}
"""Every transition there is. Back to `intended` goes a file that the provider no longer has, and a batch that
was adopted and turned out to be another's; to `settled` from anywhere, results that a person imports late."""

Place: TypeAlias = tuple[str, str, int, int]
"""Which draws a request is for: scope, request hash, first index, how many."""


Line: TypeAlias = tuple[Place, Mapping[str, Any], bytes]
"""A request of an intent: its draws, its parameters as a reply's `sent` shows them, its line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request of a batch. `sent` is the number of its parameters in `Batch.sents`; `span` is where its line is
    in the batch's file (offset, length)."""

    place: Place
    sent: int
    span: tuple[int, int]


@dataclass(eq=False)
class Batch:
    """One batch of one model (by its name in the job)."""

    nonce: str
    model: str
    path: str
    """Below the base URL: where each of its requests would go by itself."""
    made: float
    """When it was intended, in epoch seconds."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By custom_id."""
    sents: list[dict[str, Any]] = field(default_factory=list)
    stage: Stage = "intended"
    since: str = ""
    id: str | None = None
    """The provider's name for it."""
    file: str | None = None
    """The provider's name for the uploaded file, or the file that was exported."""
    status: str = ""
    """The provider's own word."""
    counts: dict[str, int] = field(default_factory=dict)
    """`total`, `done`, `failed`, as the provider counts."""
    adopted: bool = False
    """It was found by what it looks like; not proved by its results yet."""
    unsure: bool = False
    """It may have been submitted although nothing says so. Not on disk: a new process is unsure of each."""
    strangers: set[str] = field(default_factory=set)
    """Batches that looked like this one and were another's."""

    @property
    def open(self) -> bool:
        """Whether its answers are still to come."""
        return self.stage in ("intended", "uploaded", "submitted", "ended")

    def as_dict(self) -> dict[str, Any]:
        """For `run.json` and `overnight status`."""
        return {
            "model": self.model,
            "nonce": self.nonce,
            "id": self.id,
            "stage": self.stage,
            "status": self.status,
            "since": self.since,
            "requests": len(self.entries),
            "counts": self.counts,
            "file": self.file,
        }


class BatchLog:
    """The open file of one run. `batches` holds all that it tells of, in order."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "batches.jsonl"
        self.folder = folder / "batches"
        """Where the requests of open batches lie, one file each."""
        self.batches: dict[str, Batch] = read(self.path)
        self.failed: dict[Place, str] = {}
        """Calls that a file's results failed for good, and why."""
        self.tries: Counter[Place] = Counter()
        """How often a call was in a file that was settled without an answer to it."""
        for row in rows(self.path):
            self._learn(row)
        self._file: Appender | None = None

    def _learn(self, row: Mapping[str, Any]) -> None:
        batch = self.batches.get(str(row.get("nonce")))
        if batch is None or row.get("stage") != "settled":
            return
        for key, why, for_good in row.get("failed") or ():
            if key in batch.entries:
                place = batch.entries[key].place
                self.tries[place] += 1
                if for_good:
                    self.failed[place] = why

    # -- steps -----------------------------------------------------------------------------------------
    def intend(self, model: str, nonce: str, path: str, now: float, lines: Iterable[Line]) -> Batch:
        """Write the requests to a file of their own, then the intent."""
        batch = Batch(nonce, model, path, now)
        known: dict[str, int] = {}
        self.folder.mkdir(exist_ok=True)
        requests = Appender(self.file_of(batch))
        try:
            at = 0
            for place, sent, line in lines:
                number = known.setdefault(repr(sorted(sent.items())), len(known))
                if number == len(batch.sents):
                    batch.sents.append(dict(sent))
                requests.write([line])
                batch.entries[key_of(nonce, len(batch.entries))] = Entry(place, number, (at, len(line)))
                at += len(line)
            requests.sync()
        finally:
            requests.close()
        self.batches[nonce] = batch
        self._append(
            batch,
            "intended",
            model=model,
            path=path,
            made=now,
            sents=batch.sents,
            entries=[[*entry.place, entry.sent, *entry.span] for entry in batch.entries.values()],
        )
        return batch

    def step(self, batch: Batch, stage: Stage, **fields: Any) -> None:
        """The batch is at a further stage; the line is on the disk when this returns."""
        if stage not in NEXT[batch.stage]:
            raise ValueError(f"batch {batch.nonce} cannot go from {batch.stage} to {stage}")
        self._append(batch, stage, **fields)
        if stage in ("settled", "dropped"):
            self.file_of(batch).unlink(missing_ok=True)

    def _append(self, batch: Batch, stage: Stage, **fields: Any) -> None:
        row = {"nonce": batch.nonce, "stage": stage, "time": now_words(), **fields}
        if self._file is None:
            self._file = Appender(self.path)
        self._file.append(row)
        self._file.sync()
        _apply(batch, row)
        self._learn(row)

    # -- reading ---------------------------------------------------------------------------------------
    def file_of(self, batch: Batch) -> Path:
        """Where the batch's requests lie, as long as it is open."""
        return self.folder / f"{batch.nonce}.jsonl"

    def line_of(self, batch: Batch, key: str) -> bytes:
        """A request's line, b"" where it is gone."""
        offset, length = batch.entries[key].span
        try:
            with self.file_of(batch).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError:
            return b""

    def of(self, model: str) -> Iterator[Batch]:
        """The batches of a model, oldest first."""
        return (batch for batch in self.batches.values() if batch.model == model)

    def find(self, key: str) -> tuple[Batch, Entry] | None:
        """To which batch, and which of its requests, a custom_id belongs."""
        batch = self.batches.get(key.rpartition("-")[0])
        entry = None if batch is None else batch.entries.get(key)
        return None if batch is None or entry is None else (batch, entry)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def new_nonce() -> str:
    """12 hex digits behind a letter."""
    return "w" + secrets.token_hex(6)


def key_of(nonce: str, k: int) -> str:
    """The custom_id of a batch's request number k."""
    return f"{nonce}-{k}"


def is_key(text: str) -> bool:
    """Whether a custom_id is one of ours, of whatever run."""
    return re.fullmatch(r"w[0-9a-f]{12}-\d+", text) is not None


def now_words() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read(path: Path) -> dict[str, Batch]:
    """All batches that a run's file tells of, by nonce; none where there is no file."""
    batches: dict[str, Batch] = {}
    for row in rows(path):
        nonce = row.get("nonce")
        if not isinstance(nonce, str):
            continue
        if row.get("stage") == "intended" and nonce not in batches:
            batches[nonce] = Batch(nonce, row["model"], row["path"], float(row["made"]))
            batches[nonce].sents = list(row["sents"])
            batches[nonce].entries = dict(_entries(nonce, row["entries"]))
        if nonce in batches:
            _apply(batches[nonce], row)
    return batches


def _entries(nonce: str, plain: Sequence[Sequence[Any]]) -> Iterator[tuple[str, Entry]]:
    for k, (scope, request_hash, first, n, sent, offset, length) in enumerate(plain):
        yield key_of(nonce, k), Entry((scope, request_hash, first, n), sent, (offset, length))


def _apply(batch: Batch, row: Mapping[str, Any]) -> None:
    stage: Stage = row["stage"]
    if stage != batch.stage or not batch.since:
        batch.since = row["time"]
    if stage == "intended" and batch.stage != "intended":  # back: what was known of it was wrong
        batch.strangers |= {row["stranger"]} if row.get("stranger") else set()
        batch.id, batch.status, batch.counts, batch.adopted = None, "", {}, False
        if row.get("file_gone"):
            batch.file = None
    batch.stage = stage
    batch.id = row.get("id", batch.id)
    batch.file = row.get("file", batch.file)
    batch.status = row.get("status", batch.status)
    batch.counts = row.get("counts", batch.counts)
    batch.adopted = row.get("adopted", batch.adopted)
