"""`python -m tests.full NAME`: run a long proof, print its figures and keep them beside this file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from tests import cluster_simulated, filling, killing, killing_often, limits, million, soak, webshop_large
from tests.published import test_alfworld, test_chains, test_scienceworld
from tests.runner import test_cancelled, test_faults

PROOFS: dict[str, Callable[..., dict[str, Any]]] = {
    "kill": lambda: killing.main(kills=20, tasks=67),
    "kill_often": killing_often.main,
    "disk": filling.main,
    "cancelled": test_cancelled.full,
    "soak": soak.main,
    "faults": test_faults.full,
    "limits": limits.full,
    "chains": test_chains.full,
    "cluster": cluster_simulated.full,
    "million": million.full,
    "scienceworld": test_scienceworld.full,
    "hosted_scienceworld": test_scienceworld.full_hosted,
    "alfworld": test_alfworld.full,
    "hosted_alfworld": test_alfworld.full_hosted,
    "webshop": webshop_large.full,
}
"""By name. `kill`: kill -9 twenty times during about 200 episodes (67 questions, three methods). `faults`: 2,001
episodes at 20 % faults of every kind end as faultless ones. `limits`: three minutes against a server that
enforces 600 requests a minute. `chains`: stopping rules on 250 questions with 40 real chains, in 20 orders.
`cluster`: 100 workers x 10,000 episodes before one limit in virtual time, without losses and with workers lost at
random. `million`: a run of a million episodes (`--episodes`) that is killed near its end, resumes of it, memory as it
goes, and the time until the first request.

Under load: `kill_often` kills a run of 2,000 episodes of eight calls, 1,000 in flight, a hundred times: in its
beginning, amid its calls, in its end. `disk`: a run on a disk that is full again and again. `cancelled`: a run that is
cancelled at each of its steps, in four ways. `soak`: an hour (`--minutes`) at 5 % faults, with samples of memory and
descriptors.

Worlds: `scienceworld` replays recorded solutions in the simulator, `alfworld` recorded walkthroughs in the engine, and
those of 144 households of ours.
`hosted_scienceworld` plays 64 episodes at once, `hosted_alfworld` 200, while a worker is killed every five seconds, as
undisturbed. `webshop` indexes and searches a shop of 1.18 million products
(`--products`)."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.full", description=__doc__)
    parser.add_argument("names", nargs="+", choices=PROOFS, metavar="NAME", help=", ".join(PROOFS))
    parser.add_argument("--minutes", type=float, help="how long `soak` takes (60)")
    parser.add_argument("--episodes", type=int, help="how many `million` runs (1,000,000)")
    parser.add_argument("--products", type=int, help="how many `webshop` has (1,180,000)")
    given = parser.parse_args(words)
    for name in given.names:
        key = {"soak": "minutes", "million": "episodes", "webshop": "products"}.get(name, "")
        chosen = getattr(given, key, None)
        figures = PROOFS[name](**({key: chosen} if chosen else {}))
        path = Path(__file__).parent / f"{name}.json"
        path.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
