"""One episode in a household, as a model sees it: ALFWorld's texts without the banner and without `loc 7`."""

from __future__ import annotations

import re

from envs.alfworld.goals import Wording
from envs.base import Observation, Session

THOUGHT = "think:"
NOD = "OK."

_PUT = re.compile(r"put (\w+ \d+) (?:in/on|into|onto|in|on) (\w+ \d+)")
_MOVE = re.compile(r"move (\w+ \d+) to (\w+ \d+)")


def without_banner(first: str) -> str:
    """A game's first text from its second paragraph on, as ReAct's prompts begin: the room and, on a line of its
    own, the goal."""
    return "\n".join(first.split("\n\n")[1:])


def shown(observation: str) -> str:
    """An observation without the place where one arrives (`You arrive at loc 7. On the desk 1, ...`), as in ReAct's
    prompts."""
    if observation.startswith("You arrive at loc "):
        return observation[observation.find(". ") + 2 :]
    return observation


def in_wording(action: str, wording: Wording) -> str:
    """A well-meant `put x in y` or `move x to y` in the one form that the game takes; other actions as they are."""
    found = _PUT.fullmatch(action) or _MOVE.fullmatch(action)
    if found is None:
        return action
    thing, receptacle = found.groups()
    return f"put {thing} in/on {receptacle}" if wording == "put" else f"move {thing} to {receptacle}"


class AlfworldSession(Session):
    """A game in a worker. `raw`: the engine's texts to the letter. `lenient`: see `in_wording`. A line that begins
    with `think:` goes to the engine, too, which does not know it, and is answered with `OK.`."""

    def __init__(
        self, hosted: Session, wording: Wording, *, raw: bool = False, lenient: bool = False
    ) -> None:
        self._hosted = hosted
        self._wording: Wording = wording
        self._raw = raw
        self._lenient = lenient
        self._over: Observation | None = None

    async def reset(self) -> str:
        self._over = None
        first = await self._hosted.reset()
        return first if self._raw else without_banner(first)

    async def step(self, action: str) -> Observation:
        """What the game says; 1.0 where it is won. Nothing changes any more after that."""
        if self._over is not None:
            return self._over
        action = action.strip()
        thinks = action.startswith(THOUGHT)
        if self._lenient and not thinks:
            action = in_wording(action, self._wording)
        seen = await self._hosted.step(action)
        text = NOD if thinks else seen.text if self._raw else shown(seen.text)
        observation = Observation(text, seen.reward, seen.done)
        if seen.done:
            self._over = Observation(text, 0.0, True)
        return observation

    async def close(self) -> None:
        await self._hosted.close()
