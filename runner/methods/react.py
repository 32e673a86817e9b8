"""ReAct: thoughts and actions in turn, each action answered by the world (ReAct paper, sections 2 and 3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode
from runner.methods.acting import Repeats, both_forms, out_of_steps, reply, stops
from runner.methods.base import Method
from runner.methods.parsing import reference_split, split
from runner.methods.prompts import opening
from runner.methods.sparse import Turns, play


class React(Method):
    """Thought, action, observation, until the model finishes or the steps are used up. In worlds with sparse thoughts
    each turn is one line, an action or a thought.

    The step limit is the world's unless set (HotpotQA 7, FEVER 5). A reply without an action is asked for
    the action in a second call, as in the public code. `compat = "reference"` keeps that code's parsing,
    its single stop string and its forced empty `finish[]` at the limit.
    """

    name: ClassVar[str] = "react"
    acts: ClassVar[bool] = True
    styles: ClassVar[tuple[str, ...]] = ("react",)

    steps: int | None = Field(None, gt=0, description="Step limit; unset: the world's own.")
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(100, gt=0, description="Reply length of one step (the public code's 100).")

    thoughts_cost_steps: bool = Field(
        True, description="Whether a thought uses a step up, in worlds with sparse thoughts."
    )
    end_on_repeat: bool = Field(
        False,
        description="End the episode (`repeated`) at the same action twice in a row; without sparse thoughts, if it "
        "was also answered in the same words.",
    )

    async def solve(self, ep: Episode) -> None:
        if ep.world.sparse:
            steps = self.steps or ep.world.steps
            await play(
                ep,
                Turns(
                    "react",
                    steps,
                    self.temperature,
                    self.max_tokens,
                    self.thoughts_cost_steps,
                    self.end_on_repeat,
                ),
            )
            return
        prompt = opening(ep.world, "react", ep.task)
        if seen := await ep.reset():
            prompt += seen + "\n"
        repeats = Repeats()
        for i in range(1, (self.steps or ep.world.steps) + 1):
            stop = stops(ep, i, self.compat)
            text = await reply(ep, prompt + f"Thought {i}:", stop, self.temperature, self.max_tokens)
            thought, action = self._split(text, i)
            if action is None:
                again = prompt + f"Thought {i}: {thought}\nAction {i}:"
                action = (await reply(ep, again, ["\n"], self.temperature, self.max_tokens)).strip()
            ep.note(thought)
            sent, shown = both_forms(action, self.compat)
            observation = await ep.act(sent)
            seen = observation.text
            if self.compat == "reference":
                seen = seen.replace("\\n", "")
            prompt += f"Thought {i}: {thought}\nAction {i}: {shown}\nObservation {i}: {seen}\n"
            if observation.done:
                return
            if repeats.again(ep, sent, observation) and self.end_on_repeat:
                ep.end("repeated")
                return
        await out_of_steps(ep, self.compat)

    def _split(self, text: str, i: int) -> tuple[str, str | None]:
        return reference_split(text, i) if self.compat == "reference" else split(text)
