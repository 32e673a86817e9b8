"""Prompt files of the public ReAct repository's form: one JSON object of names and texts each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from envs.base import DataError
from envs.data import find


def read_prompts(files: Sequence[Path]) -> dict[str, str]:
    """The texts of prompt files, each one JSON object of names and texts. Raises DataError."""
    texts: dict[str, str] = {}
    for file in files:
        try:
            content = orjson.loads(find(file).read_bytes())
        except orjson.JSONDecodeError as error:
            raise DataError(f"{file}: not JSON ({error})") from error
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror})") from error
        if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
            raise DataError(f"{file}: a prompt file is one JSON object of names and texts")
        texts |= content
    return texts
