"""One worker process of an engine: how it is started, asked, watched over and ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Protocol

import orjson

from envs.base import WorldError
from envs.worker import HEAD, packed

MANY = 16
"""Episodes to a worker whose engine holds several."""
BEGIN_SECONDS = 180.0
"""What making an engine may take: a Java machine, a grammar."""
HARD = 1.25
"""Times its memory at which a worker is ended at once; between that and the ceiling it only gets no new episodes."""
TAIL = 400
"""Characters of an engine's last words that are shown."""


class Gone(Exception):
    """A worker is no more; why, in words. `working`: whether it was at this very request then, and not killed from
    outside."""

    def __init__(self, why: str, working: bool = False) -> None:
        super().__init__(why)
        self.working = working


class Owner(Protocol):
    """What a worker knows of who started it."""

    engine: str
    settings: dict[str, Any]
    per_worker: int | None
    memory_mb: float
    step_seconds: float

    def lost(self, worker: Worker) -> None:
        """It has ended by itself, or was ended for what it did."""


class Worker:
    """One process and the requests under way in it."""

    def __init__(self, owner: Owner, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.owner = owner
        self.process = process
        self.episodes = 0
        self.room = 1
        self.open = False
        self.full = False
        """Whether it holds more than it may: it gets no further episodes."""
        self._errors = errors
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        """In order of asking, in which they are answered."""
        self._why = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._listening: asyncio.Task[None]

    @classmethod
    async def start(cls, owner: Owner) -> Worker:
        """Raises Gone where the engine cannot be made."""
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        try:
            words = [sys.executable, "-m", "envs.worker", str(theirs.fileno()), owner.engine]
            path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), *sys.path]))
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        finally:
            theirs.close()
        worker = cls(owner, process, errors)
        worker._reader, worker._writer = await asyncio.open_connection(sock=ours)
        try:
            worker._writer.write(packed({"settings": owner.settings}))
            async with asyncio.timeout(BEGIN_SECONDS):
                told = await worker._next()
        except TimeoutError:
            await worker.stop()
            raise Gone(f"nothing was heard of it within {BEGIN_SECONDS:g} s", working=True) from None
        except BaseException as error:
            if isinstance(error, EOFError):
                await worker._reaped()
            killed = process.returncode == -signal.SIGKILL
            worker.kill()
            with contextlib.suppress(ProcessLookupError):
                await process.wait()
            if isinstance(error, EOFError):
                raise Gone(worker._last_words(), working=not killed) from None
            raise
        if "error" in told:
            await worker.stop()
            raise Gone(told["error"], working=True)
        worker.room = owner.per_worker or (MANY if told["many"] else 1)
        worker.open = True
        worker._listening = asyncio.get_running_loop().create_task(worker._listen())
        return worker

    async def ask(self, what: str, episode: str, argument: Any = None) -> Any:
        """What the engine says. Raises Gone where the worker ends before, WorldError for the engine's own error."""
        if not self.open:
            raise Gone(self._why)
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(
            RuntimeError, OSError
        ):  # closed already (uvloop): `_ended` will tell who waits
            self._writer.write(packed([number, what, episode, argument]))
        if len(self._asked) == 1:
            self._watch()
        error, result = await answer
        if error is not None:
            raise WorldError(str(error))
        return result

    def _watch(self) -> None:
        """The oldest request is being worked on from now on."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._asked:
            seconds = self.owner.step_seconds
            self._deadline = asyncio.get_running_loop().call_later(
                seconds, self.kill, f"an action took longer than step_seconds = {seconds:g}"
            )

    async def _listen(self) -> None:
        try:
            while True:
                number, error, result, megabytes = await self._next()
                answer = self._asked.pop(number)
                self._watch()
                if not answer.done():
                    answer.set_result((error, result))
                if megabytes > self.owner.memory_mb:
                    self.full, self.room = True, 0
                if megabytes > HARD * self.owner.memory_mb:
                    self.kill(f"it held {megabytes:,.0f} MB of {self.owner.memory_mb:,.0f}")
        except (EOFError, OSError):
            await self._reaped()
        finally:
            self._ended()

    async def _reaped(self) -> None:
        """Until it is known how it ended, which tells whose fault that is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self.process.wait()

    async def _next(self) -> Any:
        try:
            size = int.from_bytes(await self._reader.readexactly(HEAD))
            return orjson.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None

    def _ended(self) -> None:
        if not self.open:
            return
        self.open = False
        if self._deadline is not None:
            self._deadline.cancel()
        outside = not self._why and self.process.returncode == -signal.SIGKILL
        self._why = self._why or self._last_words()
        self.kill()
        self.owner.lost(self)
        for k, answer in enumerate(self._asked.values()):
            if not answer.done():
                answer.set_exception(Gone(self._why, working=k == 0 and not outside))
                answer.exception()  # whoever asked may be gone
        self._asked.clear()
        self._writer.close()
        self._errors.close()

    def _last_words(self) -> str:
        with contextlib.suppress(ValueError, OSError):
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(size - TAIL, 0))
            said = self._errors.read().decode(errors="replace").strip()
            if said:
                return f"its process ended; its last words: ...{said[-TAIL:]}"
        return "its process ended without a word (killed? out of memory?)"

    def kill(self, why: str = "") -> None:
        """End it now, with all that it started. Who waits for it hears why."""
        self._why = self._why or why
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Let it end by itself, else end it."""
        self.open = False
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()
        try:
            async with asyncio.timeout(5):
                await self.process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            with contextlib.suppress(ProcessLookupError):
                await self.process.wait()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(Gone("the world was closed"))
                    answer.exception()
            if (listening := getattr(self, "_listening", None)) is not None:
                listening.cancel()
            self._errors.close()
