"""How a run stands, from what its workers last told of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.cluster.crew import Worker
from runner.execution import Counts
from runner.models.passage import Passage

SPREAD = 1000
"""Numbers for the calls of one worker, so that those of different workers differ."""


class Standing:
    """The last states of all shards' workers, those that are no more among them. All figures in a state are its
    shard's, whoever worked on it, but for the episodes that one worker left out."""

    def __init__(self, crew: Mapping[int, Worker]) -> None:
        self._crew = crew
        self._gone: dict[int, dict[str, Any]] = {}
        self.skipped = 0
        """Episodes left out by workers that are no more, and by the coordinator."""

    def left(self, worker: Worker) -> None:
        """A worker is no more."""
        self._gone[worker.shard] = {**worker.state, "in_flight": 0, "longest": [], "retrying": []}
        self.skipped += worker.state.get("skipped", 0)

    @property
    def states(self) -> dict[int, dict[str, Any]]:
        """By shard."""
        return {**self._gone, **{shard: w.state for shard, w in self._crew.items() if w.state}}

    @property
    def in_flight(self) -> int:
        """Episodes in flight."""
        return sum(state.get("in_flight", 0) for state in self.states.values())

    @property
    def pace(self) -> list[tuple[float, int, float]]:
        """See `Pace.together`."""
        return [(*state["pace"],) for state in self.states.values() if "pace" in state]

    def count(self, counts: Counts) -> None:
        """Bring the counts up to date."""
        states = self.states.values()
        counts.done = sum(state.get("rows", 0) for state in states)
        counts.errors = sum(state.get("errors", 0) for state in states)
        counts.skipped = self.skipped + sum(w.state.get("skipped", 0) for w in self._crew.values())

    def show(self, passages: Mapping[str, Passage]) -> None:
        """Tell the passages which calls take longest, and which wait to be tried again."""
        for passage in passages.values():
            passage.under_way.clear()
            passage.retrying.clear()
        for shard, state in self.states.items():
            for k, (model, scope, endpoint, seconds) in enumerate(state.get("longest", ()), shard * SPREAD):
                passage = passages[model]
                passage.under_way[k] = (scope, endpoint, passage.queue.clock() - seconds)
            for k, (model, why) in enumerate(state.get("retrying", ()), shard * SPREAD):
                passages[model].retrying[k] = why
