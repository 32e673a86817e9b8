"""Draws: looked up first, asked for once however many want them, and never lost once they are paid for."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.errors import (
    CellStopped,
    ContextOverflow,
    EpisodeFailed,
    RunError,
    Transient,
    Unsupported,
)
from runner.ledger import Ledger
from runner.lines import Draw
from runner.models.base import Call, Model, Params, Request, Text, Turn, Usage
from runner.models.passage import Passage
from runner.models.scripted import Script, Scripted, scripted
from runner.sampling import Readback, Sampler, seed_of
from tests.virtual_time import run, virtual


def request(text: str = "Q?") -> Request:
    return Request("m", (Turn("prompt", Text(text)),), Params(0.7))


class Desk:
    """A sampler, one passage and what is needed to ask it."""

    def __init__(self, ledger: Ledger, sampler: Sampler, model: Model) -> None:
        self.ledger, self.sampler, self.model = ledger, sampler, model
        self.passage = Passage("m", model)

    async def ask(
        self, first: int = 0, n: int = 1, *, of: str = "Q?", scope: str = "t#0", priority: int = 0
    ) -> list[Draw]:
        return await self.sampler.sample(self.passage, request(of), scope, first, n, priority)

    @property
    def calls(self) -> list[tuple[int, int]]:
        """(first, n) of each call that was made."""
        return [(call.first, call.n) for call in self.model.calls]  # type: ignore[attr-defined]

    def idle(self) -> bool:
        gate, sampler = self.passage.gate, self.sampler
        return not (gate.flying or gate.waiting or sampler.in_flight or sampler._pending)

    def kept(self, *indices: int, of: str = "Q?", scope: str = "t#0") -> list[str | None]:
        draws = [self.ledger.draw(scope, request(of).hash, i) for i in indices]
        return [None if draw is None else draw.text for draw in draws]


@asynccontextmanager
async def opened(folder: Path, model: Model, seed: int = 1) -> AsyncIterator[Desk]:
    ledger = Ledger(folder / "ledger.jsonl")
    try:
        async with Sampler(ledger, seed) as sampler:
            desk = Desk(ledger, sampler, model)
            sampler.serve([desk.passage])
            yield desk
    finally:
        ledger.close()


def by_index(say: Callable[[int], Any] = str, delay: float = 1.0) -> Script:
    """A script that answers draw i with `say(i)`."""

    async def script(call: Call) -> Any:
        await anyio.sleep(delay)
        return [say(i) for i in range(call.first, call.first + call.n)]

    return script


async def caught(ask: Any) -> Exception:
    """The error that asking ends in."""
    try:
        await ask
    except Exception as error:
        return error
    raise AssertionError("no error")


async def together(*asks: Any) -> list[Any]:
    """What each of several askers gets, an error as itself."""
    found: list[Any] = [None] * len(asks)

    async def one(k: int, ask: Any) -> None:
        try:
            found[k] = await ask
        except Exception as error:
            found[k] = error

    async with anyio.create_task_group() as tasks:
        for k, ask in enumerate(asks):
            tasks.start_soon(one, k, ask)
    return found


def texts(draws: list[Draw]) -> list[str]:
    return [draw.text for draw in draws]


# -- asked for once ----------------------------------------------------------------------------------------
@virtual
async def test_two_askers_of_the_same_draws_cause_one_call(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index(), max_n=8)) as desk:
        one, two = await together(desk.ask(0, 3), desk.ask(0, 3))
        assert texts(one) == texts(two) == ["0", "1", "2"]
        assert desk.calls == [(0, 3)]
        assert desk.idle()


@virtual
async def test_more_draws_ask_for_the_difference_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index(), max_n=100)) as desk:
        await desk.ask(0, 5)
        assert texts(await desk.ask(0, 21)) == [str(i) for i in range(21)]
        assert desk.calls == [(0, 5), (5, 16)]
        assert (desk.sampler.drawn, desk.sampler.served) == (21, 5)


@virtual
async def test_more_draws_join_those_that_are_under_way(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index(), max_n=100)) as desk:
        few, many, middle = await together(desk.ask(3, 5), desk.ask(0, 21), desk.ask(7, 3))
        assert texts(many) == [str(i) for i in range(21)]
        assert (texts(few), texts(middle)) == (texts(many[3:8]), texts(many[7:10]))
        assert desk.calls == [(3, 5), (0, 3), (8, 13)]


@virtual
async def test_a_later_run_asks_for_nothing_it_has(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index())) as desk:
        before = await desk.ask(0, 3)
    async with opened(tmp_path, scripted(by_index(lambda i: "other"))) as desk:
        assert await desk.ask(0, 3) == before
        assert desk.calls == []
        assert texts(await desk.ask(2, 2)) == ["2", "other"]


@virtual
async def test_scopes_and_requests_are_apart(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index())) as desk:
        await together(desk.ask(), desk.ask(scope="t#1"), desk.ask(of="R?"), desk.ask(scope="t#1"))
        assert len(desk.calls) == 3


@virtual
async def test_no_draws_are_no_call(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index())) as desk:
        assert await desk.ask(0, 0) == []
        assert desk.calls == []


@virtual
async def test_a_draw_is_in_the_ledger_before_its_asker_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index())) as desk:
        (draw,) = await desk.ask()
        other = Ledger(tmp_path / "ledger.jsonl")
        assert other.draw("t#0", request().hash, 0) == draw
        other.close()


@pytest.mark.parametrize(
    ("max_n", "expected"),
    [(1, [(i, 1) for i in range(7)]), (3, [(0, 3), (3, 3), (6, 1)]), (7, [(0, 7)]), (128, [(0, 7)])],
)
@virtual
async def test_a_call_asks_for_at_most_max_n(
    tmp_path: Path, max_n: int, expected: list[tuple[int, int]]
) -> None:
    async with opened(tmp_path, scripted(by_index(), max_n=max_n)) as desk:
        assert texts(await desk.ask(0, 7)) == list("0123456")
        assert desk.calls == expected


@virtual
async def test_a_call_asks_for_consecutive_draws_only(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index(), max_n=10)) as desk:
        await desk.ask(2, 2)
        await desk.ask(6, 1)
        assert texts(await desk.ask(0, 9)) == list("012345678")
        assert desk.calls[2:] == [(0, 2), (4, 2), (7, 2)]


# -- servers that give fewer -------------------------------------------------------------------------------
def stingy(most: int, delay: float = 1.0) -> Script:
    """A server that gives at most `most` choices a call."""

    async def script(call: Call) -> list[str]:
        await anyio.sleep(delay)
        return [str(i) for i in range(call.first, call.first + min(most, call.n))]

    return script


@pytest.mark.parametrize(
    ("most", "calls", "later"),
    [
        (1, [(0, 5), (1, 1), (2, 1), (3, 1), (4, 1)], [(5, 1), (6, 1), (7, 1)]),
        (2, [(0, 5), (2, 2), (4, 1)], [(5, 2), (7, 1)]),
        (4, [(0, 5), (4, 1)], [(5, 3)]),
    ],
)
@virtual
async def test_a_server_that_gives_fewer_is_topped_up_and_remembered(
    tmp_path: Path, most: int, calls: list[tuple[int, int]], later: list[tuple[int, int]]
) -> None:
    async with opened(tmp_path, scripted(stingy(most), max_n=21)) as desk:
        assert texts(await desk.ask(0, 5)) == list("01234")
        assert desk.calls == calls
        assert texts(await desk.ask(5, 3)) == list("567")
        assert desk.calls[len(calls) :] == later
        assert desk.idle()


@virtual
async def test_what_a_server_gives_is_never_remembered_as_more_than_the_least(tmp_path: Path) -> None:
    async def script(call: Call) -> list[str]:
        await anyio.sleep(1 + call.first)
        return ["x"] * (1 if call.first == 0 else min(call.n, 3))

    async with opened(tmp_path, scripted(script, max_n=5)) as desk:
        await together(desk.ask(0, 5, scope="a"), desk.ask(50, 5, scope="b"))
        del desk.model.calls[:]  # type: ignore[attr-defined]
        await desk.ask(0, 3, scope="c")
        assert {n for _, n in desk.calls} == {1}


@virtual
async def test_a_top_up_that_fails_leaves_the_others_going(tmp_path: Path) -> None:
    async def script(call: Call) -> str:
        if call.first == 1:
            raise EpisodeFailed("no")
        await anyio.sleep(call.first * 10)
        return str(call.first)

    async with opened(tmp_path, scripted(script, max_n=4)) as desk:
        error = await caught(desk.ask(0, 4))
        assert type(error) is EpisodeFailed and str(error) == "no"
        assert desk.kept(0, 1, 2, 3) == ["0", None, "2", "3"]


@virtual
async def test_an_empty_reply_is_an_error_that_was_paid_for(tmp_path: Path) -> None:
    answers: list[list[str]] = [[], ["fine"]]
    async with opened(tmp_path, scripted(lambda call: answers.pop(0))) as desk:
        with pytest.raises(EpisodeFailed, match="without a choice"):
            await desk.ask()
        assert desk.ledger.paid == Usage(prompt=1, calls=1)
        assert texts(await desk.ask()) == ["fine"]


@virtual
async def test_more_choices_than_asked_for_do_no_harm(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(lambda call: ["a", "b", "c"], max_n=2)) as desk:
        assert texts(await desk.ask(0, 2)) == ["a", "b"]
        assert desk.kept(2) == [None]


# -- priority ----------------------------------------------------------------------------------------------
@virtual
async def test_an_older_episode_lends_its_place_to_a_call_that_waits(tmp_path: Path) -> None:
    order: list[str] = []

    async def script(call: Call) -> str:
        order.append(call.request.prompt)
        await anyio.sleep(1)
        return "x"

    async with opened(tmp_path, scripted(script, in_flight=1)) as desk, anyio.create_task_group() as tasks:

        def start(of: str, priority: int) -> None:
            tasks.start_soon(lambda: desk.ask(of=of, priority=priority))

        start("first", 0)
        await anyio.sleep(0.1)
        for k in (3, 4, 5):
            start(f"p{k}", k)
        start("wanted", 9)
        await anyio.sleep(0.1)
        start("wanted", 4)
        start("wanted", 1)
        start("wanted", 7)
    assert order == ["first", "wanted", "p3", "p4", "p5"]


@virtual
async def test_a_call_keeps_a_place_that_was_lent_while_it_paused(tmp_path: Path) -> None:
    order: list[str] = []

    async def script(call: Call) -> str:
        order.append(call.request.prompt)
        await anyio.sleep(1)
        if order == ["wanted"]:
            raise Transient("busy", retry_after=3)
        return "x"

    async with opened(tmp_path, scripted(script, in_flight=1)) as desk, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: desk.ask(of="wanted", priority=9))
        await anyio.sleep(0.1)
        for k in range(10):
            tasks.start_soon(lambda k=k: desk.ask(of=f"p{k}", priority=5))
        await anyio.sleep(2)
        tasks.start_soon(lambda: desk.ask(of="wanted", priority=1))
    assert order.index("wanted", 1) <= 6, order


@virtual
async def test_top_ups_go_on_with_a_place_that_was_lent(tmp_path: Path) -> None:
    order: list[str] = []

    async def script(call: Call) -> str:
        order.append(call.request.prompt)
        await anyio.sleep(1)
        return "x"

    model = scripted(script, in_flight=1, max_n=2)
    async with opened(tmp_path, model) as desk, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: desk.ask(0, 2, of="wanted", priority=9))
        await anyio.sleep(0.1)
        tasks.start_soon(lambda: desk.ask(of="p5", priority=5))
        tasks.start_soon(lambda: desk.ask(of="p6", priority=6))
        tasks.start_soon(lambda: desk.ask(0, 2, of="wanted", priority=1))
    assert order == ["wanted", "p5", "wanted", "p6"]


# -- cancelling --------------------------------------------------------------------------------------------
@virtual
async def test_an_asker_that_leaves_cancels_no_call_that_another_awaits(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index(delay=10))) as desk, anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(lambda: stay(desk))
            await anyio.sleep(1)
            tasks.start_soon(lambda: cancel_later(scope))
            await desk.ask()
        assert scope.cancelled_caught
        assert len(desk.calls) == 1
    assert desk.calls == [(0, 1)]


async def stay(desk: Desk) -> None:
    assert texts(await desk.ask()) == ["0"]


async def cancel_later(scope: anyio.CancelScope, after: float = 1) -> None:
    await anyio.sleep(after)
    scope.cancel()


@virtual
async def test_the_last_asker_that_leaves_cancels_the_call_and_the_next_gets_a_fresh_one(
    tmp_path: Path,
) -> None:
    ended: list[str] = []

    async def script(call: Call) -> str:
        try:
            await anyio.sleep(10)
            ended.append("whole")
        except BaseException:
            ended.append("cancelled")
            raise
        return "x"

    async with opened(tmp_path, scripted(script)) as desk:
        for _ in range(2):
            with anyio.move_on_after(1):
                await together(desk.ask(), desk.ask())
        await anyio.lowlevel.checkpoint()
        assert ended == ["cancelled", "cancelled"]
        assert desk.idle()
        assert texts(await desk.ask()) == ["x"]
        assert ended == ["cancelled", "cancelled", "whole"]


@pytest.mark.parametrize("slow", [1, 10], ids=["fresh-first", "cancelled-first"])
@virtual
async def test_a_cancelled_call_that_answers_after_all_changes_no_draw(tmp_path: Path, slow: float) -> None:
    async def script(call: Call) -> str:
        if len(model.calls) == 1:
            try:
                await anyio.sleep(5)
            except anyio.get_cancelled_exc_class():  # as a library might that does not let itself be stopped
                await anyio.sleep(4)
            return "old"
        await anyio.sleep(slow)
        return "new"

    model = scripted(script)
    async with opened(tmp_path, model) as desk:
        with anyio.move_on_after(1):
            await desk.ask()
        (draw,) = await desk.ask()
        await anyio.sleep(20)
        assert desk.kept(0) == [draw.text] == ["new" if slow == 1 else "old"]
        assert desk.idle()
    async with opened(tmp_path, model) as desk:
        assert desk.kept(0) == [draw.text]


@virtual
async def test_askers_that_outlive_the_sampler_get_an_error_and_no_cancellation(tmp_path: Path) -> None:
    found: list[Any] = []
    async with anyio.create_task_group() as tasks:
        async with opened(tmp_path, scripted(by_index(delay=100))) as desk:

            async def outside() -> None:
                found.append(await caught(desk.ask()))

            tasks.start_soon(outside)
            await anyio.sleep(1)
    assert [type(error) for error in found] == [EpisodeFailed]


# A small harness: a scenario runs again and again, and is cancelled one step of the event loop later each time.
async def cancelled_at(k: int, body: Callable[[], Any]) -> bool:
    """Run `body`, cancel it after k steps of the loop; whether it was still running then."""

    async def main() -> None:
        await body()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        scope = tasks.cancel_scope
        tasks.start_soon(main)
        for _ in range(k):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
        return True
    return False


SETTINGS = {
    "one": {"max_n": 1},
    "many": {"max_n": 3},
    "narrow": {"max_n": 1, "in_flight": 1},
    "paced": {"max_n": 2, "requests_per_minute": 60.0},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_cancelled_at_any_step_no_paid_draw_is_lost_and_nothing_hangs(tmp_path: Path, case: str) -> None:
    for k in range(60):
        folder = tmp_path / str(k)
        folder.mkdir()
        run(lambda k=k, folder=folder: cancel_once(folder, k, SETTINGS[case]))


async def cancel_once(folder: Path, k: int, fields: dict[str, Any]) -> None:
    paid: Counter[int] = Counter()
    failed: set[int] = set()

    async def script(call: Call) -> list[str]:
        for _ in range(2):
            await anyio.lowlevel.checkpoint()
        if call.first == 2 and not failed:
            failed.add(2)
            raise Transient("busy", retry_after=0)
        await anyio.lowlevel.checkpoint()
        given = range(call.first, call.first + max(1, call.n - 1))
        paid.update(given)
        return [f"{i} of call {len(model.calls)}" for i in given]

    model = scripted(script, **fields)
    async with opened(folder, model) as desk:
        await cancelled_at(k, lambda: together(desk.ask(0, 5), desk.ask(2, 2, priority=-1)))
        await anyio.sleep(0.01)
        assert desk.idle()
        assert [i for i in range(5) if desk.kept(i) != [None]] == sorted(paid)
        before = desk.kept(*range(5))
        draws = await desk.ask(0, 5)
        assert all(old in (None, draw.text) for old, draw in zip(before, draws, strict=True))
        assert set(paid.values()) == {1}
        assert desk.idle()


# -- errors ------------------------------------------------------------------------------------------------
@virtual
async def test_a_draw_that_fails_leaves_the_others_and_the_first_by_index_is_raised(tmp_path: Path) -> None:
    async def script(call: Call) -> str:
        await anyio.sleep(10 - call.first)  # the later the index, the earlier the end
        if call.first in (1, 3):
            raise EpisodeFailed(f"draw {call.first}")
        return str(call.first)

    async with opened(tmp_path, scripted(script)) as desk:
        with pytest.raises(EpisodeFailed, match="draw 1"):
            await desk.ask(0, 5)
        assert desk.kept(*range(5)) == ["0", None, "2", None, "4"]
        del desk.model.calls[:]  # type: ignore[attr-defined]
        with pytest.raises(EpisodeFailed, match="draw 3"):
            await desk.ask(2, 3)
        assert desk.calls == [(3, 1)]
        assert desk.idle()


class Odd(Exception):
    """Needs more to be made than it keeps."""

    def __init__(self, a: int, *, b: int) -> None:
        super().__init__(f"{a}{b}")
        self.b = b


ERRORS = [
    ContextOverflow("too long", status=400),
    CellStopped("no credit", billed=True, status=402),
    KeyError("choices"),
    Odd(1, b=2),
    OSError(5, "five"),
    ExceptionGroup("several", [ValueError("one")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@virtual
async def test_each_asker_gets_an_error_of_its_own(tmp_path: Path, error: Exception) -> None:
    async def script(call: Call) -> str:
        await anyio.sleep(1)
        raise error

    async with opened(tmp_path, scripted(script)) as desk:
        found = await together(desk.ask(), desk.ask(), desk.ask(0, 2))
        assert [type(one) for one in found] == [type(error)] * 3
        assert len({id(one) for one in found}) == 3
        assert all((str(one), one.args, vars(one)) == (str(error), error.args, vars(error)) for one in found)
        # the place in the source where it arose is not lost
        assert all(one.__cause__ is not None and one.__cause__.__traceback__ is not None for one in found)


@virtual
async def test_an_error_that_allows_no_copy_still_reaches_its_askers(tmp_path: Path) -> None:
    async with opened(
        tmp_path, scripted(lambda call: pydantic.TypeAdapter(int).validate_python("x"))
    ) as desk:
        found = await together(desk.ask(), desk.ask())
        assert [type(one) for one in found] == [pydantic.ValidationError] * 2


@virtual
async def test_a_fault_in_a_model_ends_neither_its_neighbours_nor_the_sampler(tmp_path: Path) -> None:
    async def script(call: Call) -> str:
        await anyio.sleep(1 + call.first)
        if call.request.prompt == "bad":
            raise KeyError("choices")
        return "x"

    async with opened(tmp_path, scripted(script, in_flight=2)) as desk:
        bad, worse, good = await together(desk.ask(of="bad"), desk.ask(0, 3, of="bad"), desk.ask(5))
        assert (type(bad), type(worse), texts(good)) == (KeyError, KeyError, ["x"])
        assert texts(await desk.ask(7)) == ["x"]
        assert desk.idle()


@virtual
async def test_a_full_disk_is_raised_to_the_asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with opened(tmp_path, scripted(by_index())) as desk:
        real = os.write
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(RunError):
            await desk.ask()
        monkeypatch.setattr(os, "write", real)
        with pytest.raises(RunError):  # for good: what was to be kept at that place is not there
            await desk.ask()
    async with opened(tmp_path, scripted(by_index())) as desk:
        assert texts(await desk.ask()) == ["0"]


@virtual
async def test_a_refused_n_falls_back_to_single_draws(tmp_path: Path) -> None:
    refused: list[int] = []

    def script(call: Call) -> list[str]:
        if call.n > 1 and not refused:
            refused.append(call.n)
            raise Unsupported("n", "n")
        return [str(call.first)]

    async with opened(tmp_path, scripted(script, max_n=21)) as desk:
        assert texts(await desk.ask(0, 4)) == list("0123")
        assert desk.calls == [(0, 4), (0, 4), (1, 1), (2, 1), (3, 1)]


# -- seeds -------------------------------------------------------------------------------------------------
@virtual
async def test_seeds_differ_for_each_draw_and_repeat_for_a_repeated_run(tmp_path: Path) -> None:
    seen: list[dict[tuple[str, str, int], int | None]] = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        model = scripted(by_index())
        async with opened(tmp_path / name, model, seed) as desk:
            await together(desk.ask(0, 21), desk.ask(0, 21, scope="t#1"), desk.ask(0, 21, of="R?"))
        seen.append({(call.scope, call.request.hash, call.first): call.seed for call in model.calls})
    first, again, other = seen
    assert len(set(first.values())) == len(first) == 63
    assert first == again
    assert not set(first.values()) & set(other.values())
    assert all(seed is not None and 0 <= seed < 2**31 for seed in first.values())


def test_seeds_are_pinned() -> None:
    """A resumed run must ask with the seeds it began with, whatever version it began with."""
    assert seed_of(1, "t#0", "h", 0) == 982295308


# -- reading back ------------------------------------------------------------------------------------------
@virtual
async def test_readback_gives_what_there_is_and_names_what_there_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path, scripted(by_index())) as desk:
        draws = await desk.ask(0, 3)
        back = Readback(desk.ledger)
        assert await back.sample(desk.passage, request(), "t#0", 0, 3, 0) == draws
        with pytest.raises(EpisodeFailed, match=r"draw 3 .* resume"):
            await back.sample(desk.passage, request(), "t#0", 1, 3, 0)
        assert len(desk.calls) == 3


# -- any interleaving --------------------------------------------------------------------------------------
ASKERS = st.lists(
    st.tuples(
        st.integers(0, 12),  # when
        st.integers(0, 4),  # first
        st.integers(0, 6),  # n
        st.integers(0, 3),  # priority
        st.sampled_from(["a", "b"]),  # scope
        st.none() | st.integers(0, 8),  # leaves after
    ),
    max_size=7,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    ASKERS,
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([None, 30.0]),
    st.booleans(),
    st.data(),
)
def test_whatever_the_order_of_askers_no_draw_is_asked_for_twice(
    tmp_path_factory: pytest.TempPathFactory,
    askers: list[tuple[int, int, int, int, str, int | None]],
    max_n: int,
    gives: int,
    in_flight: int,
    rate: float | None,
    leaving: bool,
    data: st.DataObject,
) -> None:
    takes = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=5))
    asked: Counter[tuple[str, int]] = Counter()
    answered: Counter[tuple[str, int]] = Counter()

    async def script(call: Call) -> list[str]:
        asked.update((call.scope, i) for i in range(call.first, call.first + call.n))
        await anyio.sleep(takes[len(model.calls) % len(takes)])
        given = range(call.first, call.first + min(gives, call.n))
        answered.update((call.scope, i) for i in given)
        return [f"{call.scope}{i}" for i in given]

    model = scripted(script, max_n=max_n, in_flight=in_flight, requests_per_minute=rate)

    async def main() -> None:
        async with opened(tmp_path_factory.mktemp("any"), model) as desk:
            async with anyio.create_task_group() as tasks:
                for asker in askers:
                    tasks.start_soon(one, desk, *asker)
            await anyio.sleep(20)
            assert desk.idle()
            for scope, i in answered:
                assert desk.kept(i, scope=scope) == [f"{scope}{i}"]

    async def one(
        desk: Desk, when: int, first: int, n: int, priority: int, scope: str, leaves: int | None
    ) -> None:
        await anyio.sleep(when)
        with anyio.move_on_after(leaves if leaving and leaves is not None else 1e6):
            draws = await desk.ask(first, n, scope=scope, priority=priority)
            assert texts(draws) == [f"{scope}{i}" for i in range(first, first + n)]
            assert [draw.i for draw in draws] == list(range(first, first + n))

    run(main)
    assert set(answered.values()) <= {1}
    if not leaving and gives >= max_n:
        assert set(asked.values()) <= {1}
    if not leaving:
        wanted = {(scope, i) for _, first, n, _, scope, _ in askers for i in range(first, first + n)}
        assert set(answered) == wanted


# -- windows and caches ------------------------------------------------------------------------------------
class Warming(Scripted):
    """A model whose provider caches prompts."""

    def warms(self, request: Request) -> bool:
        return True


@virtual
async def test_where_a_cache_is_warmed_the_first_call_goes_alone(tmp_path: Path) -> None:
    begun: list[tuple[float, int, bool]] = []

    async def script(call: Call) -> str:
        begun.append((anyio.current_time(), call.first, call.shared))
        await anyio.sleep(2.0)
        return str(call.first)

    model = Warming()
    model._script = script
    async with opened(tmp_path, model) as desk:
        assert texts(await desk.ask(0, 4)) == ["0", "1", "2", "3"]
        start = begun[0][0]
        assert [(round(at - start, 3), i, shared) for at, i, shared in begun] == [
            (0.0, 0, True),
            (2.0, 1, True),
            (2.0, 2, True),
            (2.0, 3, True),
        ]
        begun.clear()
        await desk.ask(0, 1, of="alone?")
        assert [shared for *_, shared in begun] == [False]


@virtual
async def test_the_others_go_also_where_the_first_failed(tmp_path: Path) -> None:
    def script(call: Call) -> str:
        if call.first == 0:
            raise EpisodeFailed("no")
        return str(call.first)

    model = Warming()
    model._script = script
    async with opened(tmp_path, model) as desk:
        assert isinstance(await caught(desk.ask(0, 3)), EpisodeFailed)
        assert desk.kept(0, 1, 2) == [None, "1", "2"]
        assert desk.idle()
