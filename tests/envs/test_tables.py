"""Tables: one content reads the same from every format, and each fault is named where it is."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import DataError
from envs.tables import read_rows

ROWS = [
    {"id": "a", "question": "One\u2028line, “two”?", "answer": "18"},
    {"id": "b", "question": 'quoted "word",\ttab\nand line', "answer": "-3"},
]


def _jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def _json(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows, indent=1).encode()


def _columns(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({name: [row[name] for row in rows] for name in rows[0]}, ensure_ascii=False).encode()


def _under_data(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"version": "1", "data": rows}).encode()


def _by_index(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]}).encode()


def _csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _tsv(rows: list[dict[str, Any]]) -> bytes:
    return _csv(rows, "\t")


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "rows.jsonl": _jsonl,
    "rows.ndjson": _jsonl,
    "lines.json": _jsonl,
    "rows.json": _json,
    "columns.json": _columns,
    "data.json": _under_data,
    "index.json": _by_index,
    "rows.csv": _csv,
    "rows.tsv": _tsv,
    "rows.parquet": _parquet,
}
FORMATS = pytest.mark.parametrize("name", WRITERS)

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_tables = st.lists(st.text("abcXYZ é_", min_size=1, max_size=6), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, _text)), min_size=1, max_size=5)
)


def _read(path: Path, **options: Any) -> list[dict[str, Any]]:
    numbered = list(read_rows(path, **options))
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    return [row for _, row in numbered]


@FORMATS
@settings(deadline=None)
@given(rows=_tables)
def test_a_table_reads_back_the_same_from_every_format(
    name: str, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    path, zipped, nameless = folder / name, folder / f"{name}.gz", folder / "table"
    content = WRITERS[name](rows)
    path.write_bytes(content)
    zipped.write_bytes(gzip.compress(content))
    assert _read(path) == rows
    assert _read(zipped) == rows
    if not name.endswith("sv"):  # one column of text says nothing of tabs or commas
        nameless.write_bytes(content)
        assert _read(nameless) == rows


@FORMATS
def test_quotes_tabs_line_ends_and_line_separators_inside_a_value_stay_in_it(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(WRITERS[name](ROWS))
    assert _read(tmp_path / name) == ROWS


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "columns.json", "rows.csv", "rows.tsv"])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(name: str, tmp_path: Path) -> None:
    rows = [{"id": "1", "question": "a"}, {"id": "2", "question": "b"}]
    content = WRITERS[name](rows).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
    assert _read(tmp_path / name) == rows


def test_json_values_keep_their_kinds_and_large_numbers_stay_exact(tmp_path: Path) -> None:
    rows = [{"i": 10**30, "f": 0.5, "t": True, "n": None, "l": [1, {"x": "y"}]}]
    (tmp_path / "t.jsonl").write_bytes(_jsonl(rows))
    assert _read(tmp_path / "t.jsonl") == rows


def test_parquet_values_become_json(tmp_path: Path) -> None:
    from datetime import date
    from decimal import Decimal

    row = {
        "d": date(2020, 1, 2),
        "m": Decimal("1.50"),
        "b": b"\xff",
        "s": b"text",
        "l": [{"x": 1}],
        "n": None,
    }
    (tmp_path / "t.parquet").write_bytes(_parquet([row]))
    [read] = _read(tmp_path / "t.parquet")
    assert read == {"d": "2020-01-02", "m": "1.50", "b": "/w==", "s": "text", "l": [{"x": 1}], "n": None}
    assert json.loads(json.dumps(read)) == read


def test_half_a_surrogate_pair_becomes_a_replacement_character_that_utf8_can_hold(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"q": "cut \\ud835, whole \\ud83d\\ude00"}\n')
    assert _read(tmp_path / "t.jsonl") == [{"q": "cut \ufffd, whole \U0001f600"}]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'\n{"a": 1}\n  \n\r\n{"a": 2}\n\n')
    (tmp_path / "t.csv").write_bytes(b"\na\n1\n\n2\n\n")
    assert _read(tmp_path / "t.jsonl") == [{"a": 1}, {"a": 2}]
    assert _read(tmp_path / "t.csv") == [{"a": "1"}, {"a": "2"}]


def test_a_named_format_wins_over_the_file_name(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a;b\tc\n1;2\t3\n")
    assert _read(tmp_path / "t.txt", format="csv") == [{"a;b\tc": "1;2\t3"}]
    assert _read(tmp_path / "t.txt") == [{"a;b": "1;2", "c": "3"}]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
@pytest.mark.parametrize("zipped", [False, True])
def test_the_first_row_of_a_large_table_needs_only_the_files_beginning(
    name: str, zipped: bool, tmp_path: Path
) -> None:
    rows = [{"id": str(n), "question": "?" * 200} for n in range(20_000)]
    content = WRITERS[name](rows) + b'"\xff broken'
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content, 1) if zipped else content)
    table = read_rows(path)
    assert next(table) == (1, rows[0])
    with pytest.raises(DataError):  # the end is reached only by going there
        list(table)


# ---------------------------------------------------------------- standard input


def _piped(content: bytes, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        input=content,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@FORMATS
@pytest.mark.parametrize("zipped", [False, True])
def test_the_standard_input_is_read_in_any_format_and_more_than_once(name: str, zipped: bool) -> None:
    content = WRITERS[name](ROWS)
    out = _piped(
        gzip.compress(content) if zipped else content,
        """
        import json
        from envs.tables import read_rows
        first = read_rows("-")
        print(json.dumps([next(first), *read_rows("-"), *first]))
        """,
    )
    one, two = [1, ROWS[0]], [2, ROWS[1]]
    assert json.loads(out) == [one, one, two, two]


def test_a_row_of_a_pipe_is_read_before_the_next_one_is_written() -> None:
    code = """
        import os, sys
        read, write = os.pipe()
        os.dup2(read, 0)
        from envs.tables import read_rows
        os.write(write, b'{"a": 1}\\n')
        table = read_rows("-", "jsonl")
        print(next(table))
        os.write(write, b'{"a": 2}\\n')
        print(next(table))
        os.close(write)
        print(list(table))
    """
    assert _piped(b"", code) == "(1, {'a': 1})\n(2, {'a': 2})\n[]\n"


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("t.jsonl", b"", "no rows"),
        ("t.json", b"[]", "no rows"),
        ("t.json", b'{"data": []}', "no rows"),
        ("t.csv", b"a,b\n", "no rows"),
        ("t.jsonl", b'{"a": 1}\n[1, 2]\n', "line 2: a list where an object"),
        ("t.jsonl", b'[{"a": 1},\n{"a": 2}]\n', "line 1: not JSON"),
        ("t.jsonl", b'[{"a": 1}]\n', "format = 'json'"),
        ("t.json", b'[{"a": 1}, null]', "row 2: null where an object"),
        ("t.json", b"3", "a single value"),
        ("t.json", b'{"a": [1, 2], "b": [1]}', "differ in length: 'a' has 2, 'b' has 1"),
        ("t.json", b'[{"a": 1},\n {"a": }]', "line 2: not JSON"),
        ("t.jsonl", b'{"a": 1}\n\n{"a": 2\n{"a": 3}\n', "line 3: not JSON"),
        ("t.jsonl", b'{"a": 1}\n{"a": "cu', "line 2: not JSON: .* cut off"),
        ("t.jsonl", b'{"a": 1}\n{"a": {"b": [0, NaN]}}\n', r"line 2: field 'a\.b\[1\]' is nan"),
        ("t.jsonl", b'{"a": -Infinity}\n', "line 1: field 'a' is -inf"),
        ("t.jsonl", b'{"a": 1e999}\n', "line 1: field 'a' is inf"),
        ("t.json", b'{"a": [1, NaN]}', "row 2: field 'a' is nan"),
        ("t.csv", b"a,b,a\n1,2,3\n", "header names 'a' more than once"),
        ("t.csv", b"a,b\n1,2\n\n1,2,3\n", r"row 2 \(line 4\): 3 fields, the header has 2"),
        ("t.csv", b"a,b\n1,2\n1\n", "row 2 .* 1 fields, the header has 2"),
        ("t.csv", b'a,b\n1,"2\n3', "line 3: unexpected end of data"),
        ("t.jsonl", b'{"a": 1}\n{"a": "\xe9"}\n', "line 2: byte 0xe9 is not UTF-8"),
        ("t.json", b'[{"a": 1},\n{"a": "\xe9"}]\n', "line 2: byte 0xe9 is not UTF-8"),
        ("t.csv", b"a\n1\n\xe9\n", "line 3: byte 0xe9 is not UTF-8"),
        ("t.csv", "a\n1\n".encode("utf-16"), "UTF-16"),
        ("t.jsonl.gz", gzip.compress(_jsonl(ROWS * 99))[:-20], "damaged gzip file after row"),
        ("t.parquet", b"PAR1 not really", "not a sound Parquet file"),
    ],
)
def test_a_faulty_table_is_refused_with_file_place_and_reason(
    name: str, content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=told) as caught:
        list(read_rows(tmp_path / name))
    assert str(tmp_path / name) in str(caught.value)


def test_nan_in_parquet_is_refused_by_row_and_field(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(_parquet([{"x": 1.0}, {"x": float("nan")}]))
    with pytest.raises(DataError, match="row 2: field 'x' is nan"):
        list(read_rows(tmp_path / "t.parquet"))


def test_parquet_without_its_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.parquet").write_bytes(_parquet([{"x": 1}]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install \"overnight\[analysis\]\""):
        list(read_rows(tmp_path / "t.parquet"))


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_bytes(_jsonl(ROWS))
    with pytest.raises(
        DataError, match=r"question\.jsonl: no such file \(did you mean 'questions\.jsonl'\?\)"
    ):
        list(read_rows(tmp_path / "question.jsonl"))
    with pytest.raises(DataError, match="nor its folder"):
        list(read_rows(tmp_path / "nowhere" / "question.jsonl"))
    with pytest.raises(DataError, match="is a folder"):
        list(read_rows(tmp_path))


def test_an_unknown_format_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unknown format 'jsonlines' .*'jsonl'"):
        list(read_rows(tmp_path / "t", "jsonlines"))  # type: ignore[arg-type]
