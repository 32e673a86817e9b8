"""A server that answers all seven methods of the ReAct paper over the embedded questions and claims, now right and
now wrong, and the paper's verdicts reckoned anew from what it said, slowly and by other means than the project's."""

from __future__ import annotations

import hashlib
import re
import string
from collections import Counter, defaultdict
from itertools import product
from math import comb

import orjson

from envs.fever import Fever
from envs.hotpotqa import HotpotQA
from runner.jsonl import rows
from runner.testing import prompt_of

GOLD = {task.input: str(task.target) for world in (HotpotQA(), Fever()) for task in world.tasks()}
WRONG = {
    "Question": ("nobody at all", "the Blue Room", "42"),
    "Claim": ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO"),
}

JOB = """
name = "paper"
limit = {limit}
{more}
[models.policy]
provider = "openai"
model = "fake"
base_url = "{url}"
max_n = 7
in_flight = 32
price = {{ input = 1.0, output = 4.0 }}
[envs.hotpotqa]
[envs.fever]
[methods.standard]
[methods.cot]
[methods.cot_sc]
samples = {samples}
until = "{until}"
[methods.act]
[methods.react]
[methods.cot_sc_then_react]
samples = {samples}
until = "{until}"
[methods.react_then_cot_sc]
samples = {samples}
until = "{until}"
"""


def number(*what):
    text = "\0".join(map(str, what))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def script(body, k):
    """n texts that depend on the prompt, the seed and the choice alone."""
    prompt = prompt_of(body)
    label, asked = re.findall(r"^(Question|Claim): (.*)$", prompt, re.MULTILINE)[-1]
    gold, wrong = GOLD[asked], WRONG[label]
    step = re.search(r"(Thought|Action) (\d+):$", prompt)
    if step:
        return [acting(asked, gold, wrong, step[1], int(step[2]))] * int(body.get("n") or 1)
    texts = []
    for choice in range(int(body.get("n") or 1)):
        luck = number(prompt, body.get("seed"), choice) % 100
        skill = number(asked, "skill") % 70 + 10
        if luck >= 92:
            texts.append(" I lost my way")
        else:
            answer = gold if luck < skill else wrong[luck % 3]
            texts.append(f" {answer}" if prompt.endswith("Answer:") else f" So {luck}.\nAnswer: {answer}")
    return texts


def acting(asked, gold, wrong, word, at):
    """A third of the tasks never come to an end; the others finish at their second step, half of them right."""
    luck = number(asked, "acting", word) % 6
    action = f"Search[Nothing {at}]" if at < 2 or luck < 2 else f"Finish[{gold if luck < 4 else wrong[0]}]"
    return f" {action}" if word == "Action" else f" Hm.\nAction {at}: {action}"


# -- the slow way ------------------------------------------------------------------------------------------------
def simple(text):
    """The official normal form, written down anew."""
    words = "".join(" " if c in string.whitespace else c for c in text.lower() if c not in string.punctuation)
    return " ".join(word for word in words.split() if word not in ("a", "an", "the"))


def chains(run):
    """By (world, task): the answers of its chains in draw order, None for an invalid one."""
    found = defaultdict(dict)
    for row in rows(run.path / "ledger.jsonl"):
        if row["kind"] == "draw":
            found[row["scope"], row["hash"]][row["i"]] = row["text"]
    answers = {}
    for (scope, _), texts in found.items():
        if len(texts) > 1:
            world, task = scope.removesuffix("#0").split("/", 1)
            told = [re.search(r"Answer: (.*)$", texts[i]) for i in range(len(texts))]
            answers[world, task] = [None if match is None else match[1] for match in told]
    return answers


def majority(answers):
    """The leading answer, of equal ones the first that was drawn, and its votes."""
    votes = Counter(simple(answer) for answer in answers if answer is not None)
    if not votes:
        return None, 0
    most = max(votes.values())
    return next(a for a in answers if a is not None and votes[simple(a)] == most), most


def verdicts(run):
    """By (world, method): the scores of its tasks, the sampling methods' from chains and ReAct's answers alone."""
    told = chains(run)
    answer = {(row["env"], row["task_id"], row["method"]): row["answer"] for row in run.trajectories}
    target = {(row["env"], row["task_id"]): row["target"] for row in run.trajectories}
    scores = defaultdict(list)
    for (world, task), gold in target.items():
        first, votes = majority(told[world, task])
        react = answer[world, task, "react"]
        said = {name: answer[world, task, name] for name in ("standard", "cot", "act", "react")}
        said["cot_sc"] = first
        said["cot_sc_then_react"] = first if 2 * votes >= len(told[world, task]) else react
        said["react_then_cot_sc"] = react or first
        for method, given in said.items():
            scores[world, method].append(float(given is not None and simple(given) == simple(gold)))
    return scores


def curve(run, n):
    """By (world, method): expected scores with 1..n chains, by going through every way a subset can be made up."""
    told = chains(run)
    react = {(r["env"], r["task_id"]): r for r in run.trajectories if r["method"] == "react"}
    sums = defaultdict(lambda: [0.0] * n)
    for key, answers in told.items():
        gold, row = simple(react[key]["target"]), react[key]
        acted = float(row["answer"] is not None and simple(row["answer"]) == gold)
        votes = Counter(simple(answer) for answer in answers if answer is not None)
        names, invalid = list(votes), answers.count(None)
        for taken in product(*(range(votes[name] + 1) for name in names), range(invalid + 1)):
            k = sum(taken)
            if k == 0:
                continue
            weight = 1.0
            for name, x in zip(names, taken, strict=False):
                weight *= comb(votes[name], x)
            weight *= comb(invalid, taken[-1]) / comb(n, k)
            most = max(taken[:-1], default=0)
            leaders = [name for name, x in zip(names, taken, strict=False) if most and x == most]
            right = sum(name == gold for name in leaders) / len(leaders) if leaders else 0.0
            world = key[0]
            sums[world, "cot_sc"][k - 1] += weight * right
            sums[world, "cot_sc_then_react"][k - 1] += weight * (right if 2 * most >= k else acted)
            sums[world, "react_then_cot_sc"][k - 1] += weight * (right if row["answer"] is None else acted)
    worlds = Counter(world for world, _ in told)
    return {key: [total / worlds[key[0]] for total in points] for key, points in sums.items()}


def begun(run):
    """Every (scope, hash, i) that a call was begun for, from the ledger's own lines."""
    asked = []
    for line in (run.path / "ledger.jsonl").read_bytes().splitlines():
        row = orjson.loads(line)
        if row["kind"] == "reply":
            asked += [(row["scope"], row["hash"], row["first"] + k) for k in range(row["n"])]
    return asked
