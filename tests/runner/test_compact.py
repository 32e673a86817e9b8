"""Maps that are small: they behave as dictionaries do."""

from __future__ import annotations

import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import compact
from runner.compact import Numbers


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2**64 - 1))))
def test_it_is_a_dictionary(entries: list[tuple[str, int]]) -> None:
    numbers, wanted = Numbers(), dict[str, int]()
    for text, number in entries:
        assert numbers.put(text, number) == wanted.get(text)
        wanted[text] = number
    assert {text: numbers.get(text) for text in wanted} == wanted
    assert numbers.get("nobody's") is None
    assert len(numbers) == len(wanted)


def test_it_keeps_many_in_little() -> None:
    numbers = Numbers()
    for k in range(50_000):
        assert numbers.put(f"t{k}", k) is None
    assert all(numbers.get(f"t{k}") == k for k in range(50_000))
    size = sum(
        sys.getsizeof(each)
        for segment in numbers._segments
        for each in (segment._keys, segment._values)
        if isinstance(each, array)
    )
    assert size < 60 * 50_000


def test_texts_whose_hashes_begin_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compact, "hash", lambda text: int(text) * compact._SEGMENTS * compact._SMALLEST, raising=False
    )
    numbers = Numbers()
    for k in range(1, 100):
        numbers.put(str(k), k)
    assert [numbers.get(str(k)) for k in range(1, 100)] == list(range(1, 100))
    assert numbers.get("100") is None
