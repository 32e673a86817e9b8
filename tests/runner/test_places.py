"""A ledger's index in a file: whatever happened, it says what reading the whole ledger says."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import places
from runner.errors import Transient
from runner.ledger import Ledger
from runner.lines import Recorded
from runner.models.base import Call, Choice, Params, Reply, Request, Text, Turn, Usage

SCOPES = [f"e/t{k}#0" for k in range(10)] + ["e/\u0142#0", "e/\U0001f600#0"]
EPISODES = [f"e/t{k}/react/m" for k in range(6)]
PROMPTS = [Request("m", (Turn("prompt", Text("shared. " * 40, f"Q{k}")),), Params()) for k in range(4)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SMALL": 5, "KEPT": 2, "STEP": 3, "EVERY": 0.0}.items():
        monkeypatch.setattr(places, name, value)


def told(ledger: Ledger) -> dict[str, Any]:
    """All that a ledger knows."""
    return {
        "draws": [ledger.draw(scope, of.hash, i) for scope in SCOPES for of in PROMPTS for i in range(5)],
        "has": [ledger.has(scope, of.hash, i) for scope in SCOPES for of in PROMPTS for i in range(5)],
        "seen": [
            ledger.observation(episode, life, 0, step)
            for episode in EPISODES for life in range(2) for step in range(5)
        ],
        "lives": [ledger.last_life(episode) for episode in EPISODES],
        "requests": [ledger.request(of.hash) for of in PROMPTS],
        "counts": [
            ledger.paid, round(ledger.paid_usd, 6), ledger.unpriced, ledger.replies, ledger.attempts_failed,
            ledger.possibly_billed, ledger.cut_off, ledger.unreadable,
        ],
    }  # fmt: skip


def act(ledger: Ledger, dice: random.Random) -> None:
    """One thing that a run does."""
    of, scope, first = dice.choice(PROMPTS), dice.choice(SCOPES), dice.randrange(5)
    call = Call(of, 1, 7, scope, first)
    match dice.randrange(4):
        case 0:
            ledger.write_begin(call)
        case 1:
            ledger.write_begin(call)
            ledger.write_attempt(call, Transient("503"), possible_cost=dice.random() < 0.5)
        case 2:
            ledger.write_begin(call)
            text = f"reply {dice.random()}"
            ledger.write_reply(call, [first], Reply([Choice(text)], Usage(3, 2, calls=1), cost_usd=0.5))
        case 3:
            recorded = Recorded(
                "go", f"seen {dice.random()}", 0.0, False, state={"page": "p" * 300}, life=dice.randrange(2)
            )
            ledger.write_observation(dice.choice(EPISODES), 0, dice.randrange(5), recorded)


def copies(folder: Path, to: Path) -> tuple[Path, Path]:
    """What a process that is killed now leaves, and the same without the index."""
    shutil.rmtree(to, ignore_errors=True)
    whole, bare = to / "whole", to / "bare"
    for each in (whole, bare):
        each.mkdir(parents=True)
    for file in folder.iterdir():
        shutil.copy2(file, whole / file.name)
    shutil.copy2(folder / "ledger.jsonl", bare / "ledger.jsonl")
    return whole / "ledger.jsonl", bare / "ledger.jsonl"


def opened(path: Path) -> Iterator[Ledger]:
    ledger = Ledger(path)
    try:
        yield ledger
    finally:
        ledger.close()


@pytest.mark.parametrize("seed", range(6))
def test_at_any_moment_it_says_what_the_whole_ledger_says(tmp_path: Path, seed: int) -> None:
    dice, folder = random.Random(seed), tmp_path / "run"
    folder.mkdir()
    ledger = Ledger(folder / "ledger.jsonl")
    loaded = 0
    for _ in range(60):
        act(ledger, dice)
        if dice.random() < 0.1:  # in order, or killed: both open again
            ledger.close()
            ledger = Ledger(folder / "ledger.jsonl")
        if dice.random() < 0.3:
            whole, bare = copies(folder, tmp_path / "copies")
            if dice.random() < 0.3:
                for each in (whole, bare):
                    with each.open("ab") as file:
                        file.write(b'{"kind":"draw","sco')  # torn
            loaded += places.Places(whole).load() != (0, {})
            (indexed,), (read) = [[*map(told, opened(path))] for path in (whole, bare)]
            assert [indexed] == read
    assert loaded
    ledger.close()


@pytest.mark.parametrize(
    "fault", ["gone", "empty", "garbage", "another's", "shorter ledger", "edited ledger"]
)
def test_what_does_not_fit_is_made_anew(tmp_path: Path, fault: str) -> None:
    dice, path = random.Random(1), tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for _ in range(40):
        act(ledger, dice)
    ledger.close()
    index = tmp_path / "ledger.index"
    assert index.exists()
    if fault == "gone":
        index.unlink()
    elif fault == "empty":
        index.write_bytes(b"")
    elif fault == "garbage":
        index.write_bytes(b"no database" * 500)
    elif fault == "another's":
        other = tmp_path / "other"
        other.mkdir()
        another = Ledger(other / "ledger.jsonl")
        for _ in range(30):
            act(another, dice)
        another.close()
        shutil.copy(other / "ledger.index", index)
    elif fault == "shorter ledger":
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    else:
        path.write_bytes(path.read_bytes().replace(b"reply 0.", b"reply_0."))
    (tmp_path / "bare").mkdir()
    bare = tmp_path / "bare" / "ledger.jsonl"
    shutil.copy(path, bare)
    (found,), (wanted,) = [[*map(told, opened(each))] for each in (path, bare)]
    assert found == wanted


def test_a_small_run_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SMALL", 1000)
    ledger, dice = Ledger(tmp_path / "ledger.jsonl"), random.Random(2)
    for _ in range(40):
        act(ledger, dice)
    ledger.close()
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.jsonl"]


def test_memory_holds_the_last_used_owners_only(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for k in range(200):
        call = Call(PROMPTS[0], 1, 7, f"scope {k}", 0)
        ledger.write_reply(call, [0], Reply([Choice(f"text {k}")], Usage(calls=1)))
    assert len(ledger._places._owners) < 20
    assert [ledger.draw(f"scope {k}", PROMPTS[0].hash, 0).text for k in range(200)] == [  # type: ignore[union-attr]
        f"text {k}" for k in range(200)
    ]
    ledger.close()


def test_places_of_lines_that_a_machine_lost_hide_no_line_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index may be newer than the ledger: both are written to the disk when the system likes."""

    def keep(ledger: Ledger, scope: str, text: str) -> None:
        call = Call(PROMPTS[0], 1, 7, scope, 0)
        ledger.write_begin(call)
        ledger.write_reply(call, [0], Reply([Choice(text)], Usage(3, 2, calls=1), cost_usd=0.5))

    folder, dice = tmp_path / "run", random.Random(4)
    folder.mkdir()
    ledger = Ledger(folder / "ledger.jsonl")
    for _ in range(30):
        act(ledger, dice)
    monkeypatch.setattr(places, "EVERY", 1e9)  # no other note
    size = (folder / "ledger.jsonl").stat().st_size
    lost = [f"lost {k}" for k in range(9)]
    for scope in lost:
        keep(ledger, scope, "first")
    crashed, _ = copies(folder, tmp_path / "crashed")
    ledger.close()
    with crashed.open("r+b") as file:
        file.truncate(size)

    monkeypatch.setattr(places, "STEP", 1000)  # it is killed before it writes any place
    again = Ledger(crashed)
    assert [again.draw(scope, PROMPTS[0].hash, 0) for scope in lost] == [None] * len(lost)
    for scope in ("another of some length", *lost):
        keep(again, scope, "second")
    whole, bare = copies(crashed.parent, tmp_path / "killed")
    again.close()
    for path in (whole, bare):
        for ledger in opened(path):
            found = [ledger.draw(scope, PROMPTS[0].hash, 0) for scope in lost]
            assert [draw and draw.text for draw in found] == ["second"] * len(lost)
    (found,), (wanted,) = [[*map(told, opened(path))] for path in (whole, bare)]
    assert found == wanted


def test_an_id_that_no_text_can_hold_stops_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    call = Call(PROMPTS[0], 1, 7, "e/\ud800#0", 0)
    for first in range(20):
        call = Call(PROMPTS[0], 1, 7, "e/\ud800#0", first)
        ledger.write_reply(call, [first], Reply([Choice(f"text {first}")], Usage(calls=1)))
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    assert (
        again.draw("e/\ud800#0", PROMPTS[0].hash, 3) is None
    )  # the ledger has it under a name that it can hold
    again.close()
