"""overnight: runs language-model episodes in bulk, asks for no reply twice, and writes JSONL trajectories.

>>> import runner
>>> run = await runner.run("jobs/quickstart.toml")      # in a notebook
>>> run.frame()                                          # one row an episode
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.analysis.figure2 import figure2
    from runner.analysis.table1 import table1
    from runner.analysis.table3 import table3
    from runner.analysis.table4 import table4
    from runner.job import Job
    from runner.library import complete, load, plan, render, rescore, resume, run
    from runner.results import Run

__all__ = [
    "Job", "Run", "complete", "figure2", "load", "plan", "render", "rescore", "resume", "run", "table1",
    "table3", "table4",
]  # fmt: skip
_WHERE = {name: f"runner.analysis.{name}" for name in ("figure2", "table1", "table3", "table4")}


def __getattr__(name: str) -> Any:
    """Names are loaded when first used, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'runner' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE.get(name, "runner.library")), name)
