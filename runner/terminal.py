"""What a command prints to: standard files that may be closed, broken or gone before it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading

import click

GONE = (errno.EPIPE, errno.EIO)
"""Nobody reads any more: a pipe whose reader left, a terminal that was closed."""


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line, unless nobody is there any more to read it: a run's exit code is the same then. Raises OSError
    for other failures, e.g. a full disk."""
    try:
        click.echo(text, err=err)
    except OSError as error:
        if error.errno not in GONE:
            raise
        _to_nowhere("stderr" if err else "stdout")


def settle() -> None:
    """Let what is still to be flushed to those who left not change the exit code."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError as error:
            if error.errno in GONE:
                _to_nowhere(name)


def _to_nowhere(name: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, getattr(sys, name).fileno())
        os.close(nowhere)


def open_standard_files() -> None:
    """Where the command was started with a standard file closed (`<&-`), open nothing in its place: else a file of
    the run would get its number, and what libraries print there would land in it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def leave(code: int) -> None:
    """Exit, also where a thread still waits for data (standard input that nobody closes)."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(0.5)
            if thread.is_alive():
                settle()
                os._exit(code)
    sys.exit(code)
