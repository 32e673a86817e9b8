"""One endpoint that answers as a model: its gate, what moves it, and how it has been doing."""

from __future__ import annotations

import random

from runner.errors import CellStopped, DailyQuota, ModelError, Transient
from runner.models.adaptive import Controller
from runner.models.base import Counted, Model, Reply
from runner.models.concurrency import MOST_IN_FLIGHT
from runner.models.gate import Gate
from runner.models.limits import Charge, Key
from runner.models.outage import PATIENCE, Outage
from runner.models.queue import Queue, Ticket

PARKED = 3600.0
"""Seconds. A Retry-After beyond this is a quota of hours: the cell stops and the run resumes later."""
ABOVE_ITS_LIMIT = 5
"""Refusals in a row, without an answer between them, that tell a limit below the job's own from a single 429."""
SHORTEST_REST, LONGEST_REST = 10.0, 1800.0
"""Seconds for which one endpoint of several is left alone; each rest is twice as long as the one before."""
ONLY_SHORTEST_REST, ONLY_LONGEST_REST = 1.0, 60.0
"""The same for the only one."""


class Line:
    """One endpoint of a passage. With `others` beside it, it may rest when it fails."""

    def __init__(self, model: Model, weight: float, queue: Queue, *, others: bool) -> None:
        self.model = model
        self.others = others
        self.name = str(getattr(model, "endpoint", "") or model.model)
        self.gate = Gate(
            model.in_flight or model.default_in_flight,
            limits=limits_of(model),
            queue=queue,
            weight=weight,
            name=self.name,
        )
        self.controller = Controller(self.gate, model.in_flight or MOST_IN_FLIGHT) if model.adapts else None
        self._refusals = 0
        self.busy = 0.0
        """Seconds of all calls that were answered or failed."""
        self.used: dict[Counted, float] = {
            "requests": 0.0,
            "tokens": 0.0,
            "input_tokens": 0.0,
            "output_tokens": 0.0,
        }
        """What they counted for the limits."""
        self.stopped: CellStopped | None = None
        """Why it answers nothing until a person acts; it is tried again all the same if there are others."""
        self.outage = (
            Outage(SHORTEST_REST, LONGEST_REST) if others else Outage(ONLY_SHORTEST_REST, ONLY_LONGEST_REST)
        )

    def sent(self, ticket: Ticket, now: float) -> None:
        """A call is sent now: what counts for the windows is when it leaves, not when it was let through."""
        self.gate.sent(ticket, now)
        if self.controller is not None:
            self.controller.sent(now)

    def answered(self, ticket: Ticket, sent: float, reply: Reply, real: Charge) -> None:
        """A call sent at a time was answered: what it used, what the reply tells of limits."""
        self.gate.settle(ticket, real)
        used = self.used
        used["requests"] += 1.0
        used["tokens"] += real.input + real.output
        used["input_tokens"] += real.input
        used["output_tokens"] += real.output
        self.gate.learn(reply.windows)
        self._well(sent)
        if self.controller is not None:
            self.controller.answered(sent, real.output)

    def failed(self, ticket: Ticket, sent: float, error: ModelError) -> bool:
        """A call sent at a time failed. Whether the gate does the waiting before it is worth another try."""
        self.gate.learn(error.windows)
        if isinstance(error, CellStopped):
            self._stop(error)
            return True
        if not isinstance(error, Transient):
            self._well(sent)
            return False
        if error.status == 429:
            return self._refused(ticket, sent, error)
        if error.status is not None and self.controller is not None:
            self.controller.troubled()
        began = self.outage.failed(self.gate.clock(), ticket, error)
        if self.outage.since is None:
            return False
        if began or sent >= self.gate.paused_until:
            rest = max(self.outage.rest(), error.retry_after or 0.0)
            self.gate.pause(rest, self.outage.describe(error), patience=PATIENCE)
        if began:
            self.gate.on_warning(f"{self.name} {self.outage.words}")
        return True

    def park(self, seconds: float, why: str) -> None:
        """Nothing for hours."""
        self.gate.pause(seconds, why)

    def _refused(self, ticket: Ticket, sent: float, error: Transient) -> bool:
        self._answered(sent)
        self._refusals += 1
        self.gate.refund(ticket, refused=True)
        if self._refusals >= ABOVE_ITS_LIMIT and self.controller is None and self.model.adaptive is None:
            # the job's limits are not the server's: from now on they are only bounds of what is found by trying
            self.controller = Controller(self.gate, self.gate.most)
        if self.controller is not None:
            self.controller.refused(sent, error.retry_after)
            return True
        if error.retry_after is None:
            return False
        self.gate.pause(error.retry_after + random.uniform(0, 1.0), "429: the server says how long")
        return True

    def _well(self, sent: float) -> None:
        self._refusals = 0
        self._answered(sent)
        if sent >= self.gate.paused_until:
            self.stopped = None
        self.gate.proved(sent)

    def _answered(self, sent: float) -> None:
        self.outage.answered()
        if sent >= self.gate.paused_until and self.outage.ended():
            self.gate.on_warning(f"{self.name} answers again")

    def _stop(self, error: CellStopped) -> None:
        self.stopped = error
        if not self.others:
            return
        if isinstance(error, DailyQuota) and error.retry_after is not None:
            self.gate.pause(error.retry_after, str(error))
        else:
            self.gate.pause(self.outage.rest(), str(error))


def limits_of(model: Model) -> dict[Key, float]:
    """The limits that the job sets for an endpoint."""
    given: dict[tuple[Counted, float], float | None] = {
        ("requests", 60.0): model.requests_per_minute,
        ("requests", 86400.0): model.requests_per_day,
        ("tokens", 60.0): model.tokens_per_minute,
        ("input_tokens", 60.0): model.input_tokens_per_minute,
        ("output_tokens", 60.0): model.output_tokens_per_minute,
    }
    return {key: limit for key, limit in given.items() if limit is not None}
