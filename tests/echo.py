"""Small worlds and scripted models that tests of whole runs share."""

from __future__ import annotations

from collections import Counter

from envs.base import DataError, Observation, Session, Task, World
from runner import library
from runner.errors import EpisodeFailed
from runner.job import Job
from runner.methods.react import React
from runner.models.scripted import scripted

FIELDS = {
    "schema",
    "id",
    "run",
    "config",
    "env",
    "split",
    "task_id",
    "index",
    "input",
    "target",
    "method",
    "model",
    "trial",
    "status",
    "answer",
    "scores",
    "reward",
    "n_steps",
    "steps",
    "votes",
    "usage",
    "cost_usd",
    "seconds",
    "waited_seconds",
    "memory",
    "error",
    "forked_from",
    "flags",
}


class Echo(World):
    """Tasks that are answered by repeating their word; an action is answered with what it says."""

    name = "echo"
    acts = True
    count: int = 4
    twins: bool = False

    def tasks(self):
        for k in range(self.count):
            word = "same" if self.twins else f"word{k}"
            yield Task(id=f"t{k}", input=f"Say {word}.", target=word, metadata={"even": k % 2 == 0})

    def extract(self, task, text):
        return text.split("Answer:")[-1].strip() or None

    def score(self, task, answer):
        return {"em": float(answer == task.target)}

    def session(self, task):
        return EchoSession()


class EchoSession(Session):
    async def step(self, action):
        if action.startswith("finish["):
            self.answer = action[7:-1]
            return Observation("Done.", 1.0, True)
        if action == "explode[]":
            raise RuntimeError("the engine burst")
        return Observation(f"You did {action}.")


def right(call):
    """Says each task's word, as an answer or as a finishing action."""
    prompt = call.request.prompt
    word = prompt.rsplit("Say ", 1)[1].split(".", 1)[0]
    if prompt.rstrip().endswith("Answer:"):
        return [f" {word}"] * call.n
    if prompt.rstrip().endswith("Thought:"):
        return [f" it is clear, chain {call.first + k}.\nAnswer: {word}" for k in range(call.n)]
    step = prompt.rsplit("Thought ", 1)[1].split(":")[0]
    return f" I finish.\nAction {step}: Finish[{word}]"


async def run(tmp_path, world, methods, model, **settings):
    return await library.run(
        Job.of(world, methods, model, **settings), outputs=tmp_path, progress=False
    )  # fmt: skip


def statuses(run):
    return Counter(row["status"] for row in run.trajectories)


class Engine(Session):
    """Counts its steps; what it says depends on all of them."""

    made = 0

    def __init__(self, task, drift):
        Engine.made += 1
        self.steps, self.drift = 0, drift

    async def step(self, action):
        self.steps += 1
        if action.startswith("finish["):
            self.answer = action[7:-1]
            return Observation("Done.", 1.0, True)
        return Observation(f"Step {self.steps} of the engine{self.drift}.")


def engine_world(kind, drift=""):
    class Built(Echo):
        name = "built"
        replay = kind

        def session(self, task):
            return Engine(task, drift)

    Built.__qualname__ = "Built"
    return Built(count=1)


def two_steps_then(end):
    def script(call):
        step = call.request.prompt.rsplit("Thought ", 1)[1].split(":")[0]
        if step == "3":
            return end(call)
        return f" On.\nAction {step}: Go[{step}]"

    return script


def killed(call):
    raise EpisodeFailed("killed here")


def finishing(call):
    return " So.\nAction 3: Finish[x]"


async def resumed(tmp_path, kind, drift):
    found = await run(tmp_path, engine_world(kind), React(), scripted(two_steps_then(killed)))
    model = scripted(two_steps_then(finishing))
    job = Job.of(engine_world(kind, drift), React(), model)
    found = await library.resume(found.path, job=job, progress=False, accept_changes=True)
    (row,) = found.trajectories
    assert row["status"] == "finished"
    return [step["observation"] for step in row["steps"]], model


class Broken(Echo):
    name = "broken"
    at: int = 2

    def tasks(self):
        for k, task in enumerate(super().tasks()):
            if k == self.at:
                raise DataError("rows.jsonl: row 3: field 'target' is NaN")
            yield task
