"""One model behind several endpoints, each with its own gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from pydantic import PrivateAttr

from runner.errors import CellStopped, DailyQuota, Transient
from runner.models.base import Call, Model
from runner.models.passage import Passage
from runner.models.queue import Ticket
from runner.models.scripted import Scripted, scripted
from tests.simulated import call
from tests.virtual_time import virtual


class Several(Scripted):
    """A model that several others answer for."""

    _lines: list[tuple[Model, float]] = PrivateAttr(default_factory=list)

    def lines(self) -> Sequence[tuple[Model, float]]:
        return self._lines


def several(*lines: tuple[Model, float], **settings: Any) -> Several:
    model = Several(**settings)
    model._lines = list(lines)
    return model


def endpoint(name: str, answer: Callable[[Call], Any] = lambda call: "fine", **settings: Any) -> Scripted:
    return scripted(answer, model=name, **{"delay": 1.0, **settings})


class Asked:
    def __init__(self, model: Model) -> None:
        self.passage = Passage("m", model)
        self.order: list[int] = []
        self.errors: list[BaseException] = []

    async def ask(self, age: int) -> None:
        try:
            await self.passage.ask(call(), Ticket(age))
            self.order.append(age)
        except Exception as error:
            self.errors.append(error)

    async def all(self, n: int) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.passage.serve)
            async with anyio.create_task_group() as calls:
                for age in range(n):
                    calls.start_soon(self.ask, age)
            tasks.cancel_scope.cancel()


def counts(*models: Scripted) -> list[int]:
    return [len(model.calls) for model in models]


@virtual
async def test_calls_are_shared_by_weight_and_no_gate_is_over_its_own_limit() -> None:
    one, two = endpoint("one"), endpoint("two")
    asked = Asked(several((one, 3.0), (two, 1.0)))
    await asked.all(40)
    assert counts(one, two) == [30, 10]
    one, two = endpoint("one", in_flight=2), endpoint("two", in_flight=5)
    began = anyio.current_time()
    asked = Asked(several((one, 1.0), (two, 1.0)))
    await asked.all(70)
    assert counts(one, two) == [20, 50]
    assert anyio.current_time() - began == pytest.approx(10, abs=0.1)
    rounds = [age // 7 for age in asked.order]
    assert rounds == sorted(rounds)  # one queue: the oldest first, whoever answers


@virtual
async def test_limits_a_minute_are_each_endpoints_own() -> None:
    models = [endpoint(name, requests_per_minute=60.0) for name in ("one", "two")]
    began = anyio.current_time()
    await Asked(several(*((model, 1.0) for model in models))).all(60)
    assert anyio.current_time() - began < 32
    assert counts(*models) == [30, 30]


@virtual
async def test_an_endpoint_that_cannot_be_reached_is_left_alone_and_tried_again_later() -> None:
    dead = True

    def answer(call: Call) -> str:
        if dead:
            raise Transient("no connection", unreached=True)
        return "back"

    one, two = endpoint("one", answer, delay=0.1), endpoint("two", in_flight=4)
    asked = Asked(several((one, 1.0), (two, 1.0), attempts=50))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.passage.serve)
        async with anyio.create_task_group() as calls:
            for age in range(2000):
                calls.start_soon(asked.ask, age)
            await anyio.sleep(100)
            assert len(one.calls) < 64 + 10
            tried = len(one.calls)
            dead = False
        tasks.cancel_scope.cancel()
    assert asked.errors == [] and len(asked.order) == 2000
    assert len(one.calls) > tried + 50
    assert any("no connection" in change.why for change in asked.passage.changes)


@virtual
async def test_one_endpoint_that_stops_leaves_the_others_and_the_last_stops_the_passage() -> None:
    def broke(call: Call) -> str:
        raise CellStopped("no credit left")

    one, two = endpoint("one", broke), endpoint("two")
    asked = Asked(several((one, 1.0), (two, 1.0)))
    await asked.all(200)
    assert asked.errors == [] and len(asked.order) == 200
    assert asked.passage.stopped is None
    one, two = endpoint("one", broke), endpoint("two", broke)
    asked = Asked(several((one, 1.0), (two, 1.0)))
    await asked.all(200)
    assert len(asked.errors) == 200 and all(isinstance(error, CellStopped) for error in asked.errors)
    assert asked.passage.stopped is not None


@virtual
async def test_a_reply_tells_which_endpoint_answered() -> None:
    passage = Passage("m", several((endpoint("one"), 1.0), (endpoint("two"), 1.0)))
    found: Counter[str] = Counter()
    async with anyio.create_task_group() as tasks:
        for age in range(10):

            async def ask(age: int = age) -> None:
                found[(await passage.ask(call(), Ticket(age))).endpoint] += 1

            tasks.start_soon(ask)
    assert sum(found.values()) == 10


@virtual
async def test_a_429_pauses_its_own_endpoint_only() -> None:
    refused: list[float] = []

    def once(call: Call) -> str:
        if not refused:
            refused.append(anyio.current_time())
            raise Transient("429", status=429, retry_after=50)
        assert anyio.current_time() >= refused[0] + 50
        return "fine"

    one, two = endpoint("one", once, in_flight=1, delay=0.5), endpoint("two", in_flight=1)
    asked = Asked(several((one, 1.0), (two, 1.0)))
    await asked.all(60)
    assert asked.errors == []
    assert len(two.calls) >= 45


@virtual
async def test_a_429_pauses_all_calls_of_its_endpoint_and_one_goes_first_afterwards() -> None:
    began: list[float] = []

    def answer(call: Call) -> str:
        began.append(anyio.current_time())
        if len(began) == 1:
            raise Transient("429", status=429, retry_after=50)
        return "fine"

    asked = Asked(endpoint("one", answer, in_flight=4, delay=0.0))
    await asked.all(1)
    assert began[1] - began[0] >= 50
    asked2 = Asked(endpoint("one", answer, in_flight=4, delay=0.0))
    await asked2.all(10)
    assert asked2.errors == []


# -- quotas of a day ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("told", [7200.0, None])
@virtual
async def test_a_daily_quota_stops_the_passage_or_is_sat_out_as_the_job_says(told: float | None) -> None:
    began = anyio.current_time()

    def answer(call: Call) -> str:
        if anyio.current_time() < began + 7000:
            raise DailyQuota("a daily quota is used up", retry_after=told, status=429)
        return "fine"

    stops = Asked(endpoint("one", answer, in_flight=2, delay=0.0))
    await stops.all(20)
    assert len(stops.errors) == 20 and anyio.current_time() - began < 1
    waits = Asked(endpoint("two", answer, in_flight=2, delay=0.0, on_daily_quota="wait"))
    await waits.all(20)
    assert waits.errors == [] and len(waits.order) == 20
    assert len(waits.passage.model.calls) < 30  # type: ignore[attr-defined]


@virtual
async def test_the_jobs_own_limit_of_a_day_stops_the_passage_in_time() -> None:
    asked = Asked(endpoint("one", requests_per_day=5.0, delay=0.0))
    began = anyio.current_time()
    await asked.all(20)
    assert len(asked.order) == 5 and len(asked.errors) == 15
    assert anyio.current_time() - began < 10
    assert "requests a day" in str(asked.passage.stopped)


@virtual
async def test_tries_and_pauses_end_after_retry_for_however_many_are_left() -> None:
    def answer(call: Call) -> str:
        raise Transient("503", status=503)

    asked = Asked(endpoint("one", answer, attempts=1000, retry_for=100.0))
    began = anyio.current_time()
    await asked.all(1)
    assert "retry_for = 100 s" in str(asked.errors[0])
    assert anyio.current_time() - began <= 101
