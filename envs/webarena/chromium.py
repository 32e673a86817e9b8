"""A real Chromium through Playwright: where it is on this machine, and how it is started.

It blocks, and lives in a worker process (see `envs.hosting`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Browser, BrowserContext, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from envs.base import WorldError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Programs that are looked for on PATH; OVERNIGHT_CHROMIUM names another."""
WIDTH, HEIGHT = 1280, 720
"""The window in pixels, as WebArena's."""


def program() -> str | None:
    """The path of a Chromium on this machine; None where there is none."""
    given = os.environ.get("OVERNIGHT_CHROMIUM")
    if given:
        return given if os.access(given, os.X_OK) else None
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One browser process. `hosts` maps names of hosts to addresses on this machine."""

    def __init__(self, hosts: Mapping[str, str] | None = None) -> None:
        self._hosts = dict(hosts or {})
        self._playwright = sync_playwright().start()
        self._browser: Browser | None = None

    def browser(self) -> Browser:
        """The browser; a new one where it has ended."""
        if self._browser is None or not self._browser.is_connected():
            path = program()
            if path is None:
                raise WorldError(MISSING)
            rules = ", ".join(f"MAP {name} {address}" for name, address in self._hosts.items())
            self._browser = self._playwright.chromium.launch(
                executable_path=path,
                headless=True,
                args=[
                    "--no-sandbox",
                    "--disable-dev-shm-usage",
                    "--disable-gpu",
                    "--disable-background-networking",
                    "--no-first-run",
                    *([f"--host-resolver-rules={rules}"] if rules else []),
                ],
            )
        return self._browser

    @property
    def browser_lives(self) -> bool:
        """Whether the browser that was started still answers."""
        if self._browser is None or not self._browser.is_connected():
            return False
        try:
            session = self._browser.new_browser_cdp_session()
            session.send("Browser.getVersion")
            session.detach()
        except PlaywrightError:
            return False
        return True

    def context(self, state: Any = None) -> BrowserContext:
        """A fresh context: no cookies but those in `state` (as `storage_state` gives it)."""
        return self.browser().new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            storage_state=state,
            locale="en-US",
            timezone_id="UTC",
            accept_downloads=False,
            reduced_motion="reduce",
        )

    def close(self) -> None:
        try:
            if self._browser is not None:
                self._browser.close()
        finally:
            self._playwright.stop()


MISSING = (
    "world 'webarena' needs a Chromium: apt-get install chromium (Debian, Ubuntu), brew install --cask chromium "
    "(macOS), or set OVERNIGHT_CHROMIUM to the path of one"
)
