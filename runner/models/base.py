"""What a model is: something that answers a request with n choices.

`Request` is what is asked and has the hash that is its identity; `Call` is one attempt at some of its
draws; `Reply` is what came back. A `Model` makes one attempt and classes its failure; waiting, retrying and
limits are its callers' business (`gate.py`, `passage.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field

from runner.jsonl import clean_text
from runner.models.prices import Price

HASH_VERSION = 1
"""Part of every request hash; changes when what is hashed does."""

Kind: TypeAlias = Literal["completion", "chat"]
Finish: TypeAlias = Literal["stop", "length", "filter", "refusal", "other"]


class Text:
    """A long text made of parts, extended without copying: a prompt and what an episode adds to it.

    Parts are what the ledger stores once each. Two texts are equal when their joined strings are; how they
    are cut makes no difference to a request's hash.
    """

    __slots__ = ("_names", "_sha", "parts")

    def __init__(self, *parts: str) -> None:
        self.parts: tuple[str, ...] = tuple(clean_text(p) for p in parts if p)
        self._names: tuple[str, ...] = ()
        self._sha = hashlib.sha256()
        for part in self.parts:
            self._sha.update(part.encode())

    def __add__(self, more: str) -> Text:
        if not more:
            return self
        try:
            data = more.encode()
        except UnicodeEncodeError:
            more = clean_text(more)
            data = more.encode()
        new = Text.__new__(Text)
        new.parts = (*self.parts, more)
        new._names = self.names
        new._sha = self._sha.copy()
        new._sha.update(data)
        return new

    def __str__(self) -> str:
        return "".join(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.sha == other.sha

    def __hash__(self) -> int:
        return hash(self.sha)

    def __repr__(self) -> str:
        return f"Text({str(self)!r})"

    @property
    def names(self) -> tuple[str, ...]:
        """The parts' names by content, 16 hex digits each; those of a text that was extended are made once."""
        names = self._names
        if len(names) < len(self.parts):
            names = self._names = names + tuple(map(part_name, self.parts[len(names) :]))
        return names

    @property
    def sha(self) -> str:
        """Hex SHA-256 of the joined text as UTF-8."""
        return self._sha.hexdigest()


@lru_cache(maxsize=1024)
def part_name(text: str) -> str:
    """What a text is called wherever it is stored once: 16 hex digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# What is made for each call is not frozen: that makes it several times dearer to make. Nobody changes it all the same.
@dataclass(slots=True, unsafe_hash=True)
class Turn:
    """One message: role `prompt` (raw completion), `system`, `user` or `assistant`, and its text."""

    role: str
    text: Text


@dataclass(frozen=True)
class Params:
    """Requested sampling parameters. What a provider refuses is left out of what is sent, not of this."""

    temperature: float = 0.0
    max_tokens: int = 256
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    extra: tuple[tuple[str, Any], ...] = ()
    """Further provider fields, sent as they are (e.g. reasoning_effort)."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Params:
        """The parameters of which `as_dict` gave these values."""
        own = ("temperature", "max_tokens", "top_p", "logprobs")
        extra = tuple((name, value) for name, value in plain.items() if name not in (*own, "stop"))
        return cls(
            **{name: plain[name] for name in own if name in plain},
            stop=tuple(plain.get("stop", ())),
            extra=extra,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, without those that were left at None."""
        out: dict[str, Any] = {"temperature": float(self.temperature), "max_tokens": self.max_tokens}
        if self.top_p is not None:
            out["top_p"] = self.top_p
        if self.stop:
            out["stop"] = list(self.stop)
        if self.logprobs:
            out["logprobs"] = True
        out.update(dict(self.extra))
        return out


@dataclass(unsafe_hash=True)
class Request:
    """What is asked of a model. Draws are counted per (scope, `hash`).

    The hash covers its own version, the model's identity, the rendered turns and the requested parameters;
    never URL, key, n, seed, draw index, time-outs or cache hints.
    """

    model: str
    """Identity of the model: its name; for a GGUF file, its SHA-256."""
    turns: tuple[Turn, ...]
    params: Params

    @cached_property
    def hash(self) -> str:
        """32 hex characters."""
        what = [
            HASH_VERSION,
            self.model,
            [[turn.role, turn.text.sha] for turn in self.turns],
            self.params.as_dict(),
        ]
        return hashlib.sha256(orjson.dumps(what, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]

    @property
    def kind(self) -> Kind:
        return "completion" if self.turns[0].role == "prompt" else "chat"

    @cached_property
    def characters(self) -> int:
        """Length of all turns' text."""
        return sum(len(part) for turn in self.turns for part in turn.text.parts)

    @property
    def prompt(self) -> str:
        """All turns as one string, for people and for replaying."""
        return "\n\n".join(str(turn.text) for turn in self.turns)


@dataclass(slots=True, unsafe_hash=True)
class Call:
    """One attempt: `n` draws of `request`, of which the first has index `first` within `scope`."""

    request: Request
    n: int = 1
    seed: int | None = None
    scope: str = ""
    first: int = 0
    shared: bool = False
    """Whether further calls with the same prompt follow at once, so that the provider's cache is worth writing."""


@dataclass(slots=True, unsafe_hash=True)
class Usage:
    """Tokens of one reply or a sum of them; `calls` counts replies. Of the prompt's, `cached` were read from the
    provider's cache and `written` put into it; `reasoning` is part of `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    calls: int = 0
    written: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.calls + other.calls,
            self.written + other.written,
        )

    def as_dict(self) -> dict[str, int]:
        return {
            "prompt": self.prompt,
            "completion": self.completion,
            "cached": self.cached,
            "reasoning": self.reasoning,
            "calls": self.calls,
            "written": self.written,
        }


@dataclass(slots=True, unsafe_hash=True)
class Choice:
    """One draw of a reply: the text up to the first stop string, and why it ended.

    `reasoning` holds a reasoning model's own thoughts, never mixed into `text`. `tokens` is the number of
    generated tokens, if the server counts them per choice.
    """

    text: str
    finish: Finish = "stop"
    reasoning: str | None = None
    logprobs: tuple[float, ...] | None = None
    tokens: int | None = None


Counted: TypeAlias = Literal["requests", "tokens", "input_tokens", "output_tokens"]


@dataclass(frozen=True, slots=True)
class Window:
    """What a provider says of one of its limits: at most `limit` of `counted` in any `seconds`, of which
    `remaining` are left, and in `reset` seconds all of them are. None where it does not say."""

    counted: Counted
    seconds: float = 60.0
    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None


@dataclass(slots=True, unsafe_hash=True)
class Reply:
    """What came back for a call. `choices` may be fewer than asked for; the sampler tops up.

    `sent` are the parameters that really went out (after a provider's refusals); `endpoint` is the base URL
    or the name of what answered.
    """

    choices: Sequence[Choice]
    usage: Usage = field(default_factory=Usage)
    sent: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str = ""
    provider_id: str | None = None
    seconds: float = 0.0
    waited: float = 0.0
    cost_usd: float | None = None
    windows: tuple[Window, ...] = ()
    """The provider's limits as this reply's headers tell them."""
    batch: str | None = None
    """The batch by which it came, if it did."""

    def settled(self, seconds: float, waited: float, endpoint: str, cost_usd: float | None) -> Reply:
        """The same reply as it is kept: with the times of all its tries, what answered, and its price."""
        return Reply(
            self.choices, self.usage, self.sent, endpoint, self.provider_id, seconds, waited, cost_usd,
            self.windows, self.batch,
        )  # fmt: skip


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the earliest stop string, and whether there was one. Applied to every reply on our
    side too, since servers ignore stops, cap their number, or leave the string in."""
    at = min((k for stop in stops if stop and (k := text.find(stop)) >= 0), default=-1)
    return (text, False) if at < 0 else (text[:at], True)


class Model(BaseModel):
    """Base of all models. Settings of a job's `[models.NAME]` table become fields of the subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    provider: ClassVar[str]
    """The word used in job files."""

    model: str = Field("", description="The provider's name of the model.")
    api: Literal["completions", "chat"] = Field(
        "chat", description="Raw prompts (`completions`) or messages (`chat`)."
    )
    temperature: float | None = Field(
        None, ge=0, description="Overrides every method's temperature, where set."
    )
    max_tokens: int | None = Field(
        None, gt=0, description="Overrides every method's reply length, where set."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, description="Nucleus sampling; unset: the server's default."
    )
    logprobs: bool = Field(False, description="Ask for the log-probability of each token.")
    in_flight: int | None = Field(
        None, gt=0, description="At most this many calls at once; unset: found by trying."
    )
    adaptive: bool | None = Field(
        None, description="Find rate and concurrency by trying; unset: where `in_flight` is not set."
    )
    requests_per_minute: float | None = Field(None, gt=0, description="Never more calls in any 60 s.")
    requests_per_day: float | None = Field(None, gt=0, description="Never more calls in any 24 h.")
    tokens_per_minute: float | None = Field(
        None, gt=0, description="Never more tokens, in and out together, in any 60 s."
    )
    input_tokens_per_minute: float | None = Field(
        None, gt=0, description="Never more prompt tokens in any 60 s, where they have a limit of their own."
    )
    output_tokens_per_minute: float | None = Field(
        None, gt=0, description="Never more reply tokens in any 60 s, where they have a limit of their own."
    )
    on_daily_quota: Literal["stop", "wait"] = Field(
        "stop", description="A quota of a day is used up: end the cell, to be resumed, or sit it out."
    )
    max_n: int = Field(1, gt=0, description="Draws that one call may ask for (the provider's `n`).")
    attempts: int = Field(6, gt=0, description="Tries of one call in all, the first included.")
    retry_for: float = Field(
        1800.0,
        gt=0,
        description="Seconds that tries and pauses of one call may take, its queueing not counted; and for which "
        "a call waits for an endpoint that answers nobody.",
    )
    timeout: float = Field(
        600.0, gt=0, description="Seconds that one try may take, waiting for a place not counted."
    )

    price: Price | None = Field(None, description="USD per million tokens; unset: the list price, if known.")

    def cost(self, usage: Usage) -> float | None:
        """What tokens cost, in USD; None where the price is not known."""
        return None if self.price is None else self.price.of(usage)

    @property
    def identity(self) -> str:
        """What the request hash says of the model: its name, or the SHA-256 of its weights."""
        return self.model

    remote: ClassVar[bool] = True
    """Whether others share what answers, so that limits are to be found; else concurrency is fixed."""

    @property
    def adapts(self) -> bool:
        """Whether rate and concurrency are found by trying."""
        return self.in_flight is None and self.remote if self.adaptive is None else self.adaptive

    @property
    def default_in_flight(self) -> int:
        """Calls at once where the job says nothing."""
        return 64

    @property
    def charges_max_tokens(self) -> bool:
        """Whether the provider counts a call's whole token limit against tokens a minute."""
        return False

    @property
    def charges_cached(self) -> bool:
        """Whether the provider counts prompt tokens from its cache against tokens a minute."""
        return True

    @property
    def charges_output(self) -> bool:
        """Whether the provider counts generated tokens against tokens a minute."""
        return True

    def warms(self, request: Request) -> bool:
        """Whether a first call alone puts the prompt into the provider's cache, which the others then read."""
        return False

    def lines(self) -> Sequence[tuple[Model, float]]:
        """The endpoints that answer as this model, each with its weight. One, itself, unless it says more."""
        return [(self, 1.0)]

    async def open(self, cache: Path) -> None:
        """Get ready: a client, a child process. `cache` is a folder that outlives runs."""

    async def close(self) -> None:
        """Give back what `open` took."""

    async def call(self, call: Call) -> Reply:
        """One attempt. Raises a subclass of `runner.errors.ModelError`; never waits for limits or retries."""
        raise NotImplementedError
