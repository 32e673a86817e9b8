"""The tree of errors. Each message says what happened, where, and what to do next."""

from __future__ import annotations

from typing import Any


class OvernightError(Exception):
    """Base of all errors that overnight raises on purpose. `exit_code` is the command's."""

    exit_code = 1


class JobError(OvernightError):
    """A job file (or `--set`) is wrong: the message names file, line or key, and the nearest right word."""

    exit_code = 2


class RunError(OvernightError):
    """A run folder cannot be used: locked by another process, changed since it began, damaged."""

    exit_code = 3


class ModelError(OvernightError):
    """A model call failed. The subclass says what that means for the episode and for the cell.

    `billed`: the call may have been paid for without an answer (a time-out after sending, a cut body).
    """

    def __init__(self, message: str, *, billed: bool = False, status: int | None = None) -> None:
        super().__init__(message)
        self.billed = billed
        self.status = status
        self.windows: tuple[Any, ...] = ()
        """The provider's limits (`runner.models.base.Window`) as the reply's headers tell them, if they do."""
        self.batch: str | None = None
        """The batch in which the call failed, if it went by one."""


class Transient(ModelError):
    """Trying again may help: time-outs, dropped connections, 429, 5xx. `retry_after` in seconds, if told;
    `unreached`: there was no connection."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        billed: bool = False,
        status: int | None = None,
        unreached: bool = False,
    ) -> None:
        super().__init__(message, billed=billed, status=status)
        self.retry_after = retry_after
        self.unreached = unreached


class Unsupported(ModelError):
    """The model refuses one request parameter. `parameter` is its name; the call is made again without it."""

    def __init__(self, message: str, parameter: str, *, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.parameter = parameter


class EpisodeFailed(ModelError):
    """This request will never be answered, others may be: the episode ends as an error row."""


class ContextOverflow(EpisodeFailed):
    """The prompt does not fit the model's context: the episode ends with status `context_overflow`."""


class Filtered(EpisodeFailed):
    """The provider's filter refused the prompt: the episode ends with status `filtered`."""


class CellStopped(ModelError):
    """No request of this cell will be answered until a person acts: no credit, wrong key, unknown model."""


class RunEnds(CellStopped):
    """No call begins any more, and the run ends in order: what is not whole is left for a resume."""


class BudgetSpent(RunEnds):
    """The run has spent what its job lets it spend."""


class BatchesOpen(RunEnds):
    """Batches are at their provider, and this process does not wait for them."""


class DailyQuota(CellStopped):
    """A quota of a day is used up: nothing is answered for hours. `retry_after` in seconds, if told."""

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after
