"""The controller against servers that keep their limits to themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from runner.errors import Transient
from runner.models.base import Call
from runner.models.concurrency import START_IN_FLIGHT
from runner.models.passage import Passage
from runner.models.queue import Ticket
from runner.models.scripted import scripted
from tests.simulated import Server, call, lengths, load, model
from tests.virtual_time import run, virtual


def under_load(
    server: Server,
    seconds: float,
    askers: int = 200,
    later: list[tuple[float, Callable[[], None]]] | None = None,
    characters: Callable[[], int] = lambda: 400,
    **settings: object,
) -> tuple[Passage, float]:
    """The passage afterwards, and when it began."""
    random.seed(7)

    async def main() -> tuple[Passage, float]:
        began = anyio.current_time()
        return await load(
            model(server, **settings), seconds, askers, later=later or (), characters=characters
        ), began

    return run(main)


@pytest.mark.parametrize(
    ("requests", "takes"),
    [(60, 0.05), (60, 2.0), (600, 0.05), (600, 0.5), (600, 5.0), (2400, 0.5), (2400, 2.0), (10_000, 0.5)],
)
def test_a_hidden_limit_is_found_and_used_with_few_refusals(requests: int, takes: float) -> None:
    server = Server(requests=requests, takes=lambda flying: takes)
    _, began = under_load(server, 180, max(200, int(requests / 10 * takes)))
    assert server.share_refused <= 0.02
    assert server.use(began + 60, began + 180) >= 0.85
    assert server.most_let_in()[0] <= requests


@pytest.mark.parametrize("requests", [600, 2400])
def test_a_server_that_does_not_say_how_long_to_wait_is_used_as_well(requests: int) -> None:
    server = Server(requests=requests, retry_after=lambda until: None)
    _, began = under_load(server, 180)
    assert server.share_refused <= 0.02
    assert server.use(began + 60, began + 180) >= 0.85


def test_the_rate_grows_without_waiting_for_whole_replies() -> None:
    """Refusals come at once: thirty-second replies say nothing that their absence did not."""
    server = Server(requests=1000, takes=lambda flying: 30.0)
    passage, began = under_load(server, 29, 100)
    assert len(server.let_in) == START_IN_FLIGHT
    assert server.let_in[-1][0] - began < 4
    assert [change.what for change in passage.changes] == ["rate"] * len(passage.changes) != []


def test_what_trying_costs_is_bounded() -> None:
    """Over an hour: one refusal in eighty calls, and what was in the air when the limit was met first."""
    server = Server(requests=120)
    under_load(server, 3600, 50)
    assert len(server.refused) <= len(server.began) / 70 + 0.04 * 120
    assert len(server.let_in) >= 0.95 * 120 * 60


def test_hidden_limits_on_requests_and_tokens_are_found_together() -> None:
    server = Server(requests=600, tokens=90_000, completion=lengths(1, 20, 100))
    _, began = under_load(server, 240, characters=lengths(2, 100, 600))
    assert server.share_refused <= 0.02
    assert server.use(began + 60, began + 240) >= 0.85


@pytest.mark.parametrize("seconds", [5, 10])
def test_a_window_shorter_than_the_way_to_its_limit_is_told_by_the_refusals(seconds: float) -> None:
    server = Server(requests=40 * seconds, seconds=seconds)
    passage, began = under_load(server, 60)
    controller = passage.lines[0].controller
    assert controller is not None and controller.window is not None
    assert controller.window[0] <= 1.3 * seconds
    assert server.share_refused <= 0.02
    assert server.use(began + 20, began + 60) >= 0.85


@pytest.mark.parametrize("requests", [50, 100, 200])
def test_a_short_window_is_found_too(requests: int) -> None:
    server = Server(requests=requests, seconds=5, takes=lambda flying: 0.02, refuses_in=0.01)
    _, began = under_load(server, 20, 100)
    assert server.share_refused <= 0.02
    assert server.use(began + 5, began + 20) >= 0.85


@pytest.mark.parametrize("requests", [300, 600, 2400])
def test_a_hidden_limit_that_is_halved_costs_few_refusals(requests: int) -> None:
    server = Server(requests=requests)
    _, began = under_load(server, 300, later=[(150, lambda: setattr(server, "requests", requests / 2))])
    assert server.share_refused <= 0.02
    assert server.use(began + 190, began + 250) >= 0.85  # until then it lets in next to nothing itself


@pytest.mark.parametrize("takes", [0.5, 5.0])
@pytest.mark.parametrize("requests", [300, 600, 2400])
def test_a_hidden_limit_that_is_doubled_is_followed_within_a_third_of_a_window(
    requests: int, takes: float
) -> None:
    server = Server(requests=requests, takes=lambda flying: takes)
    askers = max(200, int(requests / 5 * takes))
    _, began = under_load(server, 170, askers, [(90, lambda: setattr(server, "requests", 2 * requests))])
    assert server.share_refused <= 0.02
    assert server.use(began + 110, began + 170) >= 0.85


@pytest.mark.parametrize("told", [89.0, None])
def test_refusals_that_say_nothing_true_freeze_nothing(told: float | None) -> None:
    server = Server(requests=600, retry_after=lambda until: told)
    _, began = under_load(server, 900)
    assert server.share_refused <= 0.02
    assert server.use(began + 600, began + 900) >= 0.5


def test_a_server_that_refuses_all_for_ten_minutes_is_used_again_when_it_does_not() -> None:
    server = Server(requests=0.5, retry_after=lambda until: 89.0)
    _passage, began = under_load(
        server, 1200, 50, later=[(600, lambda: setattr(server, "requests", 600))], attempts=100
    )
    assert sum(at < began + 600 for at in server.refused) < 30
    server.requests = 600
    assert server.use(began + 1000, began + 1200) >= 0.5


def test_one_congestion_is_one_change_however_many_calls_are_refused() -> None:
    server = Server(requests=600, refuses_in=2.0)  # dozens are in the air when it begins
    passage, _began = under_load(server, 30, 300)
    assert len(server.refused) > 5
    cuts = [change for change in passage.changes if change.what == "requests a minute"]
    assert len(cuts) <= 1


def test_nothing_grows_that_is_not_used() -> None:
    server = Server(takes=lambda flying: 1.0)
    passage, _ = under_load(server, 300, 2)
    assert passage.gate.in_flight == START_IN_FLIGHT
    assert server.most == 2


def test_latency_that_grows_with_concurrency_ends_its_growth() -> None:
    server = Server(takes=lambda flying: max(1.0, flying / 32))
    passage, began = under_load(server, 300, 1000)
    late = [at for at, _ in server.let_in if at > began + 100]
    assert len(late) >= 0.9 * 32 * 200
    assert passage.gate.in_flight <= 128
    assert any("at best" in change.why for change in passage.changes)


def test_a_ceiling_that_the_job_sets_is_kept() -> None:
    server = Server()
    passage, _ = under_load(server, 120, 300, in_flight=20)
    assert passage.gate.in_flight == server.most == 20


def test_a_fixed_concurrency_is_left_alone() -> None:
    server = Server(takes=lambda flying: max(1.0, flying / 8))
    passage, _ = under_load(server, 60, 300, in_flight=64, adaptive=None)
    assert passage.lines[0].controller is None
    assert server.most == 64


@pytest.mark.parametrize("tells", [False, True], ids=["from the job", "told by the server"])
def test_known_limits_are_used_from_the_start_and_nothing_is_refused(tells: bool) -> None:
    server = Server(requests=600, tokens=90_000, completion=lengths(1, 20, 100), tells=tells)
    given = {} if tells else {"requests_per_minute": 600, "tokens_per_minute": 90_000}
    _passage, began = under_load(server, 180, characters=lengths(2, 100, 600), **given)
    assert server.refused == []
    assert server.use(began, began + 180) >= 0.97
    requests, tokens = server.most_let_in()
    assert requests <= 600 and tokens <= 90_000


@pytest.mark.parametrize("takes", [0.2, 2.0])
@pytest.mark.parametrize("chance", [1, 2])
def test_known_tokens_are_never_exceeded_however_different_replies_are(takes: float, chance: int) -> None:
    """The server knows each reply's length as the call comes, the gate only what replies were like so far."""
    rng = random.Random(chance)
    server = Server(
        requests=600,
        tokens=60_000,
        takes=lambda flying: takes * rng.uniform(0.3, 1.7),
        completion=lambda: min(100, int(30 * rng.lognormvariate(-0.3, 0.8)) + 1),
    )
    _passage, began = under_load(
        server,
        180,
        characters=lambda: rng.randint(100, 900),
        requests_per_minute=600,
        tokens_per_minute=60_000,
    )
    assert server.refused == []
    assert server.use(began, began + 180) >= 0.97
    assert server.most_let_in()[1] <= 60_000


def test_every_change_has_its_reason() -> None:
    passage, _ = under_load(Server(), 30, 100)
    assert passage.changes
    assert all(change.why and change.what for change in passage.changes)


class Failing(Server):
    """A server that answers its `every`th request with a 503."""

    every = 20

    async def answer(self, call: Call) -> tuple[int, int]:
        found = await super().answer(call)
        if len(self.let_in) % self.every == 0:
            raise Transient("503", status=503)
        return found


def test_server_errors_slow_growth() -> None:
    well, ill = Server(), Failing()
    under_load(well, 20, 1000)
    passage, _ = under_load(ill, 20, 1000, attempts=100)
    controller, calm = passage.lines[0].controller, passage.lines[0].gate
    assert controller is not None and controller.rate is not None
    assert len(ill.let_in) < 0.2 * len(well.let_in)
    assert calm.in_flight <= 2 * START_IN_FLIGHT


def test_a_server_that_only_refuses_is_asked_now_and_then_for_ever() -> None:
    server = Server(requests=0.5, retry_after=lambda until: None)
    _, began = under_load(server, 7200, 50, attempts=1000)
    assert 7200 / 130 <= len(server.refused) <= 100
    last_hour = [at for at in server.refused if at > began + 3600]
    assert len(last_hour) >= 3600 / 130


@pytest.mark.parametrize("settings", [{"in_flight": 64}, {"in_flight": 64, "requests_per_minute": 6000}])
@pytest.mark.parametrize("told", [True, False])
@virtual
async def test_a_job_that_thinks_too_well_of_its_server_fails_no_episode(
    settings: dict[str, Any], told: bool
) -> None:
    """5 requests in 2 s, and 64 calls at once: after the first refusals the limit is found like any other."""
    server = Server(requests=5, seconds=2.0, retry_after=lambda until: until if told else None)
    passage = Passage("m", model(server, adaptive=None, **settings))
    ended: list[BaseException | None] = []

    async def ask(age: int) -> None:
        try:
            await passage.ask(call(), Ticket(age))
            ended.append(None)
        except Exception as error:
            ended.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(passage.serve)
        async with anyio.create_task_group() as calls:
            for age in range(231):
                calls.start_soon(ask, age)
        tasks.cancel_scope.cancel()
    assert ended == [None] * 231
    assert len(server.refused) <= 64 + 30


@virtual
async def test_calls_that_take_no_time_by_the_clock_are_calls_like_any() -> None:
    """A server on this machine, and a clock that counts milliseconds."""
    passage = Passage("m", scripted("x", adaptive=True))
    answered = 0

    async def ask(age: int) -> None:
        nonlocal answered
        await passage.ask(call(), Ticket(age))
        answered += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(passage.serve)
        async with anyio.create_task_group() as calls:
            for age in range(300):
                calls.start_soon(ask, age)
        tasks.cancel_scope.cancel()
    assert answered == 300
