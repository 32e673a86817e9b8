"""A map in a file behaves as a dictionary does, also when it is taken up again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.slots import Slots

PARTS = 2
NUMBERS = st.integers(0, 2**64 - 1)
KEYS = st.one_of(st.integers(1, 2**64 - 1), st.integers(1, 40))
"""Those that are evenly spread, and those that all want the same few slots."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.tuples(st.dictionaries(KEYS, NUMBERS, max_size=30), st.booleans()), max_size=6))
def test_it_is_a_dictionary_and_an_older_directory_has_all_of_its_time(
    tmp_path: Path, steps: list[tuple[dict[int, int], bool]]
) -> None:
    fd = os.open(tmp_path / "slots", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    slots, wanted, before = Slots(fd, 0, [(0, 0)] * PARTS), dict[int, int](), dict[int, int]()
    old = slots.directory
    for entries, again in steps:
        before, old = dict(wanted), slots.directory
        for part in range(PARTS):
            mine = {key: number for key, number in entries.items() if key % PARTS == part}
            if mine:
                slots.put(part, mine)
        wanted |= entries
        if again:
            slots = Slots(fd, os.fstat(fd).st_size, slots.directory)
        assert {key: slots.get(key) for key in wanted} == wanted
        assert all(slots.get(key) is None for key in range(1, 45) if key not in wanted)
    taken_up = Slots(fd, os.fstat(fd).st_size, old)
    assert all(taken_up.get(key) in (number, wanted[key]) for key, number in before.items())
    os.close(fd)


def test_it_finds_keys_far_from_where_they_belong(tmp_path: Path) -> None:
    """Many keys that begin alike fill a run of slots beyond what a look-up reads at once, around the table's end."""
    fd = os.open(tmp_path / "slots", os.O_RDWR | os.O_CREAT)
    slots = Slots(fd, 0, [(0, 0)])
    entries = {(k << 20) - 2: k for k in range(1, 200)}
    slots.put(0, entries)
    assert {key: slots.get(key) for key in entries} == entries
    assert slots.get((200 << 20) - 2) is None
    os.close(fd)


def test_a_file_that_was_cut_short_is_told(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "slots", os.O_RDWR | os.O_CREAT)
    slots = Slots(fd, 0, [(0, 0)])
    slots.put(0, {k: k for k in range(1, 100)})
    os.ftruncate(fd, 100)
    with pytest.raises(OSError, match="shorter"):
        [slots.get(k) for k in range(1, 100)]
    with pytest.raises(OSError, match="shorter"):
        slots.put(0, {5: 5})
    os.close(fd)
