"""Acting with sparse thoughts: the model writes one line a turn, an action or a thought (ReAct paper, section 4).

The world gives the examples, the cue that asks for a line, and how a turn is written down; so one loop serves
`act` (examples without thoughts), `react` and `react_im` in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from envs.base import World
from runner.episode import Episode
from runner.methods.acting import reply
from runner.methods.prompts import Prompt
from runner.models.base import Text

FREE_THOUGHTS = 3
"""Times the step limit that replies may number where thoughts cost no step: a model that only thinks must end."""
NOTED = 2
"""The same action so many times in a row is a loop."""


@dataclass(frozen=True, slots=True)
class Turns:
    """How an episode is played: at most `steps` actions, thoughts among them if they cost a step."""

    style: str
    steps: int
    temperature: float = 0.0
    max_tokens: int = 100
    thoughts_cost_steps: bool = True
    end_on_repeat: bool = False


async def play(ep: Episode, turns: Turns) -> None:
    """Turn after turn until the world says that it is over, or the steps are used up (`step_limit`). The same action
    twice in a row flags the trajectory (`repeats`), and ends it if that is wanted (`repeated`)."""
    world = ep.world
    prompt = opening(world, turns.style, ep) + world.begin(await ep.reset()) + world.cue
    taken = said = in_a_row = 0
    last: str | None = None
    while taken < turns.steps and said < FREE_THOUGHTS * turns.steps:
        shown: Prompt = prompt if (cut := world.window(str(prompt))) is None else cut
        line = (await reply(ep, shown, ["\n"], turns.temperature, turns.max_tokens)).strip().split("\n")[0]
        said += 1
        thought = world.thought(line)
        if thought is not None:
            ep.think(thought, world.nod)
            prompt += world.turn(line, world.nod)
            taken += turns.thoughts_cost_steps
            continue
        taken += 1
        in_a_row = in_a_row + 1 if line == last else 1
        last = line
        if in_a_row >= NOTED:
            ep.flags.add("repeats")
            if turns.end_on_repeat:
                ep.end("repeated")
                break
        observation = await ep.act(line)
        prompt += world.turn(line, observation.text)
        if observation.done:
            return
    else:
        ep.end("step_limit")
    if world.last is not None:
        await ep.act(world.last)


def opening(world: World, style: str, ep: Episode) -> Text:
    """Instruction and examples. The same object for all tasks that have the same ones, so that it is encoded once."""
    text = world.shots(style, ep.task)
    kept: dict[str, Text] = world.made.setdefault("sparse", {})
    made = kept.get(text)
    if made is None:
        made = kept[text] = Text(text)
    return made
