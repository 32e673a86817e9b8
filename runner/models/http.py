"""What models behind an HTTP API share: the key, the transport, one JSON POST, refused parameters."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import urlsplit

import orjson
from anyio import to_thread
from pydantic import Field, PrivateAttr, field_validator, model_validator

from runner.errors import CellStopped, ModelError, Transient, Unsupported
from runner.models.base import Model, Usage, Window
from runner.models.failures import classify
from runner.models.prices import listed
from runner.models.providers import TABLE, Service, at, named, service_for, windows
from runner.models.transport import HttpxTransport, Response, Transport, is_local

SEED_BITS = 0x7FFF_FFFF
"""Seeds are sent as 31 bits: some servers read 32 (llama.cpp takes 2**32 - 1 as "random")."""
CHARS_PER_TOKEN = 4
"""For estimates where a server counts nothing (English text; OpenAI's rule of thumb)."""


CONTINUE = "Go on exactly from where this text ends, without repeating any of it:\n"
"""What asks for a continuation where a last assistant turn is refused (OpenAI; Claude 4.6 and later)."""


class Answer(NamedTuple):
    """A reply's JSON object, the seconds it took, and what its headers say of limits."""

    data: dict[str, Any]
    seconds: float
    windows: tuple[Window, ...]


class HttpModel(Model):
    """Base of models behind an HTTP API. `open` before the first call, `close` after the last.

    The key is read from the environment variable `key_env` at `open` and lives in a private attribute only:
    it is in no field, no repr, no message and no file. A server on this machine gets a key only if the job
    names a variable; `key_env = ""` means that no key is needed anywhere.

    A request parameter that the server refuses is left out of all later calls of this instance; the call
    that found out raises `Unsupported`, and its caller makes it again at once. A server may refuse several,
    one after another; each is raised once.
    """

    service: str = Field(
        "", description="Whose manners it has (groq, vllm, ...; see providers.py); unset: told by base_url."
    )
    supports: dict[str, Any] = Field(
        default_factory=dict, description="Single cells of that service's row that are otherwise here."
    )
    base_url: str = Field("", description="Address of the API, up to and including the version.")
    key_env: str = Field("", description="Name of the environment variable that holds the API key.")
    headers: dict[str, str] = Field(default_factory=dict, description="Further HTTP headers.")
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the request body, sent as they are."
    )

    optional: ClassVar[Mapping[str, str]] = {}
    """Parameters that a call can do without, with the body field that carries each."""

    _transport: Transport | None = PrivateAttr(None)
    _own: bool = PrivateAttr(False)
    _key: str = PrivateAttr("")
    _refused: set[str] = PrivateAttr(default_factory=set)
    _row: Service | None = PrivateAttr(None)

    own_service: ClassVar[str] = ""
    """Whose manners such a model has wherever it is, if the job does not name another's."""

    @model_validator(mode="before")
    @classmethod
    def _as_the_service_has_it(cls, settings: Any) -> Any:
        """Address and key of a service that is named, and the key of one that is told by its address: a key
        never goes to another service than its own because a job left out one line."""
        if not isinstance(settings, dict):
            return settings
        service, base_url = settings.get("service", ""), settings.get("base_url", "")
        if not isinstance(service, str) or not isinstance(base_url, str):
            return settings  # the fields' own checks say so
        if not service and not base_url:
            return settings
        if service and service not in TABLE:
            return settings  # here, too
        row = TABLE[service] if service else at(base_url)
        if service and not base_url:
            if not row.base_url:
                raise ValueError(f"service {service!r} has no address of its own; set base_url")
            settings = {**settings, "base_url": row.base_url}
        if row.key_env is not None and "key_env" not in settings:
            settings = {**settings, "key_env": row.key_env}
        return settings

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
            raise ValueError(f"base_url must look like https://host/v1, got {value!r}")
        return value

    @field_validator("service")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return named(value).name if value else value

    @model_validator(mode="after")
    def _has_such_cells(self) -> Self:
        self._row = service_for(self.service or self.own_service, self.base_url, self.supports)
        return self

    @property
    def row(self) -> Service:
        """What the service supports, renames, refuses and charges (see providers.py)."""
        if self._row is None:  # made without being validated
            self._row = service_for(self.service or self.own_service, self.base_url, self.supports)
        return self._row

    def cost(self, usage: Usage) -> float | None:
        """What tokens cost, in USD: by the job, nothing on this machine, else the list price if there is one."""
        if self.price is not None:
            return self.price.of(usage)
        if self.row.prices == "" or is_local(urlsplit(self.base_url).hostname or ""):
            return 0.0
        return None if self.row.prices is None else listed(usage, self.model, self.row.prices)

    @property
    def identity(self) -> str:
        """The name, and the further body fields: they shape replies as the name does."""
        if not self.extra_body:
            return self.model
        return f"{self.model} {orjson.dumps(self.extra_body, option=orjson.OPT_SORT_KEYS).decode()}"

    @property
    def endpoint(self) -> str:
        """The base URL as rows and messages show it: without user, password and query."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"

    @property
    def where(self) -> str:
        """What messages call this model."""
        key = f", key from {self.key_env}" if self.key_env and self._key else ""
        return f"{self.model or 'the model'} at {self.endpoint}{key}"

    def use(self, transport: Transport) -> None:
        """Send through `transport`: a test's, or one that several models share. Its maker closes it."""
        self._transport, self._own = transport, False

    def use_key(self, key: str) -> None:
        """Send `key` instead of the environment's."""
        self._key = key

    async def open(self, cache: Path) -> None:
        """Raises `CellStopped` if the key is missing, `JobError` if a proxy setting cannot be used."""
        self._key = self._key or self._find_key()
        await to_thread.run_sync(self.cost, Usage())  # the price list is read beside the loop
        if self._transport is None:
            transport = HttpxTransport(connections=self.in_flight or self.default_in_flight)
            transport.route(self._url("/"))
            self._transport, self._own = transport, True

    async def close(self) -> None:
        transport, own = self._transport, self._own
        if own:
            self._transport = None
        if own and transport is not None:
            await transport.close()

    def _find_key(self) -> str:
        local = is_local(urlsplit(self.base_url).hostname or "")
        if not self.key_env or (local and "key_env" not in self.model_fields_set):
            return ""
        key = os.environ.get(self.key_env, "").strip()
        if not key and not local:
            raise CellStopped(
                f"{self.where}: no API key. Set the environment variable {self.key_env} "
                f"(export {self.key_env}=...), or name another one with `key_env` in the job, then resume."
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise CellStopped(
                f"{self.where}: the value of {self.key_env} has blanks or odd characters in it; set it anew."
            )
        return key

    def auth(self) -> dict[str, str]:
        """The headers that carry the key."""
        return {"authorization": f"Bearer {self._key}"} if self._key else {}

    def _url(self, path: str) -> str:
        base, _, query = self.base_url.partition("?")
        return f"{base.rstrip('/')}{path}{'?' + query if query else ''}"

    async def post(self, path: str, body: Mapping[str, Any], fixed: Collection[str] = ()) -> Answer:
        """POST `body` as JSON.

        `fixed` names the fields that the job asks for in so many words: those are never left out. Raises
        what `classify` makes of a failure, also of one inside a 200 (OpenRouter), with its `windows` set.
        """
        if self._transport is None:
            raise RuntimeError(f"{self.where}: call open() first")
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
            "user-agent": "overnight",
            **self.auth(),
            **{name.lower(): value for name, value in self.headers.items()},
        }
        began = time.monotonic()
        response = await self._transport.send(self._url(path), headers, orjson.dumps(body), self.timeout)
        seconds = time.monotonic() - began
        told = windows(response.headers, self.row, time.time())
        try:
            return Answer(self._read(response, body, fixed), seconds, told)
        except ModelError as error:
            error.windows = told
            raise

    def _read(self, response: Response, body: Mapping[str, Any], fixed: Collection[str]) -> dict[str, Any]:
        """The JSON object of a reply. Raises what a failure means."""

        def failed(status: int) -> ModelError:
            error = classify(
                status,
                response.headers,
                response.body,
                time.time(),
                where=self.where,
                secret=self._key,
                daily=self.row.daily,
            )
            error.billed = error.billed or response.status == 200
            if not isinstance(error, Unsupported) or (
                error.parameter not in fixed and self.adapt(error.parameter, body)
            ):
                return error
            advice = "Take it out of the job, or name another model, then resume."
            return CellStopped(
                f"{self.where}: `{error.parameter}` is refused. {advice} ({error})", status=error.status
            )

        if response.status != 200:
            raise failed(response.status)
        data = load_json(response.body)
        if data is None:
            start = response.body.lstrip()[:1]
            what = "a web page" if start == b"<" else "JSON that breaks off" if start == b"{" else "no JSON"
            hint = "; is base_url right?" if start != b"{" else ""
            raise Transient(f"{self.where}: answered with {what}{hint}", billed=start == b"{", status=200)
        if data.get("error"):
            raise failed(status_within(data["error"]))
        return data

    def adapt(self, parameter: str, body: Mapping[str, Any]) -> bool:
        """Leave out what the server refused in `body` from now on. False if that would change nothing."""
        if parameter == "prefill":
            messages = body.get("messages")
            if not messages or messages[-1].get("role") != "assistant":
                return False
        elif self.field_of(parameter) not in body:
            return False
        self._refused.add(parameter)
        return True

    def field_of(self, parameter: str) -> str | None:
        """The body field that carries an optional parameter."""
        return self.optional.get(parameter)

    def allows(self, parameter: str) -> bool:
        """Whether the server has not refused `parameter` yet."""
        return parameter not in self._refused

    def leave_out(self, asked: Collection[str], fixed: Collection[str] = ()) -> None:
        """Leave out, of the optional parameters that a call asks for, one that the service is known not to take
        for this model. Raises `Unsupported` for it, as if the server had said so: once each, so that what a
        run does not get is told in the same way wherever it is found out."""
        lacking = self.lacking & set(asked) - self._refused - set(fixed)
        for parameter in sorted(lacking):
            self._refused.add(parameter)
            raise Unsupported(
                f"{self.where}: {self.row.name} does not take `{parameter}` for this model. It is left out.",
                parameter,
            )

    @property
    def lacking(self) -> frozenset[str]:
        return self.row.lacks(self.model)


def in_words(messages: list[dict[str, Any]]) -> str:
    """Make of a last assistant message a user's, which asks for its continuation; returns its text, which the
    reply may repeat before it goes on."""
    prefix = str(messages.pop()["content"])
    ask = {"role": "user", "content": CONTINUE + prefix}
    if messages and messages[-1]["role"] == "user":
        ask["content"] = f"{messages.pop()['content']}\n\n{ask['content']}"
    messages.append(ask)
    return prefix


def without_prefix(text: str, prefix: str) -> str:
    """What follows `prefix` in a reply that repeats it; else the reply."""
    if prefix and text.lstrip().startswith(prefix.strip()):
        return text.lstrip().removeprefix(prefix.strip())
    return text


_STATUS_OF_WORD = (
    ("rate_limit", 429),
    ("quota", 429),
    ("overloaded", 529),
    ("authentication", 401),
    ("invalid", 400),
    ("content", 400),
)


def status_within(error: Any) -> int:
    """The status that an error object inside a 200 stands for: its code, where that is one."""
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 0
    if 400 <= number < 600:
        return number
    kind = f"{code} {error.get('type', '')}" if isinstance(error, dict) else str(error)
    for word, status in _STATUS_OF_WORD:
        if word in kind:
            return status
    return 500


def load_json(body: bytes) -> dict[str, Any] | None:
    """A reply's JSON object, or None. Takes what orjson refuses and servers send: a byte order mark, NaN,
    lone surrogates (they become U+FFFD, as no JSON reader of the output would load them)."""
    try:
        data = orjson.loads(body)
    except ValueError:
        try:
            data = _mended(json.loads(body.decode("utf-8-sig", "replace")))
        except (ValueError, RecursionError):
            return None
    return data if isinstance(data, dict) else None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value


def count(data: Any, *path: str) -> int:
    """A whole number not below 0 at `path` in nested objects; 0 where there is none."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return max(int(data), 0) if isinstance(data, int | float) and math.isfinite(data) else 0


def estimated(*texts: str) -> int:
    """About how many tokens the texts have, for servers that do not say."""
    return sum(-(-len(text) // CHARS_PER_TOKEN) for text in texts)
