"""A published transcript: what a model said in recorded episodes, found by what was said before it."""

from __future__ import annotations

import gzip
import hashlib
import random
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from runner.errors import EpisodeFailed

Step: TypeAlias = Sequence[str]
"""Thought, action, observation."""

INPUTS = ("question", "claim", "input")
"""Where a row has its task's text."""
NOT_RECORDED = "…"
"""Stands for the rest of a reply of which only the first line is known."""


class Transcript:
    """JSON lines (also .gz), a row an episode: the task's text under `question`, `claim` or `input`, and either

    - `steps` [[thought, action, observation], …], with `n_badcalls`, the number of replies without an action.
      A ReAct reply is put together again as thought, newline, `Action i: action`; or
    - `generated_answer` [chain, …], whose chain i is draw i.

    Rows that are damaged or have another form are left out and counted in `unreadable`; of two rows that begin
    alike the first counts. Raises ValueError where nothing is left.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        raw = path.read_bytes()
        self.digest = hashlib.sha256(raw).hexdigest()
        self.unreadable = 0
        self._replies: dict[str, str] = {}
        self._chains: dict[str, list[str | None]] = {}
        for line in self._lines(raw):
            if line.strip() and not self._learn(line):
                self.unreadable += 1
        if not self._replies and not self._chains:
            raise ValueError(
                f"{path}: no recorded episode in it ({self.unreadable} rows are of no use); a row is a JSON "
                "object with `question`, `claim` or `input`, and `steps` or `generated_answer`"
            )

    def replies(self, prompt: str, indices: Sequence[int], order: str = "") -> list[str]:
        """Draws of a prompt; of its chains in the order that `order` seeds, if it says anything. Raises
        EpisodeFailed for one that was not recorded."""
        for tail in _tails(prompt):
            key = _key(tail)
            if key in self._replies:
                return [self._replies[key]] * len(indices)
            chains = self._chains.get(key.removesuffix(" Thought:").removesuffix(" Answer:"))
            if chains is not None:
                if order:
                    chains = random.Random(order).sample(chains, len(chains))
                return [self._chain(chains, i, tail) for i in indices]
        lost = f" (or it stood in one of the {self.unreadable} damaged rows)" if self.unreadable else ""
        raise EpisodeFailed(
            f"{self.path}: no reply was recorded after {prompt[-80:]!r}: this episode has left the recording{lost}"
        )

    def _chain(self, chains: Sequence[str | None], i: int, tail: str) -> str:
        if i >= len(chains):
            raise EpisodeFailed(f"{self.path}: only {len(chains)} chains of {tail[:60]!r}, asked for {i + 1}")
        if (chain := chains[i]) is None:
            raise EpisodeFailed(f"{self.path}: chain {i} of {tail[:60]!r} is damaged")
        return chain

    # -- reading ---------------------------------------------------------------------------------------
    def _lines(self, raw: bytes) -> Iterator[bytes]:
        """All lines; of a damaged archive, those before the damage."""
        if self.path.suffix != ".gz":
            yield from raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
            return
        try:
            with gzip.open(self.path) as file:
                for line in file:
                    yield line.removeprefix(b"\xef\xbb\xbf")
        except (EOFError, OSError, zlib.error):
            self.unreadable += 1

    def _learn(self, line: bytes) -> bool:
        """Take up a row; False where it is of no use."""
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(row, dict):
            return False
        said = next((row[key] for key in INPUTS if isinstance(row.get(key), str)), None)
        chains, steps = row.get("generated_answer"), row.get("steps")
        if said is None:
            return False
        if isinstance(chains, list):
            texts = [chain if isinstance(chain, str) else None for chain in chains]
            self._chains.setdefault(_key(said), texts)
            return True
        if not isinstance(steps, list) or not all(map(_is_step, steps)):
            return False
        bad_calls = row.get("n_badcalls")
        self._learn_steps(said, steps, bad_calls if isinstance(bad_calls, int) else 0)
        return True

    def _learn_steps(self, said: str, steps: Sequence[Step], bad_calls: int) -> None:
        without_action = steps_without_action(steps, bad_calls)
        before = said + "\n"
        for i, (thought, action, observation) in enumerate(steps, 1):
            reply = f" {thought}\nAction {i}: {action}"
            if i in without_action:
                # the public code strips the whole reply, then takes its first line
                reply = f" {thought}" + (f"\n{NOT_RECORDED}" if thought != thought.rstrip() else "")
            self._replies.setdefault(_key(f"{before}Thought {i}:"), reply)
            again = f"{before}Thought {i}: {thought}\nAction {i}:"
            self._replies.setdefault(_key(again), f" {action}")
            before += f"Thought {i}: {thought}\nAction {i}: {action}\nObservation {i}: {observation}\n"


def steps_without_action(steps: Sequence[Step], bad_calls: int) -> set[int]:
    """Which steps' (from 1) replies are taken to have lacked an action, given only how many did.

    The record keeps the number alone. Any choice that could have been leads to the same prompts and steps:
    the thought is one line, the action another without white space around it. Steps without a thought or an
    action must have been such replies; then the first whose thought tells the whole reply are taken.
    """
    must: list[int] = []
    whole: list[int] = []
    cut: list[int] = []
    for i, (thought, action, _) in enumerate(steps, 1):
        if not thought or not action:
            must.append(i)
        elif "\n" not in thought + action and action == action.strip() and thought == thought.lstrip():
            (whole if thought == thought.rstrip() else cut).append(i)
    return {*must, *(must + whole + cut)[: max(bad_calls, 0)]}


def _is_step(step: Any) -> bool:
    return isinstance(step, list) and len(step) == 3 and all(isinstance(part, str) for part in step)


def _tails(prompt: str) -> Iterator[str]:
    """What may be a task's text and all that follows it, the last one first: from each line's beginning, and
    from after the word that introduces it (`Question: `, `Claim: `, …)."""
    end = len(prompt)
    while end >= 0:
        start = prompt.rfind("\n", 0, end) + 1
        colon = prompt.find(": ", start, end)
        if colon >= 0:
            yield prompt[colon + 2 :]
        yield prompt[start:]
        end = start - 1


def _key(text: str) -> str:
    return " ".join(text.split())
