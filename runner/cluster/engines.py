"""The engine that a job names."""

from __future__ import annotations

from runner.cluster.engine import Engine
from runner.errors import JobError


def made(name: str, address: str) -> Engine:
    """`local`, or `ray` at an address. Raises JobError where Ray is not installed."""
    if name == "local":
        from runner.cluster.local import Local

        return Local()
    try:
        from runner.cluster.ray import Ray
    except ImportError as error:
        raise JobError('engine = "ray" needs Ray: pip install "overnight[ray]"') from error
    return Ray(address)
