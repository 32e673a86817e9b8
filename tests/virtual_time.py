"""An event loop whose clock jumps to the next timer, so that tests of waiting take no time.

    @virtual
    async def test_something(...):
        await anyio.sleep(3600)  # at once

Nothing outside the loop may be awaited (sockets, threads): a loop with nothing left to do is a deadlock and
raises one.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STEP = 1e-7
"""Seconds that one turn of the loop takes at least, as timers that round to "now" would else spin for ever."""


class Deadlock(AssertionError):
    """Everybody waits and no timer is set."""


class _Jumping(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("everybody waits and no timer is set")
        self.now += max(timeout, STEP)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; its `time()` is virtual, and so are all sleeps and time-outs in it."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async function in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of an async function that runs in virtual time."""

    @functools.wraps(test)
    def whole(*args: Any, **kwargs: Any) -> None:
        run(lambda: test(*args, **kwargs))

    return whole
