"""What models behind an HTTP API share: the key, the transport, one JSON POST, refused parameters."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import orjson
from anyio import to_thread
from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from runner.batch.settings import BatchSettings
from runner.errors import CellStopped, ModelError, Transient, Unsupported
from runner.models.base import Call, Model, Reply, Request, Usage, Window
from runner.models.bodies import CHARS_PER_TOKEN, error_within, event_error, load_json, status_within
from runner.models.endpoint import Endpoint, address, addresses, variable
from runner.models.failures import LEFT_OUT, classify
from runner.models.native import usual_transport
from runner.models.prices import listed
from runner.models.providers import TABLE, Service, at, named, service_for
from runner.models.told import windows
from runner.models.transport import CONNECT_TIMEOUT, Response, Transport, httpx_transport, is_local
from runner.models.wire import Answer, Prepared, Wire

SECRET = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
"""Headers that carry keys, which no job file may hold."""
SEED_BITS = 0x7FFF_FFFF
"""Seeds are sent as 31 bits: some servers read 32 (llama.cpp takes 2**32 - 1 as "random")."""


class HttpModel(Model):
    """Base of models behind an HTTP API. `open` before the first call, `close` after the last.

    The key is read from the environment variable `key_env` at `open` and lives in a private attribute only:
    it is in no field, no repr, no message and no file. A server on this machine gets a key only if the job
    names a variable; `key_env = ""` means that no key is needed anywhere.

    A request parameter that the server refuses is left out of all later calls of this instance; the call
    that found out raises `Unsupported`, and its caller makes it again at once. A server may refuse several,
    one after another; each is raised once.

    With `endpoints`, the model is all of them: `lines` are what is called, each with its own key, connections
    and refusals; `open` and `close` reach all. Its identity, and so every request's hash, is the same wherever
    it is answered. A call of the model itself goes to the first.
    """

    service: str = Field(
        "", description="Whose manners it has (groq, vllm, ...; see providers.py); unset: told by base_url."
    )
    supports: dict[str, Any] = Field(
        default_factory=dict, description="Single cells of that service's row that are otherwise here."
    )
    base_url: str = Field("", description="Address of the API, up to and including the version.")
    key_env: str = Field("", description="Name of the environment variable that holds the API key.")
    endpoints: list[Endpoint] = Field(
        default_factory=list,
        description="Several addresses or keys of this model, each with limits of its own: "
        "[{base_url = '...', key_env = '...', weight = 2}, ...].",
    )
    headers: dict[str, str] = Field(default_factory=dict, description="Further HTTP headers.")
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the request body, sent as they are."
    )

    connect_timeout: float = Field(
        CONNECT_TIMEOUT, gt=0, description="Seconds to reach the server; one that takes longer is down."
    )
    first_byte: float | None = Field(
        None,
        gt=0,
        description="Seconds until a reply must begin; unset: as `timeout`, as most servers say nothing before "
        "the whole reply is there.",
    )
    transport: Literal["native", "httpx"] = Field(
        "native",
        description="`httpx` for its proxies and quirks; `native` (pyreqwest) takes a tenth of the CPU.",
    )
    prompt_cache: bool = Field(
        True,
        description="Of several calls with one long prompt, the first goes alone, so that the others find the "
        "prompt in the provider's cache.",
    )
    mode: Literal["direct", "batch"] = Field(
        "direct", description="`batch`: by the provider's batch API, at half the price, within a day."
    )
    batch: BatchSettings = Field(default_factory=BatchSettings, description="How `mode = 'batch'` sends.")

    batches: ClassVar[Literal["", "openai", "anthropic"]] = ""
    """Whose batch API it has, if it has one."""
    optional: ClassVar[Mapping[str, str]] = {}
    """Parameters that a call can do without, with the body field that carries each."""

    @cached_property
    def wire(self) -> Wire:
        """What it holds once it is open."""
        return Wire()

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
        every = addresses(settings.get("endpoints"))
        if not base_url and every and all(every):  # a list of addresses needs no other one beside it
            base_url = every[0]
            settings = {**settings, "base_url": base_url}
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
        return address(value)

    @field_validator("key_env")
    @classmethod
    def _is_variable(cls, value: str) -> str:
        return variable(value)

    @field_validator("headers")
    @classmethod
    def _hold_no_key(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name.lower() in SECRET:
                raise ValueError(
                    f"header {name!r} would be written to the run's files; use key_env for the key"
                )
        return value

    @field_validator("service")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return named(value).name if value else value

    @model_validator(mode="after")
    def _has_such_cells(self) -> Self:
        _ = self.row
        if self.mode == "batch" and not self.batches:
            raise ValueError(f"mode 'batch': provider {self.provider!r} has no batches")
        if self.mode == "batch" and self.endpoints:
            raise ValueError("mode 'batch' takes one base_url, no endpoints: a batch lives at one place")
        return self

    @cached_property
    def row(self) -> Service:
        """What the service supports, renames, refuses and charges (see providers.py)."""
        return service_for(self.service or self.own_service, self.base_url, self.supports)

    @cached_property
    def telling(self) -> frozenset[str]:
        """The headers that tell of limits."""
        return frozenset(name for told in self.row.told for name in (told.limit, told.remaining))

    @property
    def charges_max_tokens(self) -> bool:
        return self.row.reserves_max_tokens

    @property
    def charges_cached(self) -> bool:
        return self.row.counts_cached

    @property
    def charges_output(self) -> bool:
        return self.row.counts_output

    def warms(self, request: Request) -> bool:
        least = self.row.caches_from
        if least is None or not self.prompt_cache or self.mode == "batch":
            return False
        return request.characters >= least * CHARS_PER_TOKEN

    def cost(self, usage: Usage) -> float | None:
        """What tokens cost, in USD: by the job, nothing on this machine, else the list price if there is one;
        of it the batch's share in batch mode."""
        cost = self._standard_cost(usage)
        return cost if cost is None or self.mode == "direct" else cost * self.batch.factor

    def _standard_cost(self, usage: Usage) -> float | None:
        if self.price is not None:
            return self.price.of(usage)
        if self.endpoints:
            costs = [line.cost(usage) for line, _ in self.lines()]
            return None if None in costs else max(cost for cost in costs if cost is not None)
        if self.row.prices == "" or is_local(urlsplit(self.base_url).hostname or ""):
            return 0.0
        return None if self.row.prices is None else listed(usage, self.model, self.row.prices)

    @property
    def identity(self) -> str:
        """The name, and the further body fields: they shape replies as the name does."""
        if not self.extra_body:
            return self.model
        return f"{self.model} {orjson.dumps(self.extra_body, option=orjson.OPT_SORT_KEYS).decode()}"

    @cached_property
    def endpoint(self) -> str:
        """What answers, as rows show it: its address, and its key's variable where several share that."""
        return f"{self.address} ({self.key_env})" if self.wire.apart else self.address

    @property
    def address(self) -> str:
        """The base URL as rows and messages show it: without user, password and query."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"

    @property
    def where(self) -> str:
        """What messages call this model."""
        key = ""
        if self.key_env and self.wire.key:
            key = f", key from {self.key_env}"
        elif self.key_env and "key_env" in self.model_fields_set:
            key = f", without a key as {self.key_env} is not set"
        return f"{self.model or 'the model'} at {self.address}{key}"

    def use(self, transport: Transport) -> None:
        """Send through `transport`: a test's, or one that several models share. Its maker closes it."""
        self.wire.transport, self.wire.own = transport, False
        self.wire.lines.clear()

    def use_key(self, key: str) -> None:
        """Send `key` instead of the environment's."""
        self.wire.key = key
        self.wire.headers = {}
        self.wire.lines.clear()

    def lines(self) -> Sequence[tuple[Model, float]]:
        if not self.endpoints:
            return [(self, 1.0)]
        if not self.wire.lines:
            lines = [self._at(endpoint) for endpoint in self.endpoints]
            shared = Counter(line.address for line in lines)
            for line in lines:
                line.wire.apart = shared[line.address] > 1 and bool(line.key_env)
            self.wire.lines = [(line, each.weight) for line, each in zip(lines, self.endpoints, strict=True)]
        return self.wire.lines

    def _at(self, endpoint: Endpoint) -> HttpModel:
        """The same model at one endpoint. A key that is this address's own stays here."""
        settings = {name: getattr(self, name) for name in self.model_fields_set - {"endpoints"}}
        if endpoint.base_url is not None:
            settings["base_url"] = endpoint.base_url
            usual = (
                TABLE[self.service or self.own_service]
                if self.service or self.own_service
                else at(self.base_url)
            )
            if at(endpoint.base_url) is not at(self.base_url) and self.key_env == usual.key_env:
                settings.pop("key_env", None)
        if endpoint.key_env is not None:
            settings["key_env"] = endpoint.key_env
        line = type(self).model_validate(settings)
        if self.wire.transport is not None:
            line.use(self.wire.transport)
        if self.wire.key:
            line.use_key(self.wire.key)
        return line

    async def open(self, cache: Path) -> None:
        """Raises `CellStopped` if the key is missing, `JobError` if a proxy setting cannot be used."""
        if self.endpoints:
            for line, _ in self.lines():
                await line.open(cache)
            return
        self.wire.key = self.wire.key or self._find_key()
        self.wire.headers = {}
        await to_thread.run_sync(self.cost, Usage())  # the price list is read beside the loop
        if self.wire.transport is None and self.mode == "direct":
            make = usual_transport if self.transport == "native" else httpx_transport
            self.wire.transport = make(
                self.url("/"), connect_timeout=self.connect_timeout, first_byte=self.first_byte
            )
            self.wire.own = True

    async def close(self) -> None:
        if self.endpoints:
            async with AsyncExitStack() as stack:  # all of them, whatever one of them raises
                for line, _ in self.lines():
                    stack.push_async_callback(line.close)
            return
        transport, own = self.wire.transport, self.wire.own
        if own:
            self.wire.transport = None
        if own and transport is not None:
            await transport.close()

    def _find_key(self) -> str:
        local = is_local(urlsplit(self.base_url).hostname or "")
        if not self.key_env or (local and "key_env" not in self.model_fields_set):
            return ""
        key = os.environ.get(self.key_env, "").strip()
        place = f"{self.model or 'the model'} at {self.address}"
        if not key and not local:
            raise CellStopped(
                f"{place}: no API key. Set the environment variable {self.key_env} "
                f"(export {self.key_env}=...), or name another one with `key_env` in the job, then resume."
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise CellStopped(
                f"{place}: the value of {self.key_env} has blanks or odd characters in it; set it anew."
            )
        return key

    def auth(self) -> dict[str, str]:
        """The headers that carry the key."""
        return {"authorization": f"Bearer {self.wire.key}"} if self.wire.key else {}

    def own_headers(self) -> dict[str, str]:
        """What every request carries: the key, and the job's own headers."""
        return {
            "accept-encoding": "gzip, deflate",
            "user-agent": "overnight",
            **self.auth(),
            **{name.lower(): value for name, value in self.headers.items()},
        }

    def url(self, path: str) -> str:
        """The address of a path below the base URL."""
        known = self.wire.urls
        if path not in known:
            base, _, query = self.base_url.partition("?")
            known[path] = f"{base.rstrip('/')}{path}{'?' + query if query else ''}"
        return known[path]

    def prepare(self, call: Call) -> Prepared:
        """What to send for a call. Raises `Unsupported` for a parameter that the service is known to refuse (once
        each; it is left out from then on), `CellStopped` for what it can never do."""
        raise NotImplementedError

    def reply(self, data: Mapping[str, Any], call: Call, sent: Mapping[str, Any]) -> Reply:
        """The reply that a body with status 200 is, `sent` being what `prepare` gave for the call. Raises
        `Transient` where there is nothing in it."""
        raise NotImplementedError

    async def call(self, call: Call) -> Reply:
        if self.endpoints:
            return await self.lines()[0][0].call(call)
        asked = self.prepare(call)
        data, seconds, windows = await self.post(asked.path, asked.body, fixed=asked.fixed)
        try:
            reply = self.reply(data, call, asked.sent)
        except ModelError as error:
            error.windows = windows
            raise
        reply.seconds, reply.windows = seconds, windows
        return reply

    async def post(self, path: str, body: Mapping[str, Any], fixed: Collection[str] = ()) -> Answer:
        """POST `body` as JSON.

        `fixed` names the fields that the job asks for in so many words: those are never left out. Raises
        what `classify` makes of a failure, also of one inside a 200 (OpenRouter), with its `windows` set.
        """
        wire = self.wire
        if wire.transport is None:
            raise RuntimeError(f"{self.where}: call open() first")
        headers = wire.headers
        if not headers:
            json = {"content-type": "application/json", "accept": "application/json"}
            headers = wire.headers = {**json, **self.own_headers()}
        began = time.monotonic()
        response = await wire.transport.send(self.url(path), headers, orjson.dumps(body), self.timeout)
        seconds = time.monotonic() - began
        told: tuple[Window, ...] = ()
        if not self.telling.isdisjoint(response.headers):
            told = windows(response.headers, self.row.told, time.time())
        try:
            return Answer(self.read(response, body, fixed), seconds, told)
        except ModelError as error:
            error.windows = told
            raise

    def read(
        self, response: Response, body: Mapping[str, Any], fixed: Collection[str] = ()
    ) -> dict[str, Any]:
        """The JSON object of a reply to `body`. Raises what a failure means (see `post`)."""

        def failed(status: int, said: bytes = response.body) -> ModelError:
            error = classify(
                status,
                response.headers,
                said,
                time.time(),
                where=self.where,
                secret=self.wire.key,
                daily=self.row.daily,
                asked=body.keys(),
            )
            error.billed = error.billed or response.status == 200
            if not isinstance(error, Unsupported) or (
                error.parameter not in fixed and self.adapt(error.parameter, body)
            ):
                return error
            advice = "Take it out of the job, or name another model, then resume."
            return CellStopped(
                f"{self.where}: `{error.parameter}` is refused. {advice} ({str(error).removesuffix(LEFT_OUT)})",
                status=error.status,
            )

        if response.status != 200:
            raise failed(response.status)
        data = load_json(response.body)
        if data is None:
            start = response.body.lstrip()[:5]
            if start in (b"event", b"data:"):
                if (data := event_error(response.body)) is not None:
                    raise failed(status_within(error_within(data)), orjson.dumps(data))
                raise Transient(f"{self.where}: answered with an event stream", billed=True, status=200)
            if start.startswith(b"{"):
                raise Transient(f"{self.where}: answered with JSON that breaks off", billed=True, status=200)
            what = "a web page" if start.startswith(b"<") else "no JSON"
            raise Transient(f"{self.where}: answered with {what}; is base_url right?", status=200)
        if (error := error_within(data)) is not None:
            raise failed(status_within(error))
        return data

    def adapt(self, parameter: str, body: Mapping[str, Any]) -> bool:
        """Leave out what the server refused in `body` from now on. False if that would change nothing."""
        if parameter == "prefill":
            messages = body.get("messages")
            if not messages or messages[-1].get("role") != "assistant":
                return False
        elif self.field_of(parameter) not in body:
            return False
        self.wire.refuse(parameter)
        return True

    def field_of(self, parameter: str) -> str | None:
        """The body field that carries an optional parameter."""
        return self.optional.get(parameter)

    def allows(self, parameter: str) -> bool:
        """Whether the server has not refused `parameter` yet."""
        return parameter not in self.wire.refused

    def leave_out(self, asked: Collection[str], fixed: Collection[str] = ()) -> None:
        """Leave out, of the optional parameters that a call asks for, one that the service is known not to take
        for this model. Raises `Unsupported` for it, as if the server had said so: once each, so that what a
        run does not get is told in the same way wherever it is found out."""
        lacking = self.lacking & set(asked) - self.wire.refused - set(fixed)
        for parameter in sorted(lacking):
            self.wire.refuse(parameter)
            raise Unsupported(
                f"{self.where}: {self.row.name} does not take `{parameter}` for this model.{LEFT_OUT}",
                parameter,
            )

    @cached_property
    def lacking(self) -> frozenset[str]:
        return self.row.lacks(self.model)
