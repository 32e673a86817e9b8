"""Modules that a job names: by their dotted name, or by the path of a `.py` file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FILES = "overnight_file_"
"""What the names of modules begin with that came from a file by its path."""

_sources: dict[str, bytes] = {}


def at(place: str) -> ModuleType:
    """A module by its dotted name, or from a `.py` file: as the file is now, however often it was edited.

    Raises FileNotFoundError for a file that is not there, and whatever the module raises when it is imported.
    """
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(place)
    source = path.read_bytes()
    name = FILES + hashlib.sha256(str(path).encode() + b"\0" + source).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    _sources[name] = source
    return module


def source(name: str) -> bytes | None:
    """What was run as a module that came from a file by its path; None for others."""
    return _sources.get(name)
