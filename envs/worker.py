"""The process in which an engine runs: `python -m envs.worker FD MODULE:CLASS`, started by `envs.hosting`.

It reads requests from a socket and answers them one after another. A message is its length in four bytes, then JSON:

- to it: `{"settings": ...}` first, then `[number, "begin" | "step" | "end", episode, argument]`
- from it: `{"many": ...}` first, once the engine is made, then `[number, null | error, result, megabytes]`

What the engine prints goes to standard error; files that it leaves go to a folder of its own. It ends with its
owner, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import orjson

HEAD = 4
"""Bytes that tell a message's length."""
NICE = 10
"""How far a worker, and what it starts, steps back: where all cores are busy its owner's loop goes first."""
COUNT_EVERY = 0.2
"""Seconds for which a count of memory is good: a browser's many processes take a millisecond to count."""
_counted = (float("-inf"), 0.0)


def main(fd: int, engine: str) -> int:
    _end_with_owner()
    with contextlib.suppress(OSError):
        os.nice(NICE)
    os.dup2(2, 1)
    channel = socket.socket(fileno=fd)
    kind = found(engine)
    with tempfile.TemporaryDirectory(prefix="overnight-engine-") as folder, contextlib.suppress(EOFError):
        settings = _read(channel)["settings"]
        os.chdir(folder)
        try:
            made = kind(**settings)
        except Exception as error:
            _send(channel, {"error": _words(error)})
            return 1
        _send(channel, {"many": bool(getattr(kind, "many", False))})
        try:
            while True:
                number, what, episode, argument = _read(channel)
                try:
                    result = _do(made, what, episode, argument)
                    _send(channel, [number, None, result, _megabytes()])
                except Exception as error:
                    _send(channel, [number, _words(error), None, _megabytes()])
        finally:
            with contextlib.suppress(Exception):
                made.close()
    return 0


def _do(engine: Any, what: str, episode: str, argument: Any) -> Any:
    if what == "begin":
        return engine.begin(episode, argument)
    if what == "step":
        text, reward, done, more = engine.step(episode, argument)
        return [text, float(reward), bool(done), more]
    return engine.end(episode)


def _words(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {error}{where}" if type(error).__name__ != "WorldError" else str(error)


def found(name: str) -> Any:
    """The class `module:Class`, or `path/to/file.py:Class`."""
    module, _, inside = name.rpartition(":")
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(module).stem, module)
        if spec is None or spec.loader is None:
            raise ImportError(f"{module} cannot be imported")
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        sys.path.insert(0, str(Path(module).resolve().parent))
        spec.loader.exec_module(made)
    else:
        made = importlib.import_module(module)
    return getattr(made, inside)


def _read(channel: socket.socket) -> Any:
    return orjson.loads(_exactly(channel, int.from_bytes(_exactly(channel, HEAD))))


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def packed(message: Any) -> bytes:
    """A message as it goes over the socket. What has no JSON form goes as its text."""
    data = orjson.dumps(message, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return len(data).to_bytes(HEAD) + data


def _send(channel: socket.socket, message: Any) -> None:
    channel.sendall(packed(message))


def _megabytes() -> float:
    """Resident memory now, of this process and of what it started (a Java machine, a browser; there without what they
    share), where the system tells; else the most this process had."""
    global _counted
    now = time.monotonic()
    if now - _counted[0] < COUNT_EVERY:
        return _counted[1]
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1]) + sum(
            map(_private, _below(os.getpid()))
        )
        found = pages * resource.getpagesize() / 2**20
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = most / (2**20 if sys.platform == "darwin" else 2**10)
    _counted = now, found
    return found


def _private(process: int) -> int:
    """Resident pages of a process that it has for itself; 0 if it has ended."""
    try:
        resident, shared = Path(f"/proc/{process}/statm").read_bytes().split()[1:3]
        return int(resident) - int(shared)
    except (OSError, ValueError):
        return 0


def _below(process: int) -> list[int]:
    """All that a process has started, and what those have; [] where the system does not tell."""
    found: list[int] = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_bytes().split()):
                found += [child, *_below(child)]
    return found


def _end_with_owner() -> None:
    """The kernel ends this process with its owner, also in the middle of a step (Linux; elsewhere at the next read)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
