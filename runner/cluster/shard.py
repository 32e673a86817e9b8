"""A worker's part of a run on disk: its folder, and a ledger that knows what the run's own holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from runner.cluster.merge import shard_path
from runner.errors import RunError
from runner.jsonl import rows
from runner.ledger import Ledger
from runner.lines import Draw
from runner.models.base import Request
from runner.outputs import RunFolder


class ShardFolder(RunFolder):
    """`shards/<n>` of a run, held by one worker; its `run.log` has what could not be told to the coordinator."""

    def __init__(self, path: Path, told: Callable[[str], bool]) -> None:
        super().__init__(path)
        self._told = told

    @classmethod
    def take(
        cls, run: Path, shard: int, told: Callable[[str], bool], wait: float, wanted: Callable[[], bool]
    ) -> ShardFolder:
        """The folder, which the coordinator has made, once its last holder has let go. `told` passes a line of the log
        on, if it can. Raises RunError where that takes longer than `wait` seconds, or it is not `wanted` any more."""
        path = shard_path(run, shard)
        until = monotonic() + wait
        while True:
            try:
                return cls(path, told)
            except RunError:
                if monotonic() > until or not wanted():
                    raise
                sleep(0.1)

    @property
    def manifest(self) -> dict[str, Any]:
        return {}

    def update(self, **fields: Any) -> None:
        """A shard has no manifest."""

    def ended(self) -> dict[str, bool]:
        """The episodes that have a row here, and whether that is an error: only a resume runs those again."""
        found = rows(self.trajectories.path)
        return {row["id"]: row.get("status") == "error" for row in found if "id" in row}

    def log(self, message: str) -> None:
        if not self._told(message):
            super().log(message)


class ShardLedger(Ledger):
    """A shard's ledger. What the run's own ledger (`base`) has is found, too, and stays there."""

    def __init__(self, path: Path, base: Path) -> None:
        super().__init__(path)
        self.base = Ledger(base, frozen=True) if base.exists() and base.stat().st_size else None

    def draw(self, scope: str, request_hash: str, i: int) -> Draw | None:
        if self.base is not None and not super().has(scope, request_hash, i):
            found = self.base.draw(scope, request_hash, i)
            if found is not None:
                return found
        return super().draw(scope, request_hash, i)

    def has(self, scope: str, request_hash: str, i: int) -> bool:
        return super().has(scope, request_hash, i) or (
            self.base is not None and self.base.has(scope, request_hash, i)
        )

    def request(self, request_hash: str) -> Request | None:
        found = super().request(request_hash)
        return self.base.request(request_hash) if found is None and self.base is not None else found

    def adopt(self, episode: str) -> None:
        """Copy the observations of an episode that was begun before there were shards: it goes on here."""
        base = self.base
        life = None if base is None else base.last_life(episode)
        if base is None or life is None or self.last_life(episode) is not None:
            return
        attempt = 0
        while steps := base.recorded_steps(episode, life, attempt):
            for step in range(steps + 1):  # from 0 where the world spoke first, else from 1
                recorded = base.observation(episode, life, attempt, step)
                if recorded is not None:
                    self.write_observation(episode, attempt, step, recorded)
            attempt += 1

    def close(self) -> None:
        super().close()
        if self.base is not None:
            self.base.close()
