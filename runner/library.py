"""The library's front: run, resume, plan, render, rescore. The command only calls these."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from runner import registry
from runner.batch.manner import Export, Manner, is_batched
from runner.budget import check_prices
from runner.errors import JobError, OvernightError, RunError
from runner.execution import Execution, changed, now, run_path
from runner.job import Job, Planned
from runner.ledger import Ledger
from runner.models.base import Request
from runner.models.http import HttpModel
from runner.outputs import RunFolder, provenance
from runner.progress import Progress
from runner.results import Run, load, table
from runner.reuse import check

if TYPE_CHECKING:  # what only some commands need is imported when they do
    from runner.batch.files import Imported
    from runner.completion import Completion
    from runner.estimate import Estimate

Watch = Callable[[Execution], Any]

CHECK_SECONDS = 0.05
"""Seconds that reading data sets may take before the first call."""


async def run(
    job: Job | Mapping[str, Any] | str | Path,
    *,
    outputs: str | Path = "outputs",
    overrides: Sequence[str] = (),
    progress: bool | Watch = True,
    batching: Manner | None = None,
) -> Run:
    """Run a job (a file, or a dict with the same keys) from the beginning, in a new folder below `outputs`.

    `overrides` are `key=value` as `--set` takes them. Returns when all episodes have ended, or when it was
    interrupted; `Run.status` says which. `batching` says how models in batch mode are dealt with, e.g.
    `Manner(wait=False)`: submit and return, with the status `waiting`. Raises JobError or DataError before
    anything is written, and RunError when the run itself cannot go on.
    """
    job = _job(job, overrides)
    await to_thread.run_sync(_preflight, job)
    shape = await to_thread.run_sync(job.shape)
    folder = RunFolder.create(Path(outputs), job.settings.name)
    try:
        folder.update(
            schema=1,
            name=job.settings.name,
            started=now(),
            job=job.raw,
            shape=shape,
            seed=job.settings.seed,
            limits=job.settings.limits.model_dump(),
            versions=provenance(),
            history=[],
        )
    except BaseException:
        folder.close()
        raise
    return await _execute(job, folder, progress, batching=batching)


async def resume(
    path: str | Path,
    *,
    job: Job | None = None,
    overrides: Sequence[str] = (),
    accept_changes: bool = False,
    progress: bool | Watch = True,
    batching: Manner | None = None,
) -> Run:
    """Go on with a run: episodes that are not done, and those that ended in an error, from the ledger.

    Limits, endpoints, selections, trials and samples may be changed by `overrides`; any other change (also
    of a method's or world's code) is listed and refused unless accepted. `job` is needed where the run was
    made from objects that have no name in a registry. Raises RunError, e.g. where another process has it.
    """
    path = run_path(path)
    folder = RunFolder.open(path)
    try:
        manifest = folder.manifest
        job = job or Job.parse(manifest["job"], overrides, file=path / "run.json")
        shape = await to_thread.run_sync(job.shape)
        await to_thread.run_sync(_preflight, job, path)
        changes = list(_differences(manifest.get("shape", {}), shape))
        changes += await to_thread.run_sync(_changed_tasks, job, folder)
        if changes and not accept_changes:
            listed = "\n".join(f"  {line}" for line in changes)
            raise RunError(
                f"{path}: what shapes its episodes has changed since it began:\n{listed}\n"
                "Go back to what it was, start a new run, or take the change on purpose with "
                "--accept-changes (episodes run again where it matters, with replies from the ledger)."
            )
        history = manifest.get("history", [])
        history.append({"time": now(), "what": "resumed", "changes": changes, "overrides": list(overrides)})
        folder.update(job=job.raw, shape=shape, limits=job.settings.limits.model_dump(), history=history)
    except BaseException:
        folder.close()
        raise
    return await _execute(
        _for(job, batching), folder, progress, batching=batching, accept_changes=accept_changes
    )


async def rescore(path: str | Path, *, job: Job | None = None, progress: bool | Watch = False) -> Run:
    """Score a run anew from its ledger: the methods and worlds of today, no call, no action.

    Episodes whose replies and observations are not all on record keep the row they have;
    `Run.manifest["totals"]["left_for_resume"]` counts them.
    """
    path = run_path(path)
    folder = RunFolder.open(path)
    try:
        job = job or Job.parse(folder.manifest["job"], file=path / "run.json")
        history = folder.manifest.get("history", [])
        history.append({"time": now(), "what": "rescored"})
        folder.update(history=history)
    except BaseException:
        folder.close()
        raise
    return await _execute(job, folder, progress, readback=True)


async def complete(path: str | Path, *, job: Job | None = None, progress: bool | Watch = True) -> Run:
    """Draw the chains of a run that early stopping left out, for `figure2`; its rows stay as they are.

    Only the missing draws are asked for. Raises RunError where what shapes the run's episodes has changed, and
    OvernightError, with what stood in the way, where not all could be drawn: another call goes on.
    """
    from runner.completion import Completion

    path = run_path(path)
    folder = RunFolder.open(path)
    try:
        manifest = folder.manifest
        job = job or Job.parse(manifest["job"], file=path / "run.json")
        changes = list(_differences(manifest.get("shape", {}), await to_thread.run_sync(job.shape)))
        if changes:
            listed = "\n".join(f"  {line}" for line in changes)
            raise RunError(
                f"{path}: what shapes its episodes has changed since it began:\n{listed}\n"
                f"Go on with the run first: overnight resume {path}"
            )
        await to_thread.run_sync(_preflight, job, path)
        history = [*manifest.get("history", []), {"time": now(), "what": "completed chains"}]
        folder.update(history=history)
        completion = Completion(job, folder)
    except BaseException:
        folder.close()
        raise
    run = await _execute(job, folder, progress, completion)
    if completion.spent or completion.interrupted or completion.failed or completion.stopped:
        reasons = [*filter(None, [completion.spent]), *completion.stopped.values(), *completion.failed]
        why = "; ".join(list(dict.fromkeys(reasons))[:3]) or "it was interrupted"
        raise OvernightError(f"{path}: not all missing chains were drawn: {why}")
    return run


async def plan(
    job: Job | str | Path, *, overrides: Sequence[str] = (), seconds: float | None = None
) -> Estimate:
    """How many episodes, and at most how many calls, tokens and dollars, a job would take, and how long at least
    (`seconds`: a guess of how long a call takes, for `in_flight`). Asks no model."""
    from runner.estimate import estimate
    from runner.forecast import forecast

    job = _job(job, overrides)
    found = await estimate(job)
    found.forecast = forecast(job, found, seconds)
    return found


async def render(job: Job | str | Path, task: str, method: str, *, overrides: Sequence[str] = ()) -> Request:
    """The exact first request of a method for a task. Raises JobError for a method that the job lacks."""
    from runner.estimate import first_request

    job = _job(job, overrides)
    if method not in job.methods:
        raise JobError(registry.unknown("method", method, job.methods))
    return await first_request(job, task, method)


async def export(
    path: Job | Mapping[str, Any] | str | Path,
    to: str | Path,
    *,
    shape: str | None = None,
    outputs: str | Path = "outputs",
    overrides: Sequence[str] = (),
) -> tuple[Run, dict[Path, int]]:
    """Write what a job (in a new run) or an earlier run would ask next into a file, in the shape of `openai`,
    `mistral`, `gemini`, `vllm` or `anthropic`; ask no model that can be asked so. Gives the run and, by file, how
    many requests are in it: none where the run is at its end."""
    wanted = Export(Path(to), shape)
    batching = Manner(wait=False, export=wanted)
    if isinstance(path, (str, Path)) and (run_path(path) / "run.json").exists():
        return await resume(path, overrides=overrides, progress=False, batching=batching), wanted.written
    job = _for(_job(path, overrides), batching)
    return await run(job, outputs=outputs, progress=False, batching=batching), wanted.written


async def import_results(path: str | Path, file: str | Path) -> Imported:
    """Read results of an exported file into a run's ledger. What they do not answer is in the next export."""
    from runner.batch.files import read_results
    from runner.batch.log import BatchLog

    path = run_path(path)
    folder = RunFolder.open(path)
    try:
        job = Job.parse(folder.manifest["job"], file=path / "run.json")
        ledger, log = Ledger(path / "ledger.jsonl"), BatchLog(path)
        try:
            found = await to_thread.run_sync(read_results, job, log, ledger, Path(file))
        finally:
            ledger.close()
            log.close()
        history = folder.manifest.get("history", [])
        history.append({"time": now(), "what": f"imported {file}", "kept": found.kept})
        folder.update(history=history, batches=[batch.as_dict() for batch in log.batches.values()])
        return found
    finally:
        folder.close()


def _for(job: Job, batching: Manner | None) -> Job:
    """The job whose models are all collected, where a file is to be made of it."""
    if batching is None or batching.export is None:
        return job
    from runner.batch.files import batched
    from runner.batch.shapes import shape_for

    models = {n: batched(m) if isinstance(m, HttpModel) and m.batches else m for n, m in job.models.items()}
    for model in models.values():
        if is_batched(model):
            assert isinstance(model, HttpModel)
            shape_for(model, batching.export.shape)
    return Job(job.settings, job.worlds, job.methods, models, job.raw)


def _job(job: Job | Mapping[str, Any] | str | Path, overrides: Sequence[str]) -> Job:
    if isinstance(job, Job):
        return Job.parse(job.raw, overrides) if overrides else job
    if isinstance(job, Mapping):
        return Job.parse(job, overrides)
    return Job.read(job, overrides)


def _preflight(job: Job, own: Path | None = None) -> None:
    """Meet missing packages and files, empty data sets, bad rows, unknown prices and earlier runs that cannot be used
    before a folder is made (`own` is the run's, where it has one): all rows of a data set that is read in no time,
    the first of a large one (whose others are checked while the run begins)."""
    check_prices(job.settings.limits, job.models)
    for earlier in job.settings.reuse:
        check(Path(earlier), own)
    for world in job.worlds.values():
        world.check()
    until = monotonic() + CHECK_SECONDS
    for env in job.worlds:
        for task in job.tasks(env):
            if monotonic() > until or job.worlds[env].streams:
                break
            del task


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What a resume would change. Whole methods, worlds and models may be added."""
    tables = {_table(key) for key in old}
    for key in sorted(old.keys() | new.keys()):
        if key not in old and _table(key) not in tables:
            continue
        if key not in new and _table(key) not in {_table(k) for k in new}:
            yield f"{key}: was {old[key]!r}, is gone"
        elif old.get(key) != new.get(key):
            if key.endswith(("(code)", "(prompts)")):
                yield f"{key}: the text differs"
            else:
                yield f"{key}: was {old.get(key)!r}, is {new.get(key)!r}"


def _changed_tasks(job: Job, folder: RunFolder) -> list[str]:
    """Tasks whose text or target is no longer what it was when their episodes ended; five at most. Of a large data set
    the first, as in `_preflight`; the others are looked at as the run comes to them."""
    found: list[str] = []
    lines = folder.look()
    until = monotonic() + CHECK_SECONDS
    for env in job.worlds if len(lines) else ():
        cells = [cell for cell in job.cells if cell.env == env]
        for task in job.tasks(env):
            episodes = (
                Planned(0, cell, trial, task) for trial in range(job.settings.trials) for cell in cells
            )
            ended = next((each for each in episodes if lines.done(each.id) is not None), None)
            if ended is not None and (change := changed(ended, lines.row(ended.id))):
                found.append(change)
            if len(found) == 5 or monotonic() > until:
                return found
    return found


def _table(key: str) -> str:
    """`methods.react` of `methods.react.steps`; the key itself for a top-level one."""
    return ".".join(key.removesuffix(" (code)").split(" (")[0].split(".")[:2])


async def _execute(
    job: Job,
    folder: RunFolder,
    progress: bool | Watch,
    completion: Completion | None = None,
    *,
    readback: bool = False,
    batching: Manner | None = None,
    accept_changes: bool = True,
) -> Run:
    try:
        execution = completion or _execution(job, folder, readback, batching)
        execution.accept_changes = accept_changes
        with closing(execution.ledger):
            beside = readback or completion is not None  # how the run stands is not changed by it
            before = folder.manifest
            status: str
            failure: BaseException | None
            status, failure = "finished", None
            try:
                folder.update(status="running")
                with _interrupts(execution):
                    await execution.run(_watcher(progress))
            except BaseException as error:
                status, failure = "failed", bare(error)
                if isinstance(failure, (anyio.get_cancelled_exc_class(), KeyboardInterrupt)):
                    status = "interrupted"
            try:
                ended = _sum_up(execution, before, status, failure, beside)
            except RunError as error:
                failure = failure or error
                with suppress(RunError):  # the folder may be in a better state than its files
                    folder.update(status="failed", ended=now(), error=f"{type(failure).__name__}: {failure}")
            if failure is not None:
                raise failure from None
    finally:
        folder.close()
    return ended


def _execution(job: Job, folder: RunFolder, readback: bool, batching: Manner | None) -> Execution:
    """What runs the episodes: this process, or several."""
    settings = job.settings
    if readback or (settings.workers == 1 and settings.engine == "local"):
        return Execution(job, folder, readback=readback, batching=batching)
    from runner.cluster import coordinator, engines

    return coordinator.Coordinator(job, folder, engines.made(settings.engine, settings.address))


def _sum_up(
    execution: Execution, before: Mapping[str, Any], status: str, failure: BaseException | None, beside: bool
) -> Run:
    """Tidy the rows, and write down how the run ended. Raises RunError where that cannot be done."""
    folder, batches = execution.folder, execution.batches
    why = {f"{c.env}/{c.method}/{c.model}": text for c, text in execution.stopped.items()}
    if beside and status == "finished":
        status, why = before.get("status", "died"), before.get("stopped_cells", {})
        status = "died" if status == "running" else status
    elif status == "finished" and execution.interrupted:
        status = "interrupted"
    elif status == "finished" and execution.spent:
        status = "budget"
    elif status == "finished" and why:
        status = "stopped"
    elif status == "finished" and batches is not None and batches.why is not None:
        status = "waiting"
    damaged = folder.compact(execution.moved)
    totals = {**execution.totals(), "damaged_trajectory_lines": damaged}
    totals["planned"] = totals["planned"] or before.get("totals", {}).get("planned")
    folder.update(
        status=status,
        ended=now(),
        totals=totals,
        now=None,
        limits_history=execution.limits_history() or before.get("limits_history", {}),
        stopped_cells=why,
        batches=before.get("batches") if batches is None else batches.told(),
        budget=before.get("budget") if beside else execution.spent,
        error=None if failure is None else f"{type(failure).__name__}: {failure}",
    )
    ended = load(folder.path)
    if execution.sums is not None:
        ended.__dict__["summary"] = ended.priced(execution.sums.as_dict())  # nothing is read for it
    folder.write_summary({"status": status, "totals": totals, **ended.summary})
    return ended


def _watcher(progress: bool | Watch) -> Watch:
    async def watch(execution: Execution) -> None:
        said: set[str] = set()
        async with anyio.create_task_group() as tasks:
            if progress:
                tasks.start_soon(_show, Progress() if progress is True else progress, execution)
            while True:
                await anyio.sleep(2)
                state: dict[str, Any] = {
                    "totals": execution.totals(),
                    "now": execution.pulse.take().as_dict(),
                }
                if execution.batches is not None:
                    state["batches"] = execution.batches.told()
                try:
                    await to_thread.run_sync(partial(execution.folder.update, **state))
                except RunError as error:  # the next may succeed; where the rows cannot be kept the run ends
                    if str(error) not in said:
                        said.add(str(error))
                        execution.folder.log(str(error))

    return watch


async def _show(show: Watch, execution: Execution) -> None:
    try:
        await show(execution)
    except Exception as error:  # the terminal was closed, say: the run goes on without it
        execution.folder.log(f"the display failed: {type(error).__name__}: {error}")


@contextmanager
def _interrupts(execution: Execution) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a terminal that is closed (SIGHUP, unless `nohup` has it ignored) interrupt the run in
    order. Only in the main thread, as signals can be had there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import asyncio

    loop = asyncio.get_running_loop()
    wanted: dict[int, Callable[[], None]] = {
        signal.SIGINT: execution.interrupt,
        signal.SIGTERM: execution.interrupt,
    }
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        wanted[signal.SIGHUP] = execution.hang_up
    old = {number: signal.getsignal(number) for number in wanted}
    for number, handler in wanted.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, before in old.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if before is None else before)


def bare(error: BaseException) -> BaseException:
    """The error inside a group of one, as people expect to meet it."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


__all__ = [
    "Job", "OvernightError", "Run", "complete", "load", "plan", "render", "rescore", "resume", "run",
    "table",
]  # fmt: skip
