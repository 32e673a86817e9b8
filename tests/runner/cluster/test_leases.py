"""The book of who has which tasks, what goes over a link, and when a worker ends itself."""

from __future__ import annotations

import socket
import threading

import pytest

from runner.cluster import wire
from runner.cluster.beat import LAPSED, Beat
from runner.cluster.beat import Lease as Lapse
from runner.cluster.leases import Lease, Leases, Owed, episodes, owed
from runner.cluster.link import framed
from runner.errors import DailyQuota, EpisodeFailed, Transient, Unsupported
from runner.job import Job
from runner.methods.cot_sc import CotSC
from runner.methods.standard import Standard
from runner.models.base import Window
from runner.models.scripted import scripted
from tests.echo import Echo


def book(tasks: int, workers: int = 2) -> Leases:
    return Leases((Owed("w", k, k, f"t{k}") for k in range(tasks)), workers)


def taken(leases: Leases, shard: int, room: int) -> list[Lease]:
    leases.read(room)
    return leases.take(shard, room)


def test_each_task_is_leased_once_and_fewer_at_a_time_near_the_end() -> None:
    leases = book(40)
    leases.left = 40
    order: list[int] = []
    sizes: list[int] = []
    while found := taken(leases, len(sizes) % 2, room=100):
        order += [lease.owed.nth for lease in found]
        sizes.append(len(found))
    assert order == list(range(40))
    assert sizes[0] == 10 and sizes == sorted(sizes, reverse=True) and sizes[-1] == 1
    assert leases.exhausted and leases.held(0) + leases.held(1) == 40


def test_what_a_lost_worker_has_not_ended_goes_first_to_the_next_of_its_shard() -> None:
    leases = book(30)
    mine = taken(leases, 0, room=4)
    theirs = taken(leases, 1, room=4)
    leases.ended(0, [mine[0].number, mine[2].number])
    leases.lost(0)
    again = taken(leases, 0, room=10)
    assert [lease.owed.nth for lease in again] == [1, 3]
    assert [lease.owed.nth for lease in taken(leases, 0, room=2)] == [8, 9]
    assert leases.held(0) == 4 and leases.held(1) == len(theirs)


def test_owed_episodes_of_a_task_come_back_as_they_were_planned() -> None:
    job = Job.of(Echo(count=3), {"a": Standard(), "b": CotSC()}, scripted(["Answer: x"]), trials=2)
    plan = list(job.plan())
    done = {plan[1].id, plan[4].id, plan[5].id, plan[6].id, plan[7].id}
    tasks = list(owed(job, ((planned, planned.id not in done) for planned in plan)))
    assert [(task.nth, task.index, task.task, task.episodes) for task in tasks] == [
        (0, 0, "t0", (0, 2, 3)),
        (2, 8, "t2", None),
    ]
    by_id = {task.id: task for task in job.tasks("echo")}
    found = [
        each
        for task in tasks
        for each in episodes(job, by_id[task.task], task.env, task.index, task.episodes)
    ]
    assert [(e.id, e.index) for e in found] == [(p.id, p.index) for p in plan if p.id not in done]


@pytest.mark.parametrize(
    "error",
    [
        Transient("slow", retry_after=2.5, billed=True, status=429, unreached=True),
        Unsupported("no", "top_p", status=400),
        DailyQuota("tomorrow", retry_after=7200.0),
        EpisodeFailed("never"),
    ],
)
def test_errors_arrive_as_they_were_sent(error: Transient) -> None:
    error.windows = (Window("requests", 60.0, limit=5.0),)
    found = wire.unpacked(wire.packed(error))
    assert type(found) is type(error) and str(found) == str(error)
    assert vars(error).items() <= vars(found).items()


def test_an_error_of_another_make_arrives_as_the_nearest_kind() -> None:
    class Odd(Transient):
        pass

    assert type(wire.unpacked(wire.packed(Odd("x", retry_after=1.0)))) is Transient


def test_a_worker_that_is_not_answered_for_its_lease_ends_itself() -> None:
    codes: list[int] = []
    over = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        over.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        beat = Beat(server.getsockname()[:2], "token", 1, Lapse(0.05, 0.3, 1.0), end)
        line, _ = server.accept()
        for _ in range(3):  # it is answered three times, and then no more
            assert line.recv(1000)
            line.sendall(framed([0, [["ok"]]]))
        assert not codes
        assert over.wait(20)
        beat.close()
        line.close()
    assert codes[0] == LAPSED
