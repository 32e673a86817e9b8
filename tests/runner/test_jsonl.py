"""JSON lines that survive kills, full disks and odd values."""

from __future__ import annotations

import dataclasses
import enum
import errno
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import jsonl
from runner.errors import RunError
from runner.jsonl import Appender, clean, clean_text, dumps, mend_tail, rows, scan, write_atomically

ANY_TEXT = st.text(st.characters(categories=None, exclude_categories=()))  # lone surrogates, too


# -- values ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: {"a": [None, (1.5, x)]}, lambda x: [{"b": {"c": x}}]]
)
def test_a_number_that_json_lacks_is_a_string_and_never_null(
    number: float, wrap: Callable[[Any], Any]
) -> None:
    line = dumps(wrap(number))
    assert json.loads(line) == json.loads(dumps(wrap(str(number))))
    assert math.isnan(float(str(number))) or float(str(number)) == number


def test_nulls_stay_nulls() -> None:
    assert dumps({"a": None, "b": ["null", None]}) == b'{"a":null,"b":["null",null]}\n'


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_an_integer_beyond_64_bits_keeps_its_digits(number: int) -> None:
    assert json.loads(dumps({"answer": number})) == {"answer": str(number)}


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 0])
def test_an_integer_of_64_bits_is_a_number(number: int) -> None:
    assert json.loads(dumps([number, "\ud800"])) == [number, "\ufffd"]


@pytest.mark.parametrize("odd", [None, "\ud800", 10**30, math.nan], ids=repr)
def test_keys_become_the_same_strings_whatever_else_is_in_the_row(odd: Any) -> None:
    row = {7: 0, None: 1, True: 2, 2.5: 3, "odd": odd}
    assert list(json.loads(dumps(row))) == ["7", "None", "True", "2.5", "odd"]
    row = {("a", 1): 0, 10**30: 1, "\ud800": 2, **row}
    assert list(json.loads(dumps(row)))[:4] == ["('a', 1)", str(10**30), "\ufffd", "7"]


def test_lone_surrogates_become_the_replacement_character() -> None:
    assert json.loads(dumps({"\ud835": ["a\udc00b"]})) == {"\ufffd": ["a\ufffdb"]}


def test_a_pair_of_surrogates_is_the_character_it_stands_for() -> None:
    assert clean_text("\ud83d\ude00 \ud83d") == "😀 \ufffd"


@given(ANY_TEXT)
def test_clean_text_can_be_encoded_and_changes_nothing_else(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_sets_are_written_in_one_order() -> None:
    script = "from runner.jsonl import dumps; print(dumps({'a': {str(i) for i in range(50)}}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: float
    label: str


@pytest.mark.parametrize("odd", [None, "\ud800"], ids=["plain", "cleaned"])
def test_enums_and_dataclasses_are_written_alike_by_both_paths(odd: Any) -> None:
    row = json.loads(dumps({"colour": Colour.RED, "point": Point(math.nan, "p"), "odd": odd}))
    assert (row["colour"], row["point"]) == ("red", {"x": "nan", "label": "p"})


def test_numpy_values_are_plain_ones() -> None:
    numpy = pytest.importorskip("numpy")
    row = {"i": numpy.int64(3), "f": numpy.float64(0.5), "n": numpy.float64("nan"), "a": numpy.arange(2)}
    assert json.loads(dumps(row)) == {"i": 3, "f": 0.5, "n": "nan", "a": [0, 1]}


def test_what_is_no_data_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="object"):
        dumps({"a": object()})
    file = Appender(tmp_path / "f.jsonl")
    with pytest.raises(TypeError):
        file.append({"a": 1}, {"b": object()})
    assert (tmp_path / "f.jsonl").read_bytes() == b""
    file.close()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


def expected(value: Any) -> Any:
    """What a value reads back as, told in other words than the source's."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value <= 2**64 - 1 else str(value)
    if isinstance(value, float):
        return value if abs(value) < math.inf else {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    if isinstance(value, list):
        return [expected(item) for item in value]
    if isinstance(value, dict):
        return {expected(key): expected(item) for key, item in value.items()}
    return value


@given(st.lists(st.dictionaries(ANY_TEXT, VALUES, max_size=4), max_size=5))
def test_rows_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, written: Any) -> None:
    path = tmp_path_factory.mktemp("round") / "f.jsonl"
    file = Appender(path)
    spans = file.append(*written)
    assert [file.read(*span) for span in spans] == [expected(row) for row in written]
    file.close()
    assert [(at, n) for at, n, _ in scan(path)] == spans
    assert list(rows(path)) == [expected(row) for row in written]
    assert [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] == list(rows(path))


def test_line_separators_of_other_worlds_end_no_line(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\r\ne\x0bf\x0cg\x1eh"
    file = Appender(tmp_path / "f.jsonl")
    file.append({"text": text}, {"text": "next"})
    file.close()
    assert [row["text"] for row in rows(tmp_path / "f.jsonl")] == [text, "next"]


# -- writing -----------------------------------------------------------------------------------------------
def test_an_append_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Appender(tmp_path / "f.jsonl")
    sizes: list[int] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: sizes.append(len(data)) or real(fd, data))
    file.append({"a": 1}, {"b": "x" * 100_000}, {"c": 3})
    assert sizes == [file.size]
    file.close()


def test_a_line_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    file = Appender(tmp_path / "f.jsonl")
    file.append({"a": 1})
    assert (tmp_path / "f.jsonl").read_bytes() == b'{"a":1}\n'
    file.close()


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Appender(tmp_path / "f.jsonl")
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    spans = file.append({"a": 12345}, {"b": "é" * 20})
    assert [file.read(*span) for span in spans] == [{"a": 12345}, {"b": "é" * 20}]
    assert list(rows(file.path)) == [{"a": 12345}, {"b": "é" * 20}]
    file.close()


class Disk:
    """`os.write` that takes `room` more bytes, at most 7 at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self.real = room, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.real(fd, bytes(data)[: min(7, self.room)])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 20])
def test_a_full_disk_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    file = Appender(tmp_path / "f.jsonl")
    file.append({"a": 1})
    disk = Disk(monkeypatch, room)
    with pytest.raises(RunError, match=r"f\.jsonl.*No space left.*overnight resume"):
        file.append({"b": "x" * 30}, {"c": 2})
    assert file.path.read_bytes() == b'{"a":1}\n'
    disk.room = 1000
    (span,) = file.append({"d": 3})
    assert file.read(*span) == {"d": 3}
    assert list(rows(file.path)) == [{"a": 1}, {"d": 3}]
    file.close()


def test_a_part_that_could_not_be_cut_off_is_cut_off_before_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Appender(tmp_path / "f.jsonl")
    disk = Disk(monkeypatch, 10)
    real = os.ftruncate

    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(RunError):
        file.append({"b": "x" * 30})
    disk.room = 1000
    with pytest.raises(RunError):  # still in the way: nothing may be glued to it
        file.append({"c": 1})
    monkeypatch.setattr(os, "ftruncate", real)
    (span,) = file.append({"d": 1})
    assert file.read(*span) == {"d": 1}
    assert file.path.read_bytes() == b'{"d":1}\n'
    file.close()


def test_a_disk_that_fails_on_sync_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Appender(tmp_path / "f.jsonl")
    file.append({"a": 1})

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match="No space left"):
        file.sync()
    file.close()  # lets go all the same


def test_what_is_synced_is_not_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Appender(tmp_path / "f.jsonl")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file.sync()
    file.append({"a": 1})
    file.sync()
    file.sync()
    assert len(synced) == 1
    file.close()


def test_a_place_where_no_file_can_be_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be opened"):
        Appender(tmp_path / "no" / "f.jsonl")
    with pytest.raises(RunError, match="cannot be opened"):
        Appender(tmp_path)


def test_replacing_a_file_fails_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, b"old")

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match="No space left"):
        write_atomically(path, b"new and long")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


# -- tails -------------------------------------------------------------------------------------------------
GOOD = b'{"a":1}\n{"b":"\xc3\xa9"}\n'


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (b"", b""),
        (b'{"c":3', b""),
        (b'{"c":"\xc3', b""),  # amid a character
        (b'{"c":3}', b'{"c":3}\n'),  # whole, its newline is missing
        (b"\0" * 5000, b""),
        (b"\0\0\0" + b'{"c":3}', b""),
        (b"3", b""),
        (b"null", b""),
        (b'{"c":"' + b"x" * 200_000, b""),  # longer than what is read at once
        (b'{"c":"' + b"x" * 200_000 + b'"}', b'{"c":"' + b"x" * 200_000 + b'"}\n'),
    ],
    ids=[
        "whole",
        "torn",
        "amid-char",
        "no-newline",
        "zeros",
        "zeros-row",
        "number",
        "null",
        "long",
        "long-row",
    ],
)
@pytest.mark.parametrize("before", [b"", GOOD], ids=["alone", "after-rows"])
def test_a_tail_is_mended_on_opening(tmp_path: Path, before: bytes, tail: bytes, kept: bytes) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(before + tail)
    file = Appender(path)
    assert path.read_bytes() == before + kept
    assert file.mended == (0 if kept else len(tail))
    (span,) = file.append({"z": 1})
    assert file.read(*span) == {"z": 1}
    file.close()
    assert path.read_bytes() == before + kept + b'{"z":1}\n'


def test_a_file_cut_anywhere_keeps_each_whole_row_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    lines = [b'{"k":%d,"t":"\xe2\x80\xa8%s"}' % (k, b"y" * k) for k in range(4)]
    data = b"".join(line + b"\n" for line in lines)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        Appender(path).close()
        whole = [json.loads(line) for line in lines if line in data[:cut]]
        assert list(rows(path)) == whole
        assert path.read_bytes().endswith(b"\n") or not whole


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    assert list(scan(tmp_path / "none.jsonl")) == []
    assert mend_tail(tmp_path / "none.jsonl") == 0


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":\n[1]\n\0\0\0\n\xff\xfe\n\n  \n{"c":"\\ud835"}\n{"d":1}\n')
    found = list(scan(path))
    assert [row for _, _, row in found] == [{"a": 1}, None, None, None, None, None, {"d": 1}]
    assert list(rows(path)) == [{"a": 1}, {"d": 1}]
    with path.open("rb") as file:
        for offset, length, row in found:
            file.seek(offset)
            line = file.read(length)
            assert line.endswith(b"\n") and (row is None or json.loads(line) == row)


WRITER = """
import sys
from pathlib import Path
from runner.jsonl import Appender
file = Appender(Path(sys.argv[1]))
print("ready", flush=True)
k = 0
while True:
    file.append(*({"k": k, "j": j, "text": "x" * 50_000} for j in range(3)))
    k += 1
"""


def test_a_killed_writer_leaves_a_file_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            before = path.stat().st_size
            while path.stat().st_size < before + 1_000_000:
                assert writer.poll() is None
            writer.send_signal(signal.SIGKILL)
        Appender(path).close()
        found = [row for _, _, row in scan(path)]
        assert None not in found
        assert [(row["k"], row["j"]) for row in found if row][:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_clean_is_what_dumps_writes() -> None:
    value = {"a": (1, "\ud800"), 2: {math.inf}, "n": None}
    assert json.loads(jsonl.dumps(value)) == clean(value) == {"a": [1, "\ufffd"], "2": ["inf"], "n": None}
