"""`overnight fetch`: brings data sets and models from their publishers, checked by checksum.

A file is written beside its place, hashed as it arrives, and put there in one step, so that what lies in the
data folder is whole. Where the publisher's file is known its sha256 is pinned; else the first download's is
recorded in `checksums.json` and later ones are compared with it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import httpx

from envs.data import DATASETS, DataFile, DataSet, data_folder

CHECKSUMS = "checksums.json"
_RETRIES = 2
_TELL_FROM = 50_000_000  # bytes from which progress is told, in tenths
_HEADERS = {
    "User-Agent": "overnight (batch runner for language-model episodes; httpx)",
    "Accept-Encoding": "identity",  # the publisher's bytes, and ranges that mean them
}
_QWEN = "https://huggingface.co/Qwen"


def _model(name: str, about: str, url: str, sha256: str) -> DataSet:
    file = DataFile(f"models/{name}.gguf", (url,), sha256)
    return DataSet(f"model:{name}", about, "Apache-2.0", (file,))


MODELS: dict[str, DataSet] = {
    model.name: model
    for model in (
        _model(
            "qwen2.5-coder-0.5b-instruct-q4_k_m",
            "Qwen2.5-Coder 0.5B Instruct, 4 bit (0.5 GB): the smallest that follows a prompt's format",
            f"{_QWEN}/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ),
        _model(
            "qwen2.5-coder-1.5b-instruct-q4_k_m",
            "Qwen2.5-Coder 1.5B Instruct, 4 bit (1.1 GB)",
            f"{_QWEN}/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of one file. `status` is "installed", "present" (there already) or "failed"; `path` is
    where it is or should be (None for an unknown name); `sha256` is "" if it failed; `message` is the line
    told."""

    name: str
    path: Path | None
    status: Literal["installed", "present", "failed"]
    sha256: str
    message: str

    @property
    def ok(self) -> bool:
        """Whether the file is in place."""
        return self.status != "failed"


def list_datasets() -> tuple[DataSet, ...]:
    """Everything that `fetch` knows by name, models last; `str` of one is its line in `overnight fetch --list`."""
    return (*DATASETS.values(), *MODELS.values())


def exit_status(results: Iterable[Fetched]) -> int:
    """The command's exit status: 0 if every file is in place, else 1."""
    return int(not all(result.ok for result in results))


async def fetch(
    names: Sequence[str],
    folder: Path | None = None,
    *,
    report: Callable[[str], None],
    transport: httpx.AsyncBaseTransport | None = None,
    pause: float = 1.0,
) -> list[Fetched]:
    """Bring what `names` name into `folder` (default: the data folder); one result a file, in order.

    A name is one of `list_datasets()`, or `model:URL`, a GGUF file's address, which may end in
    `#sha256=HEX`. Each line of `report` says what was done or what to do; what fails (an unknown name, no
    connection, a wrong checksum, a full disk) is a result, not an exception, and the others go on. A file
    in place is not downloaded again. Dropped connections, 429 and 5xx are tried again twice, after `pause`
    and 2 * `pause` seconds, going on where the connection broke. Proxy settings come from the environment.
    """
    folder = data_folder() if folder is None else folder
    results: list[Fetched] = []

    def tell(result: Fetched) -> None:
        results.append(result)
        report(result.message)

    try:
        client = httpx.AsyncClient(
            transport=transport,
            headers=_HEADERS,
            follow_redirects=True,
            timeout=httpx.Timeout(60.0, connect=15.0),
        )
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        reason = f"the proxy settings (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) cannot be used: {error}"
        for name in names:
            tell(Fetched(name, None, "failed", "", f"{name}: {reason}"))
        return results
    async with client:
        for name in names:
            try:
                dataset = _known(name)
            except LookupError as error:
                tell(Fetched(name, None, "failed", "", str(error)))
                continue
            for file in dataset.files:
                try:
                    tell(await _bring(client, name, file, folder, report, pause))
                except OSError as error:
                    message = f"{name}: {folder / file.path} cannot be written: {error.strerror or error}"
                    tell(Fetched(name, folder / file.path, "failed", "", message))
    return results


def _known(name: str) -> DataSet:
    """The data set or model of that name. Raises LookupError with the nearest name."""
    everything = {dataset.name: dataset for dataset in list_datasets()}
    if name in everything:
        return everything[name]
    if name.startswith(("model:http://", "model:https://")):
        parts = urlsplit(name.removeprefix("model:"))
        base = PurePosixPath(unquote(parts.path)).name
        pinned = parse_qs(parts.fragment).get("sha256", [""])[0].lower()
        if not base or base.startswith("."):
            raise LookupError(f"{name}: the address names no file")
        if pinned and (len(pinned) != 64 or set(pinned) - set("0123456789abcdef")):
            raise LookupError(f"{name}: sha256={pinned} is not 64 hex digits")
        url = parts._replace(fragment="").geturl()
        return DataSet(name, "", "see its page", (DataFile(f"models/{base}", (url,), pinned),))
    near = difflib.get_close_matches(name, everything, n=1, cutoff=0.4)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise LookupError(
        f"{name}: unknown{meant} (overnight fetch --list shows all; a model: model:https://...)"
    )


# ---------------------------------------------------------------- one file


async def _bring(
    client: httpx.AsyncClient,
    name: str,
    file: DataFile,
    folder: Path,
    report: Callable[[str], None],
    pause: float,
) -> Fetched:
    target = folder / file.path
    records = _Records(folder / CHECKSUMS)
    recorded = records.sha256(file.path)
    if target.is_file():
        sha256 = _sha256_of(target)
        if not file.sha256 or sha256 == file.sha256:
            warning = ""
            if not file.sha256 and recorded and sha256 != recorded:
                warning = f"; warning: sha256 {sha256} is not {recorded}, that of its first download"
            elif recorded != sha256:
                records.add(file.path, sha256, "found in place")
            return Fetched(name, target, "present", sha256, f"{name}: {target} is there already{warning}")
        report(
            f"{name}: {target} is not the published file (sha256 {sha256}); it is kept as {target.name}.old"
        )

    failures: list[str] = []
    for url in file.urls:
        download = _Download(client, url, name, report, pinned=bool(file.sha256))
        try:
            part = await download.into(target, pause)
        except _Failed as failure:
            failures.append(f"{url}: {failure}")
            continue
        sha256 = download.sha256
        if file.sha256 and sha256 != file.sha256:
            part.unlink()
            failures.append(f"{url}: its sha256 is {sha256}, expected {file.sha256}; not installed")
            continue
        if target.exists():
            target.replace(target.with_name(target.name + ".old"))
        part.replace(target)
        warning = ""
        if not file.sha256 and recorded and recorded != sha256:
            warning = f"; warning: the file changed since its first download (sha256 was {recorded})"
        else:
            records.add(file.path, sha256, url)
        message = f"{name}: {target} ({download.size:,} bytes, sha256 {sha256}){warning}"
        return Fetched(name, target, "installed", sha256, message)
    told = "; ".join(failures)
    return Fetched(name, target, "failed", "", f"{name}: {told}; to go on by hand, put the file at {target}")


class _Failed(Exception):
    """A download that no further try will mend."""


class _Download:
    """One file from one address: hashed as it comes, taken up again where the connection broke."""

    def __init__(
        self, client: httpx.AsyncClient, url: str, name: str, report: Callable[[str], None], *, pinned: bool
    ) -> None:
        self.client = client
        self.url = url
        self.name = name
        self.report = report
        self.pinned = pinned
        self.etag = ""
        self.size = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    async def into(self, target: Path, pause: float) -> Path:
        """The path of the whole file, beside `target`. Raises _Failed and OSError, leaving nothing."""
        part, stream = _temporary(target)
        try:
            with stream:
                for tried in range(_RETRIES + 1):
                    try:
                        await self._take(stream)
                        break
                    except httpx.TransportError as error:
                        reason = str(error) or type(error).__name__
                        if tried == _RETRIES:
                            raise _Failed(f"{reason} ({tried + 1} tries)") from error
                        self.report(f"{self.name}: {self.url}: {reason}; trying again")
                        await anyio.sleep(pause * (tried + 1))
                    except (httpx.HTTPError, httpx.InvalidURL) as error:
                        raise _Failed(str(error) or type(error).__name__) from error
                wrong = _not_what_was_asked(stream, target)
                if wrong:
                    raise _Failed(wrong)
        except BaseException:
            part.unlink()
            raise
        return part

    async def _take(self, stream: IO[bytes]) -> None:
        headers = {}
        if self.size and (self.pinned or self.etag):
            headers["Range"] = f"bytes={self.size}-"
            if self.etag:
                headers["If-Range"] = self.etag
        async with self.client.stream("GET", self.url, headers=headers) as response:
            status = response.status_code
            if status == 429 or status >= 500:
                raise httpx.ReadError(f"HTTP {status} {response.reason_phrase}".rstrip())
            if status == 416:
                self.size = 0
                raise httpx.ReadError("the rest of the file cannot be had; beginning again")
            if status == 206 and not response.headers.get("content-range", "").startswith(
                f"bytes {self.size}-"
            ):
                raise httpx.ReadError("the server sent another part than was asked for")
            if status not in (200, 206):
                raise _Failed(f"HTTP {status} {response.reason_phrase}".rstrip())
            if status == 200:
                stream.seek(0)
                stream.truncate()
                self.size, self._hash = 0, hashlib.sha256()
            etag = response.headers.get("etag", "")
            self.etag = "" if etag.startswith("W/") else etag
            length = response.headers.get("content-length", "")
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            total = self.size + int(length) if length.isdigit() and not encoded else 0
            await self._copy(response, stream, total)
            if total and self.size != total:
                raise httpx.ReadError(f"{self.size:,} of {total:,} bytes came")

    async def _copy(self, response: httpx.Response, stream: IO[bytes], total: int) -> None:
        told = self.size * 10 // total if total else 0
        async for chunk in response.aiter_bytes():
            stream.write(chunk)
            self._hash.update(chunk)
            self.size += len(chunk)
            if total >= _TELL_FROM and self.size * 10 // total > told:
                told = self.size * 10 // total
                self.report(f"{self.name}: {told * 10} % of {total / 1e6:,.0f} MB")


def _temporary(target: Path) -> tuple[Path, IO[bytes]]:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    Path(name).chmod(0o644)  # mkstemp's file is its owner's alone
    return Path(name), os.fdopen(handle, "w+b")


def _not_what_was_asked(stream: IO[bytes], target: Path) -> str:
    """Why the file cannot be what its name says, "" if it may be: error pages come with status 200, too."""
    stream.seek(0)
    head = stream.read(64)
    stream.seek(0, os.SEEK_END)
    if not head:
        return "the file is empty"
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page came instead of the file (a log-in page of the network?)"
    if target.suffix == ".gguf" and not head.startswith(b"GGUF"):
        return "not a GGUF model"
    return ""


def _sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Records:
    """`checksums.json`: {path: {sha256, source}} of what was first installed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _all(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            self.path.replace(self.path.with_name(CHECKSUMS + ".old"))
            return {}
        return found if isinstance(found, dict) else {}

    def sha256(self, file: str) -> str:
        entry = self._all().get(file)
        return str(entry.get("sha256", "")) if isinstance(entry, dict) else ""

    def add(self, file: str, sha256: str, source: str) -> None:
        text = json.dumps(
            self._all() | {file: {"sha256": sha256, "source": source}}, indent=1, sort_keys=True
        )
        part, stream = _temporary(self.path)
        with stream:
            stream.write(text.encode() + b"\n")
        part.replace(self.path)
