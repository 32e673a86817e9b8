"""Plays the embedded example anew: `python -m envs.webshop`."""

from __future__ import annotations

import anyio
import orjson

from envs.webshop.examples import FILE, played

if __name__ == "__main__":
    FILE.write_bytes(orjson.dumps(anyio.run(played), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
