"""A run by batches that ends its process, without any clean-up, at a named moment of a batch's life.

`python -m tests.dying PROVIDER URL OUTPUTS MOMENT`: `intended` and `uploaded` as soon as that line is on
disk, `unconfirmed` when the provider has taken a submission and nobody here knows it yet, `polling` at a look,
`downloading` amid the results, before any is written, `half` when half of them are.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from runner import loop
from runner.batch.log import BatchLog
from runner.ledger import Ledger
from runner.testing_batches import FakeAnthropicBatches, FakeOpenAIBatches
from tests.batches import METHODS, a_job, ran

DEAD = 9
MOMENTS = ("intended", "uploaded", "unconfirmed", "polling", "downloading", "half")


def job(provider: str, url: str):
    """The same job in any process."""
    fake = {"openai": FakeOpenAIBatches, "anthropic": FakeAnthropicBatches}[provider]
    return a_job(fake(port=int(url.rsplit(":", 1)[1].split("/")[0])), methods=METHODS, limit=3)


def die_at(moment: str, api: type) -> None:
    append, submit, look, results, write = (
        BatchLog._append, api.submit, api.look, api.results, Ledger.write_reply
    )  # fmt: skip
    counts = {"looks": 0, "replies": 0}

    def _append(self, batch, stage, **fields):
        append(self, batch, stage, **fields)
        if stage == moment:
            os._exit(DEAD)

    async def _submit(self, batch, file):
        found = await submit(self, batch, file)
        if moment == "unconfirmed":
            os._exit(DEAD)
        return found

    async def _look(self, id):
        found = await look(self, id)
        counts["looks"] += 1
        if moment == "polling":
            os._exit(DEAD)
        return found

    async def _results(self, found):
        number = 0
        async for result in results(self, found):
            number += 1
            if moment == "downloading" and number == 3:
                os._exit(DEAD)
            yield result

    def _write(self, call, indices, reply):
        draws = write(self, call, indices, reply)
        counts["replies"] += 1
        if moment == "half" and counts["replies"] == 4:
            os._exit(DEAD)
        return draws

    BatchLog._append, Ledger.write_reply = _append, _write
    api.submit, api.look, api.results = _submit, _look, _results


def main(provider: str, url: str, outputs: str, moment: str) -> None:
    from runner.batch.run import APIS

    die_at(moment, APIS[provider])
    loop.run(partial(ran, job(provider, url), Path(outputs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
