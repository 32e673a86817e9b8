"""Shards become the run's own files once, whenever a merge dies and is made again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from runner.cluster import merge
from runner.errors import RunError, Transient
from runner.jsonl import Appender, rows
from runner.ledger import Ledger
from runner.models.base import Call, Choice, Params, Reply, Request, Text, Turn, Usage
from runner.outputs import RunFolder, read_trajectories, unmerged


class Died(BaseException):
    """The process is no more."""


def call(
    scope: str, prompt: str = "the same prompt, which is longer than what stands in each line " * 2
) -> Call:
    return Call(Request("m", (Turn("prompt", Text(prompt)),), Params()), scope=scope)


def paid(ledger: Ledger, scope: str) -> None:
    ledger.write_begin(call(scope))
    ledger.write_reply(call(scope), [0], Reply([Choice(f"to {scope}")], Usage(10, 2, calls=1), cost_usd=0.5))


def a_run(path: Path) -> Path:
    """A run with a ledger of its own, and two shards: of one a worker died amid a call, and amid a line."""
    path.mkdir()
    ledger = Ledger(path / "ledger.jsonl")
    for k in range(3):
        paid(ledger, f"own{k}")
    ledger.close()
    mine = Appender(path / "trajectories.jsonl")
    mine.append({"id": "a", "index": 5, "status": "error"}, {"id": "b", "index": 0})
    mine.close()
    for shard in range(2):
        folder = merge.shard_path(path, shard)
        folder.mkdir(parents=True)
        ledger = Ledger(folder / "ledger.jsonl")
        for k in range(2):
            paid(ledger, f"s{shard}k{k}")
        ledger.write_begin(call(f"s{shard}failed"))
        ledger.write_attempt(call(f"s{shard}failed"), Transient("late"), possible_cost=True)
        ledger.write_begin(call(f"s{shard}cut off"))
        ledger.close()
        with (folder / "ledger.jsonl").open("ab") as file:
            file.write(b'{"kind":"draw","sco')
        theirs = Appender(folder / "trajectories.jsonl")
        theirs.append(
            {"id": "a" if shard == 0 else "c", "index": 5 - shard, "status": "error" if shard else "finished"}
        )
        theirs.close()
    return path


def content(path: Path) -> tuple[bytes, bytes]:
    return (path / "ledger.jsonl").read_bytes(), (path / "trajectories.jsonl").read_bytes()


def test_a_merged_ledger_has_all_draws_and_sums_of_the_shards(tmp_path: Path) -> None:
    path = a_run(tmp_path / "run")
    assert [row["id"] for row in read_trajectories(path)] == ["b", "c", "a"]
    assert [row.get("status") for row in read_trajectories(path)][-1] == "finished"
    found = merge.merge(path)
    assert not unmerged(path)
    ledger = Ledger(path / "ledger.jsonl")
    for scope in ("own0", "own2", "s0k0", "s0k1", "s1k0", "s1k1"):
        draw = ledger.draw(scope, call(scope).request.hash, 0)
        assert draw is not None and draw.text == f"to {scope}"
    assert ledger.request(call("own0").request.hash) == call("own0").request
    assert (ledger.replies, ledger.paid.calls, ledger.paid_usd) == (7, 7, 3.5)
    assert (ledger.attempts_failed, ledger.cut_off, ledger.possibly_billed) == (2, 2, 4)
    ledger.close()
    sums = found.account
    assert (sums.replies, sums.paid.prompt, sums.paid_usd) == (4, 40, 2.0)
    assert (sums.attempts_failed, sums.cut_off, sums.possibly_billed) == (2, 2, 4)
    assert (found.rows, found.errors) == (2, 1)
    names = [row["id"] for row in rows(path / "ledger.jsonl") if row["kind"] == "reply"]
    assert names == [f"r{k}" for k in range(1, 8)]
    draws = [row["reply"] for row in rows(path / "ledger.jsonl") if row["kind"] == "draw"]
    assert draws == names


@pytest.mark.parametrize("k", range(9))
def test_a_merge_that_dies_at_any_step_is_made_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    whole = a_run(tmp_path / "whole")
    merge.merge(whole)
    path = a_run(tmp_path / "run")
    steps = 0

    def dying(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def counted(*args: object, **how: object) -> object:
            nonlocal steps
            steps += 1
            if steps == k + 1:
                raise Died
            return real(*args, **how)

        patch.setattr(owner, name, counted)

    with monkeypatch.context() as patch:
        for name in ("_append_ledger", "_append_rows", "_sync", "write_atomically"):
            dying(merge, name)
        dying(merge.shutil, "rmtree")
        dying(Path, "unlink")
        with pytest.raises(Died):
            merge.merge(path)
    assert unmerged(path)
    folder = RunFolder(path)
    folder.close()
    assert not unmerged(path)
    assert content(path) == content(whole)


def test_shards_that_a_worker_still_holds_are_not_merged(tmp_path: Path) -> None:
    path = a_run(tmp_path / "run")
    before = content(path)
    lock = os.open(merge.shard_path(path, 1) / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(RunError, match="still works on this shard"):
        merge.merge(path, wait=0.1)
    os.close(lock)
    assert content(path) == before
    merge.merge(path)
    assert not unmerged(path)
