"""The command `overnight`: parses words, calls the library, prints. Everything heavy is imported when used."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from runner.cli_tables import COMMANDS
from runner.commands import INTERRUPTED, echo_json, in_loop, said
from runner.terminal import leave, open_standard_files, say

CELLS_STOPPED = 4
SOME_ERRORS = 1
BUDGET_SPENT = 5
BATCHES_OPEN = 6

OVERRIDES = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Set any key of the job, e.g. --set methods.cot_sc.samples=5. May be repeated.",
)  # fmt: skip


NO_WAIT = click.option(
    "--no-wait", is_flag=True, help="Submit batches and leave; `resume` goes on when they have ended."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="overnight")
def main() -> None:
    """Run language-model episodes in bulk: a job file in, JSONL trajectories out.

    Begin with `overnight run jobs/quickstart.toml`. Nothing that was answered is ever asked for again:
    `overnight resume` goes on with any run, however it ended.
    """
    open_standard_files()


@main.command()
@click.argument("job", type=click.Path(path_type=Path))
@OVERRIDES
@click.option("--outputs", type=click.Path(path_type=Path), default=Path("outputs"), show_default=True,
              help="Where the run's folder is made.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress.")
@NO_WAIT
@said
def run(job: Path, overrides: tuple[str, ...], outputs: Path, quiet: bool, no_wait: bool) -> None:
    """Run a job from the beginning, in a new folder."""
    from runner import library
    from runner.batch.manner import Manner

    how = {"progress": not quiet, "batching": Manner(wait=not no_wait)}
    _finish(in_loop(library.run, job, outputs=outputs, overrides=overrides, **how))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@OVERRIDES
@click.option("--accept-changes", is_flag=True,
              help="Go on although methods, prompts, worlds or models changed.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress.")
@NO_WAIT
@click.option("--adopt", multiple=True, metavar="ID",
              help="A batch at the provider that is this run's, where overnight could not tell.")  # fmt: skip
@click.option("--resubmit", is_flag=True,
              help="Submit again what may have been submitted, and what the provider lost.")  # fmt: skip
@said
def resume(
    folder: Path,
    overrides: tuple[str, ...],
    accept_changes: bool,
    quiet: bool,
    no_wait: bool,
    adopt: tuple[str, ...],
    resubmit: bool,
) -> None:
    """Go on with a run that was interrupted, killed or stopped, or with more samples, tasks or trials."""
    from runner import library
    from runner.batch.manner import Manner

    how = {
        "overrides": overrides,
        "accept_changes": accept_changes,
        "progress": not quiet,
        "batching": Manner(not no_wait, adopt, resubmit),
    }
    _finish(in_loop(library.resume, folder, **how))


@main.command()
@click.argument("job", type=click.Path(path_type=Path))
@OVERRIDES
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "--seconds", type=float, help="A guess of how long a call takes, for the time that in_flight allows."
)
@said
def plan(job: Path, overrides: tuple[str, ...], as_json: bool, seconds: float | None) -> None:
    """Count episodes, calls, tokens and dollars, and the shortest time, before any is spent."""
    from runner import library
    from runner.forecast import told

    found = in_loop(library.plan, job, overrides=overrides, seconds=seconds)
    if as_json:
        echo_json(found.as_dict())
        return
    click.echo(f"{found.episodes:,} episodes of {found.tasks:,} tasks")
    for cell, episodes in found.cells.items():
        click.echo(f"  {cell}: {episodes:,}")
    click.echo(
        f"at most {found.calls:,} calls for {found.draws:,} draws, about {found.prompt_tokens:,} prompt tokens and "
        f"{found.completion_tokens:,} completion tokens"
    )
    click.echo("(every method taking its longest way; draws that methods share are counted once)")
    for line in told(found):
        click.echo(line)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@said
def status(folder: Path, as_json: bool) -> None:
    """Show how a run stands, running or ended."""
    from runner.analysis.money import told
    from runner.batch.log import read as read_batches
    from runner.batch.run import summary
    from runner.results import load, table, warnings

    found = load(folder)
    manifest = found.manifest
    if as_json:
        echo_json(
            {
                "path": str(found.path),
                "status": found.status,
                "totals": manifest.get("totals", {}),
                "now": manifest.get("now"),
                "batches": manifest.get("batches") or [],
                "stopped_cells": manifest.get("stopped_cells", {}),
                **found.summary,
            }
        )
        return
    totals = manifest.get("totals", {})
    rows = sum(sum(cell["statuses"].values()) for cell in found.summary["cells"])
    planned = totals.get("planned")
    click.echo(
        f"{found.path}: {found.status}, {rows:,} of {'?' if planned is None else f'{planned:,}'} episodes"
    )
    if found.summary["cells"]:
        click.echo(table(found.summary))
        for line in told(found.summary["money"]):
            click.echo(line)
    for line in warnings(found.summary):
        click.echo(line)
    if totals:
        paid = totals["paid"]
        click.echo(
            f"paid for: {totals['calls']:,} calls, {paid['prompt']:,} prompt and {paid['completion']:,} completion "
            f"tokens, ${totals['paid_usd']:.4f}; {totals['failed_attempts']:,} tries failed, "
            f"{totals['possibly_billed_attempts']:,} may have been billed"
        )
    now = (manifest.get("now") or {}) if found.status == "running" else {}
    if now:
        rates = f"{now['calls_per_second']:.1f} calls/s, {now['tokens_per_second']:,.0f} tokens/s"
        click.echo("; ".join([f"now: {rates}", *now["spent"], *now["waits"]]))
        for limit in now["limits"]:
            click.echo(
                f"  {limit['endpoint']}: {limit['used']:,.0f} of {limit['limit']:,.0f} {limit['what']}"
            )
        for call in now["longest_calls"]:
            click.echo(f"  {call['seconds']:,.0f} s under way: {call['scope']} at {call['endpoint']}")
    for cell, why in manifest.get("stopped_cells", {}).items():
        click.echo(f"stopped: {cell}: {why}")
    if spent := manifest.get("budget"):
        click.echo(spent)
    batches = [batch.as_dict() for batch in read_batches(found.path / "batches.jsonl").values()]
    for line in summary(batches):
        click.echo(line)
    if batches and batches[-1]["stage"] == "exported":
        click.echo(f"go on with: overnight batch import {found.path} RESULTS")
    elif found.status in ("interrupted", "budget", "stopped", "died", "failed", "waiting"):
        click.echo(f"go on with: overnight resume {found.path}")


@main.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--task", required=True, metavar="ID", help="The task's id.")
@click.option("--method", required=True, metavar="NAME", help="A method of the job.")
@OVERRIDES
@said
def render(job: Path, task: str, method: str, overrides: tuple[str, ...]) -> None:
    """Print the exact prompt with which a method begins a task."""
    from runner import library

    request = in_loop(library.render, job, task, method, overrides=overrides)
    if request.kind == "completion":
        click.echo(request.prompt, nl=False)
        return
    for turn in request.turns:
        click.echo(f"--- {turn.role}\n{turn.text}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@said
def rescore(folder: Path) -> None:
    """Score a run anew from its ledger, with today's code and no call."""
    from runner import library

    run = in_loop(library.rescore, folder)
    if left := run.manifest["totals"]["left_for_resume"]:
        click.echo(
            f"{left:,} episodes keep the rows they had: today's code asks for replies or observations that are not "
            "on record",
            err=True,
        )
    _finish(run)


@main.group()
def batch() -> None:
    """Waves as files, for whatever eats batches of requests."""


@batch.command(name="export")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
              help="Where the requests are written.")  # fmt: skip
@click.option("--shape", type=click.Choice(["openai", "mistral", "gemini", "vllm", "anthropic"]),
              help="Who is to eat it; unset: the provider of the model.")  # fmt: skip
@OVERRIDES
@click.option("--outputs", type=click.Path(path_type=Path), default=Path("outputs"), show_default=True,
              help="Where a new run's folder is made.")  # fmt: skip
@said
def export_(job: Path, to: Path, shape: str | None, overrides: tuple[str, ...], outputs: Path) -> None:
    """Write the next wave of a job, or of a run's folder, as a file of requests."""
    from runner import library

    how = {"shape": shape, "outputs": outputs, "overrides": overrides}
    found, written = in_loop(library.export, job, to, **how)
    for file, count in written.items():
        click.echo(f"{file}: {count:,} requests")
    if not written:
        _finish(found)
        return
    click.echo(str(found.path))
    click.echo(f"when they are answered: overnight batch import {found.path} RESULTS")


@batch.command(name="import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@said
def import_(folder: Path, file: Path) -> None:
    """Read a file of results into a run."""
    from runner import library

    found = in_loop(library.import_results, folder, file)
    click.echo(f"{file}: {found.kept:,} replies kept")
    if found.again:
        click.echo(f"  {found.again:,} were on record already")
    if found.missing:
        click.echo(f"  {found.missing:,} requests of the export are not in it; the next export has them")
    if found.unread:
        click.echo(f"  {found.unread:,} lines are no results of this run", err=True)
    for reason, count in found.failed.most_common(3):
        click.echo(f"  {count:,} failed: {reason}", err=True)
    click.echo(f"go on with: overnight batch export {folder} --to FILE")


for _command in COMMANDS:
    main.add_command(_command)


@main.command(name="list")
@click.argument("what", type=click.Choice(["methods", "worlds", "models"]), required=False)
@said
def list_(what: str | None) -> None:
    """List methods, worlds and models that a job can name."""
    from runner import registry

    kinds = {"methods": "method", "worlds": "world", "models": "provider"}
    for title, kind in kinds.items():
        if what in (None, title):
            click.echo(f"{title}:")
            for name, line in registry.words(kind).items():
                click.echo(f"  {name:<18} {line}")


@main.command()
@click.argument("names", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="Show what can be fetched.")
@said
def fetch(names: tuple[str, ...], listing: bool) -> None:
    """Download public data sets from their official homes into the data folder (OVERNIGHT_DATA)."""
    from envs.data import data_folder
    from runner import fetch as fetching

    if listing or not names:
        for line in fetching.list_datasets():
            click.echo(line)
        return
    found = in_loop(fetching.fetch, names, data_folder(), report=click.echo)
    if not all(item.ok for item in found):
        sys.exit(1)


@main.command()
@click.argument("what", type=click.Choice(["job", "world", "method"]))
@click.argument("name")
@said
def new(what: str, name: str) -> None:
    """Write a small working job, world or method to begin from."""
    from runner.scaffold import write

    for line in write(what, name, Path()):
        click.echo(line)


def _finish(run: Any) -> None:
    """The end of a run as a person reads it, and the exit code."""
    from runner import pace
    from runner.analysis.money import told
    from runner.results import named_by, table, warnings

    say()
    if run.summary["cells"]:
        say(table(run.summary))
        for line in told(run.summary["money"]):
            say(line)
        if took := run.manifest["totals"].get("pace"):
            say(pace.told(took))
    say(str(run.path))
    errors = sum(cell["statuses"].get("error", 0) for cell in run.summary["cells"])
    manifest = run.manifest
    names = named_by(run.summary)
    for cell in run.summary["cells"]:
        if set(cell["statuses"]) - {"finished"}:
            how = ", ".join(f"{count} {status}" for status, count in sorted(cell["statuses"].items()))
            say(f"  {' '.join(cell[name] for name in names)}: {how}")
    for line in warnings(run.summary):
        say(line, err=True)
    for why in dict.fromkeys(manifest.get("stopped_cells", {}).values()):
        say(f"stopped: {why}", err=True)
    totals = manifest["totals"]
    unreadable, damaged = totals["unreadable_ledger_lines"], totals["damaged_trajectory_lines"]
    if unreadable:
        say(f"{unreadable} lines of ledger.jsonl cannot be read; what they held was asked for anew", err=True)
    if damaged:
        say(f"{damaged} lines of trajectories.jsonl could not be read; they are in damaged.jsonl", err=True)
    open_ = [batch for batch in manifest.get("batches") or [] if batch["stage"] in ("submitted", "ended")]
    for batch in open_ if run.status != "finished" else ():
        requests = f"{batch['requests']:,} requests"
        say(f"batch {batch['id']} is under way since {batch['since']}, {requests}", err=True)
    if run.status == "waiting":
        say(f"go on when the batches have ended: overnight resume {run.path}", err=True)
        sys.exit(BATCHES_OPEN)
    if run.status == "interrupted":
        say(f"interrupted; go on with: overnight resume {run.path}", err=True)
        leave(INTERRUPTED)
    if run.status == "budget":
        say(f"{manifest['budget']}: overnight resume {run.path} --set limits.NAME=VALUE", err=True)
        sys.exit(BUDGET_SPENT)
    if run.status == "stopped":
        say(f"when that is mended, go on with: overnight resume {run.path}", err=True)
        sys.exit(CELLS_STOPPED)
    if errors:
        say(f"{errors} episodes ended in an error; overnight resume {run.path} runs them again:", err=True)
        reasons: Counter[str] = Counter()
        for cell in run.summary["cells"]:
            reasons.update(cell["errors"])
        for reason, count in reasons.most_common(3):
            say(f"  {count} x {reason}", err=True)
        say(f"(each row's field `error` says its own; more in {run.path / 'run.log'})", err=True)
    if errors or unreadable or damaged:
        sys.exit(SOME_ERRORS)
