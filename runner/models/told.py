"""What a service tells of its limits, in the headers of its replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runner.models.base import Counted, Window
from runner.models.waits import clock_of, finite, moment

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
SLACK = 1.1
"""A told time may be off by so much: it is rounded, and others use the limit at the same time."""


@dataclass(frozen=True, slots=True)
class Told:
    """The headers in which a service tells one of its limits. `seconds` None: of a window whose length it does
    not say, so that its `limit` says nothing, while what remains of it and when it is full again do. `refills`:
    `reset` is the time until the limit is whole again, and so tells how long the window is: an account's requests
    may be a day's."""

    counted: Counted
    seconds: float | None
    limit: str
    remaining: str
    reset: str = ""
    refills: bool = False

    def length(self, limit: float | None, remaining: float | None, reset: float | None) -> float:
        """The window's length in seconds. What was used of a limit comes back evenly: of 200 requests a day, one
        in 7m12s. A reset that fits no window that there is says nothing."""
        usual = MINUTE if self.seconds is None else self.seconds
        if limit is None or remaining is None or not reset or remaining >= limit:
            return usual
        told = limit * reset / (limit - remaining)
        longer = (usual,) if not self.refills and reset <= SLACK * usual else (MINUTE, HOUR, DAY)
        return next((each for each in longer if each / SLACK <= told <= each * SLACK), usual)


def headers(
    prefix: str, suffix: str, *names: tuple[Counted, float | None, str], refills: bool = False
) -> tuple[Told, ...]:
    """Headers that are named alike, one after another."""
    return tuple(
        Told(
            counted,
            seconds,
            limit=f"{prefix}limit{suffix}".format(name),
            remaining=f"{prefix}remaining{suffix}".format(name),
            reset=f"{prefix}reset{suffix}".format(name),
            refills=refills,
        )
        for counted, seconds, name in names
    )


def windows(headers: Mapping[str, str], told: Iterable[Told], now: float) -> tuple[Window, ...]:
    """What a reply's headers say of the service's limits, `now` in epoch seconds. Total: never raises.

    Resets are read in every form: seconds, Go's durations, RFC 3339, epoch seconds or milliseconds, HTTP dates,
    against the reply's own `Date`. What is negative, 0 (a limit, a reset), or no number is unknown; a window of
    which nothing is known is left out.
    """
    low = {str(name).lower(): value for name, value in headers.items()}
    told = [each for each in told if each.limit in low or each.remaining in low]
    if not told:
        return ()
    low = {name: str(value).strip() for name, value in low.items()}
    clock = clock_of(low, now)
    found = []
    for each in told:
        limit = finite(low.get(each.limit, "")) or None
        remaining = finite(low.get(each.remaining, ""))
        if limit is None and each.limit in low:
            continue  # -1, 0: it says that it does not know
        reset = (moment(low.get(each.reset, ""), clock) or None) if each.reset else None
        if each.seconds is None:
            limit = None
        if limit is None and remaining is None:
            continue
        seconds = each.length(limit, remaining, reset)
        found.append(Window(each.counted, seconds, limit=limit, remaining=remaining, reset=reset))
    return tuple(found)
