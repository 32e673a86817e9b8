"""Workers on a Ray cluster. Ray only starts them, as one task each; leases, permits and files are as on one machine."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import anyio
import ray
from anyio import to_thread

from runner.cluster.worker import TOKEN, main

CPUS = 1.0
"""Of a node, for each worker."""


def _work(host: str, port: int, shard: int, token: str) -> int:
    os.environ[TOKEN] = token
    return main([host, str(port), str(shard)])


class RayHandle:
    """A worker that runs as a task of Ray's."""

    def __init__(self, task: Any) -> None:
        self._task = task

    async def wait(self) -> str:
        try:
            code = await asyncio.wrap_future(self._task.future())
        except ray.exceptions.RayError as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return f"exit code {code}"

    def kill(self) -> None:
        ray.cancel(self._task, force=True, recursive=True)


class Ray:
    """Starts workers as tasks, spread over the nodes. The run's folder must be the same path on all of them, and
    overnight be installed there."""

    sees_the_end = False

    def __init__(self, address: str) -> None:
        self._address = address
        self._mine = False

    async def open(self) -> tuple[str, str]:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not ray.is_initialized():
            await to_thread.run_sync(self._connect)
            self._mine = True
        self._task = ray.remote(max_retries=0, num_cpus=CPUS, scheduling_strategy="SPREAD")(_work)
        return "0.0.0.0", ray.util.get_node_ip_address()

    def _connect(self) -> None:
        ray.init(address=self._address, log_to_driver=False, logging_level=logging.WARNING)

    async def start(self, address: tuple[str, int], shard: int, token: str, folder: Path) -> RayHandle:
        return RayHandle(self._task.remote(*address, shard, token))

    async def close(self) -> None:
        if self._mine:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(ray.shutdown)
