"""The event loop that a command runs in."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")

THRESHOLDS = (50_000, 20, 50)
"""Of the garbage collector. With the usual ones (700, 10, 10) it looks at ten thousand live coroutines so often that
this costs as much as the calls; what overnight leaves behind in cycles is little."""


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` in a loop of its own: uvloop's where it is installed, and with a garbage collector that is made for
    many live coroutines, for as long as it runs."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        return anyio.run(main, backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None})
    finally:
        gc.set_threshold(*before)
