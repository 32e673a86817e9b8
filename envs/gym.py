"""A synchronous world of one's own with the interface of Gym or Gymnasium, in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from envs.base import Outcome, Replay, Session, Task, WorldError
from envs.hosting import Host, HostedWorld
from envs.tables import read_rows


class Gym(HostedWorld):
    """Hosts a class with `reset() -> obs` and `step(action) -> obs, reward, done, info` (Gym's; or Gymnasium's
    `obs, info` and `obs, reward, terminated, truncated, info`). One object is made for each episode, from `arguments`
    and the task's row; observations are shown as text. Scores: `reward`, the sum over the episode, and `success`,
    whether the world said that it is over with a reward above 0.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: ClassVar[str] = "gym"
    acts: ClassVar[bool] = True
    replay: ClassVar[Replay] = "rebuild"
    label: ClassVar[str] = "Task"
    steps: ClassVar[int] = 30

    class_: str = Field(
        alias="class", description="The class: `package.module:Class` or `path/to/file.py:Class`."
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of the class.")
    data: Path | None = Field(
        None,
        description="Rows of tasks (`id`, `input`, and further arguments of the class); unset: `count` of them.",
    )
    count: int | None = Field(
        None, gt=0, description="How many tasks, each with its number as the argument `seed`."
    )

    _host: Host | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _has_tasks(self) -> Gym:
        if (self.data is None) == (self.count is None):
            raise ValueError("tasks come from `data` or from `count`: set one of the two")
        return self

    def tasks(self) -> Iterator[Task]:
        if self.data is None:
            for k in range(self.count or 0):
                yield Task(id=str(k), input="", split=self.split, metadata={"seed": k})
            return
        for number, row in read_rows(self.data):
            more = {key: value for key, value in row.items() if key not in ("id", "input", "split")}
            yield Task(
                id=str(row.get("id", number)),
                input=str(row.get("input", "")),
                split=str(row.get("split", self.split)),
                metadata=more,
            )

    def introduce(self, task: Task) -> str:
        return f"{self.introduction}: {task.input}" if task.input else "Here is the task."

    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        last = outcome.rewards[-1] if outcome.rewards else 0.0
        return {"reward": sum(outcome.rewards), "success": float(outcome.done and last > 0)}

    def session(self, task: Task) -> Session:
        if self._host is None:
            raise WorldError(f"world {self.name!r} is not open; await open(cache) first")
        return self._host.session(dict(task.metadata))

    async def open(self, cache: Path) -> None:
        self._host = self.host("envs.gym:GymEngine", {"kind": self.class_, "arguments": self.arguments})

    async def close(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            await host.close()


class GymEngine:
    """Objects of one such class, one an episode."""

    many = True

    def __init__(self, kind: str, arguments: Mapping[str, Any]) -> None:
        from envs.worker import found

        self._kind = found(kind)
        self._arguments = dict(arguments)
        self._open: dict[str, Any] = {}

    def begin(self, episode: str, task: dict[str, Any]) -> str:
        made = self._open[episode] = self._kind(**self._arguments, **task)
        seen = made.reset()
        return str(seen[0] if isinstance(seen, tuple) else seen)

    def step(self, episode: str, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        seen, reward, *ends, more = self._open[episode].step(action)
        return str(seen), float(reward), any(map(bool, ends)), dict(more or {})

    def end(self, episode: str) -> None:
        made = self._open.pop(episode, None)
        if hasattr(made, "close"):
            made.close()

    def close(self) -> None:
        for episode in list(self._open):
            self.end(episode)
