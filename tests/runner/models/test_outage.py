"""An endpoint that answers nobody for a while costs a pause, not the episodes that met it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from runner import library
from runner.errors import EpisodeFailed, Transient
from runner.execution import Execution
from runner.job import Job
from runner.methods.standard import Standard
from runner.models.base import Call, Params, Request, Text, Turn
from runner.models.openai import OpenAI
from runner.models.passage import Passage
from runner.models.queue import Ticket
from runner.models.scripted import Scripted, scripted
from runner.testing import Delay, FakeOpenAI
from tests.limits import Endless
from tests.virtual_time import virtual

FAILURES: dict[str, Callable[[], Transient]] = {
    "no connection": lambda: Transient("no connection", unreached=True),
    "503": lambda: Transient("the server is down", status=503),
    "529": lambda: Transient("overloaded", status=529, retry_after=5.0),
    "no reply in time": lambda: Transient("no whole reply within 5 s", billed=True),
}


def call(words: str = "Q?") -> Call:
    return Call(Request("m", (Turn("prompt", Text(words)),), Params()), scope=words)


class Down:
    """A model that is down between two moments (seconds from now), and calls of it."""

    def __init__(
        self, begin: float, end: float, failure: Callable[[], Transient], **settings: object
    ) -> None:
        self.began = anyio.current_time()
        self.begin, self.end, self.failure = begin, end, failure
        self.failed: list[float] = []
        self.answered: list[float] = []
        self.errors: list[EpisodeFailed] = []
        self.said: list[str] = []
        self.model: Scripted = scripted(self.answer, **{"delay": 0.5, **settings})
        self.passage = Passage("m", self.model)
        self.passage.gate.on_warning = self.said.append

    async def answer(self, call: Call) -> str:
        now = anyio.current_time() - self.began
        if self.begin <= now < self.end or "poison" in call.scope:
            self.failed.append(now)
            raise self.failure()
        return "fine"

    async def ask(self, age: int, words: str = "Q?") -> None:
        try:
            await self.passage.ask(call(words), Ticket(age))
            self.answered.append(anyio.current_time() - self.began)
        except EpisodeFailed as error:
            self.errors.append(error)

    async def all(self, n: int, poison: tuple[int, ...] = ()) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.passage.serve)
            async with anyio.create_task_group() as calls:
                for age in range(n):
                    calls.start_soon(self.ask, age, "poison" if age in poison else "Q?")
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@virtual
async def test_calls_that_meet_an_outage_wait_for_its_end_and_one_tries_now_and_then(
    failure: Callable[[], Transient],
) -> None:
    down = Down(5, 605, failure, in_flight=50)
    await down.all(3000)
    assert down.errors == [] and len(down.answered) == 3000
    assert 10 <= sum(at > 6 for at in down.failed) <= 80
    assert min(at for at in down.answered if at > 10) <= 605 + 62
    began, ended = down.said
    assert "answers nobody since" in began and str(failure()) in began and "answers again" in ended


@virtual
async def test_a_short_outage_is_over_soon() -> None:
    down = Down(5, 8, FAILURES["no connection"], in_flight=50)
    await down.all(3000)
    assert down.errors == []
    assert min(at for at in down.answered if at > 6) <= 8 + 5


@virtual
async def test_an_outage_longer_than_retry_for_costs_an_episode_every_few_minutes() -> None:
    down = Down(1, 4000, FAILURES["no connection"], in_flight=50, retry_for=1800)
    await down.all(500)
    assert 1 <= len(down.errors) <= (4000 - 1800) / 300
    assert "no connection" in str(down.errors[0])
    assert len(down.answered) + len(down.errors) == 500


@virtual
async def test_one_poisonous_request_fails_after_its_attempts_while_others_are_answered() -> None:
    down = Down(1e9, 1e9, FAILURES["503"], in_flight=10)
    await down.all(1000, poison=(3, 500))
    assert len(down.errors) == 2 and len(down.answered) == 998
    assert len(down.failed) == 2 * down.model.attempts
    assert down.said == []


@virtual
async def test_a_few_poisonous_requests_at_the_end_fail_in_the_end() -> None:
    """With nobody else about they look like an outage; they end all the same."""
    down = Down(1e9, 1e9, FAILURES["503"], in_flight=10, retry_for=600)
    await down.all(6, poison=tuple(range(6)))
    assert len(down.errors) == 6
    assert anyio.current_time() - down.began < 2 * 3600


async def test_a_server_that_goes_away_and_comes_back_costs_no_episode(tmp_path: Path) -> None:
    server = FakeOpenAI(lambda body, k: Delay(0.05, "1"))

    async def restart(execution: Execution) -> None:
        while len(server.requests) < 100:
            await anyio.sleep(0.01)
        await server.__aexit__()
        await anyio.sleep(2.0)
        await server.__aenter__()
        back = len(server.requests)
        while len(server.requests) < back + 100:
            await anyio.sleep(0.01)
        execution.interrupt()

    async with server:
        model = OpenAI(model="m", base_url=server.url, api="completions", in_flight=20)
        job = Job.of(Endless(), Standard(), model, limits={"max_episodes": 40})
        found = await library.run(job, outputs=tmp_path, progress=restart)
    assert not [row["error"] for row in found.trajectories if row["error"]]
    assert "answers nobody since" in (found.path / "run.log").read_text()
