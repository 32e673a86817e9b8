"""From runs to rows, and from rows to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.peers.environments import OURS
from tests.benchmarks.peers.measuring import Ran

PEERS = {
    "peer": "peer",
    "cpu_us_per_call": "CPU us/call",
    "ratio_to_ours": "times ours",
    "calls_per_s": "calls/s",
    "wall_s": "wall s",
    "rss_mb": "RSS MB",
    "in_flight": "in flight",
    "connections": "connections",
    "startup_cpu_s": "start-up CPU s",
    "startup_wall_s": "start-up wall s",
    "note": "",
}
SCALING = {
    "in_flight": "in flight",
    "latency_s": "latency s",
    "cpu_us_per_call": "CPU us/call",
    "bare_loop_us_per_call": "bare loop",
    "ratio_to_bare": "ratio",
    "calls_per_s": "calls/s",
    "rss_mb": "RSS MB",
    "loop_lag_p99_ms": "lag p99 ms",
    "ratio_to_shortest": "wall to shortest",
}


def row(
    peer: str, alone: Sequence[Ran], loaded: Sequence[Ran], samples: int, calls: int, latency: float
) -> dict[str, Any]:
    """One line of the table from runs of one sample and of all; `calls` of each sample follow one another.

    The least CPU and the least wall of the runs, as whatever else a machine does only adds; the other figures are
    those of the run with the least CPU. CPU per call and calls a second are
    net of start-up: the run of one sample and its wall less its calls' latency. They are None where that leaves
    nothing: so few samples are lost in the noise of starting up.
    """
    if failed := next((ran.failed for ran in (*alone, *loaded) if ran.failed), ""):
        return {"peer": peer, "note": failed}
    cpu, wall = (min(getattr(ran, what) for ran in loaded) for what in ("cpu", "wall"))
    best = min(loaded, key=lambda ran: ran.cpu)
    startup_cpu = min(ran.cpu for ran in alone)
    startup_wall = min(ran.wall for ran in alone) - calls * latency
    cost, took = cpu - startup_cpu, wall - startup_wall
    found: dict[str, Any] = {
        "peer": peer,
        "cpu_us_per_call": round(cost / ((samples - 1) * calls) * 1e6, 1)
        if cost > 0 and samples > 1
        else None,
        "calls_per_s": round(samples * calls / took, 1) if took > 0 else None,
        "wall_s": round(wall, 2),
        "rss_mb": round(best.rss_mb),
        "in_flight": best.seen["most_in_flight"],
        "connections": best.seen["connections"],
        "startup_cpu_s": round(startup_cpu, 2),
        "startup_wall_s": round(startup_wall, 2),
        "server_cpu_s": best.seen["cpu"],
        "runs": len(loaded),
    }
    wrong = [
        f"{count} {what}"
        for what, count in (
            ("errors", max(ran.errors for ran in loaded)),
            ("samples not written", samples - min(ran.written for ran in loaded)),
            ("calls too many", max(ran.seen["requests"] for ran in loaded) - samples * calls),
            ("calls too few", samples * calls - min(ran.seen["requests"] for ran in loaded)),
        )
        if count > 0
    ]
    return {**found, **({"note": ", ".join(wrong)} if wrong else {})}


def beside_ours(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with each one's CPU per call as a multiple of ours, where both are known."""
    ours = next((each.get("cpu_us_per_call") for each in rows if each["peer"] == OURS), None)
    return [
        {**each, "ratio_to_ours": round(each["cpu_us_per_call"] / ours, 2)}
        if ours and each.get("cpu_us_per_call") is not None
        else dict(each)
        for each in rows
    ]


def text(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """A Markdown table, aligned; columns that no row fills are left out."""
    kept = {key: title for key, title in columns.items() if any(_word(row.get(key)) for row in rows)}
    lines = [list(kept.values()), *([_word(row.get(key)) for key in kept] for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(kept))]
    lines.insert(1, ["-" * width for width in widths])
    return "".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n"
        for line in lines
    )


def _word(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int | float) else str(value)


IN_README = (
    "peer",
    "cpu_us_per_call",
    "ratio_to_ours",
    "calls_per_s",
    "rss_mb",
    "in_flight",
    "startup_cpu_s",
)


def for_readme(found: Mapping[str, Any]) -> str:
    """The README's two tables, from what `--json` wrote."""
    peers = text(found["peers"]["rows"], {key: PEERS[key] for key in IN_README})
    scaling = text(found["scaling"]["rows"], SCALING)
    return f"{peers}\n{scaling}"
