"""A model that answers from a record: a published transcript, or the ledger of an earlier run."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import orjson
from pydantic import Field, PrivateAttr, model_validator

from runner.errors import EpisodeFailed, JobError
from runner.jsonl import rows, scan
from runner.models.base import Call, Choice, Model, Reply, Usage, cut_at_stop

Step: TypeAlias = tuple[str, str, str]


class Replay(Model):
    """Exactly one of `transcript` and `run` is given.

    `transcript`: JSON lines (also .gz), a row an episode: its text under `question`, `claim` or `input`, and
    either `steps` [[thought, action, observation], …] (with `n_badcalls`, the replies that had no action) or
    `generated_answer` [chain, …], whose chain i is draw i. A ReAct reply is put together again as thought,
    newline, `Action i: action`, and is found by all that was said before it.

    `run`: a run's folder; draws are found by their key in its ledger, so methods and prompts must be the same.
    """

    provider: ClassVar[str] = "replay"
    remote: ClassVar[bool] = False

    transcript: Path | None = Field(None, description="A recorded transcript, JSON lines.")
    run: Path | None = Field(None, description="The folder of an earlier run.")
    api: Any = Field("completions", description="Raw prompts or messages; of the run, where one is given.")
    max_n: int = Field(1000, gt=0)

    _replies: dict[str, str] = PrivateAttr(default_factory=dict)
    _chains: dict[str, list[str]] = PrivateAttr(default_factory=dict)
    _draws: dict[tuple[str, str, int], Choice] = PrivateAttr(default_factory=dict)
    _identity: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and bool(settings.get("transcript")) == bool(settings.get("run")):
            raise ValueError("give either `transcript` (a file) or `run` (a run's folder)")
        return settings

    def model_post_init(self, context: Any) -> None:
        if self.transcript is not None:
            path = _find(self.transcript)
            self._identity = f"replay:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
            for row in _read(path):
                self._learn(row)
        else:
            assert self.run is not None
            self._identity = self._learn_run(self.run)

    @property
    def identity(self) -> str:
        return self._identity

    def _learn(self, row: dict[str, Any]) -> None:
        said = row.get("question") or row.get("claim") or row.get("input")
        if not isinstance(said, str):
            raise JobError(
                f"{self.transcript}: a row without `question`, `claim` or `input`: {str(row)[:80]}"
            )
        if "generated_answer" in row:
            self._chains[_key(said)] = list(row["generated_answer"])
            return
        without_action = steps_without_action(row["steps"], row.get("n_badcalls", 0))
        before = said + "\n"
        for i, (thought, action, observation) in enumerate(row["steps"], 1):
            whole = thought if i in without_action else f"{thought}\nAction {i}: {action}"
            self._replies[_key(f"{before}Thought {i}:")] = " " + whole
            self._replies[_key(f"{before}Thought {i}: {thought}\nAction {i}:")] = " " + action
            before += f"Thought {i}: {thought}\nAction {i}: {action}\nObservation {i}: {observation}\n"

    def _learn_run(self, run: Path) -> str:
        from runner.outputs import read_manifest

        manifest = read_manifest(run)
        shape = manifest.get("shape", {})
        models = {key.rpartition(".")[0] for key in shape if key.startswith("models.")}
        if len(models) != 1:
            raise JobError(f"{run}: has {len(models)} models; a replay is of one")
        (model,) = models
        for row in rows(run / "ledger.jsonl"):
            if row.get("kind") == "draw" and {"scope", "hash", "i", "text", "finish"} <= row.keys():
                key = (row["scope"], row["hash"], row["i"])
                self._draws.setdefault(key, Choice(row["text"], row["finish"], row.get("reasoning")))
        return str(shape[f"{model}.identity"])

    async def call(self, call: Call) -> Reply:
        stops = call.request.params.stop
        found = [self._choice(call, i) for i in range(call.first, call.first + call.n)]
        choices = [Choice(cut_at_stop(c.text, stops)[0], c.finish, c.reasoning) for c in found]
        words = sum(len(choice.text.split()) for choice in choices)
        return Reply(
            choices,
            Usage(prompt=len(call.request.prompt.split()), completion=words, calls=1),
            sent=call.request.params.as_dict(),
            endpoint="replay",
            cost_usd=0.0,
        )

    def _choice(self, call: Call, i: int) -> Choice:
        if self.run is not None:
            try:
                return self._draws[call.scope, call.request.hash, i]
            except KeyError:
                raise EpisodeFailed(
                    f"{self.run} holds no draw {i} of this request in {call.scope}: the prompt, its parameters or "
                    "the world's name differ from that run's"
                ) from None
        for tail in _tails(call.request.prompt):
            key = _key(tail)
            if key in self._replies:
                return Choice(self._replies[key])
            chains = self._chains.get(key.removesuffix(" Thought:").removesuffix(" Answer:"))
            if chains is not None:
                if i >= len(chains):
                    raise EpisodeFailed(f"{self.transcript}: only {len(chains)} chains of {tail[:60]!r}")
                return Choice(chains[i])
        raise EpisodeFailed(
            f"{self.transcript}: no reply was recorded after {call.request.prompt[-80:]!r}: this episode has left "
            "the recording"
        )


def steps_without_action(steps: list[Step], bad_calls: int) -> set[int]:
    """Which steps' replies are taken to have lacked an action, given only how many did.

    The record keeps the number alone. Any choice leads to the same prompts and steps; the first that could
    have been are taken (a one-line thought, an action without white space around it).
    """
    could = [i for i, (t, a, _) in enumerate(steps, 1) if "\n" not in t and a == a.strip() and a]
    return set(could[:bad_calls])


def _tails(prompt: str) -> Iterator[str]:
    """What follows each introduction (`Question: `, `Claim: `, …) of the prompt, the last one first."""
    marks = ("Question: ", "Claim: ", "Q: ")
    at = len(prompt)
    while True:
        at = max(prompt.rfind(mark, 0, at) for mark in marks)
        if at < 0:
            return
        yield prompt[at:].split(": ", 1)[1]
        yield prompt[at:]


def _key(text: str) -> str:
    return " ".join(text.split())


def _find(path: Path) -> Path:
    from envs.data import find

    return find(path)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".gz":
        for _, _, row in scan(path):
            if row is not None:
                yield row
        return
    with gzip.open(path) as file:
        for line in file.read().split(b"\n"):
            if line.strip():
                yield orjson.loads(line)
