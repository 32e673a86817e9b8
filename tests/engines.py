"""Engines that block, crash, hang and leak at a word."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Corridor:
    """Rooms in a row: `go` leads to the next, and the last one ends the episode with a reward of 1."""

    many = True
    left = 0

    def __init__(self, length: int = 4, dice: bool = False, fails: str = "") -> None:
        if fails:
            raise ValueError(fails)
        self.length, self.dice = length, dice
        self.at: dict[str, int] = {}
        self.kept: list[bytes] = []

    def begin(self, episode: str, task: dict[str, Any]) -> str:
        self.at[episode] = 0
        return f"{task.get('name', 'a corridor')}, room 0"

    def step(self, episode: str, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        word, _, argument = action.partition(" ")
        if word == "crash":
            sys.stderr.write("the engine's last words\n")
            os._exit(3)
        if word == "crash_once" and not Path(argument).exists():
            Path(argument).touch()
            os._exit(3)
        if word == "crash_the_second_time":
            with Path(argument).open("a+") as file:
                file.write("x")
            if Path(argument).stat().st_size == 2:
                os._exit(3)
        if word == "wait_for":
            while not Path(argument).exists():
                time.sleep(0.01)
        if word == "hang":
            time.sleep(60)
        if word == "leak":
            self.kept.append(os.urandom(int(argument) << 20))
        if word == "child":  # that holds so many megabytes
            held = f"x = b'x' * ({argument} << 20); print(1, flush=True); input()"
            words = [sys.executable, "-c", held]
            self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self.child.stdout is not None
            self.child.stdout.readline()
            time.sleep(0.3)  # memory is counted anew
        if word == "raise":
            raise ValueError("no such thing")
        if word == "print":
            sys.stdout.write("noise on standard output\n")
            sys.stdout.flush()
        if word == "where":
            return str(Path.cwd()), 0.0, False, {}
        if word == "pid":
            return str(os.getpid()), 0.0, False, {}
        if word == "go":
            self.at[episode] += 1
        over = self.at[episode] >= self.length
        mark = f" ({os.getpid()})" if self.dice else ""
        return f"room {self.at[episode]}{mark}", float(over), over, {"at": self.at[episode]}

    def end(self, episode: str) -> None:
        self.at.pop(episode, None)

    def close(self) -> None:
        pass


class Alone(Corridor):
    many = False


class OldGym:
    """Gym's interface."""

    def __init__(self, seed: int = 0, goal: int = 2) -> None:
        self.seed, self.goal, self.at = seed, goal, 0

    def reset(self) -> str:
        return f"seed {self.seed}, at 0"

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.at += action == "right"
        return f"at {self.at}", float(self.at == self.goal), self.at == self.goal, {}


class Gymnasium(OldGym):
    """Gymnasium's."""

    def reset(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]
        return super().reset(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        seen, reward, done, info = super().step(action)
        return seen, reward, done, False, info
