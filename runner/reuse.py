"""`reuse = ["outputs/other"]`: what earlier runs drew is taken over instead of being asked for again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.draws import PastDraws
from runner.errors import RunError
from runner.outputs import locked, read_manifest


class Earlier:
    """Earlier runs, looked in one after the other. A draw of theirs has the same scope, hash and index, and so
    answers the same prompt with the same parameters by the same model, for the same task and trial."""

    def __init__(self, runs: Sequence[PastDraws]) -> None:
        self.runs = runs

    @classmethod
    def open(cls, folders: Sequence[str], own: Path) -> Earlier | None:
        """The runs in these folders; None where there are none. `own` is the folder of the run that reads them.

        Raises RunError as `check` does, and for a ledger without a readable line.
        """
        runs = []
        for folder in folders:
            check(Path(folder), own)
            runs.append(PastDraws(Path(folder)))
        return cls(runs) if runs else None

    def find(self, scope: str, request_hash: str, i: int) -> tuple[Mapping[str, Any], PastDraws] | None:
        """The line of a draw and the run that has it; None where none has."""
        for run in self.runs:
            row = run.draw(scope, request_hash, i)
            if row is not None:
                return row, run
        return None

    def close(self) -> None:
        for run in self.runs:
            run.close()


def check(path: Path, own: Path | None) -> None:
    """Raises RunError, naming `reuse`, for a folder whose draws cannot be taken: one without a run, a damaged one,
    one that a process is working on, and the own one."""
    if own is not None and path.resolve() == own.resolve():
        raise RunError(f"reuse: {path} is this run itself, whose own draws it always has; take it out")
    try:
        read_manifest(path)
    except RunError as error:
        raise RunError(f"reuse: {error}") from error
    if not (path / "ledger.jsonl").is_file():
        raise RunError(f"reuse: {path}: there is no ledger.jsonl in it, and so no draw to take")
    if locked(path):
        raise RunError(
            f"reuse: {path}: a process is working on that run; wait for it, or stop it with Ctrl-C, "
            "so that no draw is paid for twice"
        )
