"""Lines of one turn of the event loop are written together: their order, failures, cancellation, and the end."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.errors import RunError
from runner.jsonl import Appender, rows


class Disk:
    """`os.write` that fails while it is `full`, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.writes: list[int] = []
        real = os.write

        def write(fd: int, data: bytes) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.writes.append(len(data))
            return real(fd, data)

        monkeypatch.setattr(os, "write", write)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Appender]:
    appender = Appender(tmp_path / "f.jsonl")
    yield appender
    try:
        appender.close()
    except RunError:
        pass


def line(k: int) -> bytes:
    return b'{"k":%d}\n' % k


def ks(file: Appender) -> list[int]:
    return [row["k"] for row in rows(file.path)]


async def complaints_of(body: Any) -> list[dict[str, Any]]:
    """What the event loop complains of while and after the body runs."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context))
    await body
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    return heard


async def test_lines_of_one_turn_are_one_write_in_the_order_they_were_put(file: Appender, disk: Disk) -> None:
    async def put(k: int) -> None:
        spans = file.put([line(k)])
        await file.written()
        assert file.read(*spans[0]) == {"k": k}

    await asyncio.gather(*map(put, range(50)))
    assert len(disk.writes) == 1
    assert ks(file) == list(range(50))


async def test_what_is_appended_comes_after_what_was_put_before(file: Appender, disk: Disk) -> None:
    file.put([line(0)])
    file.append({"k": 1})
    file.put([line(2)])
    assert ks(file) == [0, 1]
    (span,) = file.put([line(3)])
    assert file.read(*span) == {"k": 3}
    await file.written()
    assert ks(file) == [0, 1, 2, 3]


async def test_all_who_wait_hear_of_a_failure_and_nothing_is_taken_after_it(
    file: Appender, disk: Disk
) -> None:
    async def put(k: int) -> None:
        file.put([line(k)])
        await file.written()

    await put(0)
    disk.full = True
    heard = await asyncio.gather(*map(put, range(1, 4)), return_exceptions=True)
    assert [type(error) for error in heard] == [RunError] * 3
    assert len({id(error) for error in heard}) == 3, "each has a traceback of its own"
    disk.full = False
    for attempt in (lambda: file.put([line(9)]), lambda: file.append({"k": 9}), file.flush, file.sync):
        with pytest.raises(RunError, match="No space left"):
            attempt()
    with pytest.raises(RunError, match="No space left"):
        await file.written()
    assert ks(file) == [0]
    file.close()  # all have heard of it


async def test_a_failure_that_nobody_waited_for_is_told_to_the_next(file: Appender, disk: Disk) -> None:
    disk.full = True
    file.put([line(0)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(RunError, match="No space left"):
        await file.written()
    file.close()


@pytest.mark.parametrize("turns", [0, 2])
async def test_a_failure_that_nobody_heard_of_is_raised_in_the_end(
    file: Appender, disk: Disk, turns: int
) -> None:
    disk.full = True
    file.put([line(0)])
    for _ in range(turns):
        await asyncio.sleep(0)
    with pytest.raises(RunError, match="No space left"):
        file.close()
    file.close()  # let go all the same


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_while_waiting_loses_no_line_and_leaves_no_complaint(
    file: Appender, disk: Disk, full: bool, turns: int
) -> None:
    async def put() -> None:
        file.put([line(0)])
        await file.written()

    async def body() -> None:
        disk.full = full
        task = asyncio.ensure_future(put())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        begun = turns > 0
        await asyncio.sleep(0)
        heard = task.done() and not task.cancelled() and isinstance(task.exception(), RunError)
        if full and begun and not heard:
            with pytest.raises(RunError):
                file.close()
        else:
            file.close()
        assert ks(file) == ([0] if begun and not full else [])

    assert await complaints_of(body()) == []


async def test_cancelled_in_the_turn_of_the_failure_it_is_not_taken_as_heard(
    file: Appender, disk: Disk
) -> None:
    """The failure is set, and before the waiter runs again it is cancelled: it never sees it."""

    async def body() -> None:
        disk.full = True
        waiting = asyncio.ensure_future(put())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await asyncio.gather(waiting, return_exceptions=True)
        if waiting.cancelled():
            with pytest.raises(RunError, match="No space left"):
                file.close()

    async def put() -> None:
        file.put([line(0)])
        await file.written()

    assert await complaints_of(body()) == []


async def test_what_was_written_before_a_failure_is_forced_to_the_disk_in_the_end(
    file: Appender, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(fd))
    file.put([line(0)])
    await file.written()
    disk.full = True
    file.put([line(1)])
    with pytest.raises(RunError):
        await file.written()
    file.close()
    assert len(synced) == 1 and ks(file) == [0]


async def test_part_of_a_turns_lines_on_a_disk_that_fills_up_is_taken_back(
    file: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, [12]

    def write(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(fd, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", write)
    spans = file.put([line(0)]) + file.put([line(1)])
    with pytest.raises(RunError):
        await file.written()
    assert file.path.read_bytes() == b""
    assert file.size == 0
    for span in spans:
        with pytest.raises(RunError):
            file.read(*span)


def test_where_no_loop_runs_lines_are_written_at_once(file: Appender, disk: Disk) -> None:
    file.put([line(0), line(1)])
    assert ks(file) == [0, 1]
    disk.full = True
    with pytest.raises(RunError):
        file.put([line(2)])
    disk.full = False
    file.put([line(3)])  # nothing was promised a place
    assert ks(file) == [0, 1, 3]


async def test_a_loop_that_ends_in_the_turn_of_the_lines_leaves_them_to_the_close(tmp_path: Path) -> None:
    def other() -> None:
        async def put() -> Appender:
            file = Appender(tmp_path / "other.jsonl")
            file.put([line(0)])
            asyncio.get_running_loop().stop()
            return file

        loop = asyncio.new_event_loop()
        task = loop.create_task(put())
        loop.run_forever()
        file = task.result()
        loop.close()
        file.close()

    await asyncio.to_thread(other)
    assert [row["k"] for row in rows(tmp_path / "other.jsonl")] == [0]
