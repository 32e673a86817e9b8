"""The shop on a port of this machine, with an account of its own for each episode, told apart by a cookie."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from envs.webarena.shop.account import Account, account
from envs.webarena.shop.site import answer
from envs.webarena.shop.stock import stock

COOKIE = "episode"
"""Names the episode whose shop it is."""
MOST_BODY = 1 << 20


class ShopServer:
    """The shop, served from threads. `begin` makes an episode's account, `end` forgets it."""

    def __init__(self, seed: int, port: int = 0) -> None:
        self.seed = seed
        self._stock = stock(seed)
        self._accounts: dict[str, Account] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self._answer))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.server_address[1])

    def begin(self, episode: str) -> Account:
        """A fresh account."""
        made = self._accounts[episode] = account(self._stock, self.seed)
        return made

    def end(self, episode: str) -> None:
        """Forget an episode's account."""
        self._accounts.pop(episode, None)

    def _answer(self, episode: str, method: str, target: str, body: bytes) -> Any:
        with self._lock:
            found = self._accounts.get(episode) or self.begin(episode)
            return answer(found, method, target, body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(respond: Callable[[str, str, str, bytes], Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = min(int(self.headers.get("content-length") or 0), MOST_BODY)
            body = self.rfile.read(length) if length else b""
            cookie = SimpleCookie(self.headers.get("cookie", "")).get(COOKIE)
            found = respond(cookie.value if cookie else "", self.command, self.path, body)
            self.send_response(found.status)
            if found.location:
                self.send_header("location", found.location)
            self.send_header("content-type", found.kind)
            self.send_header("content-length", str(len(found.body)))
            self.send_header("cache-control", "no-store")
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_POST = _serve

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
