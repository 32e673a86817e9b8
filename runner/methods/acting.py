"""One turn of a method that acts: the model's reply, and its action as the world and the prompt take it."""

from __future__ import annotations

from envs.base import Observation
from runner.episode import Ended, Episode
from runner.methods.base import Compat
from runner.methods.parsing import canonical_action, reference_action, shown_action
from runner.methods.prompts import Prompt


async def reply(ep: Episode, prompt: Prompt, stop: list[str], temperature: float, max_tokens: int) -> str:
    """The text of one reply. Ends the episode (`truncated`) where all its tokens went into thoughts that are
    not shown: the model would do the same at each further step."""
    (draw,) = await ep.sample(prompt, stop=stop, temperature=temperature, max_tokens=max_tokens)
    if draw.finish == "length" and not draw.text.strip():
        raise Ended("truncated")
    return draw.text


def stops(ep: Episode, i: int, compat: Compat) -> list[str]:
    """Where a turn ends: before the observation that the world is to give, and before a next task."""
    observation = f"\nObservation {i}:"
    return [observation] if compat == "reference" else [observation, f"\n{ep.world.introduction}:"]


def both_forms(action: str, compat: Compat) -> tuple[str, str]:
    """An action's text as the world takes it (`search[x]`) and as the prompt shows it (`Search[x]`)."""
    if compat == "reference":
        return reference_action(action), action
    sent = canonical_action(action)
    return sent, shown_action(sent)


class Repeats:
    """Notices turns that are as the one before: the same action, answered in the same words. (`lookup` again shows the
    next place, and is none.)"""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None

    def again(self, ep: Episode, action: str, seen: Observation) -> bool:
        """Whether this turn is; the trajectory's flags say so (`repeats`)."""
        before, self._last = self._last, (action, seen.text)
        if before != self._last:
            return False
        ep.flags.add("repeats")
        return True


async def out_of_steps(ep: Episode, compat: Compat) -> None:
    """The end of an episode whose steps are used up; the public code answers with nothing then."""
    if compat == "reference":
        await ep.act("finish[]")
    ep.end("step_limit")
