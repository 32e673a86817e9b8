"""The event loop that a command runs in."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")

THRESHOLDS = (2_000, 5_000, 1_000)
"""Of the garbage collector. What is in flight is looked at once, while it is young, in steps of a millisecond. The
older generations, in which ten thousand live coroutines take half a second, are looked at every ten million objects:
what overnight leaves behind in cycles is little."""


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` in a loop of its own: uvloop's where it is installed, and with a garbage collector that is made for
    many live coroutines, for as long as it runs."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        return anyio.run(main, backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None})
    finally:
        gc.set_threshold(*before)
