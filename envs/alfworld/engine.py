"""ALFWorld's games on the engine that they were made for: textworld's PDDL environment with alfworld's names.

It blocks and is not thread-safe, so it lives in a worker process of its own (`envs.hosting`); one process holds many
games. Nothing here is imported by the world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envs.alfworld.households import household
from envs.alfworld.logic import GOAL, INSTALL, Logic, installed
from envs.alfworld.problem import problem
from envs.alfworld.quicker import make_quicker, without_planner
from envs.base import WorldError

NOTHING = "Nothing happens."
"""What the engine says to an action that it does not know, or that cannot be done now."""


class AlfworldEngine:
    """Games in progress, by the name of their episode.

    A task is {"problem", "goal", "wording"}; for one of our households {"household": [seed, split, number]} stands in
    place of its problem, and games that carry their own add "domain" and "grammar" (with `UNKNOWN GOAL` for the goal).
    Observations are the engine's own, to the letter.
    """

    many = True

    def __init__(self, translations: str = "") -> None:
        try:
            import textworld
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
            from textworld.envs.pddl import PddlEnv
        except ImportError as error:
            raise WorldError(f"{INSTALL} ({error})") from error
        make_quicker(translations)
        self._make: Callable[[], Any] = lambda: AlfredDemangler(env=PddlEnv(textworld.EnvInfos()))
        self._playing: dict[str, Any] = {}
        self._idle: list[Any] = []

    def begin(self, episode: str, task: Mapping[str, Any]) -> str:
        """Load a game; returns its first text: a banner, the room, the goal. Raises WorldError for a problem that
        the engine cannot read."""
        logic = self._logic(task)
        written = task.get("problem") or problem(household(*task["household"]))
        environment = self._idle.pop() if self._idle else self._fresh()
        try:
            environment.load(
                {
                    "pddl_domain": logic.domain,
                    "grammar": logic.grammar,
                    "pddl_problem": written,
                }
            )
            state = environment.reset()
        except Exception as error:
            raise WorldError(
                f"the engine cannot read the game of {episode}: {type(error).__name__}: {error}"
            ) from error
        self._playing[episode] = environment
        return str(state.feedback).replace(GOAL, task["goal"])

    def step(self, episode: str, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """(text, 1.0 where it won the game, whether it is over, {})."""
        state, _, done = self._playing[episode].step(action)
        return str(state.feedback), float(state["won"]), bool(done), {}

    def admissible(self, episode: str) -> list[str]:
        """The actions that can be done now, in order."""
        return list(self._playing[episode].state["admissible_commands"])

    def end(self, episode: str) -> None:
        """Forget a game; its environment is used again."""
        environment = self._playing.pop(episode, None)
        if environment is not None:
            self._idle.append(environment)

    def close(self) -> None:
        """Forget all games."""
        self._playing.clear()
        self._idle.clear()

    def _fresh(self) -> Any:
        environment = self._make()
        without_planner(environment.unwrapped.downward_lib)
        return environment

    def _logic(self, task: Mapping[str, Any]) -> Logic:
        if task.get("grammar"):
            return Logic(task["domain"], task["grammar"])
        return installed(task.get("wording") or "put")
