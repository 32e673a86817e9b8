"""A model behind its gate: the one layer in which calls wait, fail and are tried again."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from time import monotonic

import anyio

from runner.errors import CellStopped, EpisodeFailed, ModelError, Transient, Unsupported
from runner.models.base import Call, Model, Reply
from runner.models.gate import Gate, Ticket

LONGEST_PAUSE = 60.0
"""Seconds between tries where the server does not say how long."""
PARKED = 3600.0
"""A Retry-After beyond this is a quota of hours: the cell stops and the run resumes later."""

OnBegin = Callable[[Call], None]
OnFailure = Callable[[Call, ModelError], None]


class Passage:
    """One model of a job, its gate and its retries. `name` is the model's name in the job.

    Each try is told to `on_begin` before it is made, and to `on_failure` where it fails or is cut off (the
    ledger keeps both, so that what a killed process had under way is known). A failure that
    every call would meet stops the passage: `stopped` holds it, and all waiting and later calls get it at once.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        on_failure: OnFailure | None = None,
        on_begin: OnBegin | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.gate = Gate(model.in_flight or model.default_in_flight, model.requests_per_minute)
        self.on_failure = on_failure
        self.on_begin = on_begin
        self.stopped: CellStopped | None = None
        self.retrying: dict[int, str] = {}
        """Calls that pause before another try, and why: what `status` shows."""
        self._pauses: set[anyio.CancelScope] = set()

    async def ask(self, call: Call, ticket: Ticket) -> Reply:
        """A reply to the call, after as many tries as the model's settings allow.

        Raises CellStopped, EpisodeFailed (with its kinds), or what it was after the last try.
        """
        waited = 0.0
        adapted: set[str] = set()
        tries = 0
        while True:
            tried = False
            try:
                async with self.gate.passing(ticket) as seconds:
                    waited += seconds
                    if self.stopped is not None:
                        raise CellStopped(str(self.stopped))
                    if self.on_begin is not None:
                        self.on_begin(call)
                    tried, began = True, monotonic()
                    reply = await self.model.call(call)
                return dataclasses.replace(reply, seconds=monotonic() - began, waited=waited)
            except ModelError as error:
                if not tried:
                    raise
                self._tell(call, error)
                if isinstance(error, Unsupported) and error.parameter not in adapted:
                    adapted.add(error.parameter)
                    continue
                if isinstance(error, CellStopped):
                    self._stop(error)
                    raise
                if not isinstance(error, Transient):
                    raise
                tries += 1
                if error.retry_after is not None and error.retry_after > PARKED:
                    hours = error.retry_after / 3600
                    parked = CellStopped(
                        f"model {self.name!r} asks to wait {hours:.1f} h ({error}); "
                        "resume the run after that time"
                    )
                    self._stop(parked)
                    raise parked from error
                if tries >= self.model.attempts:
                    raise EpisodeFailed(
                        f"gave up after {tries} tries: {error}", status=error.status
                    ) from error
                waited += await self._pause(tries, error)
            except BaseException as error:
                if tried:  # a fault of ours, or the call was cut off: it may have been billed all the same
                    why = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "cut off"
                    self._tell(call, ModelError(why, billed=True))
                raise

    def _tell(self, call: Call, error: ModelError) -> None:
        if self.on_failure is not None:
            self.on_failure(call, error)

    def _stop(self, error: CellStopped) -> None:
        self.stopped = self.stopped or error
        self.gate.shut()
        for pause in self._pauses:
            pause.cancel()

    async def _pause(self, tries: int, error: Transient) -> float:
        """Full jitter below a ceiling that doubles, on top of what the server asks for."""
        jitter = random.uniform(0, min(LONGEST_PAUSE, 0.5 * 2 ** min(tries, 10)))
        seconds = jitter if error.retry_after is None else error.retry_after + min(jitter, 1.0)
        key = id(error)
        self.retrying[key] = str(error)
        with anyio.CancelScope() as pause:
            self._pauses.add(pause)
            try:
                await anyio.sleep(seconds)
            finally:
                self._pauses.discard(pause)
                self.retrying.pop(key, None)
        return seconds
