"""The narrow seam under every HTTP model: bytes go out, bytes come back, or a classed failure is raised."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

from runner.errors import Transient

if TYPE_CHECKING:
    from runner.models.lanes import HttpxTransport

CONNECT_TIMEOUT = 10.0
"""Seconds to reach a server; a host that takes longer is down."""
KEEP_ALIVE = 4.0
"""Seconds an unused connection is kept. uvicorn (vLLM, SGLang) closes them after 5, and a call sent on a
connection that is just being closed would count as a possible double spend."""
MAX_BODY = 256 * 2**20
"""Bytes of a reply, unpacked. The largest honest ones (128 choices with log-probabilities) stay far below."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers (names in lower case) and the whole unpacked body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """What a model needs of HTTP. `timeout`: seconds for the whole call, connecting and reading included."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """POST `body`. Any status is a response; raises `Transient` when none came in time, with
        `billed=True` if the server may have worked on the request."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


def no_reply_begun(url: str, seconds: float) -> Transient:
    """Of a server that was reached and said nothing for too long."""
    return Transient(f"{shown(url)}: no reply began within {seconds:g} s", billed=True)


def httpx_transport(
    url: str, *, connect_timeout: float = CONNECT_TIMEOUT, first_byte: float | None = None
) -> HttpxTransport:
    """Calls to an address by httpx. Raises JobError for a proxy setting that cannot be used."""
    from runner.models.lanes import HttpxTransport  # 0.1 s of CPU, which most runs can do without

    transport = HttpxTransport(connect_timeout=connect_timeout, first_byte=first_byte)
    transport.route(url)
    return transport


def shown(url: str) -> str:
    """A URL as messages show it: without what may be secret (user, password, query)."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", url).split("?", 1)[0]


def is_local(host: str) -> bool:
    """Whether `host` is this machine: localhost, 127.0.0.0/8, ::1."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> tuple[str, str]:
    """The environment variable that names a proxy for `url`, and the proxy; ("", "") for a direct way."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or is_local(host):
        return "", ""
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _bypassed(host, proxies):
        return "", ""
    kind = parts.scheme if proxies.get(parts.scheme) else "all"
    names = [key for key in os.environ if key.lower() == f"{kind}_proxy" and os.environ[key]]
    return max(names, key=str.islower, default=""), proxy if "://" in proxy else f"http://{proxy}"


def _bypassed(host: str, proxies: Mapping[str, str]) -> bool:
    """Whether NO_PROXY exempts `host`: `*`, a name and all below it, an address, a network (10.0.0.0/8).
    Whatever else stands there exempts nothing and breaks nothing (encode/httpx#2659)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for entry in proxies.get("no", "").lower().split(","):
        name = entry.strip()
        if name == "*":
            return True
        if address is not None:
            try:
                if address in ipaddress.ip_network(name.strip("[]"), strict=False):
                    return True
            except ValueError:
                pass
        name = name.partition(":")[0].removeprefix("*").lstrip(".")
        if name and (host == name or host.endswith("." + name)):
            return True
    return False
