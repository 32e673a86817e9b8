"""A job: the TOML file that says what to run, checked key by key, and the cells it expands to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from envs.base import DataError, Task, World, WorldError
from envs.seen import Seen
from runner import identity, registry
from runner.budget import Limits
from runner.errors import JobError
from runner.identity import plain
from runner.jobfile import Keys, Locator, beside, copied, load, override
from runner.methods.base import Compat, Method
from runner.methods.prompts import Style, few_shot
from runner.models.base import Model
from runner.registry import word_of

T = TypeVar("T", World, Method, Model)


class Settings(BaseModel):
    """The keys of a job file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field("job", pattern=r"^[\w.-]+$", description="Begins the run folder's name.")
    seed: int = Field(233, description="From it the seed of every draw is derived.")
    compat: Compat = Field("default", description="Default of every world's and method's `compat`.")
    trials: int = Field(1, gt=0, description="Episodes of each task and method; trials share no draws.")
    limit: int | None = Field(None, ge=1, description="At most this many tasks of each world.")
    rows: int | None = Field(
        None, ge=1, description="Only the first so many rows of the data are considered."
    )
    ids: list[str] | None = Field(None, description="Only these tasks, by id.")
    where: dict[str, Any] = Field(
        default_factory=dict, description="Only tasks whose metadata have these values (a list: any of them)."
    )
    shuffle_seed: int | None = Field(
        None, description="Shuffle the rows by random.Random(seed); ReAct's 500 are 233 with limit 500."
    )
    models: dict[str, dict[str, Any]] = Field(min_length=1, description="Who answers, by a name of yours.")
    envs: dict[str, dict[str, Any]] = Field(min_length=1, description="Worlds, by a name of yours.")
    methods: dict[str, dict[str, Any]] = Field(min_length=1, description="Methods, by a name of yours.")
    roles: dict[str, str] = Field(
        default_factory=dict, description="Models for other roles than the policy's, e.g. {judge = 'big'}."
    )
    limits: Limits = Field(default_factory=Limits)
    workers: int = Field(1, gt=0, description="Processes that share the work.")
    engine: Literal["local", "ray"] = Field(
        "local", description="What starts the workers: this machine, or a Ray cluster (`overnight[ray]`)."
    )
    address: str = Field(
        "auto", description="The Ray cluster's, e.g. 10.0.0.1:6379; `auto`: the one there is."
    )
    worker_megabytes: int | None = Field(
        None, gt=0, description="A worker that takes more memory than this is replaced by a new one."
    )
    reuse: list[str] = Field(
        default_factory=list, description="Folders of earlier runs whose draws are taken, not asked for anew."
    )

    @property
    def batched(self) -> bool:
        """Whether all models that solve tasks are in batch mode: then chains are all drawn, unless a method says
        otherwise, as every further window would cost a wave."""
        others = {model for role, model in self.roles.items() if role != "policy"}
        policies = [table for name, table in self.models.items() if name not in others]
        return all(table.get("mode") == "batch" for table in policies)

    @field_validator("ids", mode="before")
    @classmethod
    def _ids_are_texts(cls, ids: Any) -> Any:
        """Data hold numbers as ids, too; a task's id is their text."""
        if isinstance(ids, (list, tuple, set)):
            return [str(id) if isinstance(id, int) and not isinstance(id, bool) else id for id in ids]
        return ids


@dataclass(frozen=True)
class Cell:
    """One combination of a world, a method and a model; the unit that a fatal failure stops."""

    env: str
    method: str
    model: str


@dataclass(slots=True)
class Planned:
    """An episode to come: its place in plan order, its cell, trial and task."""

    index: int
    cell: Cell
    trial: int
    task: Task

    @property
    def id(self) -> str:
        """`env/task/method/model/trial`, unique within a run."""
        trial = f"#{self.trial}" if self.trial else ""
        return f"{self.cell.env}/{self.task.id}/{self.cell.method}/{self.cell.model}{trial}"


class Job:
    """A checked job. `worlds`, `methods` and `models` are the objects that its tables describe.

    Make one with `Job.read(path)`, `Job.parse(dict)`, or from objects of your own with `Job.of(...)`.
    """

    def __init__(
        self,
        settings: Settings,
        worlds: Mapping[str, World],
        methods: Mapping[str, Method],
        models: Mapping[str, Model],
        raw: Mapping[str, Any],
    ) -> None:
        self.settings = settings
        self.worlds = worlds
        self.methods = methods
        self.models = models
        self.raw = raw
        """The job as plain data, as it is written to `run.json`."""
        self._sizes: dict[str, int] = {}
        """How many tasks each world has whose tasks were read to their end."""

    # -- making ----------------------------------------------------------------------------------------
    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> Job:
        """A job file. `overrides` are `key=value` with dotted keys and TOML values, as `--set` takes them.

        Raises JobError naming the file, the line and the key.
        """
        path = Path(path)
        raw, text = load(path)
        return cls.parse(raw, overrides, file=path, text=text)

    @classmethod
    def parse(
        cls,
        raw: Mapping[str, Any],
        overrides: Sequence[str] = (),
        *,
        file: Path | None = None,
        text: str = "",
    ) -> Job:
        """A job from plain data with the same keys as a file."""
        raw = copied(raw)
        at = Locator(file, text, {override(raw, assignment): assignment for assignment in overrides})
        if file is not None and "reuse" in raw:
            raw["reuse"] = beside(raw["reuse"], file)
        try:
            settings = Settings.model_validate(raw)
        except ValidationError as error:
            raise at.error(error, (), Settings) from error

        def made(find: Callable[[str], type[T]], kind: str, key: str) -> dict[str, T]:
            return {
                name: _make(find, table, (kind, name), key, at, settings) for name, table in raw[kind].items()
            }

        worlds = made(registry.world_class, "envs", "world")
        methods = made(registry.method_class, "methods", "method")
        models = made(registry.model_class, "models", "provider")
        job = cls(settings, worlds, methods, models, raw)
        job._check(at)
        return job

    @classmethod
    def of(
        cls,
        world: World,
        methods: Mapping[str, Method] | Method,
        model: Model,
        *,
        roles: Mapping[str, Model] | None = None,
        **settings: Any,
    ) -> Job:
        """A job from objects, for notebooks and tests: one world, one or more methods, one model."""
        named = {methods.name: methods} if isinstance(methods, Method) else dict(methods)
        models = {"policy": model, **(roles or {})}
        raw = {
            **settings,
            "envs": {world.name: plain(world) | {"world": word_of(type(world), world.name)}},
            "methods": {name: plain(m) | {"method": word_of(type(m), m.name)} for name, m in named.items()},
            "models": {n: plain(m) | {"provider": word_of(type(m), m.provider)} for n, m in models.items()},
            "roles": {name: name for name in roles or {}},
        }
        try:
            checked = Settings.model_validate(raw)
        except ValidationError as error:
            raise Locator().error(error, (), Settings) from error
        raw |= checked.model_dump(mode="json", include=set(settings))
        job = cls(checked, {world.name: world}, named, models, raw)
        job._check(Locator())
        return job

    def _check(self, at: Locator) -> None:
        """What only shows between tables. Raises JobError."""
        for role, model in self.settings.roles.items():
            if model not in self.models:
                raise JobError(at.at(("roles", role)) + registry.unknown("model", model, self.models))
        if not self.policies:
            raise JobError(at.at(("roles",)) + "every model has another role; name one that solves the tasks")
        for name, method in self.methods.items():
            for env, world in self.worlds.items():
                if method.acts and not world.acts:
                    raise JobError(
                        f"{at.at(('methods', name))}method {name!r} takes actions, and the world of "
                        f"envs.{env} ({world.name}) takes none; use one that only answers (standard, cot, cot_sc)"
                    )
                if method.sparse and not world.sparse:
                    raise JobError(
                        f"{at.at(('methods', name))}method {name!r} needs a world with sparse thoughts, and that of "
                        f"envs.{env} ({world.name}) has none; use react"
                    )
                if (world.prompts or world.prompt_keys) and not world.sparse:
                    for style in method.styles:
                        try:
                            few_shot(world, cast(Style, style))
                        except DataError as error:
                            raise JobError(f"{at.at(('envs', env, 'prompts'))}{error}") from error

    # -- what it expands to ----------------------------------------------------------------------------
    @property
    def policies(self) -> list[str]:
        """The models that solve tasks: all that have no other role."""
        others = {model for role, model in self.settings.roles.items() if role != "policy"}
        named = self.settings.roles.get("policy")
        return [named] if named else [name for name in self.models if name not in others]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(env, method, model)
            for env in self.worlds
            for model in self.policies
            for method in self.methods
        )

    def tasks(self, env: str) -> Iterator[Task]:
        """The selected tasks of a world: rows, shuffled, filtered by `ids` and `where`, limited.

        Read lazily, but to the last of the `ids` where those are given, and whole where it is shuffled. Raises
        DataError, before the first task, for an id that is not there and an empty selection; for two tasks of
        one id where the second is met.
        """
        chosen = self.settings
        found = _distinct(self.worlds[env].tasks(), env)
        if chosen.rows is not None:
            found = islice(found, chosen.rows)
        if chosen.shuffle_seed is not None:
            rows = list(found)
            random.Random(chosen.shuffle_seed).shuffle(rows)
            found = iter(rows)
        if chosen.ids is not None:
            found = _named(found, set(chosen.ids), env)
        count, first = 0, None
        for task in found:
            first = first or task
            if _matches(task, chosen.where):
                yield task
                count += 1
                if count == chosen.limit:
                    break
        if count == 0:
            raise DataError(f"envs.{env}: no task{_why_none(first, chosen)}; there is nothing to run")
        if not self.worlds[env].streams:
            self._sizes[env] = count

    def plan(self) -> Iterator[Planned]:
        """All episodes in plan order, lazily: task by task, so that methods that share draws run together."""
        index = 0
        for env in self.worlds:
            cells = [cell for cell in self.cells if cell.env == env]
            for task in self.tasks(env):
                for trial in range(self.settings.trials):
                    for cell in cells:
                        yield Planned(index, cell, trial, task)
                        index += 1

    def count(self) -> int:
        """How many episodes `plan` gives: reads the tasks of worlds that were not read to their end before. Raises
        DataError as it does."""
        cells = Counter(cell.env for cell in self.cells)
        sizes = {env: self._sizes.get(env) or sum(1 for _ in self.tasks(env)) for env in self.worlds}
        return sum(self.settings.trials * cells[env] * size for env, size in sizes.items())

    # -- identity --------------------------------------------------------------------------------------
    def shape(self) -> dict[str, Any]:
        """What shapes episodes, flat: a change of any of it between run and resume is refused unless accepted.

        Samples, trials, selections, limits and endpoints are not in it.
        """
        return identity.shape(self)

    def configs(self) -> identity.Configs:
        """The `config` hash of each planned episode."""
        return identity.Configs(self)


def _distinct(tasks: Iterator[Task], env: str) -> Iterator[Task]:
    seen = Seen()
    for task in _checked(tasks, env):
        if not seen.add(task.id):
            raise DataError(
                f"envs.{env}: two tasks have the id {task.id!r}; ids name draws, so each must be its own"
            )
        yield task


def _checked(tasks: Iterator[Task], env: str) -> Iterator[Task]:
    """The tasks; what a world does wrong in listing them is said in its name."""
    number = 0
    try:
        for number, task in enumerate(tasks, 1):  # noqa: B007 - told where the listing fails
            if not isinstance(task, Task):
                raise DataError(f"envs.{env}: tasks() gave {task!r:.60} where an envs.Task belongs")
            yield task
    except WorldError:
        raise
    except Exception as error:
        raise DataError(
            f"envs.{env}: tasks() failed after {number} tasks: {type(error).__name__}: {error}"
        ) from error


def _named(tasks: Iterator[Task], wanted: set[str], env: str) -> Iterator[Task]:
    """The tasks of these ids, once all of them are found."""
    found = []
    for task in tasks:
        if task.id in wanted:
            found.append(task)
            if len(found) == len(wanted):
                break
    missing = sorted(wanted - {task.id for task in found})
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise DataError(
            f"envs.{env}: no task with id {', '.join(map(repr, missing[:5]))}{more} among its rows"
        )
    return iter(found)


def _matches(task: Task, where: Mapping[str, Any]) -> bool:
    for key, wanted in where.items():
        own = {"id": task.id, "input": task.input, "target": task.target, "split": task.split}
        value = task.metadata[key] if key in task.metadata else own.get(key)
        if not (value in wanted if isinstance(wanted, list) else value == wanted):
            return False
    return True


def _why_none(first: Task | None, chosen: Settings) -> str:
    if first is None:
        return " among `ids`, which is empty" if chosen.ids == [] else ""
    why = " matches `where`" + (" among those in `ids`" if chosen.ids else "")
    for key in chosen.where:
        known = {"id", "input", "target", "split", *first.metadata}
        if key not in known:
            return f"{why} ({registry.unknown('field', key, known)})"
    return why


def _make(
    find: Callable[[str], type[T]], table: dict[str, Any], path: Keys, key: str, at: Locator, job: Settings
) -> T:
    """The object that a job's table describes. Paths in the table that were meant from the job file's folder
    are made whole in it, so that the run can go on from elsewhere."""
    word = table.get(key, path[-1])
    if not isinstance(word, str):
        raise JobError(f"{at.at((*path, key))}input should be a valid string, not {word!r}")
    for name, said in (
        (key, word),
        *((each, table.get(each)) for each in ("until", "class")),
    ):  # in a Python file
        if at.file is not None and isinstance(said, str) and ".py:" in said:
            file, _, inside = said.rpartition(":")
            table[name] = f"{beside(file, at.file)}:{inside}"
    word = table.get(key, word)
    try:
        kind = find(word)
    except JobError as error:
        hint = "" if key in table else f" (or say which one it is: {key} = '...')"
        raise JobError(f"{at.at((*path, key) if key in table else path)}{error}{hint}") from error
    fields = kind.model_fields
    settings = {field: value for field, value in table.items() if field != key}
    for field, value in settings.items():
        is_path = field in fields and "Path" in str(fields[field].annotation)
        if at.file is not None and (is_path or field in getattr(kind, "paths", ())):
            settings[field] = table[field] = beside(value, at.file)
    if "compat" in fields and job.compat != "default":
        settings.setdefault("compat", job.compat)
    if "until" in fields and job.batched:
        settings.setdefault("until", "all")
    try:
        made = kind.model_validate(settings)
    except ValidationError as error:
        raise at.error(error, path, kind) from error
    for field, value in settings.items():
        if isinstance(value, bool) and not isinstance(getattr(made, field), bool):
            raise JobError(f"{at.at((*path, field))}true and false are no values of this key")
    return made
