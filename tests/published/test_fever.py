"""ReAct against its authors' own FEVER episodes: the same prompts, steps, answers and scores.

OVERNIGHT_FEVER_RECORDING names another recording of the same form, OVERNIGHT_FEVER_PROMPTS another prompt file.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict

import pytest

from runner import library
from runner.job import Job
from runner.jsonl import rows

RECORDING = "fever/react_davinci002_0_249.jsonl.gz"


@pytest.fixture(scope="module")
def recording(published):
    return published(RECORDING, "OVERNIGHT_FEVER_RECORDING")


@pytest.fixture(scope="module")
def prompts(published):
    return published("prompts/react/fever.json", "OVERNIGHT_FEVER_PROMPTS")


@pytest.fixture(scope="module")
def episodes(recording):
    with gzip.open(recording, "rt", encoding="utf-8") as file:
        return {str(row["idx"]): row for row in map(json.loads, file)}


def job(recording, prompts, compat):
    return Job.parse(
        {
            "name": "fever",
            "compat": compat,
            "models": {"recorded": {"provider": "replay", "transcript": str(recording)}},
            "envs": {
                "fever": {
                    "world": "recording",
                    "scorer": "fever",
                    "data": str(recording),
                    "prompts": [str(prompts)],
                }
            },
            "methods": {"react": {"steps": 7}},
        }
    )


async def run_it(recording, prompts, compat, folder):
    run = await library.run(job(recording, prompts, compat), outputs=folder, progress=False)
    return run, {row["task_id"]: row for row in run.trajectories}


def prompts_of(run):
    """All prompts that were sent, by the task's scope."""
    parts, texts, sent = {}, {}, defaultdict(list)
    for row in rows(run.path / "ledger.jsonl"):
        parts.update(row.get("parts") or {})
        if row["kind"] == "request":
            ((role, names),) = row["turns"]
            assert role == "prompt"
            texts[row["hash"]] = "".join(parts[name] for name in names)
        elif row["kind"] == "draw":
            sent[row["scope"]].append(texts[row["hash"]])
    return sent


def rebuilt_prompts(episode, opening):
    """(the prompts asked for thoughts, the prompts that may ask for an action again) of the public code."""
    prompt, thoughts, again = opening + f"Claim: {episode['claim']}\n", [], []
    for i, (thought, action, observation) in enumerate(episode["steps"], 1):
        thoughts.append(f"{prompt}Thought {i}:")
        again.append(f"{prompt}Thought {i}: {thought}\nAction {i}:")
        prompt += f"Thought {i}: {thought}\nAction {i}: {action}\nObservation {i}: {observation}\n"
    return thoughts, again


async def test_every_published_fever_episode_is_retraced_in_reference_mode(
    recording, prompts, episodes, tmp_path
):
    opening = json.loads(prompts.read_text("utf-8"))["webthink_simple3"]
    run, found = await run_it(recording, prompts, "reference", tmp_path)
    sent = prompts_of(run)
    counts = Counter()
    for idx, episode in episodes.items():
        row = found[idx]
        steps = [[s["thought"], s["action"], s["observation"]] for s in row["steps"]][: len(episode["steps"])]
        seen = [[t, a[:1].lower() + a[1:], o] for t, a, o in episode["steps"]]
        thoughts, again = rebuilt_prompts(episode, opening)
        asked = sent[f"fever/{idx}#0"]
        counts["episodes"] += 1
        counts["same steps"] += steps == seen
        counts["same answer"] += (row["answer"] or "") == episode["answer"]
        counts["same EM"] += row["scores"]["em"] == episode["em"]
        counts["same number of world steps"] += row["n_steps"] == episode["n_env_steps"]
        counts["same prompts"] += [p for p in asked if p not in again] == thoughts
        counts["second calls as often"] += sum(p in again for p in asked) == episode["n_badcalls"]
        counts["prompts"] += len(asked)
        counts["correct"] += row["scores"]["em"]
    print(f"\nFEVER, reference protocol: {dict(counts)}")
    n = len(episodes)
    assert counts["episodes"] == len(found) == n > 0
    for what in ("same steps", "same answer", "same EM", "same number of world steps", "same prompts"):
        assert counts[what] == n, what
    assert counts["second calls as often"] == n


async def test_the_default_protocol_changes_only_what_its_better_parsing_explains(
    recording, prompts, episodes, tmp_path
):
    _, found = await run_it(recording, prompts, "default", tmp_path)
    changes = Counter()
    for idx, episode in episodes.items():
        row = found[idx]
        odd = any(observation.startswith("Invalid action") for _, _, observation in episode["steps"])
        if row["status"] == "error":
            changes["leaves the recording: its action is read where the public code called it invalid"] += 1
            assert odd, (idx, row["error"])
        elif (row["answer"] or "") != episode["answer"]:
            changes[f"answers {row['answer']!r} instead of {episode['answer']!r}"] += 1
            assert odd, idx
        elif row["scores"]["em"] != episode["em"]:
            changes["same answer, other score"] += 1
            assert odd or row["scores"]["em"] > episode["em"], idx
        else:
            changes["unchanged"] += 1
    print(f"\nFEVER, default protocol against the recording: {dict(changes)}")
    assert sum(changes.values()) == len(episodes)
    assert changes["unchanged"] > 0.9 * len(episodes)
