"""The child process of `local`: llama.cpp's own HTTP server around one GGUF file.

    python -m runner.models.local_server

Its settings come as one line of JSON on stdin: gguf, slots, context (tokens a slot), threads, cache
(whether prompts are kept), key, parent (process id). It answers with one line on stdout, `{"address":
"http://127.0.0.1:PORT"}`, and serves until it is stopped or until stdin closes: that is how it notices that
its parent is gone (on Linux the kernel tells it as well). Everything else it says goes to stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

CACHE_MIB = 1024
"""Memory for the states of prompts whose slot went to another prompt (llama.cpp's own default is 8 GiB)."""
WARNINGS = 2
"""llama.cpp's log level: warnings and errors, no lines for each request."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it lets calls in flight end
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    _die_with(int(settings["parent"]))
    answer = os.dup(1)
    os.dup2(2, 1)  # what native code prints must not fill, or garble, the pipe that carries the address
    os.environ["GOMP_SPINCOUNT"] = (
        "0"  # before libgomp loads: spinning threads starve each other on busy cores
    )
    server = serve(settings)
    os.write(answer, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(answer)
    threading.Event().wait()


def serve(settings: dict[str, Any]) -> Any:
    """A running `xllamacpp.Server`; it lives as long as the object."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["gguf"]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.n_threads_http = settings["slots"] + 4
    params.port = 0
    params.api_keys = [settings["key"]]
    params.cache_prompt = settings["cache"]
    params.cache_ram_mib = CACHE_MIB if settings["cache"] else 0
    params.ui = False
    params.verbosity = WARNINGS
    return xllamacpp.Server(params)


def _die_with(parent: int) -> None:
    """Ends this process when its parent does, however that ends."""
    if sys.platform == "linux":
        import ctypes

        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    def watch() -> None:
        while os.read(0, 4096):  # not sys.stdin: its lock, held here, would break a normal exit
            pass
        os._exit(0)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


if __name__ == "__main__":
    main()
