"""The text of a job file: where its keys are, `--set` on top of it, and messages that say what is wrong where."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from runner import registry
from runner.errors import JobError

Keys = tuple[str, ...]


def load(path: Path) -> tuple[dict[str, Any], str]:
    """A job file's values and text. Raises JobError for a file that is missing or not TOML."""
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        others = [other.name for other in path.absolute().parent.glob("*.toml")]
        near = registry.unknown("file", path.name, others).split("; ", 1)[1] if others else "none is there"
        raise JobError(f"{path}: there is no such job file; {near}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: cannot be read as a UTF-8 text file ({error})") from error
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{path}: not valid TOML: {error}") from error


def copied(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables, free to be changed."""
    return {key: copied(value) if isinstance(value, Mapping) else value for key, value in raw.items()}


def override(raw: dict[str, Any], assignment: str) -> Keys:
    """Apply one `--set key=value`: a dotted TOML key, and a TOML value or else the text as it is (dates too,
    since data hold them as text). Returns the key's parts."""
    key, equals, text = assignment.partition("=")
    keys = _key(key)
    if not equals or not keys:
        raise JobError(f"--set {assignment}: write it as key=value, e.g. --set methods.cot_sc.samples=5")
    *tables, last = keys
    place = raw
    for table in tables:
        place = place.setdefault(table, {})
        if not isinstance(place, dict):
            raise JobError(f"--set {assignment}: {table!r} is a value in this job, not a table")
    place[last] = _value(text)
    return keys


def _key(text: str) -> Keys:
    """The parts of a dotted key; () for a text that is none."""
    try:
        inner: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while isinstance(inner, dict):
        ((key, inner),) = inner.items()
        keys.append(key)
    return tuple(keys) if inner == 0 else ()


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text.strip()
    value = parsed["value"]
    return text.strip() if len(parsed) > 1 or isinstance(value, (date, time)) else value


def beside(value: Any, file: Path) -> Any:
    """A relative path means the file found from here, else the one beside the job file, else (in the data
    folder, or nowhere) it stays as it is. What is found is made whole, so that a run resumes from elsewhere."""
    if isinstance(value, list):
        return [beside(item, file) for item in value]
    if not isinstance(value, str) or not value:
        return value
    for folder in (Path(), file.parent):
        if (folder / value).is_file() or ("/" in value and (folder / value).exists()):
            return str((folder / value).resolve())
    return value


class Locator:
    """Where a key was given: in the job file, or by a `--set`, whose key parts `sets` maps to its text."""

    def __init__(
        self, file: Path | None = None, text: str = "", sets: Mapping[Keys, str] | None = None
    ) -> None:
        self.file = file
        self._text = text
        self._sets = sets or {}

    def at(self, path: Sequence[str | int]) -> str:
        """`jobs/x.toml, line 12 (methods.cot_sc.samples): `, as much of it as is known."""
        keys = tuple(str(part) for part in path)
        beginnings = [keys[:n] for n in range(len(keys), 0, -1)]
        named = f" ({'.'.join(keys)})" if keys else ""
        for known in beginnings:
            if known in self._sets:
                return f"--set {self._sets[known]}{named}: "
        place = str(self.file) if self.file else "job"
        line = next((self._lines[known] for known in beginnings if known in self._lines), None)
        return f"{place}, line {line}{named}: " if line else f"{place}{named}: "

    def error(self, error: ValidationError, path: Keys, kind: type[BaseModel]) -> JobError:
        """The first of pydantic's complaints in a person's words; the others are counted."""
        first, *others = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        loc = first["loc"]
        owner = _owner(kind, loc)
        if first["type"] == "extra_forbidden":
            what = registry.unknown("key", str(loc[-1]), owner.model_fields)
        elif first["type"] == "missing":
            field = owner.model_fields.get(str(loc[-1]))
            what = f"this key is missing ({(field.description if field else None) or 'required'})"
        else:
            message = first["msg"].removeprefix("Value error, ")
            what = message[:1].lower() + message[1:]
            if loc and first["type"] not in ("too_short", "value_error"):
                what += f", not {_short(first['input'])}"
        more = f" (and {len(others)} more)" if others else ""
        return JobError(self.at((*path, *loc)) + what + more)

    @cached_property
    def _lines(self) -> dict[Keys, int]:
        return Scan(self._text).lines


def _owner(kind: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel]:
    """The model that the last part of a location belongs to."""
    for part in loc[:-1]:
        field = kind.model_fields.get(str(part))
        if field is not None:
            kind = _model_in(field.annotation) or kind
    return kind


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*+")
_PART = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[\w-]+)"""
_PATH = rf"[ \t]*(?P<path>{_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*"
_HEADER = re.compile(rf"\[(?P<array>\[)?{_PATH}\]")
_ENTRY = re.compile(rf"{_PATH}=[ \t]*")
_SCALAR = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'{3}.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^,\]}#\n]+''', re.DOTALL
)


class Scan:
    """The line, from 1, of every table and key of a TOML text that parses. Elements of arrays are keyed by
    their number."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Keys, int] = {}
        self._text = text
        self._at = 0
        self._arrays: dict[Keys, int] = {}
        self._scan()

    def _scan(self) -> None:
        table: Keys = ()
        while self._at < len(self._text):
            self._skip(_BLANK)
            if header := _HEADER.match(self._text, self._at):
                table = self._table(_key(header["path"]), bool(header["array"]))
                self._at = header.end() + bool(header["array"])
            elif not self._entry(table):
                return

    def _table(self, parts: Keys, array: bool) -> Keys:
        """A header's full key, with the numbers of the arrays' elements in it."""
        keys: Keys = ()
        for part in parts[:-1]:
            keys = (*keys, part)
            if keys in self._arrays:
                keys = (*keys, str(self._arrays[keys]))
        keys = (*keys, parts[-1])
        self._here(keys)
        if array:
            self._arrays[keys] = self._arrays.get(keys, -1) + 1
            keys = (*keys, str(self._arrays[keys]))
            self._here(keys)
        return keys

    def _entry(self, table: Keys) -> bool:
        entry = _ENTRY.match(self._text, self._at)
        if entry is None:
            return False
        keys = table
        for part in _key(entry["path"]):
            keys = (*keys, part)
            self._here(keys)
        self._at = entry.end()
        self._value(keys)
        return True

    def _value(self, keys: Keys) -> None:
        opening = self._text[self._at : self._at + 1]
        if opening not in ("[", "{"):
            self._skip(_SCALAR)
            return
        self._at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._at : self._at + 1] in ("]", "}", ""):
                break
            if opening == "{":
                if not self._entry(keys):
                    break
            else:
                element = (*keys, str(number))
                self._here(element)
                self._value(element)
                number += 1
            self._skip(_BLANK)
            self._at += self._text.startswith(",", self._at)
        self._at += 1

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _here(self, keys: Keys) -> None:
        self.lines.setdefault(keys, self._text.count("\n", 0, self._at) + 1)
