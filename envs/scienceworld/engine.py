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

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.base import WorldError
from envs.scienceworld.tasks import BY_WORD, enabled

PACKAGE = "scienceworld"
OPTIONS = (
    "-XX:+UseSerialGC",  # the other collectors take a thread a core and half as much memory again
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # the same identity hash for all: sets and maps then keep the order of insertion
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # the generator's state is read by reflection
)
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

    `step_limit`: more moves than this end an episode, counted as the simulator counts (the first look is a move);
    0 for none. `heap`: most megabytes of Java's heap. Raises WorldError, with what to install, where the package
    or Java is missing.
    """

    many = True

    def __init__(self, simplifications: str = "", step_limit: int = 0, heap: int = 512) -> None:
        self._simplifications = simplifications
        self._step_limit = step_limit
        self._episodes: dict[str, _Episode] = {}
        self._turn: _Episode | None = None
        self._gateway = _start(heap)
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
        """The task's description, a newline, and what is to be seen first. `task`: `task` (name), `variation`."""
        self._save()
        world = self._load(task["task"], task["variation"])
        self._episodes[episode] = self._turn = _Episode(world, self._enabled)
        seen = world.step("look around")
        return f"{world.freeActionTaskDesc().strip()}\n{seen}"

    def step(self, episode: str, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """The observation, the change of the score (0..100; a wrong focus ends it at -100), whether it is over,
        and `{"score", "moves"}`. What a task begins with counts for the first action: rewards sum to the score."""
        mine = self._episodes[episode]
        self._swap(mine)
        text = mine.world.step(action)
        score, moves = _score(mine.world), mine.world.getNumMoves()
        reward, mine.score = score - mine.score, score
        over = mine.world.getCompleted() or score < 0 or 0 < self._step_limit < moves
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
        return list(self._load(task["task"], task["variation"], walkthrough=True).getGoldActionSequence())

    def counts(self) -> dict[str, int]:
        """How many variations each of the simulator's tasks has."""
        world = self._new_world()
        return {name: world.getTaskMaxVariations(name) for name in world.getTaskNames()}

    # -- worlds that share a machine -------------------------------------------------------------------
    def _load(self, task: str, variation: int, walkthrough: bool = False) -> Any:
        """A new world. Its rooms are built by the list that is enabled before (the original loads twice for that)."""
        self._enable(enabled(self._simplifications, BY_WORD[task]))
        world = self._new_world()
        problem = world.load(task, variation, self._enabled, walkthrough)
        if problem:
            raise WorldError(f"ScienceWorld could not load {task}, variation {variation}: {problem}")
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
    return round(100 * world.getScore())


def missing() -> str:
    """What has to be installed before an engine can start, in one line; "" for nothing."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "ScienceWorld's simulator is not installed; run: pip install 'overnight[scienceworld]'"
    if java() is None:
        return (
            "ScienceWorld's simulator needs Java 11 or newer, and there is no `java` on PATH or in JAVA_HOME; "
            "install one (Debian: apt install default-jre-headless, macOS: brew install openjdk)"
        )
    return ""


def java() -> str | None:
    """The Java to be used: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (own := shutil.which("java", path=str(Path(home) / "bin"))):
        return own
    return shutil.which("java")


def _start(heap: int) -> Any:
    if problem := missing():
        raise WorldError(problem)
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from scienceworld.constants import JAR_PATH

    program = java()
    try:
        port, token, process = launch_gateway(
            classpath=JAR_PATH,
            javaopts=[f"-Xmx{heap}m", *OPTIONS],
            java_path=program,
            die_on_exit=True,
            enable_auth=True,  # what listens on a port of this machine obeys only its owner
            create_new_process_group=True,  # Ctrl-C is for the owner
            return_proc=True,
        )
    except ValueError as error:  # no port was printed
        said = subprocess.run([str(program), "-version"], capture_output=True, text=True, check=False).stderr
        raise WorldError(
            f"Java did not start with a heap of {heap} MB ({program}: {said.split(chr(10))[0]}); ScienceWorld "
            "needs Java 11 or newer, and `heap` may be too large for this machine"
        ) from error
    parameters = GatewayParameters(port=port, auth_token=token)
    return JavaGateway(gateway_parameters=parameters, java_process=process)
