"""What the words of the command share: how errors are told, how a loop is run, how JSON is printed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from runner.terminal import say, settle

INTERRUPTED = 130


def said(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors made on purpose are printed as one message, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from envs.base import WorldError
        from runner.errors import OvernightError

        try:
            return command(*args, **kwargs)
        except OvernightError as error:
            say(f"overnight: {error}", err=True)
            sys.exit(error.exit_code)
        except WorldError as error:
            say(f"overnight: {error}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:  # the standard output's disk is full, say; a run is whole in its folder
            say(f"overnight: {error}", err=True)
            sys.exit(1)
        finally:
            settle()

    return wrapped


def in_loop(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What an async function gives, run in the loop that runs have."""
    from runner import loop

    return loop.run(functools.partial(function, *args, **kwargs))


def echo_json(value: Any) -> None:
    """Print JSON for people and programs."""
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
