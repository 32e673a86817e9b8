"""Act: ReAct's actions and observations without the thoughts (ReAct paper, section 3.2, baseline c)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runner.episode import Episode
from runner.methods.acting import Repeats, both_forms, out_of_steps, reply, stops
from runner.methods.base import Method
from runner.methods.parsing import split
from runner.methods.prompts import opening
from runner.methods.sparse import Turns, play


class Act(Method):
    """Action, observation, until the model finishes or the steps are used up."""

    name: ClassVar[str] = "act"
    acts: ClassVar[bool] = True
    styles: ClassVar[tuple[str, ...]] = ("act",)

    steps: int | None = Field(None, gt=0, description="Step limit; unset: the world's own.")
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(100, gt=0)

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
                Turns("act", steps, self.temperature, self.max_tokens, end_on_repeat=self.end_on_repeat),
            )
            return
        prompt = opening(ep.world, "act", ep.task)
        if seen := await ep.reset():
            prompt += seen + "\n"
        repeats = Repeats()
        for i in range(1, (self.steps or ep.world.steps) + 1):
            stop = stops(ep, i, self.compat)
            text = await reply(ep, prompt + f"Action {i}:", stop, self.temperature, self.max_tokens)
            sent, shown = both_forms(self._action(text), self.compat)
            observation = await ep.act(sent)
            prompt += f"Action {i}: {shown}\nObservation {i}: {observation.text}\n"
            if observation.done:
                return
            if repeats.again(ep, sent, observation) and self.end_on_repeat:
                ep.end("repeated")
                return
        await out_of_steps(ep, self.compat)

    def _action(self, text: str) -> str:
        if self.compat == "reference":
            return text.strip()
        before, action = split(text)
        return before if action is None else action
