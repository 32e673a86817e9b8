"""A call on its way: what is to be sent, what came back, and what an open model keeps for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from runner.models.base import Model, Window
from runner.models.transport import Transport


class Answer(NamedTuple):
    """A reply's JSON object, the seconds it took, and what its headers say of limits."""

    data: dict[str, Any]
    seconds: float
    windows: tuple[Window, ...]


class Prepared(NamedTuple):
    """A call as it is to be sent: below which path, its JSON, and the parameters as `sent` shows them. `fixed`
    names the fields that the job asks for in so many words."""

    path: str
    body: dict[str, Any]
    sent: Mapping[str, Any]
    fixed: frozenset[str]


@dataclasses.dataclass(eq=False, slots=True)
class Wire:
    """What an open model holds. (Not in pydantic's private attributes: those cost microseconds at each look.)"""

    transport: Transport | None = None
    own: bool = False
    """Whether the transport is this model's to close."""
    key: str = dataclasses.field(default="", repr=False)
    refused: set[str] = dataclasses.field(default_factory=set)
    """Parameters that are left out."""
    lines: list[tuple[Model, float]] = dataclasses.field(default_factory=list)
    apart: bool = False
    """Another endpoint has the same address: names tell them apart by their keys' variables."""
    limit_field: str = ""
    """The token limit's field, where the usual one was refused."""
    headers: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    urls: dict[str, str] = dataclasses.field(default_factory=dict)
    frames: dict[Any, Any] = dataclasses.field(default_factory=dict)
    """What is the same in all calls with the same parameters, as long as no further one is refused."""

    def refuse(self, parameter: str) -> None:
        """Leave a parameter out from now on."""
        self.refused.add(parameter)
        self.frames.clear()
