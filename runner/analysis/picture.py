"""The picture of `figure2`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import OvernightError

if TYPE_CHECKING:
    from runner.analysis.figure2 import Figure, Panel

COLOURS = {
    "cot_sc": "#4c72b0",
    "cot_sc_then_react": "#dd8452",
    "react_then_cot_sc": "#55a868",
    "cot": "#8c8c8c",
    "react": "#c44e52",
}
MARKS = {"cot_sc": "o", "cot_sc_then_react": "s", "react_then_cot_sc": "^"}


def draw(figure: Figure, path: Path) -> None:
    """Write the figure to a file. Raises OvernightError without matplotlib, for an ending that it does not know
    and a place that cannot be written to."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise OvernightError("a picture needs matplotlib: pip install 'overnight[analysis]'") from error
    count = len(figure.panels)
    canvas = Canvas(figsize=(5.2 * count + 0.4, 4.6), layout="constrained")
    handles: dict[str, Any] = {}
    for k, panel in enumerate(figure.panels):
        handles |= _draw_panel(canvas.add_subplot(1, count, k + 1), panel)
    canvas.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=min(len(handles), 3 * count),
        frameon=False,
    )  # fmt: skip
    try:
        canvas.savefig(path, dpi=160)
    except ValueError as error:  # an ending that it has no writer for
        raise OvernightError(f"{path}: {error}; end its name in .png, .svg or .pdf") from error
    except OSError as error:
        raise OvernightError(f"{path}: cannot be written ({error.strerror})") from error


def _draw_panel(axes: Any, panel: Panel) -> dict[str, Any]:
    """One panel; returns what its legend shows, by label."""
    from runner.analysis.figure2 import LABELS

    chains = range(1, panel.samples + 1)
    handles = {}
    for name, curve in panel.curves.items():
        low, mean, high = ([100 * getattr(p, end) for p in curve] for end in ("low", "mean", "high"))
        axes.fill_between(chains, low, high, color=COLOURS[name], alpha=0.12, linewidth=0)
        (handles[LABELS[name]],) = axes.plot(
            chains, mean, color=COLOURS[name], marker=MARKS[name], markersize=3.5, linewidth=1.6
        )
    for name, level in panel.levels.items():
        handles[LABELS[name]] = axes.axhline(
            100 * level.mean, color=COLOURS[name], linestyle="--" if name == "cot" else ":", linewidth=1.4
        )
    axes.set_title(f"{panel.title} ({panel.questions} questions)", fontsize=11)
    axes.set_xlabel("chains (draws of CoT-SC)")
    axes.set_ylabel("per cent")
    last = panel.samples
    step = 1 if last <= 8 else 5
    axes.set_xticks([1, *range(max(step, 2), last - step // 2, step), last] if last > 1 else [1])
    axes.grid(alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return handles
