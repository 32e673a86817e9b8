"""What a person sees while a run goes on: a bar on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

import anyio

if TYPE_CHECKING:
    from runner.execution import Execution

EVERY_BAR = 0.5
"""Seconds between looks at the run with a bar."""
EVERY_LINE = 30.0
"""Seconds between lines where there is no terminal (a log, nohup, CI)."""


class Progress:
    """Watches one execution. `await Progress()(execution)` shows it until cancelled."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    async def __call__(self, execution: Execution) -> None:
        if self.stream.isatty() or "ipykernel" in sys.modules:
            await self._bar(execution)
        else:
            await self._lines(execution)

    async def _bar(self, execution: Execution) -> None:
        from tqdm.auto import tqdm

        counts = execution.counts
        bar: Any = tqdm(total=counts.total, unit="ep", file=self.stream, dynamic_ncols=True, smoothing=0.1)
        try:
            while True:
                finished = counts.already + counts.done
                if counts.total is not None and bar.total != counts.total:
                    bar.total = counts.total
                bar.initial = counts.already  # so that a resume does not distort the rate
                bar.n = finished
                bar.set_postfix_str(self._postfix(execution), refresh=False)
                bar.refresh()
                await anyio.sleep(EVERY_BAR)
        finally:
            bar.n = counts.already + counts.done
            bar.set_postfix_str(self._postfix(execution), refresh=False)
            bar.refresh()
            bar.close()

    async def _lines(self, execution: Execution) -> None:
        while True:
            await anyio.sleep(EVERY_LINE)
            self.stream.write(self.line(execution) + "\n")
            self.stream.flush()

    def line(self, execution: Execution) -> str:
        """One plain line: episodes done of how many, calls in flight, what is waited for, time left."""
        counts = execution.counts
        finished = counts.already + counts.done
        of = f"/{counts.total}" if counts.total is not None else ""
        took = monotonic() - counts.began
        eta = ""
        if counts.done and counts.total is not None:
            left = (counts.total - finished - counts.skipped) * took / counts.done
            eta = f", about {_clock(left)} left"
        return f"overnight: {finished}{of} episodes in {_clock(took)}{eta}, {self._postfix(execution)}"

    def _postfix(self, execution: Execution) -> str:
        parts = []
        flying = sum(passage.flying for passage in execution.passages.values())
        waiting = sum(passage.waiting for passage in execution.passages.values())
        parts.append(f"{execution.scheduler.in_flight} running, {flying} calls in flight")
        if waiting:
            parts.append(f"{waiting} queued")
        paused = [why for passage in execution.passages.values() for why in passage.retrying.values()]
        if paused:
            parts.append(f"{len(paused)} waiting to retry ({paused[-1][:60]})")
        if execution.counts.errors:
            parts.append(f"{execution.counts.errors} errors")
        if execution.interrupted:
            parts.append("stopping when these have ended; Ctrl-C again stops now")
        return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
