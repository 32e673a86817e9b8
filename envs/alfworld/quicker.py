"""What makes the installed engine quicker, around its own code: it reads the same few grammar texts again at every
step, copies what it will not change, and prepares for a planner that nobody asks here.

Observations stay the same to the letter; a step takes about a tenth of the time.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

REMEMBERED = 4_096
"""Texts whose parse is kept: a game's grammar has about 100, and its goals are not among them."""
TRANSLATED = 16
"""Problems whose translation is kept: several episodes often play the same game."""


@functools.cache
def make_quicker(translations: str = "") -> None:
    """Put remembering wrappers into textworld's and fast_downward's modules. Once a process; it must be called from
    a process whose only use of them is ours. `translations`: a folder, shared with other workers of the same run, in
    which translated problems are kept: three quarters of what a game's beginning takes."""
    import fast_downward
    import textworld.logic
    from textworld.envs.pddl import logic, textgen

    textgen.deepcopy = functools.partial(_copied, textgen.Symbol)
    textgen._parse_and_convert = _remembered(textgen._parse_and_convert, textgen.deepcopy)
    textworld.logic._parse_and_convert = _remembered(textworld.logic._parse_and_convert, _same_items)
    logic._parse_and_convert = _remembered(logic._parse_and_convert, _itself)
    use_small_library()
    translate = functools.lru_cache(TRANSLATED)(_kept(fast_downward.pddl2sas, translations))

    def pddl2sas(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        return (None, "") if optimize else translate(domain, problem)

    fast_downward.pddl2sas = pddl2sas


def _kept(translate: Callable[..., Any], folder: str) -> Callable[..., Any]:
    """Translate, or read what another worker has translated. The folder is the run's own, so its pickles are ours."""
    if not folder:
        return translate

    def kept(domain: str, problem: str) -> Any:
        name = hashlib.sha256(f"{domain}\0{problem}".encode()).hexdigest()
        file = Path(folder) / name
        with contextlib.suppress(OSError, EOFError, zlib.error, pickle.UnpicklingError):
            return pickle.loads(zlib.decompress(file.read_bytes()))
        made = translate(domain, problem)
        with contextlib.suppress(OSError):  # a full disk: then everyone translates for himself
            part = file.with_name(f"{name}.{os.getpid()}")
            part.write_bytes(zlib.compress(pickle.dumps(made), 1))
            part.replace(file)
        return made

    return kept


def without_planner(library: Any) -> None:
    """Let an environment's copy of fast_downward load nothing for its planner (see `make_quicker`)."""
    library.load_sas_replan = _itself


def use_small_library() -> None:
    """Have fast_downward copy, for each environment, its library without debugging symbols: 1 MB in place of 34.

    Of an ELF file the loader reads the segments that the program headers name; what follows them is left out. The
    rest is held in memory, in a file without a name. Where there is no such thing, or the library is of another form,
    it stays as it is.
    """
    from fast_downward import interface

    source = Path(interface.DOWNWARD_LIB_PATH)
    end = _end_of_segments(source)
    if end is None or end >= source.stat().st_size or not hasattr(os, "memfd_create"):
        return
    descriptor = os.memfd_create(source.name)
    with source.open("rb") as whole, open(descriptor, "wb", closefd=False) as part:
        part.write(whole.read(end))
    interface.DOWNWARD_LIB_PATH = f"/proc/self/fd/{descriptor}"


def _end_of_segments(file: Path) -> int | None:
    """Where the last segment of a 64-bit little-endian ELF file ends, in bytes."""
    with file.open("rb") as stream:
        head = stream.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        stream.seek(offset)
        table = stream.read(size * count)
    ends: list[int] = [offset + size * count]
    for k in range(count):
        at, in_file = struct.unpack_from("<Q16xQ", table, k * size + 8)
        ends.append(at + in_file)
    return max(ends)


def _remembered(parse: Callable[..., Any], give: Callable[[Any], Any]) -> Callable[..., Any]:
    kept = functools.lru_cache(REMEMBERED)(parse)
    return lambda text, **how: give(kept(text, **how))


def _copied(symbol: type, value: Any) -> Any:
    """A copy of symbols and of the containers that hold them or names; names and facts are never changed."""
    if isinstance(value, symbol):
        twin: Any = copy.copy(value)
        for part in ("symbol", "expression"):
            inner = getattr(twin, part, None)
            if isinstance(inner, symbol):
                setattr(twin, part, _copied(symbol, inner))
        return twin
    if isinstance(value, list):
        return [_copied(symbol, each) for each in value]
    if isinstance(value, dict):
        return dict(value)
    return copy.deepcopy(value)


def _same_items(parsed: Any) -> Any:
    return list(parsed) if isinstance(parsed, list) else parsed


def _itself(value: Any) -> Any:
    return value
