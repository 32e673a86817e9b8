"""The ledger: on disk before it is used, found again after any end, and never more than was drawn."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner import places
from runner.errors import RunError, Transient
from runner.ledger import Ledger
from runner.lines import Draw, Recorded, shares
from runner.models.base import Call, Choice, Params, Reply, Request, Text, Turn, Usage

TMP = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(params=["in memory", "on disk"], autouse=True)
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for a small run and for one whose index is in a file."""
    if request.param == "on disk":
        for name, value in {"SMALL": 1, "KEPT": 50, "PARTS": 2, "STEP": 1, "EVERY": 0.0}.items():
            monkeypatch.setattr(places, name, value)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Thousands of ledgers are opened here and none has to survive the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    ledger = Ledger(path)
    yield ledger
    ledger.close()


def request(*parts: str, **params: Any) -> Request:
    return Request("m", (Turn("prompt", Text(*parts or ("Q?",))),), Params(**params))


def call(asked: Request | None = None, n: int = 1, scope: str = "t#0", first: int = 0) -> Call:
    return Call(asked or request(), n, seed=7, scope=scope, first=first)


def reply(*texts: str, **fields: Any) -> Reply:
    fields.setdefault("usage", Usage(10, 2 * len(texts), 3, 1, 1))
    return Reply([Choice(text) for text in texts], **fields)


def lines(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    return [row for row in found if kind is None or row["kind"] == kind]


# -- draws -------------------------------------------------------------------------------------------------
def test_a_draw_is_on_disk_before_it_is_returned(ledger: Ledger, path: Path) -> None:
    (draw,) = ledger.write_reply(call(), [0], reply("Warsaw"))
    assert [row["kind"] for row in lines(path)] == ["request", "draw", "reply"]
    assert lines(path, "draw")[0]["text"] == draw.text == "Warsaw"


def test_a_reply_and_its_draws_are_one_write(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: sizes.append(len(data)) or real(fd, data))
    ledger.write_reply(call(n=3), [0, 1, 2], reply("a", "b", "c"))
    assert len(sizes) == 1


FULL = Reply(
    [
        Choice("a\u2028b \ud835", "length", "hm \udc00", (-0.5, -math.inf, 0.0), 5),
        Choice("", "filter", None, None, 0),
        Choice("日本", "stop", "", (), 3),
    ],
    Usage(11, 9, 4, 2, 1),
    {"temperature": 0.7, "stop": ["\n"]},
    "http://x/v1",
    "id-1",
    1.23456789,
    0.1,
    0.0123,
)


def test_a_reopened_ledger_gives_equal_draws_and_sums(ledger: Ledger, path: Path) -> None:
    draws = ledger.write_reply(call(n=3, first=4), [4, 5, 6], FULL)
    ledger.write_reply(call(scope="other"), [0], reply("x", cost_usd=None))
    ledger.write_attempt(call(), Transient("503"), possible_cost=False)
    ledger.write_attempt(call(), Transient("time-out"), possible_cost=True)
    again = Ledger(path)
    for at in (ledger, again):
        assert [at.draw("t#0", request().hash, i) for i in (4, 5, 6)] == draws
        assert at.draw("t#0", request().hash, 0) is None
        assert at.draw("none", request().hash, 4) is None
        assert at.paid == Usage(21, 11, 7, 3, 2)
        assert (at.paid_usd, at.unpriced) == (pytest.approx(0.0123), 1)
        assert (at.attempts_failed, at.possibly_billed, at.unreadable) == (2, 1, 0)
    again.close()


def test_draws_of_replies_that_were_sent_differently_tell_it(ledger: Ledger) -> None:
    first, second, third = (
        ledger.write_reply(call(first=i), [i], reply("x", sent=sent))[0]
        for i, sent in enumerate(({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}))
    )
    assert first.sent == second.sent != third.sent


def test_the_first_of_two_lines_of_a_draw_wins(ledger: Ledger, path: Path) -> None:
    ledger.write_reply(call(), [0], reply("first"))
    (row,) = lines(path, "draw")
    with path.open("ab") as file:
        file.write(json.dumps({**row, "text": "second"}).encode() + b"\n")
    again = Ledger(path)
    draw = again.draw("t#0", request().hash, 0)
    assert draw is not None and draw.text == "first"
    again.close()


def test_a_draw_that_is_asked_for_twice_stays_as_it_was(ledger: Ledger, path: Path) -> None:
    first = ledger.write_reply(call(n=2), [0, 1], reply("a", "b"))
    (b, c) = ledger.write_reply(call(n=2, first=1), [1, 2], reply("other", "c"))
    assert (b, c.text) == (first[1], "c")
    again = Ledger(path)
    for at in (ledger, again):
        found = [at.draw("t#0", request().hash, i) for i in range(3)]
        assert [draw and draw.text for draw in found] == ["a", "b", "c"]
        assert at.paid.calls == 2  # both replies were paid for
    again.close()


def test_choices_beyond_what_was_asked_for_are_paid_and_dropped(ledger: Ledger, path: Path) -> None:
    draws = ledger.write_reply(call(n=2), [0, 1], reply("a", "b", "c", cost_usd=0.6))
    assert [draw.text for draw in draws] == ["a", "b"]
    assert sum((draw.usage for draw in draws), Usage()) == ledger.paid == Usage(10, 6, 3, 1, 1)
    assert sum(draw.cost_usd or 0 for draw in draws) == pytest.approx(0.6)
    assert len(lines(path, "draw")) == 2


def test_a_reply_without_choices_is_paid_all_the_same(ledger: Ledger, path: Path) -> None:
    assert ledger.write_reply(call(), [0], reply(usage=Usage(10, 0, 0, 0, 1), cost_usd=0.1)) == []
    again = Ledger(path)
    assert (ledger.paid, again.paid) == (Usage(10, calls=1), Usage(10, calls=1))
    assert again.draw("t#0", request().hash, 0) is None
    again.close()


@pytest.mark.parametrize("index", ["in memory"], indirect=True)
def test_parts_are_stored_once_across_growing_prompts(ledger: Ledger, path: Path) -> None:
    shots = "Question: ...\n" * 400
    text = Text(shots)
    for k in range(30):
        text += f"Thought {k}: {'think ' * 20}\n"
        asked = Request("m", (Turn("system", Text(shots)), Turn("user", text)), Params())
        ledger.write_reply(call(asked), [0], reply("x"))
    assert path.read_bytes().count(b"Question: ...") == 400
    for k in range(30):
        assert path.read_bytes().count(f"Thought {k}: ".encode()) == 1
    reopened = Ledger(path)
    text += "Thought 30"
    reopened.write_reply(call(Request("m", (Turn("user", text),), Params())), [0], reply("x"))
    assert path.read_bytes().count(b"Question: ...") == 400
    # and every prompt can be put together again
    for row in lines(path, "request"):
        whole = "".join(
            row["parts"].get(name) or reopened.part(name) for _, names in row["turns"] for name in names
        )
        assert whole.startswith(shots)
    assert whole == str(text)
    reopened.close()


@pytest.mark.parametrize("index", ["in memory"], indirect=True)
def test_a_request_is_written_once(ledger: Ledger, path: Path) -> None:
    for i in range(3):
        ledger.write_reply(call(first=i), [i], reply("x"))
    reopened = Ledger(path)
    reopened.write_reply(call(first=3), [3], reply("x"))
    assert len(lines(path, "request")) == 1
    reopened.close()


def test_reply_names_are_never_given_twice(ledger: Ledger, path: Path) -> None:
    for i in range(3):
        ledger.write_reply(call(first=i), [i], reply("x"))
    ledger.close()
    damaged = path.read_bytes().replace(b'"id":"r2"', b'"id":"r2')
    path.write_bytes(damaged)
    reopened = Ledger(path)
    reopened.write_reply(call(first=3), [3], reply("x"))
    reopened.close()
    names = [
        json.loads(line)["id"]
        for line in path.read_bytes().split(b"\n")
        if b'"id":"r' in line and b'"r2,' not in line
    ]
    assert names == ["r1", "r3", "r4"]  # fmt: skip


counts = st.integers(0, 10_000)


@given(
    st.integers(1, 12),
    st.builds(Usage, counts, counts, counts, counts, st.just(1)),
    st.data(),
)
def test_the_shares_of_a_reply_sum_to_it_exactly(n: int, usage: Usage, data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.none() | st.integers(0, 500), min_size=n, max_size=n + 2))
    found = shares(Reply([Choice("", tokens=count) for count in tokens], usage), n)
    assert len(found) == n
    assert sum(found, Usage()) == usage
    assert all(value >= 0 for share in found for value in share.as_dict().values())
    assert [share.calls for share in found] == [1] + [0] * (n - 1)
    assert [share.prompt for share in found] == [usage.prompt] + [0] * (n - 1)
    own = tokens[:n]
    if n > 1 and None not in own and sum(c or 0 for c in own) == usage.completion:
        assert [share.completion for share in found] == own
    if None in own:
        assert max(s.completion for s in found) - min(s.completion for s in found) <= 1


def test_a_full_disk_gives_no_draw(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.write_reply(call(), [0], reply("kept"))
    size = path.stat().st_size
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if path.stat().st_size >= size + 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:50])

    other = request("other")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError):
        ledger.write_reply(call(other), [0], reply("lost"))
    assert ledger.draw("t#0", other.hash, 0) is None
    assert ledger.paid.calls == 1
    monkeypatch.setattr(os, "write", real)
    ledger.write_reply(call(other), [0], reply("again"))
    again = Ledger(path)
    for at in (ledger, again):
        draw = at.draw("t#0", other.hash, 0)
        assert draw is not None and draw.text == "again"
    assert again.unreadable == 0
    assert [row["hash"] for row in lines(path, "request")] == [request().hash, other.hash]
    again.close()


# -- observations ------------------------------------------------------------------------------------------
def seen(k: int, **fields: Any) -> Recorded:
    return replace(Recorded(f"Search[{k}]", f"text {k}", 0.5, False, None, {"page": k}), **fields)


def test_observations_come_back_equal(ledger: Ledger, path: Path) -> None:
    states: list[Any] = [
        None,
        0,
        "short",
        "long " * 100,
        {"page": "p" * 5000, "at": 3, "seen": ["a" * 300, "b", ["c" * 201, None, 1.5]], "": {"x": True}},
    ]
    written = [seen(k, state=state, answer="yes", done=True, life=2) for k, state in enumerate(states)]
    for k, one in enumerate(written):
        ledger.write_observation("e", 1, k, one)
    again = Ledger(path)
    for at in (ledger, again):
        assert [at.observation("e", 2, 1, k) for k in range(len(states))] == written
        assert at.observation("e", 2, 0, 0) is None
        assert at.observation("e", 0, 1, 0) is None
        assert at.observation("f", 2, 1, 0) is None
        assert (at.last_life("e"), at.last_life("f")) == (2, None)
        assert (at.recorded_steps("e", 2, 1), at.recorded_steps("e", 2, 0)) == (len(states), 0)
    again.close()


STATES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.text(min_size=150, max_size=260),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@TMP
@given(st.lists(STATES, min_size=1, max_size=4))
def test_any_state_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, states: list[Any]) -> None:
    path = tmp_path_factory.mktemp("states") / "ledger.jsonl"
    ledger = Ledger(path)
    for k, state in enumerate(states):
        ledger.write_observation("e", 0, k, seen(k, state=state))
    again = Ledger(path)
    for at in (ledger, again):
        found = [at.observation("e", 0, 0, k) for k in range(len(states))]
        assert [one.state if one else "none" for one in found] == states
        at.close()


@pytest.mark.parametrize("index", ["in memory"], indirect=True)
def test_a_large_state_is_stored_once(ledger: Ledger, path: Path) -> None:
    page = "a page of many words " * 1000
    for k in range(1, 8):
        ledger.write_observation("e", 0, k, seen(k, state={"page": page, "at": k}))
    reopened = Ledger(path)
    reopened.write_observation("f", 0, 1, seen(1, state=[page]))
    assert path.stat().st_size < 2 * len(page)
    found = reopened.observation("f", 0, 0, 1)
    assert found is not None and found.state == [page]
    reopened.close()


def test_a_step_written_again_drops_the_later_ones_of_its_attempt(ledger: Ledger, path: Path) -> None:
    for life in (0, 1):
        for attempt in (0, 1):
            for k in (1, 2, 3, 4):
                ledger.write_observation("e", attempt, k, seen(k, life=life))
    ledger.write_observation("e", 1, 2, seen(20, life=0))
    again = Ledger(path)
    for at in (ledger, again):
        kept = {
            (life, attempt): at.recorded_steps("e", life, attempt) for life in (0, 1) for attempt in (0, 1)
        }
        assert kept == {(0, 0): 4, (0, 1): 2, (1, 0): 4, (1, 1): 4}
        assert at.observation("e", 0, 1, 2) == seen(20)
        assert at.observation("e", 0, 1, 1) == seen(1)
        assert at.observation("e", 0, 1, 3) is None
    again.write_observation("e", 1, 3, seen(30))
    third = Ledger(path)
    assert [third.observation("e", 0, 1, k) for k in (1, 2, 3, 4)] == [seen(1), seen(20), seen(30), None]
    third.close()
    again.close()


def damage(path: Path, needle: bytes) -> None:
    data = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(b"#" + line[1:] if needle in line else line for line in data))


def test_a_step_that_fills_a_hole_drops_the_later_ones(ledger: Ledger, path: Path) -> None:
    for k in (1, 2, 3):
        ledger.write_observation("e", 0, k, seen(k))
    damage(path, b"text 2")
    reopened = Ledger(path)
    assert reopened.unreadable == 1
    assert [reopened.observation("e", 0, 0, k) for k in (1, 2, 3)] == [seen(1), None, seen(3)]
    reopened.write_observation("e", 0, 2, seen(22))
    assert reopened.observation("e", 0, 0, 3) is None
    reopened.close()


def test_a_step_whose_state_is_damaged_elsewhere_is_owed_again(ledger: Ledger, path: Path) -> None:
    page = "page " * 100
    ledger.write_observation("e", 0, 1, seen(1, state=page))
    ledger.write_observation("e", 0, 2, seen(2, state=page))
    damage(path, b"text 1")
    reopened = Ledger(path)
    assert reopened.observation("e", 0, 0, 2) is None
    reopened.write_observation("e", 0, 2, seen(2, state=page))
    assert reopened.observation("e", 0, 0, 2) == seen(2, state=page)
    reopened.close()


# -- damage ------------------------------------------------------------------------------------------------
def small(path: Path) -> list[Draw]:
    """A ledger with lines of every kind; its draws."""
    ledger = Ledger(path)
    draws = ledger.write_reply(call(n=2), [0, 1], reply("a\u2028", "bé"))
    ledger.write_observation("e", 0, 1, seen(1, state=["s" * 201]))
    ledger.write_attempt(call(), Transient("x"), possible_cost=True)
    draws += ledger.write_reply(call(request("Q?", "more"), first=5), [5], reply("c"))
    ledger.write_observation("e", 0, 2, seen(2, state=["s" * 201]))
    ledger.close()
    return draws


def test_a_ledger_cut_at_any_byte_opens_with_every_whole_draw_and_no_other(path: Path) -> None:
    draws = small(path)
    data = path.read_bytes()
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    kinds = [row["kind"] for row in lines(path)]
    assert kinds.count("draw") == 3
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        ledger = Ledger(path)
        whole = sum(end <= cut for end in ends)  # a line that lacks its newline only is whole
        found = [ledger.draw(draw.scope, draw.hash, draw.i) for draw in draws]
        there = kinds[:whole].count("draw")
        assert found == [*draws[:there], *[None] * (len(draws) - there)]
        steps = [ledger.observation("e", 0, 0, k) for k in (1, 2)]
        observed = kinds[:whole].count("observation")
        assert [step is not None for step in steps] == [observed > 0, observed > 1]
        assert ledger.paid.calls == kinds[:whole].count("reply")
        assert ledger.unreadable == 0
        # and it goes on
        for draw in draws[there:]:
            asked = request() if draw.hash == request().hash else request("Q?", "more")
            assert (
                ledger.write_reply(call(asked, first=draw.i), [draw.i], reply(draw.text))[0].text == draw.text
            )
        ledger.close()
        again = Ledger(path)
        for draw in draws:
            assert (kept := again.draw(draw.scope, draw.hash, draw.i)) is not None and kept.text == draw.text
        again.close()


def test_each_line_damaged_by_itself_costs_no_other(path: Path) -> None:
    draws = small(path)
    data = path.read_bytes().split(b"\n")[:-1]
    for k, line in enumerate(data):
        path.write_bytes(
            b"".join(other + b"\n" for other in [*data[:k], line[: len(line) // 2], *data[k + 1 :]])
        )
        ledger = Ledger(path)
        assert ledger.unreadable == 1
        found = [ledger.draw(draw.scope, draw.hash, draw.i) for draw in draws]
        lost = json.loads(line)
        missing = [(draw.hash, draw.i) for draw, one in zip(draws, found, strict=True) if one is None]
        assert missing == ([(lost["hash"], lost["i"])] if lost["kind"] == "draw" else [])
        assert [one for one in found if one] == [draw for draw in draws if (draw.hash, draw.i) not in missing]
        ledger.close()


def test_a_row_that_lacks_a_key_it_needs_is_unreadable_and_nothing_else(path: Path) -> None:
    small(path)
    for row in lines(path):
        for key in row:
            rest = {name: value for name, value in row.items() if name != key}
            path.write_bytes(json.dumps(rest).encode() + b"\n")
            ledger = Ledger(path)
            if row["kind"] in ("draw", "observation") and key not in ("reply", "choice", "from"):
                assert ledger.unreadable == 1, (row["kind"], key)
            use_all(ledger)
            ledger.close()
    for kind in ("draw", "reply", "request", "observation", "attempt"):
        path.write_bytes(b'{"kind":"%s"}\n' % kind.encode())
        ledger = Ledger(path)
        assert ledger.unreadable == 1
        assert (ledger.paid, ledger.paid_usd, ledger.unpriced) == (Usage(), 0.0, 0)
        assert (ledger.attempts_failed, ledger.possibly_billed) == (0, 0)
        ledger.close()


@TMP
@given(st.data())
def test_a_row_with_a_strange_value_never_stops_a_ledger_from_opening(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("odd") / "ledger.jsonl"
    small(path)
    rows = lines(path)
    row = data.draw(st.sampled_from(rows))
    key = data.draw(st.sampled_from([key for key in row if key != "kind"]))
    row[key] = data.draw(st.sampled_from([None, "x", -1, 1.5, [], [1], {}, {"a": {}}, True]))
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    ledger = Ledger(path)
    use_all(ledger)
    ledger.write_reply(call(first=9), [9], reply("goes on"))
    ledger.close()


def use_all(ledger: Ledger) -> None:
    """Look everything up: nothing that was indexed may fail to be read."""
    for asked in (request(), request("Q?", "more")):
        for i in range(7):
            ledger.draw("t#0", asked.hash, i)
    for k in range(4):
        ledger.observation("e", 0, 0, k)
    ledger.last_life("e")


def test_an_unknown_kind_of_line_is_let_be(path: Path) -> None:
    path.write_bytes(b'{"kind":"note","text":"from a later version"}\n')
    ledger = Ledger(path)
    assert ledger.unreadable == 0
    ledger.close()


def test_a_torn_last_line_is_reported(path: Path) -> None:
    small(path)
    with path.open("ab") as file:
        file.write(b'{"kind":"draw"')
    ledger = Ledger(path)
    assert (ledger.mended, ledger.unreadable) == (14, 0)
    ledger.close()
