"""The system's limit on open files and the gates that must fit below it."""

from __future__ import annotations

import pytest

from runner import openfiles
from runner.models.gate import Gate


@pytest.fixture
def limit(monkeypatch):
    resource = pytest.importorskip("resource")
    state = {"soft": 256, "hard": 4096}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (state["soft"], state["hard"]))
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: state.update(soft=both[0]))
    return state


def test_the_limit_is_raised_as_far_as_it_goes_and_nothing_is_said(limit):
    gates = [Gate(1000), Gate(2000)]
    assert openfiles.fit(gates) == ""
    assert limit["soft"] == 4096
    assert [gate.in_flight for gate in gates] == [1000, 2000]


def test_gates_are_lowered_to_fit_with_a_line_that_says_so(limit):
    limit["hard"] = 500
    gates = [Gate(1000), Gate(2000), Gate(1)]
    line = openfiles.fit(gates)
    assert sum(gate.in_flight for gate in gates) <= 500 - openfiles.OTHERS + 1
    assert all(gate.in_flight >= 1 for gate in gates)
    assert "500 open files" in line and "3001 calls" in line
    assert "open files" in gates[0].changes[0].why
