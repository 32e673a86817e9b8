"""What a person sees while a run goes on: a bar on a terminal or in a notebook, plain lines elsewhere.

Writing is done by a thread of its own: a terminal that nobody reads, or that was closed, must not hold the run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

import anyio

if TYPE_CHECKING:
    from runner.execution import Execution

EVERY_BAR = 0.5
"""Seconds between looks at the run with a bar."""
EVERY_LINE = 30.0
"""Seconds between lines where there is no terminal (a log, nohup, CI)."""
LAST_WORDS = 1.0
"""Seconds that the end of a run waits for a terminal to take the bar's last state."""


class Progress:
    """Watches one execution. `await Progress()(execution)` shows it until cancelled."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    async def __call__(self, execution: Execution) -> None:
        writer = _Writer()
        writer.write(lambda: self._say(str(execution.folder.path)), keep=True)
        try:
            if "ipykernel" in sys.modules or self.stream.isatty():
                await self._bar(execution, writer)
            else:
                await self._lines(execution, writer)
        finally:
            writer.finish(LAST_WORDS)

    def _say(self, line: str) -> None:
        self.stream.write(line + "\n")
        self.stream.flush()

    async def _bar(self, execution: Execution, writer: _Writer) -> None:
        from tqdm.auto import tqdm

        counts = execution.counts
        notebook = "ipykernel" in sys.modules
        bar: Any = tqdm(total=counts.total, unit="ep", file=self.stream, dynamic_ncols=True, smoothing=0.1)
        below: Any = None
        if not notebook:  # a terminal is narrow: what is going on has a line of its own
            below = tqdm(bar_format="{desc}", file=self.stream, dynamic_ncols=True, position=1)

        def show(words: str, *, last: bool = False) -> None:
            if bar.total != counts.total:  # a notebook's bar takes its length from `reset` alone
                began = bar.start_t
                bar.reset(total=counts.total)
                bar.start_t = began
            bar.initial = counts.already  # so that a resume does not distort the rate
            bar.n = counts.already + counts.done
            if below is None:
                bar.set_postfix_str(words, refresh=False)
            else:
                below.set_description_str(words)
            bar.refresh()
            if last:
                bar.close()
                if below is not None:
                    below.close()

        said = 0

        def draw(*, last: bool = False) -> None:
            nonlocal said
            calls = [partial(bar.write, line, file=self.stream) for line in list(execution.notices)[said:]]
            said += len(calls)
            drawing = partial(show, self._postfix(execution), last=last)
            if notebook:  # whose widgets belong to its own thread
                for call in (*calls, drawing):
                    call()
                return
            for call in calls:
                writer.write(call, keep=True)
            writer.write(drawing)

        try:
            while True:
                draw()
                await anyio.sleep(EVERY_BAR)
        finally:
            draw(last=True)

    async def _lines(self, execution: Execution, writer: _Writer) -> None:
        said = 0
        while True:
            await anyio.sleep(EVERY_LINE)
            for notice in list(execution.notices)[said:]:
                writer.write(partial(self._say, notice), keep=True)
            said = len(execution.notices)
            writer.write(partial(self._say, self.line(execution)))

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
        """What is going on, the most pressing first: a narrow terminal shows only the beginning."""
        vitals = None if (pulse := getattr(execution, "pulse", None)) is None else pulse.take()
        passages = execution.passages.values()
        parts = []
        if execution.interrupted:
            parts.append("stopping when these have ended; Ctrl-C again stops now")
        if execution.counts.errors:
            parts.append(f"{execution.counts.errors} errors")
        flying = sum(passage.flying for passage in passages)
        parts.append(f"{execution.scheduler.in_flight} running, {flying} calls in flight")
        waiting = sum(passage.waiting for passage in passages)
        if waiting and not (vitals and vitals.waits):  # which say how many wait
            parts.append(f"{waiting} queued")
        if vitals is not None:
            parts += vitals.waits
        paused = [why for passage in passages for why in passage.retrying.values()]
        if paused:
            parts.append(f"{len(paused)} waiting to retry ({_end(paused[-1])})")
        return ", ".join(parts if vitals is None else [*parts, *vitals.words()])


class _Writer:
    """Calls what it is given, in order, in a daemon thread. While one call hangs the newest waits and older
    ones are dropped."""

    def __init__(self) -> None:
        self._next: list[Callable[[], object]] = []
        self._kept: list[Callable[[], object]] = []
        self._change = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._work, name="overnight progress", daemon=True)
        self._thread.start()

    def write(self, call: Callable[[], object], *, keep: bool = False) -> None:
        with self._change:
            if keep:
                self._kept.append(call)
            else:
                self._next = [call]
            self._change.notify()

    def finish(self, seconds: float) -> None:
        """Let it do what it still has, if that takes no longer than this."""
        with self._change:
            self._over = True
            self._change.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._change:
                while not (self._next or self._kept or self._over):
                    self._change.wait()
                calls = self._kept + self._next
                self._next, self._kept = [], []
                if not calls:
                    return
            for call in calls:
                with suppress(OSError, ValueError):  # closed; the run goes on unseen
                    call()


def _end(reason: str, most: int = 60) -> str:
    """The end of a reason, where a provider's message says what is wrong (it begins with who says it)."""
    return reason if len(reason) <= most else "… " + reason[-most:]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
