"""What a run may spend in all: dollars, tokens, calls, hours. Reaching one ends the run in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from pydantic import BaseModel, ConfigDict, Field

from runner.errors import BudgetSpent, JobError
from runner.ledger import Ledger
from runner.models.base import Model, Usage

HOUR = 3600.0
NOTHING = 1e-9
"""USD; sums of prices are off by less."""


class Limits(BaseModel):
    """What bounds a run. All of these may change between a run and its resume; what they count is counted over
    all processes that worked on the run."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_episodes: int = Field(200, gt=0, description="Episodes in flight at once.")
    episode_draws: int = Field(
        2000, gt=0, description="Replies and actions of one episode, after which it is given up as an error."
    )
    episode_seconds: float | None = Field(
        None, gt=0, description="An episode may work so long; queueing and pauses between tries don't count."
    )
    max_usd: float | None = Field(None, gt=0, description="Spend no more than this on replies, in USD.")
    max_tokens: int | None = Field(None, gt=0, description="Tokens of all replies, prompts included.")
    max_calls: int | None = Field(None, gt=0, description="Replies in all.")
    max_hours: float | None = Field(None, gt=0, description="Hours of work on the run.")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call is expected to use before it is made; `usd` None: not known, or not asked for."""

    tokens: int
    usd: float | None


class Budget:
    """The budget of one run, and what is left of it. `earlier`: seconds that earlier processes worked on it.

    A call begins while what was paid, and what the calls in flight are expected to cost (each the mean of the
    replies so far), is below the budget. It is thus passed by no more than calls can differ from their mean,
    or, before the first reply, by the calls in flight. Tries that may have been billed unanswered are not in
    it: the ledger counts them apart.

    Of calls that go by batches, thousands at once, each has an estimate: no more of them are admitted than what
    is left allows, the estimates of those under way taken off.
    """

    def __init__(self, limits: Limits, ledger: Ledger, earlier: float = 0.0) -> None:
        self.limits = limits
        self.ledger = ledger
        self.earlier = earlier
        self._began = monotonic()
        self._begun = 0
        self._ended = self._ends()
        self._unpriced = ledger.unpriced
        self._batched = [0, 0, 0.0]
        """Calls, tokens and dollars that are under way in batches."""

    @property
    def seconds(self) -> float:
        """Of work on the run, in all processes."""
        return self.earlier + monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Until `max_hours` are over; None where there is no such limit."""
        most = self.limits.max_hours
        return None if most is None else max(most * HOUR - self.seconds, 0.0)

    @property
    def in_flight(self) -> int:
        """Tries that were begun here and have neither a reply nor a failure yet."""
        return max(self._begun - (self._ends() - self._ended), 0)

    def _ends(self) -> int:
        return self.ledger.replies + self.ledger.attempts_failed

    def begin(self) -> None:
        """A try begins. Raises BudgetSpent instead where nothing is left for it."""
        self.check()
        self._begun += 1

    def undo(self) -> None:
        """A try that began is not made after all."""
        self._begun -= 1

    def admit(self, costs: Sequence[Cost]) -> int:
        """How many of these calls, the first ones, may go into batches now; they count as under way until they
        are released. 0 where calls in batches must come back first. Raises BudgetSpent where none ever may."""
        self.check_hours()
        self.check_prices()
        limits, ledger = self.limits, self.ledger
        calls, tokens, usd = self._batched
        direct = max(self.in_flight - calls, 0) / ledger.replies if ledger.replies else 0.0
        calls += ledger.replies + max(self.in_flight - calls, 0)
        tokens += round((ledger.paid.prompt + ledger.paid.completion) * (1 + direct))
        usd += ledger.paid_usd * (1 + direct)
        count = 0
        for cost in costs:
            calls, tokens, usd = calls + 1, tokens + cost.tokens, usd + (cost.usd or 0.0)
            if (
                calls > (limits.max_calls or calls)
                or tokens > (limits.max_tokens or tokens)
                or (limits.max_usd is not None and usd > limits.max_usd + NOTHING)
            ):
                break
            count += 1
        if costs and not count and not self._batched[0]:
            raise self._no_room(costs[0])
        self.resume(costs[:count])
        return count

    def _no_room(self, next_: Cost) -> BudgetSpent:
        limits, ledger = self.limits, self.ledger
        tokens = ledger.paid.prompt + ledger.paid.completion
        if (most := limits.max_calls) is not None and ledger.replies >= most:
            return self._spent("max_calls", f"{ledger.replies:,} of {most:,} calls")
        if (most := limits.max_tokens) is not None and tokens + next_.tokens > most:
            return self._spent(
                "max_tokens", f"{tokens:,} of {most:,} tokens, and the next call may take more"
            )
        what = f"${ledger.paid_usd:,.4f} of ${limits.max_usd or 0:g}, and the next call may cost more"
        return self._spent("max_usd", what)

    def resume(self, costs: Sequence[Cost]) -> None:
        """So many calls are under way in batches."""
        self._begun += len(costs)
        for cost in costs:
            self._count(cost, 1)

    def release(self, cost: Cost, *, ended: bool) -> None:
        """One of them no longer is. `ended`: by a reply or a failure, which the ledger counts."""
        self._begun -= not ended
        self._count(cost, -1)

    def _count(self, cost: Cost, sign: int) -> None:
        for k, much in enumerate((1, cost.tokens, cost.usd or 0.0)):
            self._batched[k] += sign * much

    def check_prices(self) -> None:
        """Raises BudgetSpent if `max_usd` can no longer be kept."""
        if self.limits.max_usd is not None and self.ledger.unpriced > self._unpriced:
            raise BudgetSpent(
                "limits.max_usd cannot be kept: a reply came without its price (a model of your own sets "
                "`cost_usd=self.cost(usage)`); mend that, or take max_usd out, and resume"
            )

    def check(self) -> None:
        """Raises BudgetSpent, with the line that a person reads, if one of the limits is reached."""
        limits, ledger = self.limits, self.ledger
        if limits.max_usd is limits.max_tokens is limits.max_calls is None:
            self.check_hours()
            return
        self.check_prices()
        tokens = ledger.paid.prompt + ledger.paid.completion
        coming = self.in_flight / ledger.replies if ledger.replies else 0.0
        if (most := limits.max_usd) is not None and ledger.paid_usd * (1 + coming) >= most - NOTHING:
            raise self._spent("max_usd", f"${ledger.paid_usd:,.4f} of ${most:g}")
        if (most := limits.max_tokens) is not None and tokens * (1 + coming) >= most:
            raise self._spent("max_tokens", f"{tokens:,} of {most:,} tokens")
        if (most := limits.max_calls) is not None and ledger.replies + self.in_flight >= most:
            raise self._spent("max_calls", f"{ledger.replies:,} of {most:,} calls")
        self.check_hours()

    def check_hours(self) -> None:
        """The same for the hours alone: they pass while no call begins, too."""
        if self.limits.max_hours is not None and self.seconds_left == 0:
            raise self._spent("max_hours", f"{self.seconds / HOUR:.2f} of {self.limits.max_hours:g} hours")

    def _spent(self, limit: str, what: str) -> BudgetSpent:
        flying = self.in_flight
        rest = f" and {flying} calls in flight" if flying else ""
        return BudgetSpent(f"the budget is spent: {what}{rest}; raise limits.{limit} to go on")


def check_prices(limits: Limits, models: Mapping[str, Model]) -> None:
    """Raises JobError where `max_usd` cannot be kept, as a model's price is not known."""
    if limits.max_usd is None:
        return
    for name, model in models.items():
        if model.cost(Usage(prompt=1, completion=1)) is None:
            raise JobError(
                f"limits.max_usd cannot be kept: the price of models.{name} ({model.model or model.provider}) is "
                f"not known; set it in USD per million tokens: [models.{name}.price] input = ..., output = ... "
                "(0 if it costs nothing), or take max_usd out"
            )
