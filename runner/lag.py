"""How promptly the event loop does what is due, and what keeps it from that.

Everything shares one loop: a world or a method that computes for a second keeps ten thousand calls waiting for one.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from time import monotonic
from types import FrameType

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

EVERY = 0.05
"""Seconds between two looks at the loop."""
BLOCKED = 0.5
"""Seconds of standing still after which it is said what the loop does."""
AT_MOST = 20
"""Such lines of one run; who blocks does it again."""


class Lag:
    """Watches the loop it runs in. `warn` is told, from a thread, what has blocked it for too long."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._counts: Counter[int] = Counter()
        self._beat = monotonic()
        self._thread = 0
        self._said = 0
        self._done = threading.Event()

    async def watch(self) -> None:
        """As long as the run goes on."""
        self._thread, self._beat = threading.get_ident(), monotonic()
        self._done.clear()
        threading.Thread(target=self._guard, name="overnight-lag", daemon=True).start()
        try:
            while True:
                due = monotonic() + EVERY
                await anyio.sleep(EVERY)
                self._beat = monotonic()
                self._counts[max(round((self._beat - due) * 1000), 0)] += 1
        finally:
            self._done.set()
            await cancel_shielded_checkpoint()

    def quantile(self, share: float) -> float | None:
        """The milliseconds within which the loop did so large a share of what was due; None before it ran."""
        left = share * sum(self._counts.values())
        for milliseconds, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return float(milliseconds)
        return None

    def _guard(self) -> None:
        told = self._beat
        while not self._done.wait(BLOCKED / 2):
            beat = self._beat
            still = monotonic() - beat - EVERY
            if still < BLOCKED or beat == told or self._said >= AT_MOST:
                continue
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                told = beat
                self._said += 1
                self._warn(
                    f"everything has waited for {still:.1f} s for {_place(frame)}; what computes for long belongs "
                    "into a thread (anyio.to_thread.run_sync) or a process"
                )


def _place(frame: FrameType) -> str:
    """Where a frame is: the innermost line that is nobody's library, else the innermost at all."""
    lines = traceback.extract_stack(frame)
    own = [
        line for line in lines if "site-packages" not in line.filename and "/lib/python" not in line.filename
    ]
    at = (own or lines)[-1]
    return f"{at.filename}:{at.lineno} ({at.name})"
