"""A model behind its gate: how often a call is tried, how long it waits, and what stops it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from runner.errors import (
    CellStopped,
    ContextOverflow,
    EpisodeFailed,
    Filtered,
    ModelError,
    RunError,
    Transient,
    Unsupported,
)
from runner.models import passage
from runner.models.base import Call, Params, Reply, Request, Text, Turn
from runner.models.gate import Ticket
from runner.models.passage import LONGEST_PAUSE, PARKED, Passage
from runner.models.scripted import Scripted, scripted
from tests.virtual_time import virtual

CALL = Call(Request("m", (Turn("prompt", Text("Q?")),), Params()), scope="t#0")


@pytest.fixture(autouse=True)
def chance(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Jitter is the most that it may be; its bounds are kept. Clocks are the loop's."""
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    monkeypatch.setattr(passage.random, "uniform", uniform)
    return bounds


class Line:
    """A passage whose model raises `errors` in turn and then answers, and what it told of failures."""

    def __init__(self, *errors: Exception, forever: Exception | None = None, **settings: Any) -> None:
        self.errors: Iterator[Exception] = iter(errors)
        self.forever = forever
        self.began: list[float] = []
        self.told: list[tuple[Call, ModelError]] = []
        self.model: Scripted = scripted(self.answer, **settings)
        self.passage = Passage("m", self.model, lambda call, error: self.told.append((call, error)))

    async def answer(self, call: Call) -> str:
        self.began.append(anyio.current_time())
        error = next(self.errors, self.forever)
        if error is not None:
            raise error
        return "fine"

    async def ask(self, priority: int = 0) -> Reply:
        return await self.passage.ask(CALL, Ticket(priority))

    @property
    def pauses(self) -> list[float]:
        """Seconds between one try and the next."""
        return [round(b - a, 3) for a, b in zip(self.began, self.began[1:], strict=False)]

    def idle(self) -> bool:
        gate = self.passage.gate
        return not (gate.flying or gate.waiting or self.passage.retrying)


@virtual
async def test_a_reply_tells_how_long_it_took_and_how_long_it_waited() -> None:
    line = Line(Transient("busy", retry_after=5), in_flight=1, delay=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scripted_sleep, line, 10)
        await anyio.sleep(1)
        reply = await line.ask()
    assert reply.seconds == pytest.approx(2, abs=1e-3)
    assert reply.waited == pytest.approx(9 + 6, abs=1e-3)  # for the place, and between its tries
    assert line.told and line.idle()


async def scripted_sleep(line: Line, seconds: float) -> None:
    async with line.passage.gate.passing(Ticket(0)):
        await anyio.sleep(seconds)


# -- tries -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("attempts", [1, 2, 6])
@virtual
async def test_a_constant_503_is_tried_exactly_attempts_times(attempts: int) -> None:
    line = Line(forever=Transient("HTTP 503", status=503, billed=True), attempts=attempts)
    with pytest.raises(EpisodeFailed, match=f"gave up after {attempts} tries: HTTP 503") as caught:
        await line.ask()
    assert caught.value.status == 503
    assert len(line.model.calls) == attempts
    assert [(call, error.billed) for call, error in line.told] == [(CALL, True)] * attempts
    assert line.passage.stopped is None
    assert line.idle()


@virtual
async def test_the_last_try_may_succeed() -> None:
    line = Line(*[Transient("503")] * 5)
    assert (await line.ask()).choices[0].text == "fine"
    assert len(line.told) == 5


@virtual
async def test_pauses_double_up_to_a_ceiling(chance: list[tuple[float, float]]) -> None:
    line = Line(forever=Transient("503"), attempts=12)
    with pytest.raises(EpisodeFailed):
        await line.ask()
    assert chance == [(0, min(LONGEST_PAUSE, 2.0**k)) for k in range(11)]
    assert line.pauses == [pytest.approx(high, abs=1e-3) for _, high in chance]


@virtual
async def test_very_many_tries_do_no_sums_that_overflow() -> None:
    line = Line(forever=Transient("503"), attempts=1200, retry_for=1e9)
    with pytest.raises(EpisodeFailed, match="1200 tries"):
        await line.ask()


@pytest.mark.parametrize("told", [0.0, 0.503, 89.0, 3600.0])
@virtual
async def test_the_wait_that_a_server_asks_for_is_kept(told: float) -> None:
    line = Line(Transient("429", retry_after=told, status=429))
    await line.ask()
    (pause,) = line.pauses
    assert told <= pause <= told + 1.001


@virtual
async def test_a_pause_holds_no_place() -> None:
    line = Line(Transient("busy", retry_after=100), in_flight=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.ask)
        await anyio.sleep(1)
        assert line.passage.retrying and list(line.passage.retrying.values()) == ["busy"]
        await line.ask()
        assert len(line.began) == 2
        assert line.pauses == [pytest.approx(1, abs=0.01)]
    assert line.idle()


@virtual
async def test_tries_again_keep_to_the_requests_a_minute() -> None:
    line = Line(*[Transient("503", retry_after=0)] * 3, Unsupported("seed", "seed"), requests_per_minute=6.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.passage.gate.serve)
        await line.ask()
        tasks.cancel_scope.cancel()
    assert len(line.began) == 5
    assert min(line.pauses) >= 10


# -- parameters that are refused ---------------------------------------------------------------------------
@virtual
async def test_a_call_is_made_again_at_once_without_what_was_refused() -> None:
    line = Line(Unsupported("seed", "seed"), Unsupported("stop", "stop"), Unsupported("n", "n"), attempts=1)
    await line.ask()
    assert line.pauses == [pytest.approx(0, abs=1e-3)] * 3
    assert len(line.told) == 3


@virtual
async def test_a_parameter_that_is_refused_twice_ends_the_call() -> None:
    line = Line(forever=Unsupported("seed", "seed"))
    with pytest.raises(Unsupported):
        await line.ask()
    assert (len(line.began), len(line.told)) == (2, 2)
    assert line.passage.stopped is None
    assert line.idle()


@virtual
async def test_a_refused_parameter_uses_up_no_try() -> None:
    busy = Transient("503")
    line = Line(busy, Unsupported("seed", "seed"), busy, attempts=3)
    await line.ask()
    assert len(line.began) == 4


# -- failures that end a call ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [EpisodeFailed, ContextOverflow, Filtered])
@virtual
async def test_a_request_that_will_never_be_answered_is_tried_once(kind: Callable[[str], ModelError]) -> None:
    error = kind("no")
    line = Line(error)
    with pytest.raises(ModelError) as caught:
        await line.ask()
    assert caught.value is error
    assert [told for _, told in line.told] == [error]
    assert (await line.ask()).choices[0].text == "fine"
    assert line.idle()


@virtual
async def test_a_fault_in_a_model_reaches_its_asker_and_gives_the_place_back() -> None:
    line = Line(KeyError("choices"), in_flight=1)
    with pytest.raises(KeyError, match="choices"):
        await line.ask()
    assert [(type(error), str(error), error.billed) for _, error in line.told] == [
        (ModelError, "KeyError: 'choices'", True)
    ]
    assert line.idle()
    await line.ask()


@virtual
async def test_a_call_that_is_cut_off_is_told_as_possibly_billed() -> None:
    line = Line(delay=10)
    with anyio.move_on_after(1) as scope:
        await line.ask()
    assert scope.cancelled_caught
    assert [(call, error.billed) for call, error in line.told] == [(CALL, True)]
    assert line.idle()


@virtual
async def test_a_call_that_is_cut_off_before_it_was_made_is_not_told() -> None:
    line = Line(Transient("busy", retry_after=50), in_flight=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scripted_sleep, line, 10)
        await anyio.sleep(1)
        with anyio.move_on_after(1):  # in the queue
            await line.ask()
        assert line.told == []
        await anyio.sleep(10)
        with anyio.move_on_after(1):  # between its tries
            await line.ask()
        assert len(line.told) == 1
    assert line.idle()


@virtual
async def test_a_ledger_that_cannot_be_written_ends_the_call_and_gives_the_place_back() -> None:
    def full(call: Call, error: ModelError) -> None:
        raise RunError("disk full")

    line = Line(Transient("503"))
    line.passage.on_failure = full
    with pytest.raises(RunError):
        await line.ask()
    assert line.idle()


# -- failures that stop the cell ---------------------------------------------------------------------------
@virtual
async def test_a_stopped_cell_makes_no_further_call() -> None:
    line = Line(CellStopped("no credit left"))
    errors = []
    for _ in range(3):
        with pytest.raises(CellStopped, match="no credit left") as caught:
            await line.ask()
        errors.append(caught.value)
    assert len(line.model.calls) == 1
    assert len(line.told) == 1
    assert len({id(error) for error in errors}) == 3
    assert line.idle()


@pytest.mark.parametrize("rate", [None, 1.0], ids=["free", "paced"])
@virtual
async def test_a_stop_reaches_all_who_wait_at_once(rate: float | None) -> None:
    """Ten thousand calls at one a minute would else wait a week to hear that there is no credit."""
    line = Line(
        Transient("busy", retry_after=300),
        CellStopped("no credit left"),
        in_flight=2,
        requests_per_minute=rate,
    )
    began = anyio.current_time()
    ended: list[float] = []

    async def ask() -> None:
        with pytest.raises(CellStopped, match="no credit left"):
            await line.ask()
        ended.append(anyio.current_time() - began)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.passage.gate.serve)
        async with anyio.create_task_group() as calls:
            for _ in range(200):
                calls.start_soon(ask)
        tasks.cancel_scope.cancel()
    assert len(line.model.calls) == 2
    assert len(line.told) == 2
    assert len(ended) == 200
    assert max(ended) - min(ended) < 0.1
    assert max(ended) < 70
    assert line.idle()


@virtual
async def test_calls_in_flight_when_the_cell_stops_may_end() -> None:
    async def answer(call: Call) -> str:
        if call.first:
            await anyio.sleep(1)
            raise CellStopped("no credit left")
        await anyio.sleep(10)
        return "paid"

    model = scripted(answer)
    line = Passage("m", model)
    found: list[Reply] = []

    async def first() -> None:
        found.append(await line.ask(CALL, Ticket(0)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        with pytest.raises(CellStopped):
            await line.ask(Call(CALL.request, first=1), Ticket(0))
    assert found[0].choices[0].text == "paid"


@pytest.mark.parametrize("told", [math.nextafter(PARKED, math.inf), 20_000.0])
@virtual
async def test_a_quota_of_hours_stops_the_cell(told: float) -> None:
    line = Line(forever=Transient("daily tokens used up", retry_after=told))
    for _ in range(2):
        with pytest.raises(CellStopped, match=r"asks to wait [0-9.]+ h .*daily tokens used up.*resume"):
            await line.ask()
    assert len(line.model.calls) == len(line.told) == 1
    assert line.pauses == []
    assert line.idle()


@virtual
async def test_a_stop_of_one_model_leaves_another_going() -> None:
    one, other = Line(CellStopped("no credit")), Line()
    with pytest.raises(CellStopped):
        await one.ask()
    assert (await other.ask()).choices[0].text == "fine"
