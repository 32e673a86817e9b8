"""Runs by batches against the fake servers, beside the same runs in direct mode."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from envs.hotpotqa import HotpotQA
from runner import library
from runner.batch.manner import Manner
from runner.batch.settings import BatchSettings
from runner.job import Job
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.models.anthropic import Anthropic
from runner.models.openai import OpenAI
from runner.testing import prompt_of, pure_answer
from runner.testing_batches import FakeAnthropicBatches, FakeOpenAIBatches
from tests.killing import timeless

SOON = {"shortest_pause": 0.01, "longest_pause": 0.05}
PROVIDERS = {"openai": (OpenAI, FakeOpenAIBatches), "anthropic": (Anthropic, FakeAnthropicBatches)}


def a_model(server, mode="batch", **settings):
    kind = next(model for model, fake in PROVIDERS.values() if type(server) is fake)
    batch = BatchSettings(**{**SOON, **settings.pop("batch", {})})
    return kind(model="fake", base_url=server.url, mode=mode, batch=batch, **settings)


def a_job(server, mode="batch", *, methods=None, limit=4, model=None, **settings):
    model = {"in_flight": 16, **(model or {})}
    if type(server) is FakeOpenAIBatches:
        model.setdefault("max_n", 3)
    return Job.of(
        HotpotQA(),
        methods or CotSC(samples=5, until="all"),
        a_model(server, mode, **model),
        limit=limit,
        **settings,
    )


async def ran(job, outputs, **manner):
    return await library.run(job, outputs=outputs, progress=False, batching=Manner(**manner))


async def resumed(job, run, **manner):
    return await library.resume(run.path, job=job, progress=False, batching=Manner(**manner))


def rows_of(run):
    return [timeless(row) for row in run.trajectories]


def in_any_order(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a provider without seeds: its chains are the same, whichever request got which."""
    votes = row["votes"]
    chains = sorted((chain["text"], chain["answer"] or "") for chain in votes["chains"])
    return {
        "id": row["id"],
        "answer": row["answer"],
        "status": row["status"],
        "chains": chains,
        "tally": votes["tally"],
        "usage": row["usage"],
    }


class Chains:
    """A script for a provider without seeds: the k-th request of a prompt gets the k-th of its chains, of which
    most say the same. Prompts of ReAct get its steps."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, body, k):
        prompt = prompt_of(body, whole=True)
        if re.search(r"(Thought|Action) (\d+):\s*$", prompt):
            return pure_answer(body, k)
        self.seen[prompt] += 1
        number = self.seen[prompt]
        return f" Chain {number} of {len(prompt)}.\nAnswer: {'this' if number % 5 else 'that'}"


METHODS = {"cot_sc": CotSC(samples=5, until="all"), "react": React()}
