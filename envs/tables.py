"""Any table of rows, read lazily: JSONL, JSON, CSV, TSV and Parquet, gzipped or not, from a file or `-`.

Text is UTF-8, with or without a byte order mark, with either line end. Lines end at "\\n" only: a line
separator (U+2028) inside a string is part of the string.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import json
import math
import sys
import tempfile
import threading
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast, get_args

from envs.base import DataError

Row: TypeAlias = dict[str, Any]
Format: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

_Lines: TypeAlias = Iterator[tuple[int, bytes]]
_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_DECODER = json.JSONDecoder()
_BUFFER = 1 << 16
_BOM = b"\xef\xbb\xbf"
_SHOWN = 5


def read_rows(source: str | Path, format: Format | None = None) -> Iterator[tuple[int, Row]]:
    """Each row of a table with its number in the file, from 1 (blank lines and the header don't count).

    `source` is a path, or `-` for the standard input, which may be read again and again. `format` is told by
    the name, else by the content. A `.json` file may hold a list of objects, an object of column lists, an
    object whose `data` is one of those, or JSON lines. JSONL, CSV and Parquet are streamed; a JSON document
    is loaded whole. Values of CSV are strings; those of Parquet become JSON (dates ISO, decimals and bytes
    strings). Half of a surrogate pair, which no UTF-8 file can hold, becomes U+FFFD.

    Raises DataError, naming file, row or line and field: a file that is missing, empty, damaged or not UTF-8;
    a row that is not an object or has too few or many fields; invalid JSON; a number that is not finite;
    two columns of one name.
    """
    where = "standard input" if str(source) == "-" else str(source)
    if format is not None and format not in FORMATS:
        raise DataError(
            f"{where}: unknown format {format!r}{nearest(format, FORMATS)}; one of {', '.join(FORMATS)}"
        )
    number = 0
    with _opened(source, where) as stream:
        try:
            for number, row in _rows(stream, where, format or _format_of(source)):
                yield number, row
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(
                f"{where}: damaged gzip file after row {number} ({error}); fetch it again"
            ) from error
        except OSError as error:
            raise DataError(f"{where}: reading stopped after row {number}: {error}") from error
    if number == 0:
        raise DataError(f"{where}: no rows in it; check that the file was written or fetched to its end")


def nearest(word: str, known: Any) -> str:
    """` (did you mean 'x'?)` for an error message, or "" where nothing in `known` is like `word`."""
    by_lower = {str(name).lower(): str(name) for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def listed(names: Any) -> str:
    """Names for an error message, cut after some."""
    shown = [repr(str(name)) for name in names]
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")


# ---------------------------------------------------------------- opening


def _format_of(source: str | Path) -> Format | None:
    suffixes = [suffix.lower() for suffix in Path(source).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


@contextmanager
def _opened(source: str | Path, where: str) -> Iterator[io.BufferedReader[Any]]:
    """The unzipped bytes of `source`."""
    try:
        raw = _standard_input() if str(source) == "-" else Path(source).expanduser().open("rb", buffering=0)
    except FileNotFoundError as error:
        raise DataError(_missing(Path(source).expanduser())) from error
    except IsADirectoryError as error:
        raise DataError(f"{where}: is a folder; name one file in it") from error
    except OSError as error:
        raise DataError(f"{where}: cannot be opened: {error.strerror or error}") from error
    with io.BufferedReader(raw, _BUFFER) as stream:
        if stream.peek(2)[:2] != b"\x1f\x8b":
            yield stream
            return
        unzipped = cast(io.RawIOBase, gzip.GzipFile(fileobj=stream))
        with io.BufferedReader(unzipped, _BUFFER) as inner:
            yield inner


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"{path}: no such file, nor its folder; check the path"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return f"{path}: no such file{nearest(path.name, names)}; check the path"


class _Spool:
    """What came from the standard input, kept in a temporary file so that it can be read more than once."""

    def __init__(self, pipe: io.BufferedReader[Any]) -> None:
        self.pipe = pipe
        self.kept = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.size = 0
        self.lock = threading.Lock()

    def read_at(self, place: int, size: int) -> bytes:
        with self.lock:  # tasks are counted in one thread while another reads them
            return self._read_at(place, size)

    def _read_at(self, place: int, size: int) -> bytes:
        if place < self.size:
            self.kept.seek(place)
            return self.kept.read(min(size, self.size - place))
        # Four bytes tell what it is; then what there is, so that a row is read as soon as it's written.
        arrived = self.pipe.read1(size) if self.size else self.pipe.read(4)
        self.kept.seek(self.size)
        self.kept.write(arrived)
        self.size += len(arrived)
        return arrived


class _SpoolReader(io.RawIOBase):
    def __init__(self, spool: _Spool) -> None:
        self.spool = spool
        self.place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        arrived = self.spool.read_at(self.place, len(buffer))
        buffer[: len(arrived)] = arrived
        self.place += len(arrived)
        return len(arrived)


_spool: _Spool | None = None


def _standard_input() -> io.RawIOBase:
    global _spool
    pipe = cast("io.BufferedReader[Any]", sys.stdin.buffer)
    if _spool is None or _spool.pipe is not pipe:
        if pipe.isatty():
            raise DataError("standard input: a terminal; `-` reads rows from a pipe: overnight ... < FILE")
        _spool = _Spool(pipe)
    return _SpoolReader(_spool)


# ---------------------------------------------------------------- formats


def _rows(stream: io.BufferedReader[Any], where: str, format: Format | None) -> Iterator[tuple[int, Row]]:
    head = stream.peek(4)[:4]
    if format == "parquet" or (format is None and head == b"PAR1"):
        yield from _parquet(stream, where)
        return
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{where}: is UTF-16 text, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8")
    lines = _numbered(stream)
    first = next((line for line in lines if line[1].strip()), None)
    if first is None:
        return
    lines = chain([first], lines)
    if format is None:
        opening = first[1].lstrip()[:1]
        format = "json" if opening in (b"{", b"[") else "tsv" if b"\t" in first[1] else "csv"
    if format == "jsonl":
        yield from _jsonl(lines, where)
    elif format == "json":
        yield from _json(lines, where)
    else:
        yield from _csv(lines, where, "\t" if format == "tsv" else ",")


def _numbered(stream: io.BufferedReader[Any]) -> _Lines:
    for number, line in enumerate(iter(stream.readline, b""), start=1):
        yield number, line.removeprefix(_BOM) if number == 1 else line


def _decoded(raw: bytes, where: str, line: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        raise DataError(
            f"{where}: line {line}: byte 0x{raw[error.start]:02x} is not UTF-8 text; convert the file, "
            "e.g. iconv -f WINDOWS-1252 -t UTF-8"
        ) from error


def _parsed(raw: bytes, where: str, line: int) -> Any:
    text = _decoded(raw.rstrip(), where, line)
    try:
        value, end = _DECODER.raw_decode(text) if text[:1] == "{" else (None, -1)
        if end != len(text):
            value = json.loads(text)
    except json.JSONDecodeError as error:
        line += error.lineno - 1
        hint = "" if raw.endswith(b"\n") else "; was the file cut off?"
        raise DataError(f"{where}: line {line}: not JSON: {error.msg}, column {error.colno}{hint}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: line {line}: JSON that cannot be read: {error}") from error
    return _whole_pairs(value) if b"\\u" in raw and (b"\\ud" in raw or b"\\uD" in raw) else value


def _whole_pairs(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_pairs(item) for item in value]
    if isinstance(value, dict):
        return {_whole_pairs(key): _whole_pairs(item) for key, item in value.items()}
    return value


def _object(value: Any, place: str, hint: str = "") -> Row:
    if not isinstance(value, dict):
        kind = {"list": "a list", "str": "a string", "NoneType": "null", "bool": "a truth value"}
        found = kind.get(type(value).__name__, "a number")
        raise DataError(f"{place}: {found} where an object {{...}} should be{hint}")
    field = _not_finite(value)
    if field:
        raise DataError(f"{place}: field {field[0]!r} is {field[1]}; put null or a finite number there")
    return value


def _finite(items: Iterable[Any]) -> bool:
    """Whether all numbers in JSON values are finite. (A quick look: it is taken at each row.)"""
    for item in items:
        kind = type(item)
        if kind is str or kind is int or item is None:
            continue
        if kind is float:
            if item - item != 0.0:
                return False
        elif kind is dict:
            if not _finite(item.values()):
                return False
        elif kind is list and not _finite(item):
            return False
    return True


def _not_finite(value: Any, path: str = "") -> tuple[str, float] | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, value)
    if isinstance(value, dict):
        items = ((f"{path}.{key}" if path else str(key), item) for key, item in value.items())
    elif isinstance(value, list):
        items = ((f"{path}[{place}]", item) for place, item in enumerate(value))
    else:
        return None
    return next((found for name, item in items if (found := _not_finite(item, name))), None)


def _jsonl(lines: _Lines, where: str) -> Iterator[tuple[int, Row]]:
    number = 0
    for line, raw in lines:
        if not raw.strip():
            continue
        number += 1
        value = _parsed(raw, where, line)
        if type(value) is not dict or not _finite(value.values()):
            hint = "; if the file is one JSON document, say format = 'json'" if number == 1 else ""
            value = _object(value, f"{where}: line {line}", hint)
        yield number, value


def _json(lines: _Lines, where: str) -> Iterator[tuple[int, Row]]:
    """A document, or JSON lines: an object that ends on the first line and isn't the last."""
    start, first = next(lines)
    if first.lstrip().startswith(b"{") and first.rstrip().endswith(b"}"):
        second = next((line for line in lines if line[1].strip()), None)
        if second is not None:
            yield from _jsonl(chain([(start, first), second], lines), where)
            return
    document = _parsed(first + b"".join(raw for _, raw in lines), where, start)
    for number, row in enumerate(_records(document, where), start=1):
        yield number, _object(row, f"{where}: row {number}")


def _records(document: Any, where: str) -> list[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        raise DataError(f"{where}: a single value where a list of objects should be")
    data, columns = document.get("data"), _columns(document)
    if len(document) == 1 and (isinstance(data, dict) or _all_objects(data)):
        columns = None
    if columns is None:
        return _records(data, where) if isinstance(data, list | dict) else [document]
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {length}" for name, length in list(lengths.items())[:_SHOWN])
        raise DataError(f"{where}: the columns differ in length: {told}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _all_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _columns(document: Row) -> dict[str, list[Any]] | None:
    """An object of lists, or, as pandas writes it, of objects with equal keys; None for any other object."""
    columns = list(document.values())
    if columns and all(isinstance(column, list) for column in columns):
        return document
    if columns and all(isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns):
        return {name: [column[key] for key in columns[0]] for name, column in document.items()}
    return None


def _csv(lines: _Lines, where: str, delimiter: str) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # whole documents stand in a field
    reader = csv.reader((_decoded(raw, where, line) for line, raw in lines), delimiter=delimiter, strict=True)
    try:
        header = next(fields for fields in reader if fields)
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise DataError(f"{where}: the header names {listed(twice)} more than once; rename the columns")
        number = 0
        for fields in reader:
            if not fields:
                continue
            number += 1
            if len(fields) != len(header):
                raise DataError(
                    f"{where}: row {number} (line {reader.line_num}): {len(fields)} fields, the header has "
                    f"{len(header)}; a field that holds {delimiter!r} or a line end must be quoted"
                )
            yield number, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise DataError(
            f"{where}: line {reader.line_num}: {error}; quotes within a quoted field are written twice"
        ) from error


def _parquet(stream: io.BufferedReader[Any], where: str) -> Iterator[tuple[int, Row]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError(f'{where}: Parquet needs an extra: pip install "overnight[analysis]"') from error
    with tempfile.TemporaryFile() as unzipped:
        source: IO[bytes] = stream
        if not isinstance(stream.raw, io.FileIO):  # a table's index stands at its end
            while chunk := stream.read(1 << 20):
                unzipped.write(chunk)
            unzipped.seek(0)
            source = unzipped
        number = 0
        try:
            table = parquet.ParquetFile(source)
            names = list(table.schema_arrow.names)
            if len(set(names)) < len(names):
                raise DataError(f"{where}: two columns have one name; rename them: {listed(names)}")
            for batch in table.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield number, _object(_json_value(row), f"{where}: row {number}")
        except pyarrow.ArrowException as error:
            raise DataError(f"{where}: not a sound Parquet file (after row {number}): {error}") from error


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return b64encode(value).decode("ascii")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
