"""A ledger's index in a file: whatever happened, it says what reading the whole ledger says."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import places
from runner.errors import RunError, Transient
from runner.jsonl import dumps
from runner.ledger import Ledger
from runner.lines import Draw, Recorded, draw_row
from runner.models.base import Call, Choice, Params, Reply, Request, Text, Turn, Usage
from runner.places import Places

SCOPES = [f"e/t{k}#0" for k in range(10)] + ["e/\u0142#0", "e/\U0001f600#0"]
EPISODES = [f"e/t{k}/react/m" for k in range(6)]
PROMPTS = [Request("m", (Turn("prompt", Text("shared. " * 40, f"Q{k}")),), Params()) for k in range(4)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SMALL": 5,
        "KEPT": 2,
        "PARTS": 4,
        "STEP": 3,
        "AT_ONCE": 2,
        "EVERY": 0.0,
        "FILTER": 16,
    }.items():
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


def test_memory_holds_little_of_what_is_in_the_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for k in range(200):
        call = Call(PROMPTS[0], 1, 7, f"scope {k}", 0)
        ledger.write_reply(call, [0], Reply([Choice(f"text {k}")], Usage(calls=1)))
    assert sum(map(len, ledger._places._waiting)) < 20
    assert [ledger.draw(f"scope {k}", PROMPTS[0].hash, 0).text for k in range(200)] == [  # type: ignore[union-attr]
        f"text {k}" for k in range(200)
    ]
    ledger.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_place_is_not_believed_where_the_line_is_another(tmp_path: Path, seed: int) -> None:
    """Of a file whose pages were mixed up, a draw or an observation may be missing: it is never another's."""
    dice, path = random.Random(seed), tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for _ in range(80):
        act(ledger, dice)
    ledger.close()
    (wanted,) = map(told, opened(path))
    places_there = Places(path)
    assert places_there.load() != (0, {})
    slots = places_there._slots
    assert slots is not None
    changed = 0
    for part in range(slots.parts):
        table = slots._table(part)
        numbers = [at for at in range(1, len(table), 2) if table[at] > 1 << 20]
        for at, other in zip(numbers, dice.sample(numbers, len(numbers)), strict=True):
            table[at], table[other] = table[other], table[at]
            changed += at != other
        os.pwrite(slots.fd, table.tobytes(), slots.directory[part][0])
    places_there.close()
    assert changed > 20
    (found,) = map(told, opened(path))
    for kind in ("draws", "seen", "requests"):
        assert all(one in (None, other) for one, other in zip(found[kind], wanted[kind], strict=True))
    assert found["counts"] == wanted["counts"]


def test_a_file_that_the_machine_may_have_left_half_written_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash of the machine, of a file that was not closed in order nothing is known."""
    dice, folder = random.Random(3), tmp_path / "run"
    folder.mkdir()
    ledger = Ledger(folder / "ledger.jsonl")
    for _ in range(40):
        act(ledger, dice)
    killed, _ = copies(folder, tmp_path / "killed")
    ledger.close()
    ended, _ = copies(folder, tmp_path / "ended")
    loaded = {}
    for boot in ("this", "another"):
        if boot == "another":
            monkeypatch.setattr(places, "_boot", lambda: "another")
        for path in (killed, ended):
            copy = tmp_path / boot / path.parent.parent.name
            shutil.copytree(path.parent, copy)
            loaded[boot, copy.name] = Places(copy / "ledger.jsonl").load() != (0, {})
    assert loaded == {
        ("this", "killed"): True,
        ("this", "ended"): True,
        ("another", "killed"): False,
        ("another", "ended"): True,
    }


def test_draws_taken_from_an_earlier_run_are_counted_once_after_a_kill(tmp_path: Path) -> None:
    """The index may know of lines that follow what is noted: they are read again and count."""
    row = draw_row(Draw("s", PROMPTS[0].hash, 0, "text", usage=Usage(3, 2, calls=1)), None, 0, "earlier")
    folder = tmp_path / "run"
    folder.mkdir()
    with (folder / "ledger.jsonl").open("wb") as file:
        file.writelines(dumps({**row, "scope": f"s{k}"}) for k in range(50))
    ledger = Ledger(folder / "ledger.jsonl")
    while ledger._places._note is None:
        ledger._tend()
    assert ledger._places.on_disk
    whole, _ = copies(folder, tmp_path / "killed")
    ledger.close()
    for path in (whole, folder / "ledger.jsonl"):
        for again in opened(path):
            assert (again.taken, again.taken_usage.prompt) == (50, 150)


def test_lines_of_more_than_a_megabyte_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    texts = ["short", "long " * 300_000, "short again"]
    ledger = Ledger(path)
    for k, text in enumerate(texts):
        ledger.write_reply(Call(PROMPTS[0], 1, 7, "s", k), [k], Reply([Choice(text)], Usage(calls=1)))
    for k in range(20):
        act(ledger, random.Random(k))
    assert [ledger.draw("s", PROMPTS[0].hash, k).text for k in range(3)] == texts  # type: ignore[union-attr]
    ledger.close()
    for again in opened(path):
        assert again._places.on_disk
        assert [again.draw("s", PROMPTS[0].hash, k).text for k in range(3)] == texts  # type: ignore[union-attr]


def test_a_file_that_cannot_be_read_ends_the_run_and_writes_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for k in range(60):
        act(ledger, random.Random(k))
    slots = ledger._places._slots
    assert slots is not None
    os.truncate(tmp_path / "ledger.index", 4096)
    ledger._places._put_here = None
    with pytest.raises(RunError, match=r"ledger\.index: cannot be used .*overnight resume"):
        for scope in SCOPES:
            for i in range(5):
                ledger.draw(scope, PROMPTS[0].hash, i)
    assert slots.fd == -1
    (tmp_path / "other").write_bytes(b"kept")
    with (tmp_path / "other").open("rb"):
        with pytest.raises(RunError):
            for k in range(60):
                act(ledger, random.Random(k))
        ledger.close()
    assert (tmp_path / "other").read_bytes() == b"kept"
    (tmp_path / "bare").mkdir()
    shutil.copy(path, tmp_path / "bare" / "ledger.jsonl")
    (found,), (wanted,) = [[*map(told, opened(each))] for each in (path, tmp_path / "bare" / "ledger.jsonl")]
    assert found == wanted


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

    monkeypatch.setattr(places, "SMALL", 1000)  # it is killed before it writes any place
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
        ledger.write_begin(call)
        if first < 19:
            ledger.write_reply(call, [first], Reply([Choice(f"text {first}")], Usage(calls=1)))
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    assert again._places.on_disk and again.cut_off == 1
    assert (
        again.draw("e/\ud800#0", PROMPTS[0].hash, 3) is None
    )  # the ledger has it under a name that it can hold
    again.close()
