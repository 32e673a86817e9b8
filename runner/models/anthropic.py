"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from runner.errors import CellStopped, Transient
from runner.models.base import Call, Choice, Finish, Reply, Request, Usage, cut_at_stop
from runner.models.bodies import count, estimated, in_words, without_prefix
from runner.models.http import HttpModel
from runner.models.openai import parts
from runner.models.wire import Prepared

VERSION = "2023-06-01"
"""Of the API; the only one there is."""
_FINISH: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class Anthropic(HttpModel):
    """A model behind `/v1/messages`: one draw a call, no seed, no log-probabilities.

    System turns become `system`. A last assistant turn is continued by models that can; from one that
    refuses this, the same is asked for in words, and `sent` says so (`prefill: "instruction"`). Temperatures
    above 1 are sent as 1. Stop strings of blanks only are refused by the API: they are applied here alone.
    """

    provider: ClassVar[str] = "anthropic"
    batches: ClassVar[Literal["", "openai", "anthropic"]] = "anthropic"
    own_service: ClassVar[str] = "anthropic"
    optional: ClassVar[Mapping[str, str]] = {
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop_sequences",
    }

    base_url: str = Field("https://api.anthropic.com/v1", description="Address of the API, with its version.")
    key_env: str = Field("ANTHROPIC_API_KEY", description="Environment variable that holds the API key.")
    api: Literal["chat"] = Field("chat", description="Messages; there are no raw completions.")
    max_n: Literal[1] = Field(1, description="One draw a call: the API has no n.")

    def auth(self) -> dict[str, str]:
        key = {"x-api-key": self.wire.key} if self.wire.key else {}
        return {**key, "anthropic-version": VERSION}

    def prepare(self, call: Call) -> Prepared:
        request = call.request
        if request.kind == "completion":
            raise CellStopped(f"{self.where}: there are no raw completions; set api = 'chat' in the job")
        body, sent = self.body(request)
        fixed = frozenset({*self.extra_body, *dict(request.params.extra)})
        asked = {name for name, field in self.optional.items() if field in body}
        if body["messages"][-1]["role"] == "assistant":
            asked.add("prefill")
        self.leave_out(asked, fixed)
        if call.shared and self.warms(request):
            _mark(body["messages"])
        return Prepared("/messages", body, sent, fixed)

    def reply(self, data: Mapping[str, Any], call: Call, sent: Mapping[str, Any]) -> Reply:
        if not isinstance(data.get("content"), list):
            raise Transient(f"{self.where}: a reply without content", billed=True, status=200)
        last = call.request.turns[-1]
        choice = _choice(data, call.request, str(last.text) if "prefill" in sent else "")
        usage = _usage(data, call.request, choice)
        return Reply(
            choices=[choice],
            usage=usage,
            cost_usd=self.cost(usage),
            sent=sent,
            endpoint=self.endpoint,
            provider_id=data["id"] if isinstance(data.get("id"), str) else None,
        )

    def body(self, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON to send, and the sampling parameters as `sent` shows them."""
        params = request.params
        sampling: dict[str, Any] = {"max_tokens": params.max_tokens}
        if self.allows("temperature"):
            low, high = self.row.temperatures
            sampling["temperature"] = min(max(params.temperature, low), high)
        if params.top_p is not None and self.allows("top_p"):
            sampling["top_p"] = params.top_p
        stops = [stop for stop in params.stop if stop.strip()]
        if stops and self.allows("stop"):
            sampling["stop_sequences"] = stops
        sampling |= {**self.extra_body, **dict(params.extra)}
        system = "\n\n".join(str(turn.text) for turn in request.turns if turn.role == "system")
        messages = [
            {"role": turn.role, "content": str(turn.text)}
            for turn in request.turns
            if turn.role != "system" and str(turn.text).strip()
        ]
        if not messages:
            system, messages = "", [{"role": "user", "content": system}]
        sent = dict(sampling)
        if messages[-1]["role"] == "assistant":
            messages[-1]["content"] = messages[-1]["content"].rstrip()  # blanks at the end are refused
            if not self.allows("prefill"):
                in_words(messages)
                sent["prefill"] = "instruction"
        body = {
            "model": self.model,
            "messages": messages,
            **({"system": system} if system else {}),
            **sampling,
        }
        return body, sent


def _mark(messages: list[dict[str, Any]]) -> None:
    """Have the prompt up to the end of the last user turn put into the cache, for 5 minutes."""
    last = next(message for message in reversed(messages) if message["role"] == "user")
    last["content"] = [{"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}]


def _choice(data: Mapping[str, Any], request: Request, prefix: str) -> Choice:
    text, thoughts = parts(data["content"])
    text, cut = cut_at_stop(without_prefix(text, prefix), request.params.stop)
    finish = _FINISH.get(str(data.get("stop_reason")), "other")
    return Choice(text=text, finish="stop" if cut else finish, reasoning=thoughts or None)


def _usage(data: Mapping[str, Any], request: Request, choice: Choice) -> Usage:
    """`prompt` counts all input, read from the cache or written to it included; what was read counts as cached,
    what was put there as written. What is missing is estimated, never taken as free."""
    usage = data.get("usage")
    cached = count(usage, "cache_read_input_tokens")
    written = count(usage, "cache_creation_input_tokens")
    prompt = count(usage, "input_tokens") + written + cached
    return Usage(
        prompt=prompt or estimated(*(str(turn.text) for turn in request.turns)),
        completion=count(usage, "output_tokens") or estimated(choice.text, choice.reasoning or ""),
        cached=cached,
        written=written,
        calls=1,
    )
