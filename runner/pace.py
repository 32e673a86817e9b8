"""How near a run came to the shortest time that it could have taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from runner.models.base import Counted
from runner.models.sliding import PACED

if TYPE_CHECKING:
    from runner.models.passage import Passage


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds that work needs at the least, and what sets them."""

    seconds: float
    why: str


class Pace:
    """The time of one process's work on a run, beside what bounds it: calls x their latency / calls at once; calls and
    tokens / their limits; episodes x their work / episodes at once; and the longest episode, whose calls follow one
    another. (What waits for limits or between tries is no work.)"""

    def __init__(self, max_episodes: int) -> None:
        self.max_episodes = max_episodes
        self._began = monotonic()
        self._worked = 0.0
        self._episodes = 0
        self._longest = 0.0

    def start(self) -> None:
        """The first episode may begin."""
        self._began = monotonic()

    def ended(self, row: dict[str, Any]) -> None:
        """An episode has ended with a row."""
        worked = max(row["seconds"] - row["waited_seconds"], 0.0)
        self._worked += worked
        self._episodes += 1
        self._longest = max(self._longest, worked)

    def sums(self) -> tuple[float, int, float]:
        """Seconds of work of all episodes that ended, their number, and the seconds of the longest."""
        return self._worked, self._episodes, self._longest

    def together(self, sums: Sequence[tuple[float, int, float]]) -> None:
        """Of several processes that work side by side: what `sums` says in each."""
        self._worked = sum(worked for worked, _, _ in sums)
        self._episodes = sum(episodes for _, episodes, _ in sums)
        self._longest = max((longest for _, _, longest in sums), default=0.0)

    def as_dict(self, passages: list[Passage]) -> dict[str, Any]:
        """`seconds`, `shortest_seconds`, their `ratio` and what the run was `bound_by`; {} where nothing ended, or a
        part of the time was a batch's."""
        if not self._episodes or any(passage.batched for passage in passages):
            return {}
        seconds = monotonic() - self._began
        bound = max(self._bounds(passages), key=lambda bound: bound.seconds)
        if bound.seconds <= 0:
            return {}
        shortest = min(bound.seconds, seconds)  # a window's limit may all be used at its beginning
        return {
            "seconds": round(seconds, 3),
            "shortest_seconds": round(shortest, 3),
            "ratio": round(seconds / shortest, 3),
            "bound_by": bound.why,
        }

    def _bounds(self, passages: list[Passage]) -> Iterator[Bound]:
        yield Bound(self._longest, "the longest episode")
        at_once = min(self.max_episodes, self._episodes)
        yield Bound(self._worked / at_once, f"{at_once:,} episodes at once")
        for passage in passages:
            places = sum(
                line.gate.most if line.controller is None else line.gate.widest for line in passage.lines
            )
            busy = sum(line.busy for line in passage.lines)
            if places:
                yield Bound(busy / places, f"{places:,} calls of {passage.name} in flight")
            yield from _limits(passage)


def _limits(passage: Passage) -> Iterator[Bound]:
    """Of the limits of all its endpoints together."""
    rates: dict[Counted, float] = {}
    for line in passage.lines:
        for (counted, seconds), limit in line.gate.limits.known_limits().items():
            if seconds <= PACED:
                rates[counted] = rates.get(counted, 0.0) + limit / seconds
    for counted, rate in rates.items():
        used = sum(line.used[counted] for line in passage.lines)
        yield Bound(used / rate, f"{rate * 60:,.0f} {counted.replace('_', ' ')}/min of {passage.name}")


def told(pace: dict[str, Any]) -> str:
    """In words, for the end of a run."""
    return (
        f"{pace['seconds']:,.1f} s, {pace['ratio']:.2f} times the shortest possible "
        f"({pace['shortest_seconds']:,.1f} s for {pace['bound_by']})"
    )
