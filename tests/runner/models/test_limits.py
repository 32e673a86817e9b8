"""Requests and tokens in windows: never over a limit in any minute, in order of age, and nothing left idle."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.models.base import Window
from runner.models.gate import Gate, Ticket
from runner.models.limits import Charge, Key
from tests.virtual_time import run, virtual


class Watched(Gate):
    """A gate that keeps when it let whom through, and that nobody older was waiting then."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.log: list[tuple[float, Charge]] = []

    def grant(self, ticket: Ticket) -> None:
        waiting = [each.priority for _, _, each in self.queue._heap if each.queued]
        assert not waiting or ticket.priority <= min(waiting)
        self.log.append((self.clock(), ticket.charge))
        super().grant(ticket)

    def refund(self, ticket: Ticket, *, refused: bool = False) -> None:
        """One who left in the moment in which it was let through: nothing was sent."""
        assert ticket.taken is not None
        if (sent := (ticket.taken.at, ticket.charge)) in self.log:
            self.log.remove(sent)
        super().refund(ticket, refused=refused)

    async def call(self, age: int, charge: Charge, takes: float, leaves: float = 1e9) -> None:
        ticket = Ticket(age)
        with anyio.move_on_after(leaves):
            async with self.passing(ticket, charge):
                await anyio.sleep(takes)

    def fullest(self, of: Callable[[Charge], float], seconds: float = 60.0) -> float:
        """The most in any window, both its ends included."""
        most = used = 0.0
        first = 0
        for moment, charge in self.log:
            used += of(charge)
            while moment - self.log[first][0] > seconds:
                used -= of(self.log[first][1])
                first += 1
            most = max(most, used)
        return most


def both(charge: Charge) -> float:
    return charge.input + charge.output


MINUTE: list[Key] = [("tokens", 60.0), ("input_tokens", 60.0), ("output_tokens", 60.0)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 150),  # begins
            st.integers(0, 9),  # age
            st.integers(0, 700),  # tokens in
            st.integers(0, 300),  # tokens out
            st.floats(0, 90),  # takes
            st.none() | st.floats(0, 60),  # leaves after
        ),
        max_size=40,
    ),
    st.sampled_from([None, 6.0, 60.0, 600.0, 10_000.0, 30_000.0]),
    st.dictionaries(st.sampled_from(MINUTE), st.integers(1000, 5000), max_size=3),
)
def test_no_minute_holds_more_than_any_limit_and_the_oldest_goes_first(
    calls: list[tuple[float, int, int, int, float, float | None]],
    rate: float | None,
    limits: dict[Key, float],
) -> None:
    async def main() -> Watched:
        gate = Watched(5, rate, limits=limits)

        async def one(
            begins: float, age: int, tin: int, tout: int, takes: float, leaves: float | None
        ) -> None:
            await anyio.sleep(begins)
            await gate.call(age, Charge(tin, tout), takes, 1e9 if leaves is None else leaves)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.serve)
            async with anyio.create_task_group() as inner:
                for each in calls:
                    inner.start_soon(one, *each)
            tasks.cancel_scope.cancel()
        assert (gate.flying, gate.waiting) == (0, 0)
        return gate

    gate = run(main)
    of: dict[str, Callable[[Charge], float]] = {
        "tokens": both, "input_tokens": lambda c: c.input, "output_tokens": lambda c: c.output,
    }  # fmt: skip
    for (counted, seconds), limit in limits.items():
        assert gate.fullest(of[counted], seconds) <= limit + 1e-6
    if rate is not None:
        assert gate.fullest(lambda _: 1.0) <= rate


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 500),  # tokens in
            st.integers(0, 500),  # tokens out, as thought
            st.floats(0, 1),  # share of those that came
            st.sampled_from(["answered", "failed", "never sent", "refused"]),
            st.floats(0, 100),  # takes
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([60.0, 600.0, 10_000.0, 30_000.0]),
    st.integers(1000, 4000),
)
def test_whatever_becomes_of_calls_no_minute_really_holds_more_than_the_limits(
    calls: list[tuple[int, int, float, str, float]], rate: float, tokens: int
) -> None:
    """What was never sent leaves no trace; a failed or refused call counts as it was thought of; an answered one as
    it was."""
    real: list[tuple[float, Charge]] = []

    async def one(gate: Watched, age: int, call: tuple[int, int, float, str, float]) -> None:
        tin, tout, share, becomes, takes = call
        ticket = Ticket(age)
        async with gate.passing(ticket, Charge(tin, tout)):
            sent = gate.clock()
            if becomes == "never sent":
                gate.refund(ticket)
                return
            gate.sent(ticket, sent)
            await anyio.sleep(takes)
            if becomes == "answered":
                gate.settle(ticket, Charge(tin, tout * share))
                real.append((sent, Charge(tin, tout * share)))
            else:
                if becomes == "refused":
                    gate.limits.refund(ticket.taken, gate.clock(), guessed_only=True)  # type: ignore[arg-type]
                real.append((sent, Charge(tin, tout)))

    async def main() -> Watched:
        gate = Watched(1000, rate, limits={("tokens", 60.0): tokens})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.serve)
            async with anyio.create_task_group() as inner:
                for age, call in enumerate(calls):
                    inner.start_soon(one, gate, age, call)
            tasks.cancel_scope.cancel()
        assert gate.limits._unknown == Charge()
        return gate

    gate = run(main)
    gate.log = sorted(real, key=lambda each: each[0])
    assert gate.fullest(both) <= tokens + 1e-6
    assert gate.fullest(lambda _: 1.0) <= rate


@functools.cache
def saturated(
    rate: float, tokens: float, large: int, minutes: float = 2
) -> tuple[float, float, float, float]:
    """Most requests and tokens in a minute, and the use of each, under more demand than fits."""

    async def main() -> Watched:
        gate = Watched(100_000, rate, limits={("tokens", 60.0): tokens})
        ages = iter(range(10**9))

        async def keep_asking(k: int) -> None:
            while True:
                size = large if next(ages) % 7 == 0 else large / 5
                await gate.call(next(ages), Charge(size / 2, size / 2), 0.0)

        with anyio.move_on_after(60 * minutes):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gate.serve)
                for k in range(20):
                    tasks.start_soon(keep_asking, k)
        return gate

    gate = run(main)
    used = sum(both(charge) for _, charge in gate.log)
    return (
        gate.fullest(lambda _: 1.0), gate.fullest(both), len(gate.log) / (rate * minutes), used / (tokens * minutes)
    )  # fmt: skip


@pytest.mark.parametrize("share", [0.002, 0.05, 0.3], ids=["small", "middling", "large"])
@pytest.mark.parametrize(("rate", "minutes"), [(60, 5), (600, 3), (10_000, 2), (30_000, 1.5)])
def test_under_load_nearly_all_of_a_limit_is_used_and_never_more(
    rate: int, minutes: float, share: float
) -> None:
    limit = 100.0 * rate
    largest = min(share * limit, 50 * 100)
    most_requests, most_tokens, requests, tokens = saturated(rate, limit, int(largest), minutes)
    assert most_requests <= rate
    assert most_tokens <= limit + 1e-6
    assert max(requests, tokens) >= 0.98 - int(largest) / limit


@virtual
async def test_a_call_larger_than_a_minute_waits_for_an_empty_one_and_goes_with_a_warning() -> None:
    gate = Watched(10, limits={("tokens", 60.0): 1000})
    said: list[str] = []
    gate.on_warning = said.append
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate.call, 0, Charge(400, 0), 1.0)
        tasks.start_soon(gate.call, 1, Charge(5000, 0), 1.0)
        tasks.start_soon(gate.call, 2, Charge(10, 0), 1.0)
    times = [at - began for at, _ in gate.log]
    assert times == [
        pytest.approx(0, abs=0.1),
        pytest.approx(60.6, abs=0.1),
        pytest.approx(361, abs=2.0),
    ] or (times[1] == pytest.approx(60.6, abs=0.1) and times[2] >= 121)
    assert len(said) == 1 and "5000" in said[0] and "tokens a minute" in said[0]


@virtual
async def test_what_was_reserved_in_excess_is_free_as_soon_as_the_real_usage_is_known() -> None:
    gate = Watched(10, limits={("tokens", 60.0): 1000})
    ticket = Ticket(0)
    async with gate.passing(ticket, Charge(500, 500)):
        assert gate.limits.wait(gate.clock(), Charge(100, 0))[0] > 0
        gate.settle(ticket, Charge(400, 10))
    assert gate.limits.use(gate.clock()) == {"tokens a minute": (410, 1000)}


@virtual
async def test_a_call_that_was_never_sent_is_refunded_and_one_that_failed_is_not() -> None:
    gate = Watched(10, limits={("tokens", 60.0): 1000})
    ticket = Ticket(0)
    async with gate.passing(ticket, Charge(600, 0)):
        gate.refund(ticket)
    assert gate.limits.use(gate.clock())["tokens a minute"][0] == 0
    async with gate.passing(ticket, Charge(600, 0)):
        pass
    assert gate.limits.use(gate.clock())["tokens a minute"][0] == 600


@virtual
async def test_requests_of_a_day_are_counted_and_their_end_is_told() -> None:
    gate = Watched(10, limits={("requests", 86400.0): 5})
    told: list[float] = []
    gate.on_parked = lambda seconds, why: told.append(seconds)
    async with anyio.create_task_group() as tasks:
        for k in range(8):
            tasks.start_soon(gate.call, k, Charge(), 1.0)
        await anyio.sleep(3600)
        assert len(gate.log) == 5
        assert told and told[0] == pytest.approx(86400 * 1.01, rel=0.01)
        tasks.cancel_scope.cancel()


@virtual
async def test_a_call_counts_from_when_it_is_sent_not_from_when_it_was_let_through() -> None:
    gate = Watched(10, limits={("requests", 60.0): 1, ("tokens", 60.0): 1000})
    ticket = Ticket(0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate.serve)
        async with gate.passing(ticket, Charge(10, 0)):
            await anyio.sleep(2)  # a busy machine
            gate.sent(ticket, gate.clock())
            sent = anyio.current_time()
        async with gate.passing(Ticket(1), Charge(10, 0)):
            assert anyio.current_time() - sent >= 60
        tasks.cancel_scope.cancel()


@virtual
async def test_room_is_held_back_for_calls_whose_real_usage_is_not_known_yet() -> None:
    gate = Watched(10, limits={("tokens", 60.0): 1000})
    unsure = Charge(300, 100, input_variance=0.0, output_variance=50.0**2)
    first = Ticket(0)
    async with gate.passing(first, unsure):
        assert (
            gate.limits.wait(gate.clock(), Charge(400, 100))[0] > 0.7
        )  # 500 + 2.5 x 50 do not fit beside it
        gate.settle(first, Charge(300, 90))
        gate.limits._bounds[("tokens", 60.0)].pace = None
        assert gate.limits.wait(gate.clock(), Charge(500, 100))[0] == 0
    async with gate.passing(Ticket(1), unsure):
        pass  # it failed: nothing more will be known of it
    assert gate.limits._unknown == Charge()


# -- limits that are told ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "window",
    [
        Window("requests", 60.0, limit=-1, remaining=-1, reset=0),
        Window("requests", 60.0, limit=0, remaining=0, reset=0),
        Window("requests", 60.0, limit=None, remaining=0, reset=None),
        Window("tokens", 0.0, limit=5),
        Window("tokens", 60.0, limit=float("nan"), remaining=float("nan"), reset=float("nan")),
        Window("requests", 60.0, limit=float("inf")),
    ],
)
@virtual
async def test_a_limit_that_says_nothing_changes_nothing(window: Window) -> None:
    gate = Watched(10)
    gate.learn([window])
    for k in range(20):
        await gate.call(k, Charge(10, 10), 0.0)
    assert gate.log[-1][0] - gate.log[0][0] < 0.01
    assert not gate.changes


@virtual
async def test_a_window_that_others_used_up_is_waited_for() -> None:
    gate = Watched(10)
    gate.learn([Window("requests", 60.0, limit=100, remaining=0, reset=20)])
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate.serve)
        await gate.call(0, Charge(), 0.0)
        tasks.cancel_scope.cancel()
    assert gate.log[0][0] - began == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(("first", "then"), [(600, 300), (600, 1200), (600, 60), (60, 6000)])
def test_a_limit_that_changes_half_way_is_followed_within_a_third_of_a_window(first: int, then: int) -> None:
    async def main() -> tuple[Watched, float]:
        gate = Watched(1000)
        gate.learn([Window("requests", 60.0, limit=first)])

        async def keep_asking() -> None:
            while True:
                await gate.call(0, Charge(), 0.01)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.serve)
            for _ in range(100):
                tasks.start_soon(keep_asking)
            await anyio.sleep(100)
            gate.learn([Window("requests", 60.0, limit=then)])
            changed = anyio.current_time()
            await anyio.sleep(140)
            tasks.cancel_scope.cancel()
        return gate, changed

    gate, changed = run(main)
    begun = [at - changed for at, _ in gate.log]
    soon = sum(20 <= at < 40 for at in begun) / 20 * 60
    assert soon <= then * 1.01
    if then > first:
        assert soon >= 0.9 * then
    assert sum(80 <= at < 140 for at in begun) >= 0.97 * then - 1
    # What a server that counts a sliding minute would see: from the change on, nothing goes beyond the new one.
    beyond = [at for k, at in enumerate(begun) if at > 0.001 and k >= then and at - begun[k - then] < 60]
    assert not beyond
    assert [(c.old, c.new) for c in gate.changes] == [(None, first), (first, then)]


@virtual
async def test_the_jobs_own_limit_is_never_exceeded_whatever_is_told() -> None:
    gate = Watched(1000, 60.0)
    gate.learn([Window("requests", 60.0, limit=6000, remaining=5999, reset=1)])
    with anyio.move_on_after(90):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.serve)
            for k in range(200):
                tasks.start_soon(gate.call, k, Charge(), 0.0)
    assert gate.fullest(lambda _: 1.0) <= 60


# -- pauses ------------------------------------------------------------------------------------------------
@virtual
async def test_after_a_pause_one_call_goes_alone_until_it_is_let_in() -> None:
    gate = Watched(100)
    gate.patience = 5.0
    gate.pause(30, "429")
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for k in range(10):
            tasks.start_soon(gate.call, k, Charge(), 100.0)
        await anyio.sleep(29)
        assert gate.log == []
        await anyio.sleep(2)
        assert len(gate.log) == 1
        gate.proved(gate.log[0][0])
        await anyio.lowlevel.checkpoint()
        assert len(gate.log) == 10
        tasks.cancel_scope.cancel()
    assert gate.log[0][0] - began == pytest.approx(30, abs=0.01)


@virtual
async def test_a_call_that_goes_alone_and_is_silent_counts_as_let_in() -> None:
    gate = Watched(100)
    gate.pause(10, "429")
    async with anyio.create_task_group() as tasks:
        for k in range(10):
            tasks.start_soon(gate.call, k, Charge(), 100.0)
        await anyio.sleep(13)
        assert len(gate.log) == 10
        tasks.cancel_scope.cancel()
