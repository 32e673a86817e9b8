"""The gate: never more in flight, never more a minute, the oldest first, and no place lost."""

from __future__ import annotations

import functools
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.models.gate import Gate, Ticket
from tests.virtual_time import run, virtual


class Served:
    """Calls through a gate: when each began, in what order, and how many at once."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.began: list[float] = []
        self.order: list[Any] = []
        self.waited: list[float] = []
        self.active = self.peak = 0

    async def call(self, priority: int = 0, seconds: float = 1.0, name: Any = None) -> None:
        async with self.gate.passing(Ticket(priority)) as waited:
            self.began.append(anyio.current_time())
            self.order.append(priority if name is None else name)
            self.waited.append(waited)
            self.active += 1
            self.peak = max(self.peak, self.active)
            try:
                await anyio.sleep(seconds)
            finally:
                self.active -= 1


def empty(gate: Gate) -> bool:
    return (gate.flying, gate.waiting) == (0, 0)


# -- in flight ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", [None, 6000.0], ids=["free", "paced"])
@virtual
async def test_no_more_than_in_flight_at_once_and_all_places_used(rate: float | None) -> None:
    served = Served(Gate(3, rate))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served.gate.serve)
        async with anyio.create_task_group() as calls:
            for k in range(30):
                calls.start_soon(served.call, k, 1 + k % 3)
        tasks.cancel_scope.cancel()
    assert served.peak == 3
    assert len(served.order) == 30
    assert empty(served.gate)


@virtual
async def test_a_free_place_is_taken_at_once() -> None:
    served = Served(Gate(2))
    await served.call()
    assert served.waited == [pytest.approx(0, abs=1e-3)]


@virtual
async def test_the_seconds_waited_are_told() -> None:
    served = Served(Gate(1))
    async with anyio.create_task_group() as calls:
        for k in range(3):
            calls.start_soon(served.call, k, 10.0)
    assert served.waited == [pytest.approx(10 * k, abs=1e-3) for k in range(3)]


@virtual
async def test_waiting_and_flying_are_what_they_say() -> None:
    gate = Gate(2)
    served = Served(gate)
    tickets = [Ticket(k) for k in range(2)]
    async with anyio.create_task_group() as calls:
        for k in range(5):
            calls.start_soon(served.call, 10 + k, 10.0)
        await anyio.sleep(1)
        assert (gate.flying, gate.waiting) == (2, 3)

        async def hold(ticket: Ticket) -> None:
            async with gate.passing(ticket):
                await anyio.sleep(10)

        for ticket in tickets:
            calls.start_soon(hold, ticket)
        await anyio.sleep(1)
        assert gate.waiting == 5
        gate.lend(tickets[1], -1)  # a second entry of the same call in the queue
        gate.lend(tickets[1], -2)
        assert gate.waiting == 5
        await anyio.sleep(10)  # both are served, the entries before they were lent to are still about
        assert (gate.flying, gate.waiting) == (2, 3)
    assert empty(gate)


# -- age ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", [None, 60.0], ids=["free", "paced"])
@virtual
async def test_the_oldest_goes_first_and_equals_in_order_of_arrival(rate: float | None) -> None:
    served = Served(Gate(1, rate))
    ages = [5, 3, 9, 3, 1, 5, 0, 9]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served.gate.serve)
        async with anyio.create_task_group() as calls:
            calls.start_soon(served.call, -1)
            await anyio.sleep(0.1)
            for k, age in enumerate(ages):
                calls.start_soon(served.call, age, 1.0, (age, k))
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert served.order == [-1, *sorted((age, k) for k, age in enumerate(ages))]


@virtual
async def test_one_who_comes_late_and_is_older_goes_first() -> None:
    served = Served(Gate(1))
    async with anyio.create_task_group() as calls:
        for k in (5, 6, 7):
            calls.start_soon(served.call, k)
        await anyio.sleep(1.5)
        calls.start_soon(served.call, 1)
    assert served.order == [5, 6, 1, 7]


@virtual
async def test_a_ticket_that_was_lent_a_place_goes_as_if_it_were_older() -> None:
    gate = Gate(1)
    served = Served(gate)
    late, later = Ticket(9), Ticket(8)

    async def use(ticket: Ticket, name: str) -> None:
        async with gate.passing(ticket):
            served.order.append(name)
            await anyio.sleep(1)

    async with anyio.create_task_group() as calls:
        for k in (1, 2, 3):
            calls.start_soon(served.call, k)
        calls.start_soon(use, late, "late")
        calls.start_soon(use, later, "later")
        await anyio.sleep(0.5)
        gate.lend(late, 2)
        gate.lend(late, 0)
        gate.lend(late, 5)  # a younger one lends nothing
    assert served.order == [1, "late", 2, 3, "later"]
    assert empty(gate)


@virtual
async def test_a_place_lent_while_in_flight_counts_when_the_ticket_waits_again() -> None:
    gate = Gate(1)
    served = Served(gate)
    ticket = Ticket(9)

    async def twice() -> None:
        for _ in range(2):
            async with gate.passing(ticket):
                served.order.append("lent")
                await anyio.sleep(1)
            await anyio.sleep(0.5)

    async with anyio.create_task_group() as calls:
        calls.start_soon(twice)
        await anyio.sleep(0.1)
        for k in (4, 5, 6):
            calls.start_soon(served.call, k)
        gate.lend(ticket, 1)
    assert served.order == ["lent", 4, "lent", 5, 6]
    assert empty(gate)


# -- leaving -----------------------------------------------------------------------------------------------
@virtual
async def test_one_who_leaves_the_queue_gives_up_the_place() -> None:
    served = Served(Gate(1))
    async with anyio.create_task_group() as calls:
        calls.start_soon(served.call, 0, 10.0)
        await anyio.sleep(1)
        with anyio.move_on_after(1):
            await served.call(1)
        assert served.gate.waiting == 0
        calls.start_soon(served.call, 2)
    assert served.order == [0, 2]
    assert empty(served.gate)


@virtual
async def test_one_who_is_granted_and_cancelled_in_the_same_moment_leaks_no_place() -> None:
    gate = Gate(1)
    served = Served(gate)
    async with anyio.create_task_group() as calls:
        scope = anyio.CancelScope()

        async def waits() -> None:
            with scope:
                await served.call(1)

        async with gate.passing(Ticket(0)):
            calls.start_soon(waits)
            await anyio.sleep(1)
        assert gate.flying == 1  # granted already, and not yet awake
        scope.cancel()
        await anyio.sleep(1)
        assert empty(gate)
        await served.call(2)
    assert served.order[-1] == 2


@virtual
async def test_an_error_inside_gives_the_place_back() -> None:
    gate = Gate(1)
    for _ in range(3):
        with pytest.raises(KeyError):
            async with gate.passing(Ticket(0)):
                raise KeyError("x")
    assert empty(gate)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),  # begins, tenths of a second
            st.integers(0, 9),  # age
            st.integers(0, 20),  # takes
            st.none() | st.integers(0, 30),  # is cancelled after
            st.none() | st.tuples(st.integers(0, 30), st.integers(-5, 9)),  # is lent a place after
        ),
        max_size=25,
    ),
    st.integers(1, 4),
    st.sampled_from([None, 60.0, 600.0, 30_000.0]),
)
def test_the_accounts_are_even_after_any_cancellations(
    visits: list[tuple[int, int, int, int | None, tuple[int, int] | None]], in_flight: int, rate: float | None
) -> None:
    async def main() -> None:
        gate = Gate(in_flight, rate)
        served = Served(gate)

        async def visit(
            begins: int, age: int, takes: int, leaves: int | None, lent: tuple[int, int] | None
        ) -> None:
            ticket = Ticket(age)

            async def lend(after: int, priority: int) -> None:
                await anyio.sleep(after / 10)
                gate.lend(ticket, priority)

            await anyio.sleep(begins / 10)
            async with anyio.create_task_group() as beside:
                if lent is not None:
                    beside.start_soon(lend, *lent)
                with anyio.move_on_after(1e6 if leaves is None else leaves / 10):
                    async with gate.passing(ticket):
                        served.active += 1
                        served.peak = max(served.peak, served.active)
                        assert gate.flying >= served.active
                        try:
                            await anyio.sleep(takes / 10)
                            served.order.append(age)
                        finally:
                            served.active -= 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.serve)
            async with anyio.create_task_group() as calls:
                for each in visits:
                    calls.start_soon(visit, *each)
            assert empty(gate)
            assert served.peak <= in_flight
            assert len(served.order) >= sum(leaves is None for _, _, _, leaves, _ in visits)
            async with anyio.create_task_group() as calls:  # and every place can be had again
                for _ in range(in_flight):
                    calls.start_soon(served.call)
            tasks.cancel_scope.cancel()
        assert empty(gate)

    run(main)


# -- requests per minute -----------------------------------------------------------------------------------
def most_in_a_minute(times: list[float], minute: float = 60.0) -> int:
    """The most moments in any window of a minute, both its ends included."""
    most = first = 0
    for last, moment in enumerate(times):
        while moment - times[first] > minute:
            first += 1
        most = max(most, last - first + 1)
    return most


@functools.cache
def paced(rate: float, minutes: float) -> list[float]:
    """When calls begin under saturation for some minutes."""

    async def main() -> list[float]:
        served = Served(Gate(1_000_000, rate))

        async def keep_asking() -> None:
            while True:
                async with served.gate.passing(Ticket(0)):
                    served.began.append(anyio.current_time())

        with anyio.move_on_after(60 * minutes):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(served.gate.serve)
                for _ in range(20):
                    tasks.start_soon(keep_asking)
        return served.began

    return run(main)


RATES = [(0.5, 40), (1, 40), (20, 12), (60, 10), (199, 4), (200, 4), (201.5, 4), (600, 4), (10_000, 2)]


@pytest.mark.parametrize(("rate", "minutes"), RATES)
def test_no_minute_has_more_than_its_requests(rate: float, minutes: float) -> None:
    assert most_in_a_minute(paced(rate, minutes)) <= max(rate, 1)


@pytest.mark.parametrize(("rate", "minutes"), [pair for pair in RATES if pair[0] >= 20])
def test_a_gate_under_load_uses_97_percent_of_its_requests(rate: float, minutes: float) -> None:
    began = paced(rate, minutes)
    assert len(began) >= 0.97 * rate * minutes
    assert len(began) <= rate * minutes


@pytest.mark.parametrize("rate", [20, 60, 600, 10_000])
def test_calls_that_are_late_on_their_way_do_not_make_a_minute_too_full(rate: float) -> None:
    """A server counts arrivals: what left within 60.5 s may arrive within a minute."""
    minutes = dict(RATES)[rate]
    assert most_in_a_minute(paced(rate, minutes), 60.5) <= rate


@pytest.mark.parametrize("rate", [60, 600, 10_000])
def test_a_gate_that_was_idle_saves_up_no_minute(rate: float) -> None:
    async def main() -> list[float]:
        served = Served(Gate(1_000_000, rate))

        async def burst(n: int) -> None:
            async with anyio.create_task_group() as calls:
                for _ in range(n):
                    calls.start_soon(served.call, 0, 0.0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.gate.serve)
            for idle in (0, 30, 300, 7):
                await anyio.sleep(idle)
                await burst(int(rate / 2))
            tasks.cancel_scope.cancel()
        return served.began

    assert most_in_a_minute(run(main)) <= rate


@virtual
async def test_a_limit_on_requests_does_not_lift_the_one_in_flight() -> None:
    served = Served(Gate(2, 6000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served.gate.serve)
        async with anyio.create_task_group() as calls:
            for k in range(10):
                calls.start_soon(served.call, k, 5.0)
        tasks.cancel_scope.cancel()
    assert served.peak == 2
    assert served.order == list(range(10))


@virtual
async def test_one_who_leaves_a_paced_queue_holds_up_nobody() -> None:
    served = Served(Gate(10, 6))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served.gate.serve)
        async with anyio.create_task_group() as calls:
            await served.call(0, 0.0)
            for k in range(1, 50):

                async def leaves(k: int = k) -> None:
                    with anyio.move_on_after(5):
                        await served.call(k)

                calls.start_soon(leaves)
            calls.start_soon(served.call, 99, 0.0)
        tasks.cancel_scope.cancel()
    first, second = served.began
    assert second - first < 11
    assert empty(served.gate)


# -- shutting ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", [None, 6.0], ids=["free", "paced"])
@virtual
async def test_a_gate_that_is_shut_lets_all_who_wait_through_without_a_place(rate: float | None) -> None:
    gate = Gate(1, rate)
    through: list[int] = []

    async def visit(k: int) -> None:
        async with gate.passing(Ticket(k)):
            through.append(k)
            assert gate.flying <= 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate.serve)
        async with anyio.create_task_group() as calls:
            async with gate.passing(Ticket(0)):
                for k in range(1, 1001):
                    calls.start_soon(visit, k)
                await anyio.sleep(1)
                assert through == []
                began = anyio.current_time()
                gate.shut()
                await anyio.sleep(0.1)
                assert sorted(through) == list(range(1, 1001))
                await visit(1001)  # and whoever comes
            assert anyio.current_time() - began < 1
        tasks.cancel_scope.cancel()
    assert empty(gate)
