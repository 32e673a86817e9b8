"""What the lines of a ledger hold: draws, observations, tries; and how they are written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from runner.models.base import Call, Reply, Usage

NOTHING = Usage()


@dataclass(slots=True, unsafe_hash=True)
class Draw:
    """Reply number `i` to the request `hash` within `scope`, and its share of tokens and cost."""

    scope: str
    hash: str
    i: int
    text: str
    finish: str = "stop"
    reasoning: str | None = None
    logprobs: tuple[float, ...] | None = None
    usage: Usage = NOTHING
    cost_usd: float | None = None
    sent: str = ""
    """Digest of the parameters that went out; draws of one request whose digests differ flag the row."""
    without: tuple[str, ...] = ()
    """Requested parameters that the provider refused, so that they were not sent."""
    seconds: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """An observation as the ledger keeps it, with the session's state after it."""

    action: str
    text: str
    reward: float
    done: bool
    answer: str | None = None
    state: Any = None
    life: int = 0


def shares(reply: Reply, n: int) -> list[Usage]:
    """How a reply's tokens fall to its first n choices; the sum is the reply's usage, whatever the server says.

    The prompt is the first choice's (it is billed once). The rest is split by the choices' own token counts
    where the server gives them, else evenly.
    """
    if n == 1:
        return [reply.usage]
    counts = [choice.tokens for choice in reply.choices[:n]]
    weights = [1 if count is None else count for count in counts]
    if None in counts or not any(weights):
        weights = [1] * n
    usage, marks = reply.usage, list(accumulate(weights, initial=0))

    def split(total: int) -> list[int]:
        return [total * b // marks[-1] - total * a // marks[-1] for a, b in pairwise(marks)]

    parts = list(zip(split(usage.completion), split(usage.reasoning), strict=True))
    return [
        Usage(completion=completion, reasoning=reasoning)
        if k
        else Usage(usage.prompt, completion, usage.cached, reasoning, usage.calls, usage.written)
        for k, (completion, reasoning) in enumerate(parts)
    ]


def draw_of(row: Mapping[str, Any]) -> Draw:
    """The draw that a `draw` line holds. Raises KeyError, TypeError or ValueError for a damaged one."""
    return Draw(
        scope=row["scope"],
        hash=row["hash"],
        i=row["i"],
        text=row["text"],
        finish=row["finish"],
        reasoning=row["reasoning"],
        logprobs=None if row["logprobs"] is None else tuple(map(float, row["logprobs"])),
        usage=Usage(**row["usage"]),
        cost_usd=row["cost_usd"],
        sent=row["sent"],
        seconds=row["seconds"],
        waited=row["waited"],
        without=tuple(row["without"]),
    )


def recorded_of(row: Mapping[str, Any], state: Any) -> Recorded:
    """The observation that a line holds, `state` being what its own stands for. Raises KeyError for a damaged one."""
    return Recorded(
        action=row["action"],
        text=row["text"],
        reward=row["reward"],
        done=row["done"],
        answer=row["answer"],
        state=state,
        life=row["life"],
    )


def draw_row(draw: Draw, reply: str | None, choice: int, taken_from: str | None = None) -> dict[str, Any]:
    """The line of a draw, which is a choice of a reply, or was taken from an earlier run."""
    return {
        "kind": "draw",
        "scope": draw.scope,
        "hash": draw.hash,
        "i": draw.i,
        "reply": reply,
        "choice": choice,
        "text": draw.text,
        "reasoning": draw.reasoning,
        "finish": draw.finish,
        "logprobs": None if draw.logprobs is None else list(draw.logprobs),
        "usage": draw.usage.as_dict(),
        "cost_usd": draw.cost_usd,
        "sent": draw.sent,
        "without": draw.without,
        "seconds": draw.seconds,
        "waited": draw.waited,
        "from": taken_from,
    }


def attempt_row(call: Call, error: str | None, possible_cost: bool | None) -> dict[str, Any]:
    """The line of a try: that it begins (None, None), or how it failed."""
    return {
        "kind": "attempt",
        "hash": call.request.hash,
        "scope": call.scope,
        "first": call.first,
        "error": error,
        "possible_cost": possible_cost,
    }
