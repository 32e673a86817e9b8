"""A set of very many texts is one, and small."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs import seen
from envs.seen import Seen


@given(st.lists(st.text(max_size=3)))
def test_it_is_a_set(texts: list[str]) -> None:
    found, wanted = Seen(), set[str]()
    for text in texts:
        assert found.add(text) == (text not in wanted)
        wanted.add(text)
        assert len(found) == len(wanted)


def test_it_keeps_many_in_little() -> None:
    found = Seen()
    assert all(found.add(f"t{k}") for k in range(50_000))
    assert not any(found.add(f"t{k}") for k in range(50_000))
    assert sum(map(sys.getsizeof, found._segments)) < 30 * 50_000


def test_texts_whose_hashes_begin_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "hash", lambda text: int(text) * seen._SEGMENTS * seen._SMALLEST, raising=False)
    found = Seen()
    assert all(found.add(str(k)) for k in range(1, 100))
    assert not any(found.add(str(k)) for k in range(1, 100))
