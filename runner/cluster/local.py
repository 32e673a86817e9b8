"""Workers that are processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import Process

from runner.cluster.worker import TOKEN

ERRORS = "stderr.txt"
"""In a shard's folder: what its workers wrote to their standard error."""
LAST = 2000
"""Bytes of it that are told."""


class LocalHandle:
    """A worker process."""

    def __init__(self, process: Process, errors: Path) -> None:
        self._process, self._errors = process, errors

    async def wait(self) -> str:
        code = await self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        with suppress(OSError):
            if words := self._errors.read_bytes()[-LAST:].decode(errors="replace").strip():
                how += f": {words.splitlines()[-1]}"
        return how

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


class Local:
    """Starts workers as processes, in a session of their own: Ctrl-C is the coordinator's."""

    sees_the_end = True

    async def open(self) -> tuple[str, str]:
        return "127.0.0.1", "127.0.0.1"

    async def start(self, address: tuple[str, int], shard: int, token: str, folder: Path) -> LocalHandle:
        home = str(Path(__file__).parent.parent.parent)
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
        host, port = address
        errors = folder / ERRORS
        with errors.open("ab") as file:
            process = await anyio.open_process(
                [sys.executable, "-m", "runner.cluster.worker", host, str(port), str(shard)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env={**os.environ, TOKEN: token, "PYTHONPATH": path},
                start_new_session=True,
            )
        return LocalHandle(process, errors)

    async def close(self) -> None:
        """Nothing was taken."""
