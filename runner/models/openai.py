"""OpenAI and everything that speaks its API: vLLM, SGLang, llama.cpp, Ollama, Groq, OpenRouter, ..."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import orjson
from pydantic import Field, model_validator

from runner.errors import CellStopped, Transient, Unsupported
from runner.models.base import Call, Choice, Finish, Params, Reply, Request, Usage, cut_at_stop
from runner.models.bodies import count, estimated, in_words, status_within, without_prefix
from runner.models.failures import classify
from runner.models.http import SEED_BITS, HttpModel
from runner.models.providers import GENERIC
from runner.models.wire import Prepared

_FINISH: Mapping[str, Finish] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "safety", "prohibited_content", "blocklist", "spii"), "filter"),
    "refusal": "refusal",
}


MOST_FRAMES = 1000
"""Kinds of parameters for which what calls have in common is remembered."""


class _Frame(NamedTuple):
    """What calls with the same parameters have in common."""

    params: Params
    path: str
    fixed: frozenset[str]
    body: Mapping[str, Any]
    """All of it but the prompt, n and seed."""
    sent: Mapping[str, Any]
    n: int
    """Most draws of one call."""
    seed: str | None
    """The field that carries the seed."""


class OpenAI(HttpModel):
    """A model behind an OpenAI-compatible API.

    What differs between them is data: the row of `runner.models.providers` that `service` names, or the host
    of `base_url`; `supports` changes single cells of it.

    A request of raw text goes to `/completions`, one of messages to `/chat/completions`. A last assistant
    turn is sent in the service's own way of continuing it (name it: `service = "vllm"`), as it is where none
    is known; where it has none the same is asked for in words, and `sent` says so (`prefill: "instruction"`).

    Stops: at most `max_stops` are sent and all are applied here as well. Servers that look for stops inside
    a model's thoughts too (vLLM) cut those short; `max_stops = 0` sends none.

    Usage: a count that the server leaves out or gives as 0 (Ollama, for a cached prompt) is estimated at four
    characters a token, so that limits and costs never take a call for free. llama.cpp's servers count the
    tokens of only the first of n choices; for n > 1 the sum is never below what the choices' own
    log-probabilities, or the lengths of their texts in proportion to the first one's, show.
    """

    provider: ClassVar[str] = "openai"
    batches: ClassVar[Literal["", "openai", "anthropic"]] = "openai"
    optional: ClassVar[Mapping[str, str]] = {
        name: name for name in ("temperature", "top_p", "n", "seed", "logprobs", "stop")
    }

    base_url: str = Field("https://api.openai.com/v1", description="Address of the API, with its version.")
    key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the API key.")
    max_n: int = Field(
        1,
        gt=0,
        description="Draws that one call may ask for, the prompt being charged once; unset: what a known service "
        "gives (128 at OpenAI), else 1.",
    )
    max_stops: int | None = Field(
        None,
        ge=0,
        description="At most this many stop strings are sent; all are applied. Unset: the service's.",
    )
    max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens"] = Field(
        "auto", description="Body field that carries max_tokens in chat; auto: what the server takes."
    )

    @model_validator(mode="after")
    def _asks_for_several_where_that_is_known_to_work(self) -> Self:
        if "max_n" not in self.model_fields_set and self.row.name != GENERIC.name:
            self.__dict__["max_n"] = self.row.n
        return self

    def prepare(self, call: Call) -> Prepared:
        frame = self._frame(call.request)
        return Prepared(frame.path, *self.body(call), frame.fixed)

    def _frame(self, request: Request) -> _Frame:
        """What is the same in all calls with such parameters. Raises as `prepare` does."""
        params, kind = request.params, request.kind
        frames = self.wire.frames
        frame = frames.get((id(params), kind))
        if frame is not None and frame.params is params:
            return frame  # type: ignore[no-any-return]
        fixed = frozenset({*self.extra_body, *dict(params.extra)})
        self._check(request, fixed)
        completion = kind == "completion"
        sampling: dict[str, Any] = {}
        if self.allows("temperature"):
            sampling["temperature"] = params.temperature
        if params.top_p is not None and self.allows("top_p"):
            sampling["top_p"] = params.top_p
        most = self.row.stops if self.max_stops is None else self.max_stops
        stops = [stop for stop in params.stop if stop][:most]
        if stops and self.allows("stop"):
            sampling["stop"] = stops
        if params.logprobs and self.allows("logprobs"):
            sampling |= self._logprobs_fields(completion)
        sampling |= {**self.extra_body, **dict(params.extra)}
        limit_field = "max_tokens" if completion else self._limit()
        if len(frames) >= MOST_FRAMES:
            frames.clear()
        frame = frames[id(params), kind] = _Frame(
            params=params,
            path="/completions" if completion else "/chat/completions",
            fixed=fixed,
            body={"model": self.model, limit_field: params.max_tokens, **sampling},
            sent={"max_tokens": params.max_tokens, **sampling},
            n=self.row.n if "n" not in self.lacking and self.allows("n") else 1,
            seed=self.row.seed if self.allows("seed") else None,
        )
        return frame

    def reply(self, data: Mapping[str, Any], call: Call, sent: Mapping[str, Any]) -> Reply:
        request = call.request
        choices = self._choices(data, request, self._repeated(request, sent))[: max(call.n, 1)]
        usage = _usage(data, request, choices, self.row.thoughts_apart)
        cost = _told_cost(data.get("usage")) if self.price is None else None
        return Reply(
            choices=choices,
            usage=usage,
            sent=sent,
            endpoint=self.endpoint,
            provider_id=data["id"] if isinstance(data.get("id"), str) else None,
            cost_usd=self.cost(usage) if cost is None else cost,
        )

    def body(self, call: Call) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """The JSON to send, and the sampling parameters in it as a reply's `sent` shows them: without n and
        seed, which differ from call to call, and with the token limit under one name."""
        request, frame = call.request, self._frame(call.request)
        body, sent = dict(frame.body), frame.sent
        if request.kind == "completion":
            body["prompt"] = request.prompt
        else:
            body["messages"] = messages = [
                {"role": turn.role, "content": str(turn.text)} for turn in request.turns
            ]
            if messages[-1]["role"] == "assistant":
                if self._continues():
                    messages[-1] |= dict(self.row.prefix_turn)
                    body = {**dict(self.row.prefix_body), **body}
                else:
                    in_words(messages)
                    sent = {**sent, "prefill": "instruction"}
        if call.n > 1 and frame.n > 1:
            body["n"] = min(call.n, frame.n)
        if call.seed is not None and frame.seed is not None:
            body[frame.seed] = call.seed & SEED_BITS
        for name, value in self.row.body:
            mine = body.get(name, {})
            body[name] = (
                {**value, **mine} if isinstance(value, dict) and isinstance(mine, dict) else mine or value
            )
        return body, sent

    def _check(self, request: Request, fixed: Collection[str]) -> None:
        """What the service is known to refuse is met before it costs a call."""
        params, row = request.params, self.row
        if request.kind == "completion" and not row.completions:
            raise CellStopped(
                f"{self.where}: {row.name} has no raw completions; set api = 'chat' in the job, then resume"
            )
        asked = {"temperature", *(name for name in ("top_p", "stop", "logprobs") if getattr(params, name))}
        self.leave_out(asked, fixed)
        low, high = row.temperatures
        if self.allows("temperature") and not low <= params.temperature <= high:
            raise CellStopped(
                f"{self.where}: temperature {params.temperature:g} is outside of what {row.name} takes, {low:g} "
                f"to {high:g}. Correct it in the job (or set supports = {{temperatures = [..., ...]}}), then resume."
            )

    @cached_property
    def lacking(self) -> frozenset[str]:
        chat = self.api == "chat"
        none = not (self.row.chat_logprobs if chat else self.row.raw_logprobs)
        return self.row.lacks(self.model) | ({"logprobs"} if none else set())

    def _logprobs_fields(self, completion: bool) -> dict[str, Any]:
        return dict(self.row.raw_logprobs if completion else self.row.chat_logprobs)

    def field_of(self, parameter: str) -> str | None:
        if parameter == "seed":
            return self.row.seed
        if parameter == "logprobs":
            return next(iter(self._logprobs_fields(self.api == "completions")), None)
        return super().field_of(parameter)

    def _continues(self) -> bool:
        return self.row.continues(self.base_url) and self.allows("prefill")

    def _repeated(self, request: Request, sent: Mapping[str, Any]) -> str:
        """The text that a reply may repeat before it goes on."""
        last = request.turns[-1]
        if last.role != "assistant" or ("prefill" not in sent and not self.row.prefix_repeated):
            return ""
        return str(last.text)

    def _limit(self) -> str:
        """The chat field for the token limit: the one that was not refused, the job's, or the service's."""
        if self.wire.limit_field:
            return self.wire.limit_field
        if self.max_tokens_field != "auto":
            return self.max_tokens_field
        return self.row.max_tokens

    def adapt(self, parameter: str, body: Mapping[str, Any]) -> bool:
        """A refused name of the token limit gives way to the other one, once; the limit is never dropped."""
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        if parameter not in other:
            return super().adapt(parameter, body)
        if self.max_tokens_field != "auto" or "messages" not in body or parameter not in body:
            return False
        if self.wire.limit_field == parameter:  # the other one was refused before
            return False
        self.wire.limit_field = other[parameter]
        self.wire.frames.clear()
        return True

    def _choices(self, data: Mapping[str, Any], request: Request, prefix: str = "") -> list[Choice]:
        """The reply's choices in order of their index. Raises what the first one's error means if there is none."""
        found = data.get("choices")
        raw = [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []
        if len(raw) > 1 and all(isinstance(choice.get("index"), int) for choice in raw):
            raw.sort(key=lambda choice: int(choice["index"]))
        good = [choice for choice in raw if not _broken(choice)]
        if not good and raw:
            within = raw[0].get("error")
            body = orjson.dumps({"error": within or {"message": f"ended by {raw[0]['finish_reason']!r}"}})
            error = classify(status_within(within), {}, body, 0.0, where=self.where, secret=self.wire.key)
            error.billed = True
            if isinstance(error, Unsupported):  # it was answered all the same: nothing is left out for that
                error = Transient(str(error), billed=True, status=200)
            raise error
        if not good:
            raise Transient(f"{self.where}: a reply without choices", billed=True, status=200)
        return [_choice(choice, request, prefix) for choice in good]


def _broken(raw: Mapping[str, Any]) -> bool:
    """Whether a choice was not generated to its end: by its own error, or as the server ended it (OpenRouter;
    vLLM and SGLang as they shut down)."""
    return bool(raw.get("error")) or raw.get("finish_reason") in ("error", "abort")


def _choice(raw: Mapping[str, Any], request: Request, prefix: str = "") -> Choice:
    """One choice, cut at the first stop string, the model's own thoughts apart from its text."""
    message = raw.get("message")
    reasoning = ""
    refused = False
    plain = isinstance(message, dict) and len(message) == 2 and "role" in message
    content = message.get("content") if plain and isinstance(message, dict) else None
    if isinstance(content, str):
        text, reasoning = split_thoughts(content) if "think>" in content else (content, "")
    elif isinstance(message, dict):
        text, reasoning = parts(message.get("content"))
        reasoning = next(
            (v for k in ("reasoning_content", "reasoning") if isinstance(v := message.get(k), str) and v),
            reasoning,
        )
        if not reasoning and "think>" in text:
            text, reasoning = split_thoughts(text)
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            text, refused = text or refusal, True
    else:
        text, _ = parts(raw.get("text"))
    if prefix:
        text = without_prefix(text, prefix)
    whole = len(text)
    text, cut = cut_at_stop(text, request.params.stop)
    said = raw.get("finish_reason")
    finish = "stop" if said == "stop" else _FINISH.get(str(said).lower(), "other")
    logprobs: tuple[float, ...] | None = None
    tokens = None
    if (given := raw.get("logprobs")) is not None:
        logprobs, tokens = _logprobs(given, None if len(text) == whole else len(text))
    return Choice(
        text=text,
        finish="refusal" if refused else "stop" if cut else finish,
        reasoning=reasoning or None,
        logprobs=logprobs,
        tokens=tokens,
    )


def parts(content: Any) -> tuple[str, str]:
    """Text and thoughts of a message's content: a string, None, or a list of parts (Mistral, Anthropic)."""
    if isinstance(content, str):
        return content, ""
    text, thoughts = "", ""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            inner = part.get("text", part.get("thinking", part.get("reasoning")))
            inner = inner if isinstance(inner, str) else "".join(parts(inner))
            if part.get("type") in {"thinking", "reasoning"}:
                thoughts += inner
            else:
                text += inner
    return text, thoughts


def split_thoughts(text: str) -> tuple[str, str]:
    """Text and thoughts of a reply whose server does not part them: `<think>...</think>` at its start, of
    which chat templates often put the first tag into the prompt. Thoughts without an end have no text."""
    inner = text.lstrip().removeprefix("<think>")
    opened = len(inner) < len(text.lstrip())
    thoughts, closed, rest = inner.partition("</think>")
    if closed and "<think>" not in thoughts:
        return rest.lstrip("\n"), thoughts.strip("\n")
    return ("", inner.strip("\n")) if opened else (text, "")


def _logprobs(raw: Any, keep: int | None) -> tuple[tuple[float, ...] | None, int | None]:
    """The tokens' log-probabilities, up to character `keep`, and how many tokens were generated in all.
    Chat has a list of objects under `content`; completions have parallel lists."""
    if not isinstance(raw, dict):
        return None, None
    content = raw.get("content")
    if isinstance(content, list) and content:
        pairs = [(t.get("token"), t.get("logprob")) for t in content if isinstance(t, dict)]
    else:
        values, names = raw.get("token_logprobs"), raw.get("tokens")
        if not isinstance(values, list):
            return None, None
        names = names if isinstance(names, list) and len(names) == len(values) else [None] * len(values)
        pairs = list(zip(names, values, strict=True))
    out: list[float] = []
    seen = 0
    for name, value in pairs:
        if keep is not None and seen >= keep:
            break
        seen += len(name) if isinstance(name, str) else 0
        if isinstance(value, int | float):
            out.append(float(value))
    return tuple(out), len(pairs)


def _told_cost(usage: Any) -> float | None:
    """What the server itself says that the call cost (OpenRouter), in USD."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        return None
    return float(cost)


_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""What servers count that know of no caches and no thoughts."""


def _usage(
    data: Mapping[str, Any], request: Request, choices: Sequence[Choice], thoughts_apart: bool = False
) -> Usage:
    """Tokens of the reply; see the class for what is estimated and why."""
    usage = data.get("usage")
    completion = count(usage, "completion_tokens")
    prompt = count(usage, "prompt_tokens")
    plain = isinstance(usage, dict) and usage.keys() <= _COUNTS
    if plain and len(choices) == 1 and prompt and completion:
        total = count(usage, "total_tokens")
        if not thoughts_apart or total <= prompt + completion:
            return Usage(prompt, max(completion, choices[0].tokens or 0), 0, 0, 1)
    texts = [choice.text + (choice.reasoning or "") for choice in choices]
    if not completion:
        completion = estimated(*texts)
    elif len(choices) > 1 and "timings" in data and texts[0]:  # llama.cpp: the first choice's tokens only
        completion = -(-completion * sum(map(len, texts)) // len(texts[0]))
    evident = sum(choice.tokens or bool(text) for choice, text in zip(choices, texts, strict=True))
    reasoning = count(usage, "completion_tokens_details", "reasoning_tokens")
    if thoughts_apart and prompt and (apart := count(usage, "total_tokens") - prompt - completion) > 0:
        completion += apart
        reasoning = reasoning or apart
    cached = count(usage, "prompt_tokens_details", "cached_tokens") or count(usage, "prompt_cache_hit_tokens")
    if not prompt:
        prompt = cached = estimated(*(str(turn.text) for turn in request.turns))
        cached = cached if isinstance(usage, dict) and "prompt_tokens" in usage else 0
    return Usage(
        prompt=prompt,
        completion=max(completion, evident),
        cached=min(cached, prompt),
        reasoning=reasoning,
        calls=1,
    )
