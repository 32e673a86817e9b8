"""One episode's tabs in a real Chromium: what is seen in them, and what is done.

Everything here blocks, and lives in a worker process (see `envs.hosting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from playwright.sync_api import BrowserContext, Dialog, Page
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from envs.webarena.actions import Action
from envs.webarena.chromium import HEIGHT, WIDTH
from envs.webarena.tree import Box, Tree, tree

WINDOW_SECONDS = 3.0
"""What a link's new window may take to open."""
INTERRUPTIONS = 3
"""Times that going to an address is begun anew where the page before it still moves."""
SETTLED = 50
"""Milliseconds after an action in which a page may begin to leave."""
KEYS = {"ctrl": "Control", "control": "Control", "cmd": "Meta", "meta": "Meta", "alt": "Alt", "shift": "Shift",
        "enter": "Enter", "return": "Enter", "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "Space",
        "delete": "Delete", "backspace": "Backspace", "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft",
        "right": "ArrowRight", "home": "Home", "end": "End", "pageup": "PageUp", "pagedown": "PageDown"}  # fmt: skip
_SELECT = """function (wanted) {
    const list = this.tagName === "OPTION" ? this.closest("select") : this;
    if (!list || list.tagName !== "SELECT") return false;
    const options = [...list.options], plain = text => text.trim().toLowerCase(), sought = plain(wanted);
    const found = this.tagName === "OPTION" ? this
        : options.find(o => plain(o.text) === sought) || options.find(o => plain(o.text).includes(sought));
    if (!found) throw new Error("no option " + JSON.stringify(wanted) + "; there are: "
        + options.map(o => o.text.trim()).join(", "));
    list.value = found.value;
    for (const kind of ["input", "change"]) list.dispatchEvent(new Event(kind, {bubbles: true}));
    return true;
}"""


_TAKES_TEXT = """function () {
    const plain = ["button", "checkbox", "color", "file", "hidden", "image", "radio", "range", "reset", "submit"];
    return this.isContentEditable || this.tagName === "TEXTAREA"
        || (this.tagName === "INPUT" && !plain.includes(this.type));
}"""


_OPENS_WINDOW = """function () {
    const link = this.closest ? this.closest("a[href]") : null;
    return !!link && link.target !== "" && !["_self", "_top", "_parent"].includes(link.target);
}"""


class Refused(Exception):
    """An action cannot be done on the page as it is; the message says why."""


class Tabs:
    """One episode's tabs. `seconds` is what loading a page may take, `most` the lines of an observation at most, and
    `whole`: whether it shows all of a page or what is in the window."""

    def __init__(self, context: BrowserContext, *, seconds: float, most: int, whole: bool) -> None:
        self.context = context
        self.seconds = seconds
        self._most, self._whole = most, whole
        self._pages: list[Page] = []
        self._leaving: dict[Page, int] = {}
        """Pages that are on their way to another address."""
        self._tree = Tree("", {})
        self._said: list[str] = []
        """What happened beside the pages: dialogs, downloads."""
        context.set_default_timeout(seconds * 1000)
        context.on("page", self._opened)
        self.current = 0

    # -- what goes on in them --------------------------------------------------------------------------
    def _opened(self, page: Page) -> None:
        if page in self._pages:
            return
        self._pages.append(page)
        page.on("dialog", self._dialog)
        page.on("close", lambda _: self._closed(page))
        page.on("crash", lambda _: self._tell("the page crashed"))
        page.on("request", lambda request: self._count(page, request, 1))
        page.on("requestfailed", lambda request: self._count(page, request, -1))
        page.on("domcontentloaded", lambda _: self._arrived(page))
        page.on("download", lambda download: self._tell(f"a download was refused: {download.url}"))
        self.current = len(self._pages) - 1

    def _count(self, page: Page, request: Any, change: int) -> None:
        if request.is_navigation_request() and request.frame == page.main_frame:
            left = self._leaving.get(page, 0) + change
            if left > 0:
                self._leaving[page] = left
            else:
                self._leaving.pop(page, None)

    def _arrived(self, page: Page) -> None:
        self._leaving.pop(page, None)

    def _tell(self, what: str) -> None:
        self._said.append(what)

    def _closed(self, page: Page) -> None:
        if page in self._pages:
            at = self._pages.index(page)
            self._pages.remove(page)
            if self.current >= at:
                self.current = max(self.current - 1, 0)
        self._leaving.pop(page, None)

    def _dialog(self, dialog: Dialog) -> None:
        self._said.append(f"a dialog said {dialog.message!r} and was accepted")
        dialog.accept()

    @property
    def page(self) -> Page:
        """The tab that is in front."""
        if not self._pages:
            self._opened(self.context.new_page())
        return self._pages[self.current]

    def open(self, address: str) -> None:
        """Go to an address in the tab in front. Raises Refused where nothing comes."""
        for again in range(INTERRUPTIONS, -1, -1):
            try:
                self.page.goto(address, wait_until="load")
                return
            except PlaywrightError as error:
                self.settle()
                if again and "interrupted by another navigation" in str(error):
                    continue  # the browser's own page about the last failure came in between
                raise Refused(f"{address} could not be opened: {_first(error)}") from error

    def open_all(self, addresses: list[str]) -> None:
        """Each address in a tab of its own; the first one is in front in the end."""
        for number, address in enumerate(addresses):
            if number:
                self._opened(self.context.new_page())
            self.open(address)
        self.current = 0

    def settle(self) -> None:
        """Until the page in front has done what the last action began, as far as that is known."""
        page = self.page
        try:
            page.wait_for_timeout(SETTLED)
            waited = 0.0
            while page in self._leaving and waited < self.seconds:
                page.wait_for_timeout(SETTLED)
                waited += SETTLED / 1000
            self.page.wait_for_load_state("load")
        except PlaywrightError:  # closed meanwhile, or it never ends: what is there is shown
            self._leaving.pop(page, None)

    # -- what is seen ----------------------------------------------------------------------------------
    def seen(self) -> str:
        """The observation: the tabs, what happened beside them, the address, and the page in front as a tree."""
        page = self.page
        titles = []
        for number, each in enumerate(self._pages):
            front = " (current)" if number == self.current else ""
            titles.append(f"Tab {number}{front}: {_title(each)}")
        happened, self._said = [f"({said})" for said in self._said], []
        try:
            self._tree = self._read(page)
        except PlaywrightError as error:
            if self._pages and not page.is_closed():
                raise
            self._tree = Tree(f"(the page cannot be read: {_first(error)})", {})
        return "\n".join([" | ".join(titles), *happened, f"URL: {page.url}", self._tree.text])

    def _read(self, page: Page) -> Tree:
        session = self.context.new_cdp_session(page)
        try:
            nodes = session.send("Accessibility.getFullAXTree")["nodes"]
            if self._whole:
                return tree(nodes, most=self._most)
            shot = session.send(
                "DOMSnapshot.captureSnapshot", {"computedStyles": [], "includeDOMRects": True}
            )
            left, top = page.evaluate("() => [window.scrollX, window.scrollY]")
            return tree(nodes, _boxes(shot), (left, top, WIDTH, HEIGHT), self._most)
        finally:
            session.detach()

    # -- what is done ----------------------------------------------------------------------------------
    def do(self, action: Action) -> None:
        """Take an action, and let the page settle. Raises Refused where it cannot be done."""
        try:
            self._do(action)
        except PlaywrightError as error:
            raise Refused(_first(error)) from error
        self.settle()

    def _do(self, action: Action) -> None:
        page = self.page
        match action.verb:
            case "click":
                self._click(action)
            case "hover":
                page.mouse.move(*self._point(self._node(action)))
            case "type":
                self._type(action)
            case "press":
                page.keyboard.press(_keys(action.text))
            case "scroll":
                page.mouse.move(WIDTH / 2, HEIGHT / 2)
                down = HEIGHT if action.text == "down" else -HEIGHT
                page.evaluate("by => window.scrollBy({top: by, behavior: 'instant'})", down)
            case "goto":
                address = action.text if ":" in action.text.split("/")[0] else f"http://{action.text}"
                if not address.startswith(("http://", "https://")):
                    raise Refused("goto takes addresses that begin with http:// or https://")
                self.open(address)
            case "new_tab":
                self._opened(self.context.new_page())
            case "tab_focus":
                if action.number is None or action.number >= len(self._pages):
                    raise Refused(f"there is no tab {action.number}; there are {len(self._pages)}, from 0")
                self.current = action.number
                self.page.bring_to_front()
            case "close_tab":
                page.close()
                if self._pages:
                    self.page.bring_to_front()
            case "go_back" | "go_forward":
                moved = page.go_back() if action.verb == "go_back" else page.go_forward()
                if moved is None:
                    raise Refused("there is no page to go to")

    def _node(self, action: Action) -> int:
        node = self._tree.nodes.get(action.element or 0)
        if not node:
            raise Refused(f"there is no element [{action.element}] in the last observation")
        return node

    def _click(self, action: Action) -> None:
        node = self._node(action)
        if self._is(node, "OPTION"):
            self._call(node, _SELECT, "")
            return
        point = self._point(node)
        if not self._call(node, _OPENS_WINDOW):
            self.page.mouse.click(*point)
            return
        with suppress(PlaywrightTimeout), self.context.expect_page(timeout=WINDOW_SECONDS * 1000):
            self.page.mouse.click(*point)

    def _type(self, action: Action) -> None:
        node = self._node(action)
        if self._is(node, "SELECT"):
            self._call(node, _SELECT, action.text)
            return
        if not self._call(node, _TAKES_TEXT):
            raise Refused(f"element [{action.element}] takes no text")
        self.page.mouse.click(*self._point(node))
        self._call(node, "function () { this.focus && this.focus(); this.select && this.select(); }")
        if action.text:
            self.page.keyboard.insert_text(action.text)
        else:
            self.page.keyboard.press("Delete")
        if action.enter:
            self.page.keyboard.press("Enter")

    def _is(self, node: int, tag: str) -> bool:
        return bool(self._call(node, "function (tag) { return this.tagName === tag; }", tag))

    def _point(self, node: int) -> tuple[float, float]:
        """The middle of an element, which is scrolled into the window."""
        session = self.context.new_cdp_session(self.page)
        try:
            session.send("DOM.scrollIntoViewIfNeeded", {"backendNodeId": node})
            quads = session.send("DOM.getContentQuads", {"backendNodeId": node})["quads"]
        except PlaywrightError as error:
            raise Refused(f"that element cannot be reached: {_first(error)}") from error
        finally:
            session.detach()
        if not quads:
            raise Refused("that element takes no room on the page")
        quad = max(quads, key=lambda q: abs((q[4] - q[0]) * (q[5] - q[1])))
        return sum(quad[0::2]) / 4, sum(quad[1::2]) / 4

    def _call(self, node: int, function: str, *arguments: Any) -> Any:
        session = self.context.new_cdp_session(self.page)
        try:
            found = session.send("DOM.resolveNode", {"backendNodeId": node})["object"]["objectId"]
            done = session.send(
                "Runtime.callFunctionOn",
                {
                    "objectId": found,
                    "functionDeclaration": function,
                    "arguments": [{"value": each} for each in arguments],
                    "returnByValue": True,
                },
            )
        finally:
            session.detach()
        if "exceptionDetails" in done:
            said = done["exceptionDetails"]["exception"].get("description", "")
            raise Refused(said.split("\n")[0].removeprefix("Error: "))
        return done["result"].get("value")

    def close(self) -> None:
        self.context.close()


def _keys(text: str) -> str:
    """`ctrl+a` as Playwright has it: `Control+a`."""
    if not text:
        raise Refused("press takes keys, e.g. [Enter] or [ctrl+a]")
    return "+".join(KEYS.get(key.strip().lower(), key.strip()) for key in text.split("+"))


def _title(page: Page) -> str:
    try:
        return " ".join(page.title().split())
    except PlaywrightError:
        return ""


def _first(error: Exception) -> str:
    """An error's first line, without the name of what was called."""
    line = str(error).strip().split("\n")[0]
    return line.split(": ", 1)[1] if ": " in line and "." in line.split(": ", 1)[0] else line


def _boxes(shot: Mapping[str, Any]) -> dict[int, Box]:
    """The box of each node of the main document, by `backendDOMNodeId`."""
    document = shot["documents"][0]
    names, layout = document["nodes"]["backendNodeId"], document["layout"]
    return {
        names[index]: tuple(bounds)
        for index, bounds in zip(layout["nodeIndex"], layout["bounds"], strict=True)
    }
