"""Recorded actions of a public Reflexion trial on HotpotQA, through our parser and scorer.

OVERNIGHT_HOTPOT_RECORDING names another recording of the same form.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import pytest

from envs.base import Task
from envs.hotpotqa import HotpotQA
from runner.methods.parsing import canonical_action, split


@pytest.fixture(scope="module")
def episodes(published):
    path = published("hotpotqa/reflexion_react_trial0.jsonl.gz", "OVERNIGHT_HOTPOT_RECORDING")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def golds(published):
    """question -> answer of the public dev set, keyed without spacing and punctuation."""
    path = published("hotpotqa/hotpot_dev_v1_simplified.json", "OVERNIGHT_HOTPOT_DEV")
    return {letters(row["question"]): row["answer"] for row in json.loads(path.read_text("utf-8"))}


def letters(text):
    return re.sub(r"[\W_]+", "", text).lower()


def answered(episode):
    """The answer of the first finishing action, read as a model's reply would be; None without one."""
    for i, (thought, action, _) in enumerate(episode["steps"], 1):
        _, read = split(f" {thought}\nAction {i}: {action}")
        called = canonical_action(read or "")
        if called.startswith("finish["):
            return called.removeprefix("finish[").removesuffix("]")
    return None


def test_em_is_one_exactly_where_the_recording_says_correct(episodes, golds):
    world = HotpotQA()
    counts, exceptions = Counter(), []
    for episode in episodes:
        gold = golds.get(letters(episode["question"]))
        if gold is None:
            exceptions.append(f"no such dev question: {episode['question']!r}")
            continue
        em = world.score(Task("t", episode["question"], gold), answered(episode))["em"]
        said = episode["status"] == "correct"
        counts["episodes"] += 1
        counts["correct"] += said
        counts["agree"] += (em == 1.0) == said
        if (em == 1.0) != said:
            exceptions.append(
                f"{episode['question']!r}: {answered(episode)!r} for {gold!r}, {episode['status']}"
            )
    print(f"\nHotpotQA, recorded Reflexion trial: {dict(counts)}; exceptions: {exceptions or 'none'}")
    assert counts["episodes"] + sum("no such" in e for e in exceptions) == len(episodes) > 0
    assert counts["agree"] == counts["episodes"], exceptions
