"""Open files: each call in flight is one, so the system's limit on them must not be met by surprise."""

from __future__ import annotations

from collections.abc import Sequence

from runner.models.gate import Gate

OTHERS = 200
"""Open files that are no calls: data, logs, worlds' own connections, the interpreter's."""


def fit(gates: Sequence[Gate]) -> str:
    """Raise this process's limit to what the system allows; lower what the gates may have in flight where
    that is too little for them. One line that says what was lowered; empty if nothing was."""
    allowed = _raised()
    if allowed is None:
        return ""
    room = max(allowed - OTHERS, len(gates))
    wanted = sum(gate.most for gate in gates)
    if wanted <= room:
        return ""
    for gate in gates:
        gate.cap(max(gate.most * room // wanted, 1), f"the system allows {allowed} open files")
    return (
        f"the system allows {allowed} open files, too few for {wanted} calls at once: at most "
        f"{sum(gate.most for gate in gates)} are made (`ulimit -Hn` shows the limit; raise it for more)"
    )


def _raised() -> int | None:
    """The limit on open files, raised as far as it goes; None where there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass  # macOS says "unlimited" and means 10240
    return None if soft == resource.RLIM_INFINITY else soft
