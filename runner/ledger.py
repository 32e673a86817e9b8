"""The ledger: every draw and every observation of a run, written before it is used and never asked for twice.

Lines of `ledger.jsonl`, told apart by `kind`:

- `request` {hash, model, params, turns: [[role, [part, …]], …], parts: {part: text}}: what was asked, once;
  a prompt's parts are named by content hash and each is stored once in the file.
- `reply` {id, hash, scope, first, n, usage, sent, endpoint, seed, provider_id, batch, seconds, waited, cost_usd}
- `draw` {scope, hash, i, reply, choice, text, reasoning, finish, logprobs, usage, sent, from}: before its reply, in
  the same write. (Where that is cut short, a draw without its reply is used and counts as possibly billed; a reply
  without its draws would be paid for again unseen.) `usage` is the draw's share: the prompt goes to the reply's first
  choice. One that was taken from an earlier run (`reuse`) names it in `from` and has no reply: nothing was paid for it
  here.
- `observation` {episode, attempt, step, action, text, reward, done, answer, state, life}
- `attempt` {hash, scope, first, error, possible_cost}: a try that is begun (error null), and one that gave
  no reply. A beginning that neither a reply nor an error follows was cut off when a process died. What goes
  by a batch has no beginning here: batches outlive processes, and `batches.jsonl` knows of them.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from runner.jsonl import Appender, clean_text, dumps, plain, scan
from runner.models.base import Call, Params, Reply, Request, Text, Turn, Usage, part_name
from runner.reuse import Earlier

REFUSABLE = ("temperature", "top_p", "logprobs")
"""Parameters without which a draw is of another experiment: the row is flagged where one was not sent."""
LARGE = 200
"""Strings of a session's state longer than this are stored once, by content hash."""

KINDS = 1000
"""Most objects of sent parameters whose digests are remembered."""

Span = tuple[int, int]
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


class Ledger:
    """The open ledger of one run. Draws are found by (scope, hash, i), observations by (episode, life, attempt,
    step); only their places in the file are kept in memory."""

    def __init__(self, path: Path) -> None:
        self._file = Appender(path)
        self.written: Callable[[], Awaitable[None]] = self._file.written
        """Until all that was given to be kept is in the kernel's hands. Raises RunError where it cannot be."""
        self._draws: dict[tuple[str, str], dict[int, Span]] = defaultdict(dict)
        self._observations: dict[str, dict[tuple[int, int, int], Span]] = defaultdict(dict)
        self._parts: dict[str, Span] = {}
        self._requests: dict[str, Span] = {}
        self._held: tuple[Span, dict[str, str]] | None = None
        self._digests: dict[int, tuple[Mapping[str, Any], Params, str, tuple[str, ...]]] = {}
        self._replies = 0
        self.unreadable = 0
        """Damaged lines: what they held is owed again."""
        self.mended = self._file.mended
        """Bytes of a torn last line that were cut off on opening."""
        self.paid = Usage()
        """Tokens of all replies, each counted once."""
        self.paid_usd = 0.0
        self.unpriced = 0
        """Replies whose price is not known."""
        self.attempts_failed = 0
        self.possibly_billed = 0
        """Tries that may have been billed without an answer; those that a dying process cut off among them."""
        self.earlier: Earlier | None = None
        """Earlier runs whose draws are taken where this one has none."""
        self.taken = 0
        """Draws that were taken from earlier runs, in all processes."""
        self.taken_usage = Usage()
        """What they used there; none of it was paid for here."""
        self.cut_off = 0
        """Tries that were under way when a process that worked on this run died."""
        begun: Counter[tuple[str, str, int]] = Counter()
        for offset, length, row in scan(path):
            try:
                self._index(row or {}, (offset, length))
                if row is not None and row["kind"] in ("attempt", "reply") and not row.get("batch"):
                    begins = row["kind"] == "attempt" and row["error"] is None
                    begun[row["scope"], row["hash"], row["first"]] += 1 if begins else -1
            except (KeyError, TypeError, ValueError, AttributeError):
                self.unreadable += 1
        self.cut_off = sum(count for count in begun.values() if count > 0)
        self.possibly_billed += self.cut_off

    def _index(self, row: Mapping[str, Any], span: Span) -> None:
        """Find a place for a row. Raises, before anything is changed, for one that could not be used."""
        kind = row["kind"]
        if kind == "draw":
            draw = draw_of(row)
            reply = row.get("reply")
            self._replies = max(self._replies, 0 if reply is None else int(reply[1:]))
            if self._draws[draw.scope, draw.hash].setdefault(draw.i, span) is span and row.get("from"):
                self._count_taken(draw)
        elif kind == "observation":
            _recorded_of(row, row["state"])
            parts = dict.fromkeys(row["parts"].keys(), span)
            self._place(row["episode"], (int(row["life"]), int(row["attempt"]), int(row["step"])), span)
            self._parts.update(parts)
        elif kind == "request":
            parts = dict.fromkeys(row["parts"].keys(), span)
            self._requests[row["hash"]] = span
            self._parts.update(parts)
        elif kind == "reply":
            number = int(row["id"][1:])
            self._count(Usage(**row["usage"]), row["cost_usd"])
            self._replies = max(self._replies, number)
        elif kind == "attempt" and row["error"] is not None:
            self.possibly_billed += bool(row["possible_cost"])
            self.attempts_failed += 1

    def _count(self, usage: Usage, cost_usd: float | None) -> None:
        self.paid, self.paid_usd = self.paid + usage, self.paid_usd + (cost_usd or 0.0)
        self.unpriced += cost_usd is None

    @property
    def replies(self) -> int:
        """Replies on record."""
        return self._replies

    # -- draws -----------------------------------------------------------------------------------------
    def draw(self, scope: str, request_hash: str, i: int) -> Draw | None:
        """The draw with this key, None if it was never drawn. One that an earlier run has is taken over first."""
        span = self._draws.get((scope, request_hash), {}).get(i)
        if span is not None:
            return draw_of(self._file.read(*span))
        return None if self.earlier is None else self._take(self.earlier, scope, request_hash, i)

    def _take(self, earlier: Earlier, scope: str, request_hash: str, i: int) -> Draw | None:
        """Copy a draw of an earlier run, and its request where that is new; None where no run has it."""
        found = earlier.find(scope, request_hash, i)
        if found is None:
            return None
        row, run = found
        try:
            draw = draw_of(row)
        except (KeyError, TypeError, ValueError):  # a line of another make: asked for anew
            return None
        rows: list[dict[str, Any]] = []
        request = None if request_hash in self._requests else run.request(request_hash)
        if request is not None:
            parts = {name: text for name, text in request["parts"].items() if name not in self._parts}
            rows.append({**request, "parts": parts})
        rows.append(_draw_row(draw, None, 0, run.run.name))
        spans = self._file.append(*rows)
        if request is not None:
            self._known(rows[0], spans[0])
        self._draws[scope, request_hash][i] = spans[-1]
        self._count_taken(draw)
        return draw

    def _count_taken(self, draw: Draw) -> None:
        self.taken += 1
        self.taken_usage += draw.usage

    def has(self, scope: str, request_hash: str, i: int) -> bool:
        """Whether the draw is on record."""
        return i in self._draws.get((scope, request_hash), {})

    def write_reply(self, call: Call, indices: Sequence[int], reply: Reply) -> list[Draw]:
        """Keep a reply and its draws (choice k is draw `indices[k]`) in one write; returns the draws, which nobody
        may use before they are `written`.

        Choices beyond the indices are paid for and dropped. A draw that is there already stays as it is.
        """
        request, rows = call.request, []
        if request.hash not in self._requests:
            rows.append(self._request_row(request))
        self._replies += 1
        name = f"r{self._replies}"
        seconds, waited = round(reply.seconds, 4), round(reply.waited, 4)
        sent, without = self._sent(request.params, reply.sent)
        draws, new = [], []
        used = [reply.usage] if len(indices) == 1 else shares(reply, min(len(indices), len(reply.choices)))
        for k, (i, choice, usage) in enumerate(zip(indices, reply.choices, used, strict=False)):
            if self.has(call.scope, request.hash, i):
                draw = self.draw(call.scope, request.hash, i)
                assert draw is not None
                draws.append(draw)
                continue
            draw = Draw(
                scope=call.scope,
                hash=request.hash,
                i=i,
                text=clean_text(choice.text),
                finish=choice.finish,
                reasoning=None if choice.reasoning is None else clean_text(choice.reasoning),
                logprobs=choice.logprobs,
                usage=usage,
                cost_usd=None if reply.cost_usd is None else reply.cost_usd / len(used),
                sent=sent,
                without=without,
                seconds=seconds,
                waited=waited,
            )
            draws.append(draw)
            new.append(draw)
            rows.append(_draw_row(draw, name, k))
        at = len(rows) - len(new)
        rows.append(
            {
                "kind": "reply",
                "id": name,
                "hash": request.hash,
                "scope": call.scope,
                "first": call.first,
                "n": len(reply.choices),
                "usage": reply.usage.as_dict(),
                "sent": reply.sent,
                "endpoint": reply.endpoint,
                "seed": call.seed,
                "provider_id": reply.provider_id,
                "batch": reply.batch,
                "seconds": seconds,
                "waited": waited,
                "cost_usd": reply.cost_usd,
            }
        )
        spans = self._file.put([dumps(row) if row.get("logprobs") else plain(row) for row in rows])
        if rows[0]["kind"] == "request":
            self._known(rows[0], spans[0])
        places = self._draws[call.scope, request.hash]
        for draw, span in zip(new, spans[at:-1], strict=True):
            places[draw.i] = span
        self._count(reply.usage, reply.cost_usd)
        return draws

    def _sent(self, asked: Params, sent: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """A digest of what was sent, and what was asked for and not sent. (Models give the same object for calls of
        one kind.)"""
        known = self._digests.get(id(sent))
        if known is not None and known[0] is sent and known[1] == asked:
            return known[2], known[3]
        digest = hashlib.sha256(repr(sorted(sent.items())).encode()).hexdigest()[:8]
        wanted = asked.as_dict() if sent else {}
        without = tuple(name for name in REFUSABLE if name in wanted and name not in sent)
        if len(self._digests) >= KINDS:
            self._digests.clear()
        self._digests[id(sent)] = (sent, asked, digest, without)
        return digest, without

    def _known(self, row: Mapping[str, Any], span: Span) -> None:
        self._requests[row["hash"]] = span
        self._parts.update(dict.fromkeys(row["parts"], span))

    def write_request(self, request: Request) -> None:
        """Keep what is asked before it is answered, so that `request` finds it in another process."""
        if request.hash not in self._requests:
            row = self._request_row(request)
            self._known(row, self._file.append(row)[0])

    def request(self, request_hash: str) -> Request | None:
        """The request with this hash; None if it is not on record, or can no longer be read."""
        span = self._requests.get(request_hash)
        if span is None:
            return None
        row = self._file.read(*span)
        try:
            turns = tuple(Turn(role, Text(*map(self.part, names))) for role, names in row["turns"])
        except KeyError:
            return None
        found = Request(row["model"], turns, Params.of(row["params"]))
        return found if found.hash == request_hash else None

    def _request_row(self, request: Request) -> dict[str, Any]:
        new: dict[str, str] = {}
        turns = []
        for turn in request.turns:
            names = turn.text.names
            for name, part in zip(names, turn.text.parts, strict=True):
                if name not in self._parts:
                    new[name] = part
            turns.append([turn.role, names])
        return {
            "kind": "request",
            "hash": request.hash,
            "model": request.model,
            "params": request.params.as_dict(),
            "turns": turns,
            "parts": new,
        }

    def write_begin(self, call: Call) -> None:
        """Keep that a try is about to be made, once it is `written`."""
        self._file.put([plain(_attempt_row(call, None, None))])

    def write_attempt(self, call: Call, error: BaseException, *, possible_cost: bool) -> None:
        """Keep a try that gave no reply, and whether it may have been billed all the same."""
        self.attempts_failed += 1
        self.possibly_billed += possible_cost
        row = _attempt_row(call, f"{type(error).__name__}: {error}", possible_cost)
        batch = getattr(error, "batch", None)
        self._file.append(row if batch is None else {**row, "batch": batch})

    # -- observations ----------------------------------------------------------------------------------
    def observation(self, episode: str, life: int, attempt: int, step: int) -> Recorded | None:
        """What the world said at this step, None if it was not asked yet (or its record is damaged)."""
        span = self._observations.get(episode, {}).get((life, attempt, step))
        if span is None:
            return None
        row = self._file.read(*span)
        try:
            return _recorded_of(row, self._unfold(row["state"]))
        except KeyError:  # a part of its state was in a line that cannot be read
            return None

    def write_observation(self, episode: str, attempt: int, step: int, recorded: Recorded) -> None:
        """Keep what the world said, which nobody may use before it is `written`. A step that is written again (its
        action changed) replaces the old one and all later ones of that attempt."""
        parts: dict[str, str] = {}
        row = {
            "kind": "observation",
            "episode": episode,
            "life": recorded.life,
            "attempt": attempt,
            "step": step,
            "action": recorded.action,
            "text": clean_text(recorded.text),
            "reward": recorded.reward,
            "done": recorded.done,
            "answer": recorded.answer,
            "state": self._fold(recorded.state, parts),
            "parts": parts,
        }
        (span,) = self._file.put([dumps(row)])
        self._place(episode, (recorded.life, attempt, step), span)
        self._parts.update(dict.fromkeys(parts, span))

    def _place(self, episode: str, key: tuple[int, int, int], span: Span) -> None:
        steps = self._observations[episode]
        for later in [k for k in steps if k[:2] == key[:2] and k[2] > key[2]]:
            del steps[later]
        steps[key] = span

    def last_life(self, episode: str) -> int | None:
        """The newest life of an episode that has observations (see `World.replay`), None without any."""
        return max((key[0] for key in self._observations.get(episode, ())), default=None)

    def recorded_steps(self, episode: str, life: int, attempt: int) -> int:
        """How many steps of an attempt are on record."""
        return sum(1 for key in self._observations.get(episode, ()) if key[:2] == (life, attempt))

    def _fold(self, state: Any, parts: dict[str, str]) -> Any:
        if isinstance(state, str) and len(state) > LARGE:
            name = part_name(state)
            if name not in self._parts:
                parts[name] = clean_text(state)
            return {"$part": name}
        if isinstance(state, Mapping):
            return {key: self._fold(value, parts) for key, value in state.items()}
        if isinstance(state, (list, tuple)):
            return [self._fold(value, parts) for value in state]
        return state

    def _unfold(self, state: Any) -> Any:
        if isinstance(state, dict):
            if set(state) == {"$part"}:
                return self.part(state["$part"])
            return {key: self._unfold(value) for key, value in state.items()}
        if isinstance(state, list):
            return [self._unfold(value) for value in state]
        return state

    def part(self, name: str) -> str:
        """The text of a stored part."""
        span = self._parts[name]
        if self._held is None or self._held[0] != span:  # a page's many parts stand in one line
            self._held = (span, self._file.read(*span)["parts"])
        return str(self._held[1][name])

    # -- the file --------------------------------------------------------------------------------------
    def sync(self) -> None:
        """Force everything to the disk. Blocks: call it off the event loop."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
        if self.earlier is not None:
            self.earlier.close()


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


def _recorded_of(row: Mapping[str, Any], state: Any) -> Recorded:
    return Recorded(
        action=row["action"],
        text=row["text"],
        reward=row["reward"],
        done=row["done"],
        answer=row["answer"],
        state=state,
        life=row["life"],
    )


def _draw_row(draw: Draw, reply: str | None, choice: int, taken_from: str | None = None) -> dict[str, Any]:
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


def _attempt_row(call: Call, error: str | None, possible_cost: bool | None) -> dict[str, Any]:
    return {
        "kind": "attempt",
        "hash": call.request.hash,
        "scope": call.scope,
        "first": call.first,
        "error": error,
        "possible_cost": possible_cost,
    }
