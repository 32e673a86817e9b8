"""What goes over a link between coordinator and worker, as plain JSON: errors, and what servers tell of limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from runner import errors
from runner.errors import ModelError
from runner.models.base import Window

KINDS: dict[str, type[ModelError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ModelError)
}
MORE = ("retry_after", "unreached", "parameter")
"""What only some kinds have, beside message, `billed` and `status`."""


def packed(error: ModelError) -> list[Any]:
    """An error as JSON. A kind that is nobody's here goes as the nearest that is."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in KINDS)
    more = {name: getattr(error, name) for name in MORE if getattr(error, name, None)}
    return [kind, str(error), error.billed, error.status, more, windows(error.windows)]


def unpacked(given: Sequence[Any]) -> ModelError:
    """The error that `packed` gave."""
    kind, message, billed, status, more, told = given
    error = KINDS[kind].__new__(KINDS[kind], message)
    ModelError.__init__(error, message, billed=billed, status=status)
    for name in MORE:
        setattr(error, name, more.get(name))
    error.windows = tuple(Window(*each) for each in told)
    return error


def windows(told: Iterable[Window]) -> list[list[Any]]:
    """Windows as lists."""
    return [[each.counted, each.seconds, each.limit, each.remaining, each.reset] for each in told]
