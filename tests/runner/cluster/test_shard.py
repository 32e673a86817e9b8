"""A shard's ledger beside the run's own: what that has is found and stays there."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import places
from runner.cluster.shard import ShardLedger
from runner.jsonl import rows
from runner.ledger import Ledger
from runner.lines import Recorded
from runner.models.base import Call, Choice, Params, Reply, Request, Text, Turn, Usage


def call(k: int) -> Call:
    return Call(Request("m", (Turn("prompt", Text(f"{k}: " + "x" * 100)),), Params()), scope=f"w/t{k}#0")


def asked(ledger: Ledger, k: int) -> None:
    ledger.write_begin(call(k))
    ledger.write_reply(call(k), [0], Reply([Choice(f"reply {k}")], Usage(10, 2, calls=1)))


@pytest.fixture(params=["in memory", "on disk"])
def base(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ledger of a run that goes on with workers: ten replies, and an episode of two steps."""
    if request.param == "on disk":
        monkeypatch.setattr(places, "SMALL", 5)
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for k in range(10):
        asked(ledger, k)
    for step in range(3):
        seen = Recorded(f"act {step}", f"seen {step}", 0.0, step == 2, state={"page": "y" * 500})
        ledger.write_observation("w/t1/react/m", 0, step, seen)
    ledger.close()
    assert path.with_suffix(".index").exists() == (request.param == "on disk")
    return path


def test_several_shards_find_what_the_run_has_and_keep_what_is_theirs(base: Path, tmp_path: Path) -> None:
    before = base.read_bytes()
    shards = []
    for n in range(2):
        (tmp_path / f"{n}").mkdir()
        shards.append(ShardLedger(tmp_path / f"{n}" / "ledger.jsonl", base))
    for n, shard in enumerate(shards):
        for k in range(10):
            assert shard.has(call(k).scope, call(k).request.hash, 0)
            draw = shard.draw(call(k).scope, call(k).request.hash, 0)
            assert draw is not None and draw.text == f"reply {k}"
            assert shard.request(call(k).request.hash) == call(k).request
        mine = 20 + n
        assert shard.draw(call(mine).scope, call(mine).request.hash, 0) is None
        asked(shard, mine)
        assert shard.replies == 1 and shard.paid.calls == 1
    for shard in shards:
        shard.close()
    assert base.read_bytes() == before
    for n in range(2):
        kinds = [row["kind"] for row in rows(tmp_path / f"{n}" / "ledger.jsonl")]
        assert sorted(kinds) == ["attempt", "draw", "reply", "request"]
        again = ShardLedger(tmp_path / f"{n}" / "ledger.jsonl", base)
        assert again.has(call(20 + n).scope, call(20 + n).request.hash, 0) and again.replies == 1
        again.close()
    whole = Ledger(base)
    assert whole.replies == 10 and whole.has(call(9).scope, call(9).request.hash, 0)
    whole.close()


def test_an_episode_that_was_begun_before_goes_on_in_the_shard(base: Path, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    shard = ShardLedger(tmp_path / "0" / "ledger.jsonl", base)
    assert shard.last_life("w/t1/react/m") is None
    shard.adopt("w/t1/react/m")
    assert shard.recorded_steps("w/t1/react/m", 0, 0) == 3
    found = shard.observation("w/t1/react/m", 0, 0, 2)
    assert found is not None and (found.text, found.done, found.state) == (
        "seen 2",
        True,
        {"page": "y" * 500},
    )
    shard.write_observation("w/t1/react/m", 0, 1, Recorded("other", "seen otherwise", 0.0, False))
    shard.adopt("w/t1/react/m")
    assert shard.recorded_steps("w/t1/react/m", 0, 0) == 2
    shard.adopt("w/t2/react/m")
    assert shard.last_life("w/t2/react/m") is None
    shard.close()
