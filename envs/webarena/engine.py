"""WebArena's engine in a worker process: one browser, a context for each episode, and perhaps our own shop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Error as PlaywrightError

from envs.base import WorldError
from envs.webarena.actions import Unreadable, read_action
from envs.webarena.browser import Refused, Tabs
from envs.webarena.checks import Rest, page_score
from envs.webarena.chromium import Chromium
from envs.webarena.shop.server import COOKIE, ShopServer
from envs.webarena.tasks import AND, SHOPPING

OWN = "http://shop.test"
"""Our shop's address, whatever its port: so what is seen is the same everywhere."""
LOST = 70
"""The exit status of a worker whose browser is gone: another worker takes over its episodes."""


class WebArenaEngine:
    """See `envs.hosting`. A task is `{"start_url", "eval"}`. `shop` is the address of a shop; unset: our own, made from
    `seed`. `login`: {user, password} of the shop's customer, `admin` that of its REST interface."""

    many = True

    def __init__(
        self,
        *,
        shop: str,
        seed: int,
        page_seconds: float,
        most: int,
        whole: bool,
        login: Mapping[str, str] | None = None,
        admin: Mapping[str, str] | None = None,
    ) -> None:
        self._server = None if shop else ShopServer(seed)
        self.shop = shop.rstrip("/") or OWN
        self._seconds, self._most, self._whole = page_seconds, most, whole
        self._admin = dict(admin or {"user": "", "password": ""})
        hosts = {} if self._server is None else {f"{OWN.split('//')[1]}:80": f"127.0.0.1:{self._server.port}"}
        self._chromium = Chromium(hosts)
        self._tabs: dict[str, Tabs] = {}
        self._tasks: dict[str, Mapping[str, Any]] = {}
        try:
            self._chromium.browser()
            self._state = self._logged_in(login) if login and login.get("user") else None
        except BaseException:
            self.close()
            raise

    def _logged_in(self, login: Mapping[str, str]) -> Any:
        """The cookies of a customer who has logged in. Raises WorldError where that does not work."""
        context = self._chromium.context()
        try:
            page = context.new_page()
            page.goto(f"{self.shop}/customer/account/login/", timeout=self._seconds * 1000)
            page.fill("#email", login["user"])
            page.fill("#pass", login["password"])
            page.click("#send2")
            page.wait_for_url("**/customer/account/**", timeout=self._seconds * 1000)
            if page.url.rstrip("/").endswith("/login"):
                raise WorldError(
                    f"{self.shop}: the shop does not let {login['user']} in; check `user` and the password"
                )
            return context.storage_state()
        except PlaywrightError as error:
            raise WorldError(f"{self.shop}: logging in failed: {str(error).splitlines()[0]}") from error
        finally:
            context.close()

    def begin(self, episode: str, task: Mapping[str, Any]) -> str:
        """Open the pages that the task begins with; the first observation."""
        try:
            return self._begun(episode, task)
        except (PlaywrightError, WorldError):
            self._leave_if_lost()
            raise

    def _begun(self, episode: str, task: Mapping[str, Any]) -> str:
        self.end(episode)
        context = self._chromium.context(self._state)
        if self._server is not None:
            self._server.begin(episode)
            context.add_cookies([{"name": COOKIE, "value": episode, "url": OWN}])
        tabs = Tabs(context, seconds=self._seconds, most=self._most, whole=self._whole)
        self._tabs[episode], self._tasks[episode] = tabs, task
        addresses = [
            each.strip().replace(SHOPPING, self.shop) for each in task["start_url"].split(AND.strip())
        ]
        try:
            tabs.open_all(addresses)
        except Refused as error:
            self.end(episode)
            raise WorldError(f"{error}; is the shop up?") from error
        return tabs.seen()

    def step(self, episode: str, line: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Take an action. After `stop` the shop is judged: the reward is 1 where it is as the task wants it."""
        tabs = self._tabs[episode]
        try:
            action = read_action(line)
            if action.verb == "stop":
                return "", self._judged(episode), True, {}
            tabs.do(action)
            return tabs.seen(), 0.0, False, {}
        except (Unreadable, Refused) as error:
            self._leave_if_lost()
            return f"(not done: {error})\n{tabs.seen()}", 0.0, False, {}
        except PlaywrightError:
            self._leave_if_lost()
            raise

    def _leave_if_lost(self) -> None:
        """End this process where its browser has ended. Asked wherever something failed, as that may be why."""
        if not self._chromium.browser_lives:
            os._exit(LOST)

    def _judged(self, episode: str) -> float:
        cookies = {} if self._server is None else {COOKIE: episode}
        address = self.shop if self._server is None else f"http://127.0.0.1:{self._server.port}"
        rest = Rest(address, self._admin["user"], self._admin["password"], cookies)
        try:
            return float(page_score(self._tasks[episode]["eval"], self._tabs[episode], rest, self.shop))
        finally:
            rest.close()
            self._leave_if_lost()

    def end(self, episode: str) -> None:
        tabs = self._tabs.pop(episode, None)
        self._tasks.pop(episode, None)
        if self._server is not None:
            self._server.end(episode)
        if tabs is not None:
            try:
                tabs.close()
            except PlaywrightError:
                self._leave_if_lost()

    def close(self) -> None:
        try:
            self._chromium.close()
        finally:
            if self._server is not None:
                self._server.close()
