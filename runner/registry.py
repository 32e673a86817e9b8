"""From a word in a job to the class that serves it, and a fingerprint of that class's code.

A word is a built-in name, an entry point of another package (groups `overnight.envs`, `overnight.methods`,
`overnight.models`), `package.module:Class`, or `path/to/file.py:Class`.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar

from envs import WORLDS
from envs.base import World
from runner import modules
from runner.errors import JobError
from runner.methods import METHODS
from runner.methods.base import Method
from runner.models import MODELS
from runner.models.base import Model

T = TypeVar("T", World, Method, Model)


def world_class(word: str, where: str = "") -> type[World]:
    """The world that a job calls `word`. Raises JobError with the nearest known word."""
    return _load(word, WORLDS, "overnight.envs", World, "world", where)


def method_class(word: str, where: str = "") -> type[Method]:
    """The method that a job calls `word`."""
    return _load(word, METHODS, "overnight.methods", Method, "method", where)


def model_class(word: str, where: str = "") -> type[Model]:
    """The provider that a job calls `word`."""
    return _load(word, MODELS, "overnight.models", Model, "provider", where)


def words(kind: str) -> dict[str, str]:
    """All words of a kind (`world`, `method`, `provider`) and the one-line description of each."""
    table, group, load = {
        "world": (WORLDS, "overnight.envs", world_class),
        "method": (METHODS, "overnight.methods", method_class),
        "provider": (MODELS, "overnight.models", model_class),
    }[kind]
    names = [*table, *_points(group)]
    return {name: (inspect.getdoc(load(name)) or "").split("\n\n")[0].replace("\n", " ") for name in names}


def table_of(kind: type) -> dict[str, str]:
    """The table of built-in words to which a class's base belongs."""
    if issubclass(kind, World):
        return WORLDS
    return METHODS if issubclass(kind, Method) else MODELS


def _points(group: str) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=group)}


def _load(word: str, table: dict[str, str], group: str, base: type[T], noun: str, where: str) -> type[T]:
    prefix = f"{where}: " if where else ""
    target = table.get(word) or _points(group).get(word) or (word if ":" in word else None)
    if target is None:
        raise JobError(prefix + unknown(noun, word, [*table, *_points(group)]))
    place, _, name = target.rpartition(":")
    try:
        found = getattr(modules.at(place), name)
    except FileNotFoundError as error:
        raise JobError(f"{prefix}{noun} {word!r}: there is no file {place}") from error
    except Exception as error:  # whatever a module does when it is imported
        raise JobError(
            f"{prefix}{noun} {word!r} could not be loaded: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise JobError(f"{prefix}{noun} {word!r} is not a subclass of {base.__module__}.{base.__name__}")
    own = "provider" if base is Model else "name"
    if not isinstance(getattr(found, own, None), str):
        raise JobError(f'{prefix}{noun} {word!r} has no name; write {own} = "..." in the class')
    return found


def unknown(noun: str, word: str, known: Iterable[str]) -> str:
    """`unknown method 'reakt'; did you mean 'react'?` with the list where nothing is near."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown {noun} {word!r}; {hint}"


def word_of(kind: type, name: str) -> str:
    """The word by which a job can name a class: its own `name` where that means it, else where it is."""
    target = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__.startswith(modules.FILES):
        return f"{sys.modules[kind.__module__].__file__}:{kind.__qualname__}"
    return name if table_of(kind).get(name) == target else target


def code_version(kind: type) -> str:
    """16 hex digits that change when the code behind a class does: its own module, its bases', and what
    they take from the methods' and worlds' packages. Of a class that was typed in (a notebook's), its
    functions count."""
    seen: dict[str, ModuleType] = {}
    own = kind.__module__.split(".")[0]
    todo = [sys.modules[base.__module__] for base in kind.__mro__ if base.__module__ in sys.modules]
    while todo:
        module = todo.pop()
        if module.__name__ in seen or not _shapes(module.__name__, own):
            continue
        seen[module.__name__] = module
        for value in list(vars(module).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str) and name in sys.modules:
                todo.append(sys.modules[name])
    digest = hashlib.sha256()
    for label, source in sorted(_source(module) for module in seen.values()):
        digest.update(label.encode() + b"\0" + source.replace(b"\r\n", b"\n") + b"\0")
    for base in kind.__mro__:
        if getattr(sys.modules.get(base.__module__), "__file__", None) is None:
            for name, value in sorted(vars(base).items()):
                if code := getattr(getattr(value, "__func__", value), "__code__", None):
                    digest.update(name.encode() + b"\0" + _bytecode(code))
    return digest.hexdigest()[:16]


def _source(module: ModuleType) -> tuple[str, bytes]:
    """(label, source). A file named by its path is labelled by its name, so that folders may be moved."""
    file = getattr(module, "__file__", None)
    if file is None:
        return "", b""
    if (source := modules.source(module.__name__)) is not None:
        return Path(file).name, source
    return module.__name__, Path(file).read_bytes()


def _bytecode(code: CodeType) -> bytes:
    inner = (_bytecode(c) if isinstance(c, CodeType) else repr(c).encode() for c in code.co_consts)
    return b"\0".join((code.co_code, " ".join(code.co_names).encode(), *inner))


def _shapes(module: str, own: str) -> bool:
    """Whether a module's code shapes episodes: methods, votes, worlds, or a third party's own."""
    if module == "envs.data":  # where files are found, not what is in them
        return False
    if module.startswith(("runner.methods.", "envs.")) or module in ("runner.voting", "runner.stopping"):
        return True
    return own not in ("runner", "envs") and module.split(".")[0] == own
