"""What each service that speaks these APIs supports, renames, refuses, says and charges: one table.

`openai.py` and `anthropic.py` read a `Service`, the row of `TABLE` that the job names (`service = "groq"`),
or that the host of `base_url` belongs to, or `GENERIC`. A job may set any cell (`supports = {n = 8}`).
The sources are providers' pages, their clients' code and public reports; [M] marks what is from memory only.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from runner.models.told import DAY, MINUTE, Told, headers

Fields: TypeAlias = tuple[tuple[str, Any], ...]
"""Body fields and their values."""


@dataclass(frozen=True, slots=True)
class Service:
    """One row. Everything that is not said otherwise is as at a plain OpenAI-compatible server."""

    name: str
    hosts: tuple[str, ...] = ()
    """Its hosts, or what they end in (after a dot)."""
    base_url: str = ""
    """Where it is, if the job does not say."""
    key_env: str | None = None
    """Which variable holds its key, if the job does not say; None: as the provider's class has it."""

    n: int = 128
    """Most draws that one call gives. More are not asked for; where it is 1, `n` is never sent."""
    seed: str | None = "seed"
    """The body field of the seed, if there is one."""
    chat_logprobs: Fields = (("logprobs", True),)
    """What asks for log-probabilities of chats; empty: it has none."""
    raw_logprobs: Fields = (("logprobs", 1),)
    """The same for raw completions."""
    stops: int = 4
    """Most stop strings that are sent."""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Field of the token limit in chats; where that one is refused, the other one is tried."""
    temperatures: tuple[float, float] = (0.0, 2.0)
    """Lowest and highest."""
    without: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Models (by pattern) that refuse, or quietly ignore, parameters: those are not even tried."""
    completions: bool = True
    """Whether there are raw completions."""
    body: Fields = ()
    """Set in every body, beside what the job sets."""

    prefix: Literal["sent", "words"] = "sent"
    """How a last assistant turn is continued: it is sent, with the next two; or it is asked for in words."""
    prefix_turn: Fields = ()
    """Set on that turn."""
    prefix_body: Fields = ()
    """Set in the body."""
    prefix_repeated: bool = False
    """Whether its reply begins with that turn's text."""
    prefix_path: str = ""
    """Only an address that ends so continues it."""

    told: tuple[Told, ...] = ()
    """What its headers say of limits."""
    daily: str = ""
    """Pattern of an error's words and codes that tell a quota of a day from one of a minute."""

    reserves_max_tokens: bool = False
    """Whether a call's `max_tokens` (x n) counts against tokens/min from its start, not what it generates."""
    splits_tokens: bool = False
    """Whether tokens going in and coming out have limits of their own."""
    counts_cached: bool = True
    """Whether prompt tokens read from its cache count."""
    counts_output: bool = True
    """Whether generated tokens count."""

    caches_from: int | None = None
    """Prompt tokens from which on it caches prompts, so that of several calls with the same one the first goes
    alone; None: it does not, or without being cheaper."""

    thoughts_apart: bool = False
    """Whether a model's own thoughts are counted in the total only, not among the generated tokens."""

    prices: str | None = None
    """Its name in genai-prices; "" for a server of one's own, whose tokens cost nothing."""

    def lacks(self, model: str) -> frozenset[str]:
        """The parameters that it does not take for this model."""
        return frozenset(
            name for pattern, names in self.without if re.search(pattern, model, re.I) for name in names
        )

    def continues(self, base_url: str) -> bool:
        """Whether a last assistant turn is continued at this address."""
        path = urlsplit(base_url).path.rstrip("/")
        return self.prefix == "sent" and path.endswith(self.prefix_path)

    def charged(self, prompt: int, completion: int, cached: int = 0) -> int:
        """Tokens of a call that count against its tokens/min in the end."""
        prompt -= 0 if self.counts_cached else min(cached, prompt)
        return prompt + (completion if self.counts_output else 0)


_OPENAI_TOLD = headers(
    "x-ratelimit-", "-{}",
    ("requests", MINUTE, "requests"), ("tokens", MINUTE, "tokens"),
    ("tokens", MINUTE, "tokens_usage_based"), ("tokens", MINUTE, "project-tokens"),
    refills=True,
)  # fmt: skip
_ANTHROPIC_TOLD = headers(
    "anthropic-ratelimit-{}-", "",
    ("requests", MINUTE, "requests"), ("tokens", MINUTE, "tokens"),
    ("input_tokens", MINUTE, "input-tokens"), ("output_tokens", MINUTE, "output-tokens"),
)  # fmt: skip
_GENERIC_TOLD = (
    *headers("x-ratelimit-", "-{}", ("requests", MINUTE, "requests"), ("tokens", MINUTE, "tokens")),
    *headers("x-ratelimit-", "", ("requests", None, "")),
    *headers("ratelimit-", "", ("requests", None, "")),
    *_ANTHROPIC_TOLD,
)
_PER_DAY = r"\bper[ -]?day\b|per_?day|\b[RT]PD\b|\bdaily\b"
_REASONING = ("temperature", "top_p", "logprobs")
_OPENAI_WITHOUT = (
    (r"^o\d", _REASONING),
    (r"^(o3|o4-mini)", ("stop",)),
    (r"^gpt-5(-(?!chat)|$)", _REASONING),  # 5.1 and later take them at reasoning_effort none: they are asked
)

GENERIC = Service("generic", told=_GENERIC_TOLD, daily=_PER_DAY)
"""Any other server."""

_ROWS = (
    Service(
        "openai",
        hosts=("api.openai.com",),
        base_url="https://api.openai.com/v1",
        key_env="OPENAI_API_KEY",
        max_tokens="max_completion_tokens",
        without=_OPENAI_WITHOUT,
        prefix="words",
        told=_OPENAI_TOLD,
        daily=_PER_DAY,
        reserves_max_tokens=True,
        caches_from=1024,
        prices="openai",
    ),
    Service(
        "azure",
        hosts=("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
        key_env="AZURE_OPENAI_API_KEY",
        max_tokens="max_completion_tokens",
        without=_OPENAI_WITHOUT,
        prefix="words",
        told=_OPENAI_TOLD,  # its resets are whole seconds; -1/-1/0 means unknown: `windows` reads both
        daily=_PER_DAY,
        reserves_max_tokens=True,
        caches_from=1024,
        prices="azure",
    ),
    Service(
        "groq",
        hosts=("api.groq.com",),
        base_url="https://api.groq.com/openai/v1",
        key_env="GROQ_API_KEY",
        n=1,  # a 400 beyond
        chat_logprobs=(),
        max_tokens="max_completion_tokens",
        completions=False,
        told=headers("x-ratelimit-", "-{}", ("requests", DAY, "requests"), ("tokens", MINUTE, "tokens")),
        daily=_PER_DAY,
        counts_cached=False,
        caches_from=1024,  # [M]
        prices="groq",
    ),
    Service(
        "mistral",
        hosts=("api.mistral.ai",),
        base_url="https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        seed="random_seed",
        chat_logprobs=(),
        temperatures=(0.0, 1.5),
        completions=False,  # fill-in-the-middle only
        prefix_turn=(("prefix", True),),  # [M]
        prefix_repeated=True,  # [M]
        told=(
            Told("requests", MINUTE, "x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute"),
            Told("tokens", MINUTE, "x-ratelimit-limit-tokens-minute", "x-ratelimit-remaining-tokens-minute"),
            Told(
                "tokens", MINUTE,
                "x-ratelimitbysize-limit-minute", "x-ratelimitbysize-remaining-minute",
                "ratelimitbysize-reset",
            ),
            *headers("x-ratelimit-", "-{}", ("requests", 1.0, "requests"), ("tokens", MINUTE, "tokens")),
        ),
        daily=_PER_DAY + r"|per month|monthly",
        prices="mistral",
    ),
    Service(
        "openrouter",
        hosts=("openrouter.ai",),
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        n=1,  # passed on only where the provider behind it allows it
        body=(("provider", {"require_parameters": True}),),  # [M] else a provider may drop some quietly
        told=headers("x-ratelimit-", "", ("requests", None, "")),
        daily=_PER_DAY,
        prices="openrouter",
    ),
    Service(
        "deepseek",
        hosts=("api.deepseek.com",),
        base_url="https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        n=1,
        seed=None,
        without=(("reasoner", _REASONING),),  # the first two are ignored, the last is an error
        completions=False,  # fill-in-the-middle only
        prefix_turn=(("prefix", True),),
        prefix_path="/beta",
        caches_from=1024,  # [M] from 64 on; that is not worth a wait
        prices="deepseek",
    ),
    Service(
        "gemini",
        hosts=("generativelanguage.googleapis.com",),
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env="GEMINI_API_KEY",
        n=8,
        stops=5,  # [M]
        without=((r"gemini-([3-9]|\d\d)", ("n",)),),
        completions=False,
        daily=r"PerDay",
        counts_output=False,
        thoughts_apart=True,
        prices="google",
    ),
    Service(
        "together",
        hosts=("api.together.xyz", "api.together.ai"),
        base_url="https://api.together.xyz/v1",
        key_env="TOGETHER_API_KEY",
        chat_logprobs=(("logprobs", 1),),
        told=(
            Told("requests", 1.0, "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
            Told("tokens", 1.0, "x-tokenlimit-limit", "x-tokenlimit-remaining", "x-tokenlimit-reset"),
        ),
        prices="together",
    ),
    Service(
        "fireworks",
        hosts=("api.fireworks.ai",),
        base_url="https://api.fireworks.ai/inference/v1",
        key_env="FIREWORKS_API_KEY",
        chat_logprobs=(("logprobs", 1),),
        told=headers(
            "x-ratelimit-", "-{}",
            ("requests", MINUTE, "requests"),
            ("input_tokens", MINUTE, "tokens-prompt"), ("output_tokens", MINUTE, "tokens-generated"),
        ),
        splits_tokens=True,
        prices="fireworks",
    ),
    Service(
        "vllm",
        key_env="",
        prefix_body=(("continue_final_message", True), ("add_generation_prompt", False)),
        prices="",
    ),
    Service("sglang", key_env="", prefix_body=(("continue_final_message", True),), prices=""),  # [M]
    Service(
        "llama.cpp",
        key_env="",
        n=1,  # it counts the tokens of the first choice only
        prefix_repeated=True,
        chat_logprobs=(("logprobs", True), ("top_logprobs", 1)),
        raw_logprobs=(("n_probs", 1),),
        stops=64,
        prices="",
    ),
    Service("ollama", key_env="", base_url="http://localhost:11434/v1", n=1, prices=""),  # n is ignored
    Service(
        "anthropic",
        hosts=("api.anthropic.com",),
        base_url="https://api.anthropic.com/v1",
        key_env="ANTHROPIC_API_KEY",
        n=1,
        seed=None,
        chat_logprobs=(),
        stops=64,
        temperatures=(0.0, 1.0),
        without=(
            (r"claude-(opus|mythos)-(4-([7-9]|\d\d)|[5-9])(?!\d)", ("temperature", "top_p")),
            (r"claude-[a-z]+-(4-([6-9]|\d\d)|[5-9])(?!\d)", ("prefill",)),
        ),
        completions=False,
        told=_ANTHROPIC_TOLD,
        splits_tokens=True,
        counts_cached=False,
        caches_from=1024,  # 2048 for the smallest models: what is too short is not cached and costs no more
        prices="anthropic",
    ),
)  # fmt: skip
TABLE: Mapping[str, Service] = {row.name: row for row in (*_ROWS, GENERIC)}
_CELLS = frozenset(field.name for field in dataclasses.fields(Service)) - {"name", "hosts"}


def named(service: str) -> Service:
    """The row of that name. Raises ValueError with the nearest one."""
    try:
        return TABLE[service]
    except KeyError:
        near = difflib.get_close_matches(service, TABLE, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TABLE)}"
        raise ValueError(f"unknown service {service!r}; {hint}") from None


def at(base_url: str) -> Service:
    """The row of the service at an address."""
    host = (urlsplit(base_url).hostname or "").lower().rstrip(".")
    for row in _ROWS:
        if any(host == name or host.endswith("." + name) for name in row.hosts):
            return row
    return GENERIC


def service_for(service: str, base_url: str, cells: Mapping[str, Any] | None = None) -> Service:
    """The row that a job's `service` names, else that of the address, with single cells changed.

    Raises ValueError naming the cell.
    """
    row = named(service) if service else at(base_url)
    if not cells:
        return row
    for cell in cells:
        if cell not in _CELLS:
            near = difflib.get_close_matches(cell, _CELLS, n=1)
            raise ValueError(
                f"a service has no {cell!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(_CELLS))}")
            )
    try:
        return _checked().validate_python({**_plain(row), **cells})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}") from None


def _plain(row: Service) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


@cache
def _checked() -> TypeAdapter[Service]:
    return TypeAdapter(Service)
