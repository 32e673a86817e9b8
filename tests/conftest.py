"""What all tests share: a cache of their own, and the public data where it lies."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # nothing is timed in a test
settings.load_profile("untimed")


def pytest_asyncio_loop_factories(config, item):
    """Tests run in the loop that commands run in; OVERNIGHT_LOOP=asyncio has them run in a notebook's."""
    if os.environ.get("OVERNIGHT_LOOP") != "asyncio":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Indexes, pages and digests made in tests stay out of the user's cache."""
    os.environ["OVERNIGHT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def published():
    """A function from a file's name (below OVERNIGHT_DATA) and an overriding variable to its path."""

    def find(name, variable=None):
        given = os.environ.get(variable or "")
        if given:
            return Path(given)
        folder = os.environ.get("OVERNIGHT_DATA")
        if not folder:
            pytest.skip(f"OVERNIGHT_DATA names no folder with {name}")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"{path} is not there")
        return path

    return find
