"""The words of the command that make the papers' tables and figures, and open WebShop's shop for browsers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import click

from runner.commands import echo_json, in_loop, said


class _Table(Protocol):
    def as_dict(self) -> dict[str, Any]: ...


def _echo_tables(tables: Iterable[_Table], as_json: bool) -> None:
    if as_json:
        echo_json([found.as_dict() for found in tables])
    else:
        click.echo("\n\n".join(map(str, tables)))


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@said
def table1(folders: tuple[Path, ...], as_json: bool) -> None:
    """The ReAct paper's Table 1 from a run (or several, together), beside the paper's numbers."""
    from runner.analysis.table1 import table1

    _echo_tables(table1(*folders), as_json)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@said
def table3(folders: tuple[Path, ...], as_json: bool) -> None:
    """The ReAct paper's Table 3 (ALFWorld) from a run (or several, together), beside the paper's numbers."""
    from runner.analysis.table3 import table3

    _echo_tables(table3(*folders), as_json)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@said
def table4(folders: tuple[Path, ...], as_json: bool) -> None:
    """The ReAct paper's Table 4 (WebShop) from a run (or several, together), beside the paper's numbers."""
    from runner.analysis.table4 import table4

    _echo_tables(table4(*folders), as_json)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--complete", is_flag=True, help="First draw the chains that early stopping left out.")
@click.option("--json", "as_json", type=click.Path(path_type=Path), metavar="FILE", help="Write the points.")
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="Draw a picture.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Draw a picture of lines.")
@click.option("--quiet", is_flag=True, help="No progress.")
@said
def figure2(
    folder: Path, complete: bool, as_json: Path | None, png: Path | None, svg: Path | None, quiet: bool
) -> None:
    """The ReAct paper's Figure 2 from a run: accuracy against the number of chains, for the sampling methods."""
    from runner import library
    from runner.analysis.figure2 import figure2

    if complete:
        in_loop(library.complete, folder, progress=not quiet)
    found = figure2(folder)
    click.echo(str(found))
    if as_json is not None:
        import orjson

        as_json.write_bytes(orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2))
    for picture in (png, svg):
        if picture is not None:
            found.save(picture)


@click.command()
@click.option("--port", type=int, default=8000, show_default=True, help="0: one that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0: for other machines, too.")
@click.option("--source", metavar="FILE", help="Products in the public files' form; without: our own.")
@click.option("--attributes", type=click.Path(path_type=Path), metavar="FILE", help="items_ins_v2.json")
@click.option("--people", type=click.Path(path_type=Path), metavar="FILE", help="items_human_ins.json")
@click.option("--goals", type=click.Choice(["human", "synthetic"]), help="Which instructions.")
@click.option("--log", type=click.Path(path_type=Path), metavar="FILE", help="A JSON line for each purchase.")
@said
def shop(port: int, host: str, log: Path | None, **settings: Any) -> None:
    """Serve WebShop as web pages, for agents that drive a browser."""
    from envs.webshop.world import WebShop

    world = WebShop.model_validate({name: given for name, given in settings.items() if given is not None})
    world.check()
    from envs.webshop.site import serve

    in_loop(serve, world, host, port, log, click.echo)


COMMANDS = (table1, table3, table4, figure2, shop)
