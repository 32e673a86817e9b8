"""What shapes an episode: the `config` that each row carries, and what a resume compares.

Methods and their settings, prompt text, models' identities, worlds and their settings, code. Not how much is
run (samples, trials, selections), nor limits, addresses and keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from envs.base import DataError, World
from runner import registry
from runner.jsonl import canonical, clean, clean_text
from runner.methods.base import Method
from runner.methods.prompts import FILE_KEYS, Style, few_shot
from runner.models.base import Model

if TYPE_CHECKING:
    from runner.job import Cell, Job, Planned


def shape(job: Job) -> dict[str, Any]:
    """All of it for a whole job, flat, with dotted keys as in a job file."""
    flat: dict[str, Any] = {"seed": job.settings.seed, "shuffle_seed": job.settings.shuffle_seed}
    flat |= {f"roles.{role}": model for role, model in job.settings.roles.items()}
    for name, method in job.methods.items():
        flat |= _of_method(name, method)
    for name, world in job.worlds.items():
        flat |= _of_world(name, world)
        flat[f"envs.{name} (prompts)"] = _material(world, tuple(FILE_KEYS))
    for name, model in job.models.items():
        flat |= _of_model(name, model)
    return clean(flat)  # type: ignore[no-any-return]


HOW_MANY = ("samples", "until")
"""Settings of methods that only tell how many draws are taken: a run may be extended by them."""


class Configs:
    """Config hashes, with what a cell's episodes have in common hashed once."""

    def __init__(self, job: Job) -> None:
        self._common: dict[Cell, Any] = {}
        for cell in job.cells:
            method, world = job.methods[cell.method], job.worlds[cell.env]
            common: dict[str, Any] = {
                "seed": job.settings.seed,
                "roles": job.settings.roles,
                "samples": [getattr(method, key, None) for key in HOW_MANY],
                "prompts": _material(world, method.styles or tuple(FILE_KEYS)),
                **_of_method(cell.method, method),
                **_of_world(cell.env, world),
            }
            for name in {cell.model, *job.settings.roles.values()}:
                common |= _of_model(name, job.models[name])
            self._common[cell] = hashlib.sha256(canonical(common))

    def of(self, planned: Planned) -> str:
        """16 hex digits over the cell's shape and the task's content."""
        task = planned.task
        digest = self._common[planned.cell].copy()
        more = task.metadata if isinstance(task.metadata, dict) else dict(task.metadata)
        digest.update(canonical([task.id, task.input, task.target, more]))
        return str(digest.hexdigest())[:16]


def _of_method(name: str, method: Method) -> dict[str, Any]:
    shape = {f"methods.{name}.{key}": value for key, value in plain(method).items() if key not in HOW_MANY}
    shape[f"methods.{name} (code)"] = registry.code_version(type(method))
    return shape


def _of_world(name: str, world: World) -> dict[str, Any]:
    """Of a file, its name: tasks are hashed by their content, and folders may be moved."""
    shape: dict[str, Any] = {f"envs.{name}": world.name}
    for key, value in plain(world).items():
        if key not in world.manners:
            given = getattr(world, key)
            if key in world.paths and isinstance(given, str):
                given = Path(given)
            shape[f"envs.{name}.{key}"] = given.name if isinstance(given, Path) else value
    shape[f"envs.{name} (code)"] = registry.code_version(type(world))
    shape[f"envs.{name} (version)"] = f"{world.version} {world.source_version}".strip()
    return shape


def _of_model(name: str, model: Model) -> dict[str, Any]:
    """What replies depend on; never an address, a limit or a key."""
    keys = ("identity", "api", "temperature", "max_tokens", "top_p", "logprobs")
    shape = {f"models.{name}.{key}": getattr(model, key) for key in keys}
    if more := getattr(model, "extra_body", None):
        shape[f"models.{name}.extra_body"] = more
    return shape


def _material(world: World, styles: Sequence[str]) -> str:
    if world.sparse:
        return hashlib.sha256(clean_text(world.material).encode()).hexdigest()[:16]
    digest = hashlib.sha256()
    for style in styles:
        try:
            digest.update(few_shot(world, cast(Style, style)).sha.encode())
        except DataError:
            digest.update(b"-")  # this style has no prompt here; a method that needs it will say so
    return digest.hexdigest()[:16]


def plain(model: BaseModel) -> dict[str, Any]:
    """A model's settings as JSON values."""
    return model.model_dump(mode="json")
