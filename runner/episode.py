"""One (task, method, trial) being solved: what a method may do, and the record of what it did.

A method sees nothing but this. It knows no HTTP, no limits and no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any, TypeAlias

import anyio

from envs.base import Lost, Observation, Outcome, Session, Task, WorldError
from runner.errors import ContextOverflow, EpisodeFailed, Filtered
from runner.lines import Draw, Recorded
from runner.methods.prompts import Prompt, to_turns
from runner.models.base import Params, Request, Usage
from runner.models.passage import Passage
from runner.place import Place
from runner.trajectory import SCHEMA, Step
from runner.voting import Votes

Until: TypeAlias = Callable[[Sequence[Draw], int], int]
"""From what is drawn so far and how many draws are left to how many more to draw together; 0 stops."""


JUDGED = 16
"""Tokens of a judge's reply: one word is asked for."""
NO_REPLY = frozenset({"filter", "refusal"})
"""How a draw ends that the provider kept back."""


class Restart(Exception):
    """The episode cannot go on from its record and begins again in a fresh life (see `World.replay`)."""


class Ended(Exception):
    """The episode ends here with a status; methods let it pass."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Episode:
    """What a method gets. `task` and `world` are what is to be solved and where."""

    def __init__(self, task: Task, place: Place, life: int = 0) -> None:
        self.task = task
        self.world = place.world
        self.memory: Mapping[str, Any] | None = None
        """A read-only snapshot of what outlives episodes; None without a memory."""
        self.place = place
        self.life = life
        self.flags: set[str] = set()
        self.reward: float | None = None
        self.votes: Votes | None = None
        self._answer: str | None = None
        self._status: str | None = None
        self._steps: list[Step] = []
        self._step: Step | None = None
        self._attempt = 0
        self._actions = 0
        self._session: Session | None = None
        self._live = False
        self._rewards: list[float] = []
        self._done = False
        self._verdicts: tuple[str, ...] = ()
        self._state: Any = None
        self._cursor: dict[tuple[str, str], int] = {}
        self._used: dict[tuple[str, str, int], Draw] = {}
        self._sent: dict[str, str] = {}
        self._finish = "stop"
        self._spent = 0
        self._began = monotonic()
        self._waited = 0.0
        self._asking = 0
        self._longest = 0.0
        self._asked_at = 0.0
        self.time_limit: anyio.CancelScope | None = None if place.seconds is None else anyio.CancelScope()
        """What is done within it ends when the episode has worked as long as it may."""

    # -- time ------------------------------------------------------------------------------------------
    def start_clock(self) -> None:
        """Set the deadline of `time_limit`, and end the episode if it has passed. A call to a model has a
        deadline of its own: while one is under way this one rests."""
        if self.place.seconds is None or self.time_limit is None:
            return
        left = self.place.seconds - (monotonic() - self._began - self._waited)
        if left <= 0:
            raise Ended("time_limit")
        self.time_limit.deadline = anyio.current_time() + left

    def _stop_clock(self) -> None:
        """Draws are being asked for."""
        if not self._asking:
            self._asked_at = monotonic()
            if self.time_limit is not None:
                self.time_limit.deadline = math.inf
        self._asking += 1

    def _count_waiting(self, longest: float) -> None:
        """They are there, and waited so long for limits and between tries: of several at once, the longest counts in
        the account of time."""
        self._asking -= 1
        self._longest = max(self._longest, longest)
        if not self._asking:
            if self._longest:
                self._waited += min(self._longest, monotonic() - self._asked_at)
            self._longest = 0.0

    # -- sampling --------------------------------------------------------------------------------------
    @property
    def scope(self) -> str:
        """Where this episode's draws are counted: its task and trial, shared by all methods."""
        life = f"~{self.life}" if self.life else ""
        return f"{self.place.env}/{self.task.id}#{self.place.trial}{life}"

    async def sample(
        self,
        prompt: Prompt,
        n: int = 1,
        *,
        role: str = "policy",
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
        stream: str = "",
        until: Until | None = None,
    ) -> list[Draw]:
        """The next `n` draws of this prompt, in draw order.

        With `until` they are drawn in windows: it is given what is drawn so far and how many are left, and tells
        how many more to draw, 0 to stop. So fewer than `n` may come; the others stay undrawn.

        Asking again with the same prompt and parameters takes the next draws, never the same ones. Samplers
        that run side by side within one episode each name a `stream`. A draw that was filtered by the
        provider is one with empty text; where all that were asked for are, the episode ends as `filtered`.
        """
        passage = self.place.roles[role]
        request = self.request(
            prompt, role=role, stop=stop, temperature=temperature, max_tokens=max_tokens
        )  # fmt: skip
        scope = f"{self.scope}/{stream}" if stream else self.scope
        first = self._cursor.get((scope, request.hash), 0)
        self._cursor[scope, request.hash] = first + n
        draws: list[Draw] = []
        while more := (_together if until is None else until)(draws, n - len(draws)):
            draws += await self._window(passage, request, scope, first + len(draws), more)
        if len(draws) > 1 and len({draw.text for draw in draws}) == 1:
            self.flags.add("identical_draws")
        ends = {draw.finish for draw in draws}
        self._finish = "length" if ends == {"length"} else "stop"
        if ends and ends <= NO_REPLY and not any(draw.text.strip() for draw in draws):
            raise Ended("filtered")
        return draws

    async def _window(self, passage: Passage, request: Request, scope: str, first: int, n: int) -> list[Draw]:
        """Draws that are asked for together."""
        self._spend(n)
        self._stop_clock()
        longest = 0.0
        try:
            draws = await self.place.sampling.sample(passage, request, scope, first, n, self.place.index)
            for draw in draws:
                longest = max(longest, draw.waited)
        except ContextOverflow as error:
            raise Ended("context_overflow") from error
        except Filtered as error:
            raise Ended("filtered") from error
        finally:
            self._count_waiting(longest)
        for draw in draws:
            self._note_draw(draw)
        if not self._asking:
            self.start_clock()
        return draws

    def request(
        self,
        prompt: Prompt,
        *,
        role: str = "policy",
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
    ) -> Request:
        """The request that `sample` would make: the job's model settings override the method's."""
        model = self.place.roles[role].model
        params = _params(
            temperature if model.temperature is None else model.temperature,
            max_tokens if model.max_tokens is None else model.max_tokens,
            model.top_p,
            tuple(stop),
            model.logprobs,
        )
        return Request(model.identity, to_turns(prompt, model.api), params)

    def _spend(self, n: int) -> None:
        self._spent += n
        if self._spent > self.place.most_draws:
            raise EpisodeFailed(
                f"asked for more than {self.place.most_draws} replies and actions; a method that never ends? "
                "(limits.episode_draws allows more)"
            )

    def _note_draw(self, draw: Draw) -> None:
        self._used[draw.scope, draw.hash, draw.i] = draw
        self._open_step().draws.append((draw.hash, draw.i))
        if draw.reasoning and draw.finish == "stop" and not draw.text.strip():
            self.flags.add(
                "only_thoughts"
            )  # a stop string was met within the model's thoughts, as like as not
        if draw.without:
            self.flags.update(f"sent_without_{name}" for name in draw.without)
        if self._sent.setdefault(draw.hash, draw.sent) != draw.sent:
            self.flags.add("sent_differs")

    # -- acting ----------------------------------------------------------------------------------------
    async def reset(self) -> str:
        """Begin an attempt in the world; returns its first observation ("" where there is none), from the
        record where there is one."""
        if self._session is not None:
            await self._close_session()
            self._attempt += 1
        self._answer, self._status, self.reward = None, None, None
        self._step, self._actions, self._live, self._state = None, 0, False, None
        self._rewards, self._done = [], False
        first = self.place.ledger.observation(self.place.id, self.life, self._attempt, 0)
        seen = "" if first is None else first.text
        if self.place.readback:
            self._session = Session()
            return seen
        begun = self._on_record()
        if begun and self.world.replay == "none":
            raise Restart
        self._session = self.world.session(self.task)
        self._live = self.world.replay != "pure" or not begun
        fresh = await self._session.reset()
        if begun and fresh != seen and self.world.replay == "rebuild":
            raise Restart
        if begun or not fresh:
            return seen
        self.place.ledger.write_observation(
            self.place.id, self._attempt, 0, Recorded("", fresh, 0.0, False, life=self.life)
        )
        await self.place.ledger.written()
        return fresh

    def _on_record(self) -> int:
        return self.place.ledger.recorded_steps(self.place.id, self.life, self._attempt)

    def note(self, thought: str) -> None:
        """Write down a thought; the next action belongs to it."""
        self._open_step().thought = thought

    def think(self, thought: str, observation: str) -> None:
        """Write down a thought that was a turn of its own, and what it was answered with."""
        step = self._open_step()
        step.thought, step.observation = thought, observation
        self._close_step()

    async def act(self, action: str) -> Observation:
        """Take an action; returns what the world says, from the record where it was taken before.

        A finishing action sets the answer. The observation is in the ledger before this returns.
        """
        if self._session is None:
            await self.reset()
        self._spend(1)
        step = self._open_step()
        step.action = action
        self._actions += 1
        ledger, place = self.place.ledger, self.place
        recorded = ledger.observation(place.id, self.life, self._attempt, self._actions)
        if recorded is None or recorded.action != action or not self._usable():
            if place.readback:
                raise EpisodeFailed(f"action {action!r} was never taken in this run; resume it for that")
            recorded = await self._step_world(action, recorded)
        self._state = recorded.state
        if recorded.answer is not None:
            self._answer = recorded.answer
        self.reward = recorded.reward if recorded.done or recorded.reward else self.reward
        self._rewards.append(recorded.reward)
        self._done = recorded.done
        step.observation = recorded.text
        self._close_step()
        return Observation(recorded.text, recorded.reward, recorded.done)

    def _usable(self) -> bool:
        return self.place.readback or (self.world.replay == "pure" and not self._live)

    async def _step_world(self, action: str, recorded: Recorded | None) -> Recorded:
        session = self._session
        assert session is not None
        if not self._live:
            session.restore(self._state) if self._state is not None else None
            self._live = True
        try:
            observation = await session.step(action)
        except Lost as error:
            raise Restart from error
        if not isinstance(observation, Observation):
            raise WorldError(
                f"world {self.world.name!r}: step() gave {observation!r:.60} where an envs.Observation belongs"
            )
        if not math.isfinite(observation.reward):
            raise WorldError(f"world {self.world.name!r} gave the reward {observation.reward} to {action!r}")
        fresh = Recorded(
            action=action,
            text=observation.text,
            reward=observation.reward,
            done=observation.done,
            answer=session.answer,
            state=session.snapshot(),
            life=self.life,
        )
        if recorded is not None and self.world.replay == "rebuild" and recorded.action == action:
            if (recorded.text, recorded.done) != (fresh.text, fresh.done):
                raise Restart
            return fresh
        self.place.ledger.write_observation(self.place.id, self._attempt, self._actions, fresh)
        await self.place.ledger.written()
        return fresh

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- ending ----------------------------------------------------------------------------------------
    @property
    def answer(self) -> str | None:
        """The answer so far; None or blank counts as none."""
        return self._answer

    @answer.setter
    def answer(self, text: str | None) -> None:
        self._answer = text if text is None else str(text)

    @property
    def answered(self) -> bool:
        """Whether there is an answer that says something."""
        return self._answer is not None and bool(self._answer.strip())

    def end(self, status: str) -> None:
        """Say why the episode has no answer (`step_limit`, `repeated`, …)."""
        self._status = status

    def decide(self, votes: Votes) -> None:
        """Take the outcome of a vote as the answer, and keep the vote."""
        self._close_step()
        self.votes = votes
        self._answer, self.reward = votes.winner, None
        if votes.tied:
            self.flags.add("tied_vote")

    @property
    def open(self) -> bool:
        """Whether it holds something in the world."""
        return self._session is not None

    async def close(self) -> None:
        """Free the world. Called by the scheduler, also after an error."""
        await self._close_session()

    # -- the record ------------------------------------------------------------------------------------
    def _open_step(self) -> Step:
        if self._step is None:
            self._step = Step(len(self._steps) + 1, self._attempt)
            self._steps.append(self._step)
            self._step.seconds = -monotonic()
        return self._step

    def _close_step(self) -> None:
        if self._step is not None:
            self._step.seconds += monotonic()
            self._step = None

    def status(self) -> str:
        """`finished` with an answer, or where the world ended it and asks for none; else what the method said, or how
        the last reply ended."""
        if self.answered or (self._done and self._answer is None and self._status is None):
            return "finished"
        if self._status is not None:
            return self._status
        return "truncated" if self._finish == "length" else "no_answer"

    def record(self, error: BaseException | None = None, status: str | None = None) -> dict[str, Any]:
        """The trajectory line (DESIGN: flat at the top). Scores are there for every ending but an error."""
        self._close_step()
        place, task = self.place, self.task
        used = list(self._used.values())
        usage = used[0].usage if len(used) == 1 else sum((draw.usage for draw in used), Usage())
        cost: float | None = 0.0
        waited = 0.0
        for draw in used:
            cost = None if cost is None or draw.cost_usd is None else cost + draw.cost_usd
            waited += draw.waited
        status = status or ("error" if error is not None else self.status())
        return {
            "schema": SCHEMA,
            "id": place.id,
            "run": place.run,
            "config": place.config,
            "env": place.env,
            "split": task.split,
            "task_id": task.id,
            "index": place.index,
            "input": task.input,
            "target": task.target,
            "method": place.method,
            "model": place.model,
            "trial": place.trial,
            "status": status,
            "answer": self._answer,
            "scores": {} if error is not None else self._scores(),
            "reward": self.reward,
            "n_steps": sum(step.action is not None for step in self._steps),
            "steps": [step.as_dict() for step in self._steps],
            "votes": None if self.votes is None else self.votes.as_dict(),
            "usage": usage.as_dict(),
            "cost_usd": cost,
            "seconds": round(monotonic() - self._began, 3),
            "waited_seconds": round(waited, 3),
            "memory": None,
            "error": None if error is None else {"type": type(error).__name__, "message": str(error)},
            "forked_from": None,
            "flags": sorted(self.flags),
        }

    async def judge(self) -> None:
        """Ask the model of the role `judge` (the policy's where the job names none) what the world wants judged of
        how the episode ended."""
        role = "judge" if "judge" in self.place.roles else "policy"
        verdicts = []
        for question in self.world.to_judge(self.task, self._outcome()):
            (reply,) = await self.sample(question, role=role, max_tokens=JUDGED, stream="judge")
            verdicts.append(reply.text)
        self._verdicts = tuple(verdicts)
        self._close_step()

    def _outcome(self) -> Outcome:
        return Outcome(self._answer, tuple(self._rewards), self._done, self._verdicts)

    def _scores(self) -> dict[str, float]:
        outcome = self._outcome()
        scores = self.world.score_outcome(self.task, outcome)
        if not isinstance(scores, dict):
            raise WorldError(f"world {self.world.name!r}: score() gave {scores!r:.60}, not {{name: number}}")
        for name, value in scores.items():
            if not math.isfinite(value):
                raise WorldError(f"world {self.world.name!r} scored {name} = {value} for task {self.task.id}")
        return scores


_params = lru_cache(maxsize=1000)(Params)
"""Parameters, the same object for the same values: what is made of them for one call serves the others, too."""


def _together(draws: Sequence[Draw], left: int) -> int:
    """All in one window."""
    return left
