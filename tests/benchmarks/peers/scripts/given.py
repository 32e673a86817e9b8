"""What every script here is given and tells: TASKS FOLDER ADDRESS IN_FLIGHT one|steps, and a last line of JSON.

Scripts run in their peers' environments, so nothing here needs more than Python.
"""

import json
import sys
from pathlib import Path

tasks, folder, address, in_flight = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
steps = sys.argv[5] == "steps"
words = sys.argv[6:]
FOUND = "result of {} " + "z" * 300
"""What the tool `lookup` answers."""


def rows():
    with open(tasks, encoding="utf-8") as file:  # noqa: PTH123
        return [json.loads(line) for line in file]


def tell(written, errors):
    sys.stdout.write(json.dumps({"written": written, "errors": errors}) + "\n")
