"""Whether an endpoint answers nobody: told by failures in a row, with no answer between them.

A call that fails by itself (a request that always ends in a 500) fails for good after its attempts. When a service
is down, all calls would: thousands of episodes would turn into errors within a minute. So calls that fail in an
outage wait for its end at the gate, and one of them tries now and then.
"""

from __future__ import annotations

import time

from runner.errors import Transient

UNREACHED = 3
"""Calls in a row without a connection: no request is to blame for that."""
FAILING = 5
"""Different calls in a row that fail in another way (5xx, a connection that breaks, no reply in time)."""
PATIENCE = 15.0
"""Seconds after which a call that tries alone and is still under way shows that the endpoint is there again: it has
its connection, and failures come sooner."""


class Outage:
    """Of one endpoint. Rests between tries are `shortest` seconds at first, and double up to `longest`."""

    def __init__(self, shortest: float, longest: float) -> None:
        self.shortest, self.longest = shortest, longest
        self.since: float | None = None
        """When it began, by the queue's clock; None if there is none."""
        self.words = ""
        self._began = ""
        self._unreached = 0
        self._failing: set[object] = set()
        self._rests = 0

    def failed(self, now: float, call: object, error: Transient) -> bool:
        """A call failed; whether the outage begins with it."""
        self._unreached = self._unreached + 1 if error.unreached else 0
        self._failing.add(call)
        if self.since is not None or (self._unreached < UNREACHED and len(self._failing) < FAILING):
            return False
        self.since, self._began = now, time.strftime("%H:%M:%S")
        return True

    def answered(self) -> None:
        """Somebody was: what failed before is no longer in a row."""
        self._unreached = 0
        self._failing.clear()

    def ended(self) -> bool:
        """The endpoint answers again; whether it did not before."""
        was, self.since, self._rests = self.since, None, 0
        return was is not None

    def rest(self) -> float:
        """Seconds until the next try."""
        rest: float = min(self.shortest * 2**self._rests, self.longest)
        self._rests = min(self._rests + 1, 20)
        return rest

    def describe(self, error: Exception) -> str:
        """The outage in words, for people; kept in `words`."""
        self.words = f"answers nobody since {self._began}, one call tries now and then: {error}"
        return self.words
