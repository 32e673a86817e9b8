"""`overnight fetch`: what is installed is whole and right; what fails says why and lets the others go on."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from envs import data
from envs.data import DataFile, DataSet
from runner import fetch as module
from runner.fetch import MODELS, Fetched, exit_status, fetch, list_datasets

BODY = b'{"question": "?", "answer": "1"}\n' * 50
SUM = hashlib.sha256(BODY).hexdigest()
GGUF = b"GGUF" + bytes(range(256)) * 40

Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(name: str, sha256: str, *urls: str) -> DataSet:
        return DataSet(name, "about", "MIT", (DataFile(f"set/{name}.jsonl", urls, sha256),))

    sets = (
        one("pinned", SUM, "https://home/pinned"),
        one("free", "", "https://home/free"),
        one("mirrored", SUM, "https://down/mirrored", "https://home/mirrored"),
    )
    monkeypatch.setattr(module, "DATASETS", {dataset.name: dataset for dataset in sets})


class Run:
    """Calls of `fetch` against one handler, with what was asked and told."""

    def __init__(self, folder: Path, handler: Handler) -> None:
        self.folder = folder
        self.handler = handler
        self.asked: list[httpx.Request] = []
        self.told: list[str] = []

    async def __call__(self, *names: str) -> list[Fetched]:
        self.asked.clear()
        self.told.clear()

        def handle(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            return self.handler(request)

        transport = httpx.MockTransport(handle)
        return await fetch(names, self.folder, transport=transport, report=self.told.append, pause=0)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


def _serves(body: bytes) -> Handler:
    return lambda request: httpx.Response(200, content=body)


# ---------------------------------------------------------------- installing


async def test_a_file_is_installed_checked_and_recorded(tmp_path: Path) -> None:
    run = Run(tmp_path, _serves(BODY))
    [result] = await run("pinned")
    assert (result.status, result.sha256, result.path) == ("installed", SUM, tmp_path / "set/pinned.jsonl")
    assert (tmp_path / "set/pinned.jsonl").read_bytes() == BODY
    assert json.loads((tmp_path / "checksums.json").read_text())["set/pinned.jsonl"]["sha256"] == SUM
    assert run.files() == {"set/pinned.jsonl", "checksums.json"}
    assert exit_status([result]) == 0
    assert run.asked[0].headers["user-agent"].startswith("overnight")
    assert run.told == [result.message]


async def test_a_file_in_place_is_not_downloaded_again(tmp_path: Path) -> None:
    run = Run(tmp_path, _serves(BODY))
    await run("pinned", "free")
    results = await run("pinned", "free")
    assert [result.status for result in results] == ["present", "present"]
    assert run.asked == []
    assert all("there already" in line and "warning" not in line for line in run.told)
    assert exit_status(results) == 0


async def test_a_wrong_checksum_installs_nothing_and_shows_both_sums(tmp_path: Path) -> None:
    run = Run(tmp_path, _serves(b"something else"))
    [result] = await run("pinned")
    assert result.status == "failed"
    assert exit_status([result]) == 1
    assert SUM in result.message
    assert hashlib.sha256(b"something else").hexdigest() in result.message
    assert run.files() == set()


async def test_a_pinned_file_in_place_that_differs_is_kept_beside_the_right_one(tmp_path: Path) -> None:
    target = tmp_path / "set/pinned.jsonl"
    target.parent.mkdir()
    target.write_bytes(b"my own rows")
    run = Run(tmp_path, _serves(BODY))
    [result] = await run("pinned")
    assert result.status == "installed"
    assert target.read_bytes() == BODY
    assert (tmp_path / "set/pinned.jsonl.old").read_bytes() == b"my own rows"
    assert any("kept as pinned.jsonl.old" in line for line in run.told)


async def test_a_pinned_file_in_place_stays_when_the_right_one_cannot_be_had(tmp_path: Path) -> None:
    target = tmp_path / "set/pinned.jsonl"
    target.parent.mkdir()
    target.write_bytes(b"my own rows")
    [result] = await Run(tmp_path, _serves(b"a third thing"))("pinned")
    assert result.status == "failed"
    assert target.read_bytes() == b"my own rows"


async def test_a_file_that_changed_since_its_first_download_is_installed_with_a_warning(
    tmp_path: Path,
) -> None:
    await Run(tmp_path, _serves(BODY))("free")
    (tmp_path / "set/free.jsonl").unlink()
    for _ in range(2):
        (tmp_path / "set/free.jsonl").unlink(missing_ok=True)
        [result] = await Run(tmp_path, _serves(BODY + BODY))("free")
        assert result.status == "installed"
        assert "warning: the file changed" in result.message
        assert SUM in result.message
    [again] = await Run(tmp_path, _serves(b""))("free")
    assert again.status == "present"
    assert "warning" in again.message


async def test_a_file_put_there_by_hand_is_taken_as_the_first_download(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/free.jsonl").write_bytes(BODY)
    [result] = await Run(tmp_path, _serves(b""))("free")
    assert result.status == "present"
    assert json.loads((tmp_path / "checksums.json").read_text())["set/free.jsonl"]["sha256"] == SUM


# ---------------------------------------------------------------- what goes wrong


async def test_what_cannot_be_reached_is_one_clear_line_and_the_others_go_on(tmp_path: Path) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/pinned":
            raise httpx.ConnectError("no route to host")
        return httpx.Response(200, content=BODY)

    run = Run(tmp_path, handler)
    results = await run("pinned", "free", "pined")
    assert [result.status for result in results] == ["failed", "installed", "failed"]
    lost, _, unknown = (result.message for result in results)
    for told in ("pinned", "https://home/pinned", "no route to host", str(tmp_path / "set/pinned.jsonl")):
        assert told in lost
    assert "\n" not in lost
    assert "did you mean 'pinned'" in unknown
    assert exit_status(results) == 1
    assert run.files() == {"set/free.jsonl", "checksums.json"}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_passing_trouble_is_tried_again_twice(status: int, tmp_path: Path) -> None:
    replies = [status, status, 200]
    run = Run(tmp_path, lambda request: httpx.Response(replies.pop(0), content=BODY))
    [result] = await run("pinned")
    assert result.status == "installed"
    assert len(run.asked) == 3
    run.handler = lambda request: httpx.Response(status)
    (tmp_path / "set/pinned.jsonl").unlink()
    [result] = await run("pinned")
    assert result.status == "failed"
    assert f"HTTP {status}" in result.message
    assert len(run.asked) == 3


async def test_a_file_that_is_not_there_is_asked_for_once(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda request: httpx.Response(404))
    [result] = await run("pinned")
    assert result.status == "failed"
    assert "HTTP 404" in result.message
    assert len(run.asked) == 1


@pytest.mark.parametrize("first", [404, 500, "wrong bytes"])
async def test_the_second_address_is_tried_when_the_first_fails(first: Any, tmp_path: Path) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "home":
            return httpx.Response(200, content=BODY)
        return httpx.Response(200, text=first) if isinstance(first, str) else httpx.Response(first)

    [result] = await Run(tmp_path, handler)("mirrored")
    assert result.status == "installed"
    assert (tmp_path / "set/mirrored.jsonl").read_bytes() == BODY


async def test_redirects_are_followed(tmp_path: Path) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "home":
            return httpx.Response(302, headers={"location": "https://elsewhere/x"})
        return httpx.Response(200, content=BODY)

    [result] = await Run(tmp_path, handler)("pinned")
    assert result.status == "installed"


@pytest.mark.parametrize("body", [b"", b"  <!DOCTYPE html><p>Please log in", b"<HTML>"])
async def test_an_error_page_is_not_taken_for_the_file(body: bytes, tmp_path: Path) -> None:
    run = Run(tmp_path, _serves(body))
    [result] = await run("free")
    assert result.status == "failed"
    assert run.files() == set()


async def test_a_body_shorter_than_announced_is_not_installed(tmp_path: Path) -> None:
    class Short(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield BODY

    headers = {"content-length": str(len(BODY) + 1)}
    run = Run(tmp_path, lambda request: httpx.Response(200, headers=headers, stream=Short()))
    [result] = await run("free")
    assert result.status == "failed"
    assert f"{len(BODY):,} of {len(BODY) + 1:,} bytes" in result.message
    assert len(run.asked) == 3
    assert run.files() == set()


async def test_a_folder_that_cannot_be_written_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "set").write_text("a file where a folder should be")
    results = await Run(tmp_path, _serves(BODY))("pinned", "free")
    assert [result.status for result in results] == ["failed", "failed"]
    assert "cannot be written" in results[0].message


async def test_proxy_settings_that_cannot_be_used_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "nonsense://x")
    told: list[str] = []
    results = await fetch(["pinned"], tmp_path, report=told.append)
    assert exit_status(results) == 1
    assert "ALL_PROXY" in told[0]


async def test_cancelling_a_download_leaves_no_partial_file(tmp_path: Path) -> None:
    begun = asyncio.Event()

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield BODY
            begun.set()
            await asyncio.Event().wait()

    run = Run(tmp_path, lambda request: httpx.Response(200, stream=Endless()))
    task = asyncio.create_task(run("pinned"))
    await begun.wait()
    assert any(name.endswith(".part") for name in run.files())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.files() == set()


# ---------------------------------------------------------------- over real sockets


@asynccontextmanager
async def _server(body: bytes, *, cut: int, etag: str, ranges: bool) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that breaks the first connection after `cut` bytes of the body."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(request)
        start = 0
        for line in request.splitlines():
            if ranges and line.lower().startswith("range: bytes="):
                start = int(line.split("=")[1].rstrip("-"))
        part = body[start:]
        head = f"HTTP/1.1 {206 if start else 200} OK\r\nContent-Length: {len(part)}\r\n"
        head += f"Content-Range: bytes {start}-{len(body) - 1}/{len(body)}\r\n" * bool(start)
        head += f"ETag: {etag}\r\n" * bool(etag)
        writer.write(head.encode() + b"\r\n" + (part[:cut] if len(asked) == 1 else part))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/tiny.gguf", asked


@pytest.mark.parametrize(
    ("pinned", "etag", "ranges", "resumes"),
    [(True, "", True, True), (False, '"v1"', True, True), (False, "", True, False), (True, "", False, True)],
)
async def test_a_broken_download_is_taken_up_again_and_comes_out_whole(
    pinned: bool, etag: str, ranges: bool, resumes: bool, tmp_path: Path
) -> None:
    async with _server(GGUF, cut=4000, etag=etag, ranges=ranges) as (url, asked):
        name = f"model:{url}" + f"#sha256={hashlib.sha256(GGUF).hexdigest()}" * pinned
        [result] = await fetch([name], tmp_path, report=lambda line: None, pause=0)
    assert result.status == "installed", result.message
    assert (tmp_path / "models/tiny.gguf").read_bytes() == GGUF
    assert result.sha256 == hashlib.sha256(GGUF).hexdigest()
    assert len(asked) == 2
    assert ("range: bytes=" in asked[1].lower()) == resumes


# ---------------------------------------------------------------- models, and the real table


async def test_a_model_by_address_goes_to_the_models_folder(tmp_path: Path) -> None:
    run = Run(tmp_path, _serves(GGUF))
    [result] = await run("model:https://host/a/My%20Model.gguf?download=true")
    assert result.path == tmp_path / "models/My Model.gguf"
    assert result.status == "installed"
    assert str(run.asked[0].url) == "https://host/a/My%20Model.gguf?download=true"


async def test_what_is_no_gguf_file_is_not_installed_as_a_model(tmp_path: Path) -> None:
    [result] = await Run(tmp_path, _serves(b"version https://git-lfs.github.com/spec/v1"))(
        "model:https://h/m.gguf"
    )
    assert result.status == "failed"
    assert "GGUF" in result.message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("model:https://host/", "names no file"),
        ("model:https://host/m.gguf#sha256=12", "64 hex digits"),
        ("model:qwen2.5-coder-0.5b-instruct", "did you mean 'model:qwen2.5-coder-0.5b-instruct-q4_k_m'"),
    ],
)
async def test_a_model_name_that_cannot_be_used_says_why(name: str, told: str, tmp_path: Path) -> None:
    [result] = await Run(tmp_path, _serves(GGUF))(name)
    assert told in result.message
    assert result.status == "failed"


def test_every_listed_set_has_a_licence_places_of_its_own_and_checksums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DATASETS", data.DATASETS)
    listed = list_datasets()
    names = {dataset.name for dataset in listed}
    needed = {"hotpotqa", "fever", "gsm8k", "svamp", "strategyqa", "aqua", "react-prompts", *MODELS}
    assert needed <= names
    places = [file.path for dataset in listed for file in dataset.files]
    assert len(set(places)) == len(places)
    for dataset in listed:
        assert dataset.licence
        assert dataset.about
        for file in dataset.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.urls
            assert not Path(file.path).is_absolute()
            assert ".." not in file.path


def test_published_files_in_the_data_folder_are_the_pinned_ones() -> None:
    compared = 0
    for dataset in data.DATASETS.values():
        for file in dataset.files:
            path = data.data_folder() / file.path
            if path.is_file():
                assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256, file.path
                compared += 1
    if not compared:
        pytest.skip(f"no fetched data in {data.data_folder()}; set OVERNIGHT_DATA or run overnight fetch")
    print(f"\n{compared} files have their pinned checksums")
