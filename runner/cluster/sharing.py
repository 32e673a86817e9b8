"""Which jobs several processes can share."""

from __future__ import annotations

from runner.batch.manner import is_batched
from runner.errors import JobError, OvernightError
from runner.job import Job
from runner.models.scripted import Scripted


def check(job: Job) -> None:
    """Raises JobError for a job that cannot be shared: other processes make it from its text, and each reads the
    data."""
    for name, world in job.worlds.items():
        if world.streams:
            raise JobError(
                f"workers: the rows of envs.{name} can be read only once, and each worker must read them; put them "
                "into a file, or set workers = 1"
            )
    for name, model in job.models.items():
        if is_batched(model):
            raise JobError(
                f"workers: models.{name} is in batch mode, whose waves one process collects; set workers = 1"
            )
        if isinstance(model, Scripted) and model._script is not None:
            raise JobError(
                f"workers: models.{name} is scripted by a function of this process; give it `replies`"
            )
    for kind in (*job.worlds.values(), *job.methods.values(), *job.models.values()):
        if type(kind).__module__ == "__main__":
            raise JobError(
                f"workers: {type(kind).__name__} is made in this process; put it into a file, and name it by that"
            )
    try:
        Job.parse(job.raw)
    except OvernightError as error:
        raise JobError(f"workers: other processes cannot make this job from its text: {error}") from error
