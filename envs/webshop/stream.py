"""Large JSON files read piece by piece: the elements of an array or of an object, of which only some are in memory."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from envs.base import DataError

Element: TypeAlias = tuple[str, str, Any]
"""Where it is (`items.json, product 3`), its key in an object ("" in an array), and its value."""

CHUNK = 1 << 20
LARGEST = 1 << 26
"""Characters of one element; in a file with more of them between two commas something is wrong."""
_SPACE = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_ENDS = {"[": "]", "{": "}"}


def rows(path: Path, noun: str = "product") -> Iterator[Element]:
    """The elements of a file's one array, or of JSON lines, in order; a name that ends in `.gz` is unzipped. Raises
    DataError, naming the place, for a file that cannot be read, is damaged, breaks off or is not JSON."""
    with _opened(path) as file:
        read = _document if _begins(file) == b"[" else _lines
        yield from read(file, path, noun)


def entries(path: Path, noun: str = "entry") -> Iterator[Element]:
    """The entries of a file's one object, with their keys, in order. Raises DataError, as `rows` does."""
    with _opened(path) as file:
        if _begins(file) != b"{":
            raise DataError(f"{path}: one JSON object by {noun} belongs here")
        yield from _document(file, path, noun)


def _begins(file: io.BufferedReader[Any]) -> bytes:
    return file.peek(1 << 12).lstrip(b" \t\r\n\xef\xbb\xbf")[:1]


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader[Any]]:
    try:
        with path.open("rb") as raw:
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error.reason}); fetch it again") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _lines(file: io.BufferedReader[Any], path: Path, noun: str) -> Iterator[Element]:
    number = 0
    for at, line in enumerate(file, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if at == 1 else line
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = _patient(line, f"{path}, line {at}")
        number += 1
        yield f"{path}, {noun} {number}", "", value


def _patient(line: bytes, place: str) -> Any:
    """Of a line that orjson refuses, perhaps only because of half of a surrogate pair."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error})") from error


def _document(file: io.BufferedReader[Any], path: Path, noun: str) -> Iterator[Element]:
    decode, decoder = codecs.getincrementaldecoder("utf-8-sig")(), JSONDecoder(strict=False)
    text, number = "", 0
    while not text and (more := file.read(CHUNK)):
        text = decode.decode(more).lstrip()
    end, at = _ENDS[text[0]], 1
    while True:
        found = _SPACE.match(text, at)
        at = found.end() if found else at
        if text.startswith(end, at):
            return
        try:
            if end == "}":
                key, after = decoder.raw_decode(text, at)
                colon = _COLON.match(text, after)
                if colon is None or not isinstance(key, str):
                    raise JSONDecodeError("a key and a colon belong here", text, after)
                value, after = decoder.raw_decode(text, colon.end())
            else:
                key, (value, after) = "", decoder.raw_decode(text, at)
        except JSONDecodeError as error:
            place, at, text = f"{path}, {noun} {number + 1}", 0, text[at:]
            if len(text) > LARGEST:
                raise DataError(f"{place}: not JSON ({error.msg})") from error
            if not (more := file.read(CHUNK)):
                decode.decode(b"", final=True)
                raise DataError(
                    f"{place}: not JSON, or the file breaks off ({error.msg}); fetch it again"
                ) from error
            text += decode.decode(more)
            continue
        number, at = number + 1, after
        yield f"{path}, {noun} {number}", key, value


_HALF = re.compile("[\ud800-\udfff]")


def mended(text: str) -> str:
    """A text with U+FFFD for halves of surrogate pairs, which no file in UTF-8 can hold and the public ones escape."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)
