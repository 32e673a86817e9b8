"""ScienceWorld's simulator in a Java machine, many worlds to a machine; for a worker process (see `envs.hosting`).

The simulator is the package `scienceworld` (Wang et al. 2022), spoken to as its own Python class does but without
what that class looks up after each step (surroundings, inventory, every valid action: ten times the step itself).

Its worlds are not independent: one random number generator, one counter of object ids and one list of
simplifications serve a whole Java machine, and the order in which things of one name are listed follows Java's
identity hashes, which depend on all that the machine did before. Here each world has a generator, a counter and a
list of its own, swapped in when it is its turn, and identity hashes are switched off. So what a world shows depends
on its task and actions alone, however many worlds share the machine and however often it was replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from envs.base import WorldError
from envs.scienceworld import java
from envs.scienceworld.tasks import BY_WORD, enabled

_SCRAMBLE = 0x5DEECE66D
"""What `java.util.Random.setSeed` mixes into its argument (its documentation states it)."""


@dataclass
class _Episode:
    world: Any
    simplifications: str
    score: int = 0
    generator: int = 0
    ids: int = 0


class ScienceWorldEngine:
    """One Java machine. `simplifications` as the simulator writes them ("", "easy", "openDoors,teleportAction").

    `step_limit`: more moves than this end an episode, as the simulator counts them (looking and what it does not
    understand are none); 0 for no limit. `heap`: most megabytes of Java's heap. Raises WorldError, with what to
    install, where the package or Java is missing.
    """

    many = True

    def __init__(self, simplifications: str = "", step_limit: int = 0, heap: int = 256) -> None:
        self._simplifications = simplifications
        self._step_limit = step_limit
        self._episodes: dict[str, _Episode] = {}
        self._turn: _Episode | None = None
        self._gateway = java.start(heap)
        scala = self._gateway.jvm
        self._new_world = scala.scienceworld.runtime.pythonapi.PythonInterface
        self._generator = getattr(getattr(scala.scala.util, "Random$"), "MODULE$").self()
        self._generator_state = scala.java.lang.Class.forName("java.util.Random").getDeclaredField("seed")
        self._generator_state.setAccessible(True)
        self._ids = getattr(getattr(scala.util, "UniqueIdentifier$"), "MODULE$")
        self._simplifier = getattr(
            getattr(scala.main.scala.scienceworld.runtime, "SimplifierProcessor$"), "MODULE$"
        )
        self._enabled = ""

    # -- the contract with envs.hosting ----------------------------------------------------------------
    def begin(self, episode: str, task: dict[str, Any]) -> str:
        """The task's description, a newline, and what is to be seen first. `task`: `task` (name), `variation`, and
        `simplifications` if they are others than the engine's."""
        with self._blamed(f"{task['task']}, variation {task['variation']}"):
            self._save()
            world = self._load(task)
            self._episodes[episode] = self._turn = _Episode(world, self._enabled)
            seen = world.step("look around")
            return f"{world.getTaskDescription().strip()}\n{seen}"

    def step(self, episode: str, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """The observation, the change of the score (0..100; a wrong focus ends it at -100), whether it is over,
        and `{"score", "moves"}`. What a task begins with counts for the first action: rewards sum to the score."""
        mine = self._episodes[episode]
        with self._blamed(f"the action {action!r:.100}"):
            self._swap(mine)
            text = mine.world.step(action)
            score, moves, over = _score(mine.world), mine.world.getNumMoves(), mine.world.getCompleted()
        reward, mine.score = score - mine.score, score
        over = over or score < 0 or 0 < self._step_limit < moves
        return text, float(reward), over, {"score": score, "moves": moves}

    def end(self, episode: str) -> None:
        ended = self._episodes.pop(episode, None)
        if ended is None:
            return
        if ended is self._turn:
            self._turn = None
        self._gateway.detach(ended.world)

    def close(self) -> None:
        process = self._gateway.java_process
        self._gateway.shutdown()
        process.stdin.close()  # the machine ends with its standard input, so also with a worker that is killed
        process.wait()

    # -- beside it -------------------------------------------------------------------------------------
    def walkthrough(self, task: dict[str, Any]) -> list[str]:
        """Actions that solve a task, as the simulator's own agent finds them (up to about 200)."""
        self._save()
        self._turn = None
        return list(self._load(task, walkthrough=True).getGoldActionSequence())

    def counts(self) -> dict[str, int]:
        """How many variations each of the simulator's tasks has."""
        world = self._new_world()
        return {name: world.getTaskMaxVariations(name) for name in world.getTaskNames()}

    @contextmanager
    def _blamed(self, what: str) -> Iterator[None]:
        """A failure amid `what`: of the simulator, as a WorldError; of the machine, with which all its worlds are
        gone, as the end of this process."""
        from py4j.protocol import Py4JError

        try:
            yield
        except Py4JError as error:
            said = str(error).strip().split("\n")
            reason = next((line for line in said if "Exception" in line or "Error:" in line), said[0])
            if self._gateway.java_process.poll() is not None or "OutOfMemoryError" in reason:
                raise SystemExit(f"ScienceWorld's Java machine is gone, amid {what}: {reason}") from error
            raise WorldError(f"ScienceWorld's simulator failed at {what}: {reason}") from error

    # -- worlds that share a machine -------------------------------------------------------------------
    def _load(self, task: Mapping[str, Any], walkthrough: bool = False) -> Any:
        """A new world. Its rooms are built by the list that is enabled before (the original loads twice for that)."""
        name, variation = task["task"], task["variation"]
        self._enable(enabled(task.get("simplifications", self._simplifications), BY_WORD[name]))
        world = self._new_world()
        problem = world.load(name, variation, self._enabled, walkthrough)
        if problem:
            raise WorldError(f"ScienceWorld could not load {name}, variation {variation}: {problem}")
        # What made it holds every variation of every task, 11 MB a world, and is of no more use.
        getattr(world, "taskMaker_$eq")(None)
        return world

    def _enable(self, simplifications: str) -> None:
        if simplifications != self._enabled:
            self._simplifier.parseSimplificationStr(simplifications)
            self._enabled = simplifications

    def _swap(self, to: _Episode) -> None:
        if to is not self._turn:
            self._save()
            self._enable(to.simplifications)
            self._generator.setSeed(to.generator ^ _SCRAMBLE)
            getattr(self._ids, "count_$eq")(to.ids)
            self._turn = to

    def _save(self) -> None:
        if self._turn is not None:
            self._turn.generator = self._generator_state.get(self._generator)
            self._turn.ids = self._ids.count()


def _score(world: Any) -> int:
    return round(100 * float(world.getScore()))
