"""`overnight new`: a small working job, world or method, written where you are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from runner.errors import JobError

JOB = """\
# What to run. Every key can also be set on the command line: --set key=value
name = "{name}"
seed = 233
limit = 10

[models.policy]
provider = "openai"             # any OpenAI-compatible endpoint
base_url = "https://api.openai.com/v1"
model = "gpt-4o-mini"
key_env = "OPENAI_API_KEY"      # the variable that holds the key; the key itself never stands here

[envs.hotpotqa]                 # the embedded encyclopedia's questions; `overnight list worlds` shows others

[methods.react]
[methods.cot_sc]
samples = 5
"""

WORLD = '''\
"""A world of yours: guess a number between 1 and 20, told higher or lower."""

from envs import Observation, Session, Task, World


class {kind}Session(Session):
    def __init__(self, target: int) -> None:
        self.target = target

    async def step(self, action: str) -> Observation:
        verb, _, rest = action.partition("[")
        if verb != "guess" or not rest.rstrip("]").isdigit():
            return Observation(f"Invalid action: {{action}}. Guess a number like this: Guess[7]")
        guess = int(rest.rstrip("]"))
        if guess == self.target:
            self.answer = str(guess)
            return Observation("Right!", reward=1.0, done=True)
        return Observation("Higher." if guess < self.target else "Lower.")


class {kind}(World):
    """Guess a number in a few steps."""

    name = "{name}"
    acts = True
    highest: int = 20           # a setting: [envs.{name}] highest = 50

    def tasks(self):
        for k in range(1, self.highest + 1, 3):
            yield Task(id=f"{name}-{{k}}", input=f"Which number from 1 to {{self.highest}} is it?", target=k)

    def instruction(self, style):
        return "Find a number. Think, then act with Guess[number]; you are told Higher or Lower."

    def session(self, task):
        return {kind}Session(task.target)

    def score(self, task, answer):
        return {{"em": float(answer == str(task.target))}}
'''

METHOD = '''\
"""A method of yours: answer, doubt the answer once, answer again."""

from pydantic import Field

from runner.methods.base import Method
from runner.methods.prompts import opening


class {kind}(Method):
    """A greedy chain of thought, then one look back at it."""

    name = "{name}"
    max_tokens: int = Field(200, gt=0)      # a setting: [methods.{name}] max_tokens = 100

    async def solve(self, ep):
        prompt = opening(ep.world, "cot", ep.task) + "Thought:"
        stop = [f"\\n{{ep.world.introduction}}:"]
        (first,) = await ep.sample(prompt, stop=stop, max_tokens=self.max_tokens)
        doubt = prompt + first.text + "\\nThought: Let me check that once more."
        (second,) = await ep.sample(doubt, stop=stop, max_tokens=self.max_tokens)
        ep.note(first.text.strip() + "\\n" + second.text.strip())
        ep.answer = ep.world.extract(ep.task, second.text) or ep.world.extract(ep.task, first.text)
'''


_TAKEN = {"World", "Session", "Task", "Observation", "Method", "Field", "True", "False", "None"}


def write(what: str, name: str, folder: Path) -> Iterator[str]:
    """Write the file of a `job`, `world` or `method` of that name; yields lines that say what was written and
    what to do next. Never overwrites. Raises JobError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise JobError(f"{name!r} cannot be a name here: letters, digits and _, beginning with a letter")
    kind = "".join(part.capitalize() for part in name.split("_"))
    if what != "job" and kind in _TAKEN:
        raise JobError(f"{name!r} cannot be a name here: the file uses {kind} for something else")
    path = folder / (f"{name}.toml" if what == "job" else f"{name}.py")
    if what == "job":
        text, after = JOB, f"overnight plan {path}"
    elif what == "world":
        text, after = WORLD, f'in a job:  [envs.{name}]  world = "{path.as_posix()}:{kind}"'
    else:
        text, after = METHOD, f'in a job:  [methods.{name}]  method = "{path.as_posix()}:{kind}"'
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.format(name=name, kind=kind))
    except FileExistsError as error:
        raise JobError(f"{path} is there already; choose another name or move it") from error
    except OSError as error:
        raise JobError(f"{path} cannot be written ({error.strerror})") from error
    yield f"wrote {path}"
    yield after
