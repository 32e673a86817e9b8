"""A page as text: its accessibility tree, one numbered line an element, as WebArena shows it.

Elements are numbered from 1 in the order of the page, anew in each observation, so that the same page reads the same in
every browser. What only groups others, repeats its parent's name or lies outside of the window is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Box: TypeAlias = tuple[float, float, float, float]
"""x, y, width, height in pixels, from the document's upper left corner."""

_GROUPS = """
    none generic presentation InlineTextBox LineBreak ListMarker paragraph group LayoutTable LayoutTableRow
    LayoutTableCell Section sectionheader sectionfooter Legend strong emphasis Abbr Pre DescriptionList
    DescriptionListTerm DescriptionListDetail HeaderAsNonLandmark FooterAsNonLandmark LabelText MenuListPopup
    rowgroup code mark superscript subscript time"""
GROUPS = frozenset(_GROUPS.split())
"""Roles that only group others."""
NAMED = frozenset(
    (
        "image",
        "img",
        "Iframe",
        "separator",
        "list",
        "listitem",
        "row",
        "cell",
        "gridcell",
        "article",
        "region",
        "form",
    )
)
"""Roles that say something only by a name that the element above has not said."""
STATES = ("focused", "disabled", "required", "checked", "pressed", "selected", "expanded", "haspopup")
MOST_NAME = 300
"""Characters of an element's name."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A page's text, and by number the browser's name of each element (`backendDOMNodeId`)."""

    text: str
    nodes: Mapping[int, int]


def tree(
    nodes: Sequence[Mapping[str, Any]],
    boxes: Mapping[int, Box] | None = None,
    window: Box | None = None,
    most: int = 0,
) -> Tree:
    """The tree of `nodes`, as Chromium's `Accessibility.getFullAXTree` gives them. With `boxes` (by
    `backendDOMNodeId`) and a `window`, only what is in the window. `most`: lines at most, 0 for all."""
    return _Writer(nodes, boxes, window, most).write()


class _Writer:
    def __init__(
        self,
        nodes: Sequence[Mapping[str, Any]],
        boxes: Mapping[int, Box] | None,
        window: Box | None,
        most: int,
    ) -> None:
        self._by_id = {node["nodeId"]: node for node in nodes}
        self._root = nodes[0] if nodes else None
        self._boxes, self._window, self._most = boxes, window, most
        self._lines: list[str] = []
        self._numbers: dict[int, int] = {}
        self._left_out = 0

    def write(self) -> Tree:
        if self._root is not None:
            todo = [(self._root, 0, "")]
            while todo:  # no recursion: pages nest deeply
                node, depth, above = todo.pop()
                shown, name = self._take(node, depth, above)
                children = [self._by_id[each] for each in node.get("childIds") or () if each in self._by_id]
                below = (depth + 1, name or above) if shown else (depth, above)
                todo += [(child, *below) for child in reversed(children)]
        if self._left_out:
            self._lines.append(f"({self._left_out:,} more elements; scroll, or search for less)")
        return Tree("\n".join(self._lines), self._numbers)

    def _take(self, node: Mapping[str, Any], depth: int, above: str) -> tuple[bool, str]:
        """Write a node's line, if it has one; whether it has, and its name."""
        role, name = _text(node.get("role")), " ".join(_text(node.get("name")).split())
        states = _states(node) if node is not self._root else []
        if node.get("ignored") or not self._worth(role, name, states, above) or not self._inside(node):
            return False, name
        if self._most and len(self._lines) >= self._most:
            self._left_out += 1
            return False, name
        number = len(self._numbers) + 1
        self._numbers[number] = int(node.get("backendDOMNodeId") or 0)
        value = " ".join(_text(node.get("value")).split())
        said = f" value: {_quoted(value)}" if value and value != name and role != "RootWebArea" else ""
        line = f"[{number}] {role} {_quoted(name)}{said}{''.join(f' {state}' for state in states)}"
        self._lines.append("\t" * depth + line)
        return True, f"{name} {value}"

    def _worth(self, role: str, name: str, states: Sequence[str], above: str) -> bool:
        if role == "StaticText":
            return bool(name) and name not in above
        if role in GROUPS or not role:
            return False
        if role in NAMED:
            return bool(name) and name not in above
        return True

    def _inside(self, node: Mapping[str, Any]) -> bool:
        if self._boxes is None or self._window is None or node is self._root:
            return True
        box = self._boxes.get(int(node.get("backendDOMNodeId") or 0))
        if box is None:
            return True  # text without a box of its own: as its parent, which was asked before
        x, y, width, height = box
        left, top, wide, high = self._window
        if width <= 0 or height <= 0:
            return True  # what stands in it may be larger
        return x < left + wide and x + width > left and y < top + high and y + height > top


def _text(value: Any) -> str:
    found = value.get("value") if isinstance(value, Mapping) else None
    return "" if found is None else str(found)


def _states(node: Mapping[str, Any]) -> list[str]:
    """`checked: true` and kin, of those that say something."""
    found = {each["name"].lower(): _text(each.get("value")).lower() for each in node.get("properties") or ()}
    shown = [f"{name}: {found[name]}" for name in STATES if found.get(name, "false") not in ("false", "")]
    for name in ("checked", "expanded"):  # a box that is not ticked is a box
        if found.get(name) == "false":
            shown.append(f"{name}: false")
    return shown


def _quoted(name: str) -> str:
    return "'" + (name if len(name) <= MOST_NAME else name[:MOST_NAME] + "…") + "'"
