"""`python -m envs.encyclopedia`: play the worked examples and write what they observe into their files.

To be run after a change of the articles or of an example. Each example gets `observations`, one for each step
but the finishing one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from envs.snapshot import embedded
from envs.wikipedia import WikiSession

HERE = Path(__file__).parent
EXEMPLARS = (HERE / "exemplars_hotpotqa.json", HERE / "exemplars_fever.json")


async def replay(exemplars: list[dict[str, Any]]) -> list[list[str]]:
    """The observations of each example, got by its own actions from the embedded encyclopedia."""
    source, played = embedded(), []
    with tempfile.TemporaryDirectory() as cache:
        await source.open(Path(cache))
        try:
            for exemplar in exemplars:
                session, seen = WikiSession(source, lambda answer: 0.0), []
                for step in exemplar["steps"][:-1]:
                    action = step["action"]
                    seen.append((await session.step(action[:1].lower() + action[1:])).text)
                played.append(seen)
        finally:
            await source.close()
    return played


async def main() -> None:
    """Rewrite the files in place."""
    for file in EXEMPLARS:
        exemplars = json.loads(file.read_text(encoding="utf-8"))
        for exemplar, seen in zip(exemplars, await replay(exemplars), strict=True):
            exemplar["observations"] = seen
        file.write_text(json.dumps(exemplars, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        sys.stdout.write(f"{file.name}: {len(exemplars)} examples\n")


if __name__ == "__main__":
    asyncio.run(main())
