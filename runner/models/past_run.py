"""An earlier run as something that answers: its draws, found by their key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

from runner.errors import EpisodeFailed
from runner.jsonl import rows
from runner.models.base import Call, Choice, Finish, Usage
from runner.outputs import read_manifest

Key = tuple[str, str, int]


class PastRun:
    """One model of the run in the folder `path`; `name` says which, where the run has several.

    Damaged lines of its ledger are passed over: their draws count as never drawn. Raises RunError for a folder
    without a run, ValueError where the model can't be told or there is no ledger.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        self.path = path
        shape = read_manifest(path).get("shape")
        shape = shape if isinstance(shape, dict) else {}
        ends = ".identity"
        models = [key[len("models.") : -len(ends)] for key in shape if _names_a_model(key, ends)]
        if name and name not in models:
            raise ValueError(f"{path}: no model {name!r} in that run; it has {_listed(models)}")
        if not name and len(models) != 1:
            raise ValueError(
                f"{path}: a replay is of one model; name it (`model`): that run has {_listed(models)}"
            )
        if not (path / "ledger.jsonl").is_file():
            raise ValueError(f"{path}: there is no ledger.jsonl in it, and so no reply to give again")
        start = f"models.{name or models[0]}."
        self.settings: Mapping[str, Any] = {
            key.removeprefix(start): value for key, value in shape.items() if key.startswith(start)
        }
        """What shaped the model's replies: `identity`, `api`, `temperature`, …"""

    @cached_property
    def draws(self) -> Mapping[Key, tuple[Choice, Usage]]:
        """Every draw of the run and what was used for it, by (scope, request hash, index). Of two lines with one
        key the first counts, as it does for the run itself."""
        found: dict[Key, tuple[Choice, Usage]] = {}
        for row in rows(self.path / "ledger.jsonl"):
            if row.get("kind") == "draw" and (draw := _draw(row)) is not None:
                found.setdefault((row["scope"], row["hash"], row["i"]), draw)
        return found

    def draw(self, call: Call, i: int) -> tuple[Choice, Usage]:
        """Draw `i` of the call's request. Raises EpisodeFailed where the run has none."""
        try:
            return self.draws[call.scope, call.request.hash, i]
        except KeyError:
            raise EpisodeFailed(
                f"{self.path} holds no draw {i} of this request in {call.scope}: the prompt, its parameters or the "
                "world's name differ from that run's, or the draw was never made"
            ) from None


def _names_a_model(key: str, ends: str) -> bool:
    return key.startswith("models.") and key.endswith(ends)


def _draw(row: Mapping[str, Any]) -> tuple[Choice, Usage] | None:
    """What a ledger's row holds, None where it is damaged."""
    texts = (row.get("scope"), row.get("hash"), row.get("text"))
    reasoning, finish, usage = row.get("reasoning"), row.get("finish"), row.get("usage")
    if not all(isinstance(text, str) for text in texts) or type(row.get("i")) is not int:
        return None
    if finish not in get_args(Finish) or not isinstance(reasoning, str | None):
        return None
    counts = usage if isinstance(usage, dict) else {}
    known = {key: n for key, n in counts.items() if key in Usage.__slots__ and type(n) is int}
    used = Usage(**known)
    logprobs = _logprobs(row.get("logprobs"))
    return Choice(row["text"], cast(Finish, finish), reasoning, logprobs, used.completion), used


def _logprobs(values: Any) -> tuple[float, ...] | None:
    try:
        return None if values is None else tuple(map(float, values))
    except (TypeError, ValueError):
        return None


def _listed(models: list[str]) -> str:
    return ", ".join(models) or "none that its run.json tells of"
