"""Brings a batch from whatever stage it is at to its end: submits it, looks after it, hands out its results."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.lowlevel

from runner.batch.api import Api, Look
from runner.batch.held import Held
from runner.batch.log import Batch, BatchLog
from runner.batch.manner import Manner
from runner.batch.openai import words_of
from runner.batch.reading import Outcome, outcome
from runner.batch.rest import TURNS, Rest
from runner.errors import CellStopped, ModelError, Transient
from runner.ledger import Ledger
from runner.models.base import Call, Reply
from runner.models.http import HttpModel

GROWTH = 1.5
"""Of the pauses between looks at a batch, and between tries of what failed."""
DOWNLOADS = 3
"""Of results with lines that cannot be read, before what is missing in them is asked for anew."""
GRACE = 30.0
"""Seconds that a submission under way gets to be confirmed when the run ends."""


class Holder(Protocol):
    """Who holds the calls of batches: the passage that they are of."""

    ledger: Ledger
    rest: Rest
    stopped: CellStopped | None

    def owed(self, batch: Batch) -> list[Held]:
        """The calls in a batch that have no outcome yet."""
        ...

    def settle(self, held: Held, outcome: Outcome) -> None:
        """A call has its outcome."""
        ...

    def again(self, held: Held) -> None:
        """A call goes into another batch, which is nobody's failure."""
        ...

    def keep(self, call: Call, reply: Reply) -> None:
        """Write a reply that nobody awaits to the ledger."""
        ...

    def stop(self, error: CellStopped) -> None:
        """No call will be answered until a person acts."""
        ...


class Courier:
    """The batches of one model. `most` is the most requests that a batch may have, by what the provider refused;
    `resting` are batches that a process which does not wait has submitted, or looked at once."""

    def __init__(
        self,
        model: HttpModel,
        api: Api,
        log: BatchLog,
        holder: Holder,
        manner: Manner,
        note: Callable[[str], None],
    ) -> None:
        self.model = model
        self.api = api
        self.log = log
        self.holder = holder
        self.manner = manner
        self.note = note
        self.most = math.inf
        self.resting: set[str] = set()
        self.trouble: str | None = None
        """What failed last and is tried again."""
        self._adopt = list(manner.adopt)
        self._sending = anyio.Lock()
        self._grace: anyio.CancelScope | None = None

    def hurry(self) -> None:
        """The run ends: a submission under way has little time left."""
        if self._grace is not None:
            self._grace.deadline = anyio.current_time() + GRACE

    async def bring(self, batch: Batch) -> None:
        """A batch from whatever stage it is at to its end."""
        steps: Mapping[str, Callable[[Batch], Awaitable[None]]] = {
            "intended": self._send,
            "uploaded": self._send,
            "submitted": self._watch,
            "ended": self._collect,
        }
        try:
            while batch.open and self.holder.stopped is None:
                await steps[batch.stage](batch)
        except CellStopped as error:
            self.holder.stop(error)
        except ModelError as error:
            self.holder.stop(CellStopped(f"{self.model.where}: {error}", status=error.status))
        finally:
            self.holder.rest.unblock()

    async def _patiently(self, what: str, act: Callable[[], Awaitable[Any]]) -> Any:
        """The outcome of `act`, tried until it is no passing failure: a batch is worth waiting for."""
        pause = self.model.batch.shortest_pause
        while True:
            try:
                found = await act()
                self.trouble = None
                return found
            except Transient as error:
                self.trouble = f"{what} failed: {error}"
                wait = pause if error.retry_after is None else max(pause, error.retry_after)
                self.note(f"{what} failed, next try in {wait:.0f} s: {error}")
                await anyio.sleep(wait)
                pause = min(pause * GROWTH, self.model.batch.longest_pause)

    # -- its submission --------------------------------------------------------------------------------
    async def _send(self, batch: Batch) -> None:
        """A step towards its being submitted."""
        async with self._sending:
            file = self.log.file_of(batch)
            if batch.unsure and await self._adopted(batch):
                return
            batch.unsure = False
            if not file.exists():
                self._drop(batch, "its file is gone")
            elif batch.file is None and (name := await self._uploaded(batch, file)) is not None:
                self.log.step(batch, "uploaded", file=name)
            else:
                await self._submit(batch, file)

    async def _uploaded(self, batch: Batch, file: Path) -> str | None:
        name = await self._patiently("an upload", lambda: self.api.upload(batch, file))
        return None if name is None else str(name)

    async def _submit(self, batch: Batch, file: Path) -> None:
        try:
            with anyio.CancelScope(
                shield=True
            ) as self._grace:  # the run's end leaves it time to be confirmed
                look = await self.api.submit(batch, file)
                self.log.step(batch, "submitted", id=look.id, status=look.status, counts=look.counts)
                self.trouble = None
                if not self.manner.wait:
                    self.resting.add(batch.nonce)
        except Transient as error:
            self.trouble = f"a submission failed: {error}"
            batch.unsure = error.billed or (error.status or 0) >= 500
            self.note(f"a submission failed: {error}")
            await anyio.sleep(max(error.retry_after or 0.0, self.model.batch.shortest_pause))
        except ModelError as error:
            if error.status == 413 and len(batch.entries) > 1:
                self._halve(batch)
            elif error.status == 404 and batch.file is not None:
                self.log.step(batch, "intended", file_gone=True)
            elif isinstance(error, CellStopped):
                raise
            else:
                raise CellStopped(f"{self.model.where}: the batch was refused: {error}") from error
        finally:
            self._grace = None

    async def _adopted(self, batch: Batch) -> bool:
        """Whether it is known now which batch it is at the provider. Raises CellStopped where a person must say."""
        if self.api.names and batch.file is None:
            return False  # no file, no batch
        if self._adopt:
            name = self._adopt.pop(0)
            self._adopting(batch, await self._patiently("a look", lambda: self.api.look(name)))
            return True
        if self.manner.resubmit:
            return False
        looks = await self._patiently("a look for a batch", lambda: self.api.find(batch))
        known = {other.id for other in self.log.batches.values()}
        looks = [look for look in looks if look.id not in known]
        if len(looks) > 1:
            ids = ", ".join(look.id for look in looks[:5])
            raise CellStopped(
                f"{self.model.where}: a batch of {len(batch.entries)} requests may have been submitted at "
                f"{batch.since} without being confirmed, and several look like it: {ids}. Resume with --adopt ID if "
                "one is this run's, or with --resubmit if none is"
            )
        if looks:
            self._adopting(batch, looks[0])
        return bool(looks)

    def _adopting(self, batch: Batch, look: Look) -> None:
        self.note(f"batch {look.id} was submitted before this process began, and is gone on with")
        self.log.step(
            batch, "submitted", id=look.id, status=look.status, counts=look.counts, adopted=not self.api.names
        )

    def _drop(self, batch: Batch, why: str) -> None:
        """Give it up; its calls go into another one."""
        self.log.step(batch, "dropped", why=why)
        self.note(f"batch {batch.id or batch.nonce} is given up ({why}); its requests are made anew")
        for held in self.holder.owed(batch):
            self.holder.again(held)
        self.holder.rest.note()

    def _halve(self, batch: Batch) -> None:
        self.most = max(len(batch.entries) // 2, 1)
        self._drop(batch, f"too much at once; from now on at most {self.most:,} requests a batch")

    # -- its end -----------------------------------------------------------------------------------------
    async def _watch(self, batch: Batch) -> None:
        """Until the batch has ended, with growing pauses."""
        pause = self.model.batch.shortest_pause
        looked = batch.nonce in self.resting
        while not looked:
            if self.manner.wait:
                await anyio.sleep(pause)
                pause = min(pause * GROWTH, self.model.batch.longest_pause)
            look = await self._look(batch)
            if look is None:
                return
            if look.ended:
                if look.fault is not None:
                    await self._failed(batch, look)
                else:
                    self.log.step(batch, "ended", status=look.status, counts=look.counts)
                return
            if (look.status, look.counts) != (batch.status, batch.counts):
                self.log.step(batch, "submitted", status=look.status, counts=look.counts)
            looked = not self.manner.wait
        self.resting.add(batch.nonce)
        self.holder.rest.note()
        await anyio.sleep_forever()

    async def _look(self, batch: Batch) -> Look | None:
        """How it is doing; None if the provider does not know it, and a person said what to do then."""
        assert batch.id is not None
        id = batch.id
        try:
            look = await self._patiently(f"a look at batch {id}", lambda: self.api.look(id))
        except ModelError as error:
            self._gone(batch, error)
            return None
        assert isinstance(look, Look)
        return look

    def _gone(self, batch: Batch, error: ModelError) -> None:
        """The provider may not know the batch any more: give it up if a person said so, else stop."""
        if error.status != 404:
            raise error
        if not self.manner.resubmit:
            raise CellStopped(
                f"{self.model.where}: batch {batch.id} or its results are not there any more; to make its "
                f"{len(batch.entries)} requests anew, resume with --resubmit ({error})",
                status=404,
            ) from error
        self._drop(batch, "the provider does not know it")

    async def _failed(self, batch: Batch, look: Look) -> None:
        """It failed as a whole, before any request was made."""
        if (
            look.full
        ):  # the queue is shared with whatever else the account submits, so one alone may have to wait
            self.note(f"batch {look.id} failed: {look.fault}")
            one = len(batch.entries) == 1
            await anyio.sleep(self.model.batch.longest_pause if one else self.model.batch.shortest_pause)
            self._halve(batch)
            return
        self.log.step(batch, "dropped", why=look.fault, status=look.status)
        raise CellStopped(
            f"{self.model.where}: batch {look.id} failed its validation: {look.fault}. Correct the job, then resume"
        )

    async def _collect(self, batch: Batch) -> None:
        """Hand out the results; what was not answered is asked for again by whoever wants it."""
        look = await self._look(batch)
        if look is None:
            return
        owed = {held.place: held for held in self.holder.owed(batch)}
        settled: list[Held] = []

        downloads = 0

        async def download() -> bool:
            nonlocal downloads
            downloads += 1
            unread = broken = 0
            async for result in self.api.results(look):
                entry = None if result is None else batch.entries.get(result.key)
                if result is None or entry is None:
                    if result is not None and batch.adopted:
                        return False  # an adopted one is proved by its first result
                    unread += 1
                    broken += result is None
                    continue
                batch.adopted = False
                if (held := owed.pop(entry.place, None)) is not None:
                    self.holder.settle(held, outcome(self.model, self.log, batch, result, held.call))
                    settled.append(held)
            if (
                broken and owed and downloads < DOWNLOADS
            ):  # cut short on its way, it may be; asking anew costs more
                raise Transient(f"{self.model.where}: {broken} lines of the results cannot be read")
            if unread:
                self.note(f"batch {look.id}: {unread} lines of its results are unreadable, or not ours")
            return True

        try:
            ours = not owed or await self._patiently(f"the results of batch {look.id}", download)
        except ModelError as error:
            self._gone(batch, error)
            return
        finally:
            if not owed:  # also where the run has ended on what it got: then this is the last thing done
                await self._settled(batch, settled)
        if not ours:
            self.note(f"batch {look.id} is not this run's, though it looked like it")
            self.log.step(batch, "intended", stranger=look.id)
            batch.unsure = True
        elif owed:
            for held in owed.values():
                self.holder.settle(held, Transient(f"{self.model.where}: {words_of(look.status)}"))
            await self._settled(batch, settled)
        for held in settled:
            if isinstance(held.outcome, CellStopped):
                raise held.outcome

    async def _settled(self, batch: Batch, settled: Sequence[Held]) -> None:
        """The end of a batch, once its replies are in the ledger: whoever awaits one writes it in its turn, which
        comes next."""
        with anyio.CancelScope(shield=True):
            for _ in range(TURNS):
                await anyio.lowlevel.checkpoint()
            for held in settled:
                scope, request_hash, first, _ = held.place
                if isinstance(held.outcome, Reply) and not self.holder.ledger.has(scope, request_hash, first):
                    self.holder.keep(held.call, held.outcome)
            self.holder.ledger.sync()
            self.log.step(batch, "settled")
