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
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.errors import RunError
from runner.jsonl import Appender, clean_text, dumps, plain, scan
from runner.lines import Draw, Recorded, attempt_row, draw_of, draw_row, recorded_of, shares
from runner.models.base import Call, Params, Reply, Request, Text, Turn, Usage, part_name
from runner.places import EDGE, Places, Span, of_draw, of_lives, of_name, of_step
from runner.reuse import Earlier

REFUSABLE = ("temperature", "top_p", "logprobs")
"""Parameters without which a draw is of another experiment: the row is flagged where one was not sent."""
SHORT = 64
"""Parts of a prompt that are shorter stand in each request's line, the others once in the ledger."""
LARGE = 200
"""Strings of a session's state longer than this are stored once, by content hash."""

KINDS = 1000
"""Most objects of sent parameters whose digests are remembered."""


class Ledger:
    """The open ledger of one run. Draws are found by (scope, hash, i), observations by (episode, life, attempt,
    step); only their places in the file are kept in memory. `frozen`: nobody writes to it while it is open, here or
    elsewhere; then several processes may have it open."""

    def __init__(self, path: Path, *, frozen: bool = False) -> None:
        self._file = Appender(path)
        self.written: Callable[[], Awaitable[None]] = self._file.written
        """Until all that was given to be kept is in the kernel's hands. Raises RunError where it cannot be."""
        self._places = Places(path, frozen=frozen)
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
        self._under_way: Counter[tuple[str, str, int]] = Counter()
        """Tries that were begun and have not ended; below 0 for ends without a beginning."""
        try:
            self._read(*self._places.load())
        except BaseException:
            self._places.close()
            self._file.close()
            raise
        self.cut_off = sum(count for count in self._under_way.values() if count > 0)
        self.possibly_billed += self.cut_off

    def _read(self, start: int, counts: Mapping[str, Any]) -> None:
        """Take up what an earlier process had counted up to a byte, and all lines that follow."""
        if counts:
            self.unreadable, self._replies = counts["unreadable"], counts["replies"]
            self.paid, self.taken_usage = Usage(**counts["paid"]), Usage(**counts["taken_usage"])
            self.paid_usd, self.unpriced, self.taken = counts["paid_usd"], counts["unpriced"], counts["taken"]
            self.attempts_failed, self.possibly_billed = counts["failed"], counts["possibly_billed"]
            self._under_way.update({(scope, of, first): n for scope, of, first, n in counts["under_way"]})
        for offset, length, row in scan(self._file.path, start):
            try:
                self._index(row or {}, (offset, length))
                if row is not None and row["kind"] in ("attempt", "reply") and not row.get("batch"):
                    begins = row["kind"] == "attempt" and row["error"] is None
                    self._count_way((row["scope"], row["hash"], row["first"]), 1 if begins else -1)
            except (KeyError, TypeError, ValueError, AttributeError):
                self.unreadable += 1
            while self._places.full:
                self._places.write(self._file.size)

    def _count_way(self, key: tuple[str, str, int], change: int) -> None:
        """A try has begun (1) or ended (-1)."""
        left = self._under_way[key] + change
        if left:
            self._under_way[key] = left
        else:
            del self._under_way[key]

    def _index(self, row: Mapping[str, Any], span: Span) -> None:
        """Find a place for a row. Raises, before anything is changed, for one that could not be used."""
        kind, places = row["kind"], self._places
        if kind == "draw":
            draw = draw_of(row)
            reply = row.get("reply")
            number = 0 if reply is None else int(reply[1:])
            if not (isinstance(draw.scope, str) and isinstance(draw.hash, str) and isinstance(draw.i, int)):
                raise TypeError(f"no name of a draw: {draw.scope!r}, {draw.hash!r}, {draw.i!r}")
            self._replies = max(self._replies, number)
            key = of_draw(draw.scope, draw.hash, draw.i)
            known = places.get(key)  # its own where an earlier process put it there
            if known in (None, span) or self._draw_at(known, draw.scope, draw.hash, draw.i) is None:
                places.put(key, span)
                if row.get("from"):
                    self._count_taken(draw)
        elif kind == "observation":
            recorded_of(row, row["state"])
            parts = [*row["parts"].keys()]
            self._place(row["episode"], int(row["life"]), int(row["attempt"]), int(row["step"]), span)
            for name in parts:
                places.name(name, span)
        elif kind == "request":
            self._known(row, span)
        elif kind == "reply":
            number = int(row["id"][1:])
            self._count(Usage(**row["usage"]), row["cost_usd"])
            self._replies = max(self._replies, number)
        elif kind == "attempt" and row["error"] is not None:
            self.possibly_billed += bool(row["possible_cost"])
            self.attempts_failed += 1

    def _tend(self) -> None:
        """Bring places into the index's file as they become many, in steps; and note how far it is complete."""
        places = self._places
        if places.due:
            self._file.flush()
            places.note(*self._so_far())
        if places.full:
            self._file.flush()
            places.write(self._file.size)

    def _so_far(self) -> tuple[int, bytes, int, dict[str, Any]]:
        """What is noted of it, all of it being written: its size, its last bytes, when it changed, what it counted."""
        counts = {
            "unreadable": self.unreadable,
            "replies": self._replies,
            "paid": self.paid.as_dict(),
            "paid_usd": self.paid_usd,
            "unpriced": self.unpriced,
            "failed": self.attempts_failed,
            "possibly_billed": self.possibly_billed - self.cut_off,
            "taken": self.taken,
            "taken_usage": self.taken_usage.as_dict(),
            "under_way": [[*key, n] for key, n in self._under_way.items() if n],
        }
        return self._file.size, self._file.tail(EDGE), self._file.changed, counts

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
        span = self._places.get(of_draw(scope, request_hash, i))
        if span is not None and (draw := self._draw_at(span, scope, request_hash, i)) is not None:
            return draw
        return None if self.earlier is None else self._take(self.earlier, scope, request_hash, i)

    def _draw_at(self, span: Span, scope: str, request_hash: str, i: int) -> Draw | None:
        """The draw at a place, if that is where it stands."""
        try:
            draw = draw_of(self._file.read(*span))
        except (KeyError, TypeError, ValueError):
            return None
        return draw if (draw.scope, draw.hash, draw.i) == (scope, request_hash, i) else None

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
        request = None if self._places.knows(request_hash) else run.request(request_hash)
        if request is not None:
            parts = {name: text for name, text in request["parts"].items() if not self._places.knows(name)}
            rows.append({**request, "parts": parts})
        rows.append(draw_row(draw, None, 0, run.run.name))
        spans = self._file.append(*rows)
        if request is not None:
            self._known(rows[0], spans[0])
        self._places.put(of_draw(scope, request_hash, i), spans[-1])
        self._count_taken(draw)
        return draw

    def _count_taken(self, draw: Draw) -> None:
        self.taken += 1
        self.taken_usage += draw.usage

    def has(self, scope: str, request_hash: str, i: int) -> bool:
        """Whether the draw is on record."""
        return self._places.get(of_draw(scope, request_hash, i)) is not None

    def write_reply(self, call: Call, indices: Sequence[int], reply: Reply) -> list[Draw]:
        """Keep a reply and its draws (choice k is draw `indices[k]`) in one write; returns the draws, which nobody
        may use before they are `written`.

        Choices beyond the indices are paid for and dropped. A draw that is there already stays as it is.
        """
        request, rows = call.request, []
        places = self._places
        if not places.knows(request.hash):
            rows.append(self._request_row(request))
        self._replies += 1
        name = f"r{self._replies}"
        seconds, waited = round(reply.seconds, 4), round(reply.waited, 4)
        sent, without = self._sent(request.params, reply.sent)
        draws, new = [], []
        used = [reply.usage] if len(indices) == 1 else shares(reply, min(len(indices), len(reply.choices)))
        for k, (i, choice, usage) in enumerate(zip(indices, reply.choices, used, strict=False)):
            span = places.get(of_draw(call.scope, request.hash, i))
            if span is not None and (old := self._draw_at(span, call.scope, request.hash, i)) is not None:
                draws.append(old)
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
            rows.append(draw_row(draw, name, k))
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
        for draw, span in zip(new, spans[at:-1], strict=True):
            places.put(of_draw(call.scope, request.hash, draw.i), span)
        self._count(reply.usage, reply.cost_usd)
        if reply.batch is None:
            self._count_way((call.scope, call.request.hash, call.first), -1)
        self._tend()
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
        of, parts = row["hash"], [name for name, part in row["parts"].items() if len(part) >= SHORT]
        if not isinstance(of, str):
            raise TypeError(f"no hash of a request: {of!r}")
        self._places.name(of, span)
        for name in parts:
            self._places.name(name, span)

    def write_request(self, request: Request) -> None:
        """Keep what is asked before it is answered, so that `request` finds it in another process."""
        if not self._places.knows(request.hash):
            row = self._request_row(request)
            self._known(row, self._file.append(row)[0])

    def request(self, request_hash: str) -> Request | None:
        """The request with this hash; None if it is not on record, or can no longer be read."""
        span = self._places.get(of_name(request_hash))
        if span is None:
            return None
        try:
            row = self._file.read(*span)
            own = row["parts"]
            turns = tuple(
                Turn(role, Text(*(own[name] if name in own else self.part(name) for name in names)))
                for role, names in row["turns"]
            )
        except (KeyError, ValueError):
            return None
        found = Request(row["model"], turns, Params.of(row["params"]))
        return found if found.hash == request_hash else None

    def _request_row(self, request: Request) -> dict[str, Any]:
        new: dict[str, str] = {}
        turns = []
        for turn in request.turns:
            names = turn.text.names
            for name, part in zip(names, turn.text.parts, strict=True):
                if len(part) < SHORT or not self._places.knows(name):
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
        self._count_way((call.scope, call.request.hash, call.first), 1)
        self._file.put([plain(attempt_row(call, None, None))])

    def write_attempt(self, call: Call, error: BaseException, *, possible_cost: bool) -> None:
        """Keep a try that gave no reply, and whether it may have been billed all the same."""
        self.attempts_failed += 1
        self.possibly_billed += possible_cost
        row = attempt_row(call, f"{type(error).__name__}: {error}", possible_cost)
        batch = getattr(error, "batch", None)
        if batch is None:
            self._count_way((call.scope, call.request.hash, call.first), -1)
        self._file.append(row if batch is None else {**row, "batch": batch})

    # -- observations ----------------------------------------------------------------------------------
    def observation(self, episode: str, life: int, attempt: int, step: int) -> Recorded | None:
        """What the world said at this step, None if it was not asked yet (or its record is damaged)."""
        span = self._places.get(of_step(episode, life, attempt, step))
        if span is None:
            return None
        try:
            row = self._file.read(*span)
            if (row["episode"], row["life"], row["attempt"], row["step"]) != (episode, life, attempt, step):
                return None
            return recorded_of(row, self._unfold(row["state"]))
        except (
            KeyError,
            TypeError,
            ValueError,
        ):  # it, or a part of its state, is in a line that cannot be read
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
        self._place(episode, recorded.life, attempt, step, span)
        for name in parts:
            self._places.name(name, span)
        self._tend()

    def _place(self, episode: str, life: int, attempt: int, step: int, span: Span) -> None:
        places = self._places
        place, length, lives = (
            of_step(episode, life, attempt, step),
            of_step(episode, life, attempt, -1),
            of_lives(episode),
        )
        for later in range(step + 1, before := places.number(length)):
            places.put_number(of_step(episode, life, attempt, later), 0)
        places.put(place, span)
        if before != step + 1:
            places.put_number(length, step + 1)
        if places.number(lives) <= life:
            places.put_number(lives, life + 1)

    def last_life(self, episode: str) -> int | None:
        """The newest life of an episode that has observations (see `World.replay`), None without any."""
        lives = self._places.number(of_lives(episode))
        return lives - 1 if lives else None

    def recorded_steps(self, episode: str, life: int, attempt: int) -> int:
        """How many steps of an attempt are on record."""
        steps = range(self._places.number(of_step(episode, life, attempt, -1)))
        return sum(1 for step in steps if self._places.number(of_step(episode, life, attempt, step)))

    def _fold(self, state: Any, parts: dict[str, str]) -> Any:
        if isinstance(state, str) and len(state) > LARGE:
            name = part_name(state)
            if not self._places.knows(name):
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
        """The text of a stored part. Raises KeyError where there is none."""
        span = self._places.get(of_name(name))
        if span is None:
            raise KeyError(name)
        if self._held is None or self._held[0] != span:  # a page's many parts stand in one line
            self._held = (span, self._file.read(*span)["parts"])
        return str(self._held[1][name])

    # -- the file --------------------------------------------------------------------------------------
    def sync(self) -> None:
        """Force everything to the disk. Blocks: call it off the event loop."""
        self._file.sync()

    def close(self) -> None:
        """Raises RunError where something could not be kept and nobody has heard of it."""
        with suppress(RunError):  # else the index is complete as far as it was noted last
            if self._places.on_disk and not self._places.frozen and self._file.whole:
                self._places.finish(*self._so_far())
        self._places.close()
        if self.earlier is not None:
            self.earlier.close()
        self._file.close()
