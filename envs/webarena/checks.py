"""Whether the shop is in the state that a task asks for: WebArena's `url_match` and `program_html`, in the browser."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from playwright.sync_api import Error as PlaywrightError

from envs.base import WorldError
from envs.webarena.browser import Refused, Tabs
from envs.webarena.strings import cleaned, includes, url_score
from envs.webarena.tasks import SHOPPING, Check, checks

LAST = "last"
_FUNCTION = re.compile(r"func:(\w+)\((.*)\)", re.DOTALL)


class Rest:
    """The REST calls that evaluators make of a Magento shop, as an administrator."""

    def __init__(
        self, address: str, user: str, password: str, cookies: Mapping[str, str] | None = None
    ) -> None:
        self.address = address.rstrip("/")
        self._client = httpx.Client(base_url=self.address, cookies=dict(cookies or {}), timeout=30.0)
        self._user, self._password = user, password
        self._token = ""

    def _get(self, path: str, **query: str) -> Any:
        try:
            if not self._token:
                asked = {"username": self._user, "password": self._password}
                reply = self._client.post("/rest/default/V1/integration/admin/token", json=asked)
                reply.raise_for_status()
                self._token = str(reply.json())
            reply = self._client.get(path, params=query, headers={"authorization": f"Bearer {self._token}"})
            reply.raise_for_status()
            return reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise WorldError(
                f"{self.address}{path}: the shop's REST interface, which tells whether the task is done, failed: "
                f"{type(error).__name__}: {str(error).splitlines()[0]}. Check `admin` and `admin_password_env`."
            ) from error

    def latest_order(self) -> str:
        """The path of the newest order's page."""
        order = {"field": "created_at", "direction": "DESC"}
        query = {f"searchCriteria[sortOrders][0][{name}]": value for name, value in order.items()}
        items = self._get("/rest/V1/orders", **query, **{"searchCriteria[pageSize]": "1"})["items"]
        return (
            f"/sales/order/view/order_id/{int(items[0]['increment_id'])}/"
            if items
            else "/sales/order/history/"
        )

    def latest_review(self, sku: str) -> Mapping[str, Any]:
        """The latest review of a product; {} without one."""
        found = self._get(f"/rest/V1/products/{sku}/reviews")
        return found[-1] if found else {}

    def close(self) -> None:
        self._client.close()


def page_score(judged: Mapping[str, Any], tabs: Tabs, rest: Rest, shop: str) -> bool:
    """Whether the tabs, as an episode leaves them, and the shop are as a task wants them; True where it asks for
    neither. `shop` is the address for which `__SHOPPING__` stands. Goes to other pages."""
    kinds = judged["eval_types"]
    if "url_match" in kinds and not url_score(judged["reference_url"].replace(SHOPPING, shop), tabs.page.url):
        return False
    if "program_html" not in kinds:
        return True
    last = tabs.page.url
    return all(_holds(check, tabs, rest, shop, last) for check in checks(judged))


def _holds(check: Check, tabs: Tabs, rest: Rest, shop: str, last: str) -> bool:
    url = check.url
    if url.startswith("func:"):
        url = shop + rest.latest_order() if "shopping_get_latest_order_url" in url else _unknown(url)
    url = url.replace(SHOPPING, shop).replace("__last_url__", last)
    if url != LAST:
        try:
            tabs.open(url)
        except Refused:
            return False
    found = html.unescape(_located(check.locator, tabs, rest))
    if check.exact is not None and cleaned(check.exact) != cleaned(found):
        return False
    return all(includes(each, found) for each in check.include)


def _located(locator: str, tabs: Tabs, rest: Rest) -> str:
    locator = locator.strip()
    if not locator:
        return tabs.page.content()
    if locator.startswith("func:"):
        found = _FUNCTION.fullmatch(locator)
        if found is None or found[1] not in _FUNCTIONS:
            return _unknown(locator)
        return _FUNCTIONS[found[1]](found[2].strip().strip("'\""), rest)
    try:
        text = tabs.page.evaluate(f"() => {locator}")
    except PlaywrightError:  # nothing there of what it looks for
        return ""
    return "" if text is None else str(text)


def _rating(sku: str, rest: Rest) -> str:
    ratings = rest.latest_review(sku).get("ratings") or [{}]
    return str(ratings[0].get("percent", ""))


def _author(sku: str, rest: Rest) -> str:
    return str(rest.latest_review(sku).get("nickname", ""))


_FUNCTIONS: Mapping[str, Callable[[str, Rest], str]] = {
    "shopping_get_sku_latest_review_rating": _rating,
    "shopping_get_sku_latest_review_author": _author,
}


def _unknown(text: str) -> str:
    raise WorldError(f"program_html: no function {text!r:.80} is known; is the task of another site?")
