"""`python -m tests.full NAME`: run one long proof, print its figures and keep them beside this file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from tests import killing, limits
from tests.published import test_chains, test_scienceworld
from tests.runner import test_faults

PROOFS = {
    "kill": lambda: killing.main(kills=20, tasks=67),
    "faults": test_faults.full,
    "limits": limits.full,
    "chains": test_chains.full,
    "scienceworld": test_scienceworld.full,
}
"""`kill`: kill -9 twenty times during about 200 episodes (67 questions, three methods). `faults`: 2,001
episodes at 20 % faults of every kind end as faultless ones. `limits`: three minutes against a server that
enforces 600 requests a minute. `chains`: stopping rules on 250 questions with 40 real chains, in 20
orders. `scienceworld`: recorded solutions replayed in the simulator."""


def main(names: list[str]) -> int:
    if not names or set(names) - set(PROOFS):
        sys.stderr.write(f"usage: python -m tests.full NAME...; there are: {', '.join(PROOFS)}\n")
        return 2
    for name in names:
        figures: dict[str, Any] = PROOFS[name]()
        path = Path(__file__).parent / f"{name}.json"
        path.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
