"""Which worker has which tasks: the coordinator's book.

What is leased is a task with all its episodes that are owed, as they share draws. Tasks go out in plan order, a few at
a time, as workers have room, so that none waits behind another's. A lease ends when its episodes have ended. Those of
a lost worker stay with its shard, in whose ledger their draws are, and go first to whoever takes that up.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from envs.base import Task
from runner.job import Job, Planned

MOST = 64
"""Tasks of one lease at most."""
UNCOUNTED = 8
"""And while nobody knows yet how many there are."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A task of which episodes are owed: the how manieth of its world's it is, its first episode's plan order, and
    which of its episodes (0, 1, ... in plan order) are owed; None: all."""

    env: str
    nth: int
    index: int
    task: str
    episodes: tuple[int, ...] | None = None

    def packed(self, lease: int) -> list[object]:
        return [lease, self.env, self.nth, self.index, self.task, self.episodes]


@dataclass(frozen=True, slots=True)
class Lease:
    """A task that a worker has."""

    number: int
    owed: Owed


class Leases:
    """`plan` gives what is owed, in order; it is read as far as it is asked for, and may block."""

    def __init__(self, plan: Iterator[Owed], workers: int) -> None:
        self._plan = plan
        self._workers = workers
        self._there: deque[Owed] = deque()
        """Read, and not handed out."""
        self._over = False
        self._held: defaultdict[int, dict[int, Owed]] = defaultdict(dict)
        """By shard and number: leased and not ended."""
        self._again: defaultdict[int, dict[int, Owed]] = defaultdict(dict)
        """Those that the shard's next worker gets first."""
        self._count = 0
        self.left: int | None = None
        """Tasks that were not handed out yet, once they are counted."""

    @property
    def exhausted(self) -> bool:
        """Whether all that is owed was handed out once."""
        return self._over and not self._there

    def held(self, shard: int) -> int:
        """Tasks that a shard's worker, or its next one, has to do."""
        return len(self._held[shard])

    def read(self, room: int) -> None:
        """Read what may be handed out next, for a worker with room for so many tasks. Blocks: call it in a thread, one
        call at a time. Raises what the plan does."""
        more = self._at_most(room) - len(self._there)
        if self._over or more <= 0:
            return
        found = list(islice(self._plan, more))
        if not self._over:
            self._there += found
            self._over = len(found) < more

    def take(self, shard: int, room: int) -> list[Lease]:
        """Tasks for a worker that has room for so many, of those that were read; none: there are no more for it."""
        again = self._again[shard]
        if again:
            return [Lease(number, again.pop(number)) for number in list(again)[:room]]
        leases = []
        for _ in range(min(self._at_most(room), len(self._there))):
            owed = self._there.popleft()
            self._count += 1
            self._held[shard][self._count] = owed
            leases.append(Lease(self._count, owed))
        if self.left is not None:
            self.left = max(self.left - len(leases), 0)
        return leases

    def _at_most(self, room: int) -> int:
        """Not so many that others would have none: near the end one by one."""
        fair = UNCOUNTED if self.left is None else self.left // (2 * self._workers)
        return max(min(room, fair, MOST), 1)

    def ended(self, shard: int, numbers: Iterable[int]) -> None:
        """All episodes of these have ended."""
        for number in numbers:
            self._held[shard].pop(number, None)

    def lost(self, shard: int) -> None:
        """The shard's worker is no more, or leaves what it has: its next one begins with that."""
        self._again[shard] = dict(sorted(self._held[shard].items()))

    def stop(self) -> None:
        """Nothing more is handed out."""
        self._over = True
        self._there.clear()
        self._again.clear()


def owed(job: Job, planned: Iterable[tuple[Planned, bool]]) -> Iterator[Owed]:
    """The tasks of a plan, of whose episodes it is said whether they are owed; those without an owed one are left
    out."""
    each = {env: sum(cell.env == env for cell in job.cells) * job.settings.trials for env in job.worlds}
    nth = dict.fromkeys(each, -1)
    current: list[int] = []
    first: Planned | None = None
    seen = 0
    for episode, is_owed in planned:
        env = episode.cell.env
        if first is None:
            first, current, seen = episode, [], 0
            nth[env] += 1
        if is_owed:
            current.append(seen)
        seen += 1
        if seen == each[env]:
            if current:
                some = tuple(current) if len(current) < seen else None
                yield Owed(env, nth[env], first.index, first.task.id, some)
            first = None


def episodes(job: Job, task: Task, env: str, index: int, some: Iterable[int] | None) -> Iterator[Planned]:
    """The owed episodes of a leased task: the other way round."""
    cells = [cell for cell in job.cells if cell.env == env]
    wanted = None if some is None else set(some)
    for place in range(job.settings.trials * len(cells)):
        if wanted is None or place in wanted:
            yield Planned(index + place, cells[place % len(cells)], place // len(cells), task)
