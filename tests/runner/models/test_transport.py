"""The seam under HTTP models, over real sockets."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable

import anyio
import httpx
import pytest

from runner.errors import CellStopped, JobError, Transient
from runner.models.lanes import HttpxTransport
from runner.models.native import NativeTransport, usual_transport
from runner.models.transport import Transport, is_local, proxy_for
from runner.testing import Delay, Drip, Drop, FakeOpenAI, Hang

BODY = b'{"model": "m", "prompt": "p"}'
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


Make = Callable[[], Transport]


@pytest.fixture(params=[NativeTransport, HttpxTransport])
def make(request: pytest.FixtureRequest) -> Make:
    """Each of the two transports."""
    return request.param  # type: ignore[no-any-return]


async def send(make: Make, server: FakeOpenAI, timeout: float = 20.0) -> bytes:
    transport = make()
    try:
        return (await transport.send(f"{server.url}/completions", {}, BODY, timeout)).body
    finally:
        await transport.close()


async def test_any_status_is_a_response_with_lower_case_headers(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: (418, {"X-Thing": "a"}, b"tea")) as server:
        transport = make()
        response = await transport.send(f"{server.url}/completions", {"X-Mine": "b"}, BODY, 20)
        await transport.close()
    assert (response.status, response.headers["x-thing"], response.body) == (418, "a", b"tea")
    assert server.requests[0].headers["x-mine"] == "b"
    assert server.requests[0].prompt == "p"


async def test_connections_are_kept_for_the_next_call(make: Make) -> None:
    async with FakeOpenAI() as server:
        transport = make()
        for _ in range(3):
            await transport.send(f"{server.url}/completions", {}, BODY, 20)
        await transport.close()
    assert (server.connections, len(server.requests)) == (1, 3)


async def test_a_server_that_drips_blank_lines_meets_the_deadline(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: Drip(every=0.01)) as server:
        with pytest.raises(Transient, match="no whole reply") as caught:
            await send(make, server, timeout=0.3)
    assert caught.value.billed


async def test_blank_lines_before_the_reply_are_no_fault(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: Drip(every=0.0, times=3, then="hello")) as server:
        body = await send(make, server)
    assert body.startswith(b"\n\n\n{")


@pytest.mark.parametrize("kind", [NativeTransport, HttpxTransport])
async def test_a_reply_that_does_not_begin_in_time_is_given_up_and_one_that_drips_is_not(
    kind: type[NativeTransport] | type[HttpxTransport],
) -> None:
    answers = [Hang(), Drip(every=0.1, times=6, then="hello")]
    async with FakeOpenAI(lambda body, k: answers[k]) as server:
        transport = kind(first_byte=0.3)
        with pytest.raises(Transient, match=r"no reply began within 0\.3 s") as caught:
            await transport.send(f"{server.url}/completions", {}, BODY, 20)
        assert caught.value.billed
        response = await transport.send(f"{server.url}/completions", {}, BODY, 20)
        assert response.body.endswith(b"}")
        await transport.close()


async def test_a_cancel_scope_around_a_call_ends_at_its_edge(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: Hang()) as server:
        transport = make()
        with anyio.move_on_after(0.1) as scope:
            await transport.send(f"{server.url}/completions", {}, BODY, 20)
        assert scope.cancelled_caught
        await transport.close()


async def test_silence_meets_the_deadline_and_may_have_been_billed(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: Hang()) as server:
        with pytest.raises(Transient) as caught:
            await send(make, server, timeout=0.2)
    assert caught.value.billed


@pytest.mark.parametrize("at", ["request", "headers", "body"])
async def test_a_connection_that_drops_after_sending_may_have_been_billed(make: Make, at: str) -> None:
    async with FakeOpenAI(lambda body, k: Drop(at)) as server:  # type: ignore[arg-type]
        with pytest.raises(Transient, match="broke") as caught:
            await send(make, server)
    assert caught.value.billed
    assert len(server.requests) == 1, "the transport itself tries once"


async def test_a_refused_connection_was_never_billed(make: Make) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        transport = make()
        with pytest.raises(Transient, match="no connection") as caught:
            await transport.send(f"http://127.0.0.1:{port}/v1/x?key=hidden", {}, BODY, 20)
        await transport.close()
    assert not caught.value.billed
    assert "hidden" not in str(caught.value)


async def test_many_calls_at_once_never_queue_in_the_pool(make: Make) -> None:
    release = anyio.Event()
    here = anyio.Event()

    async def script(body: dict[str, object], k: int) -> str:
        if k == 299:
            here.set()
        await release.wait()
        return "ok"

    async with FakeOpenAI(script) as server:
        transport = make()

        async def one() -> None:
            await transport.send(f"{server.url}/completions", {}, BODY, 60)

        async with anyio.create_task_group() as tasks:
            for _ in range(300):
                tasks.start_soon(one)
            with anyio.fail_after(60):
                await here.wait()
            release.set()
        await transport.close()
    assert server.peak == 300


async def test_as_many_connections_are_kept_as_calls_were_in_flight_and_let_go_when_nobody_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeOpenAI(lambda body, k: Delay(0.2, "ok")) as server:
        transport = HttpxTransport()

        async def one() -> None:
            await transport.send(f"{server.url}/completions", {}, BODY, 60)

        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(150):
                    tasks.start_soon(one)
        assert server.connections <= 150 + 50, "kept, but for those the machine was too slow for"
        _, lanes = transport.route(f"{server.url}/completions")
        monkeypatch.setattr("runner.models.lanes.KEEP_ALIVE", 0.05)
        await anyio.sleep(0.1)
        await one()
        assert len(lanes._idle) == 1
        await transport.close()


async def test_cancelled_calls_leak_no_connection(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: Hang() if k < 40 else "ok") as server:
        transport = make()
        async with anyio.create_task_group() as tasks:

            async def one() -> None:
                await transport.send(f"{server.url}/completions", {}, BODY, 60)

            for _ in range(40):
                tasks.start_soon(one)
            while len(server.requests) < 40:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        for _ in range(20):
            assert (await transport.send(f"{server.url}/completions", {}, BODY, 60)).status == 200
        await transport.close()


async def test_any_httpx_transport_can_stand_in() -> None:
    transport = HttpxTransport(transport=httpx.MockTransport(lambda request: httpx.Response(200, text="hi")))
    assert (await transport.send("https://example.test/v1", {}, b"", 5)).body == b"hi"


async def test_a_bad_header_stops_the_cell_without_showing_the_key(make: Make) -> None:
    async with FakeOpenAI() as server:
        transport = make()
        with pytest.raises(CellStopped) as caught:
            await transport.send(f"{server.url}/x", {"authorization": "Bearer sk-secret\n"}, BODY, 5)
        await transport.close()
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("error", [httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError])
async def test_what_never_left_was_not_billed(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("x")

    transport = HttpxTransport(transport=httpx.MockTransport(fail))
    with pytest.raises(Transient) as caught:
        await transport.send("http://example.test", {}, b"", 5)
    assert not caught.value.billed


@pytest.mark.parametrize(
    "error", [httpx.ReadTimeout, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError]
)
async def test_what_may_have_arrived_may_have_been_billed(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("x")

    transport = HttpxTransport(transport=httpx.MockTransport(fail))
    with pytest.raises(Transient) as caught:
        await transport.send("http://example.test", {}, b"", 5)
    assert caught.value.billed


async def test_an_untrusted_certificate_stops_the_cell() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    transport = HttpxTransport(transport=httpx.MockTransport(fail))
    with pytest.raises(CellStopped, match="SSL_CERT_FILE"):
        await transport.send("https://example.test", {}, b"", 5)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1", "LOCALHOST.", "a.localhost"])
def test_this_machine_needs_no_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:1")
    shown = f"[{host}]" if ":" in host else host
    assert is_local(host)
    assert proxy_for(f"http://{shown}:8000/v1") == ("", "")


def test_other_hosts_take_the_proxy_of_their_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.test:3128")
    monkeypatch.setenv("ALL_PROXY", "http://other.test:1")
    assert proxy_for("https://api.test/v1") == ("HTTPS_PROXY", "http://proxy.test:3128")
    assert proxy_for("http://api.test/v1") == ("ALL_PROXY", "http://other.test:1")


@pytest.mark.parametrize(
    ("exempt", "url", "direct"),
    [
        ("*", "https://api.test", True),
        ("api.test", "https://api.test", True),
        (".api.test", "https://a.api.test", True),
        ("api.test", "https://notapi.test", False),
        ("10.0.0.0/8", "http://10.1.2.3:8000", True),
        ("fe80::/10", "https://api.test", False),
        ("fe80::/10", "http://[fe80::1]:8000", True),
        ("[::1]:80:80, ,/,%", "https://api.test", False),
    ],
)
def test_no_proxy_in_every_form_breaks_nothing(
    exempt: str, url: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:1")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert (proxy_for(url) == ("", "")) is direct
    HttpxTransport().route(url)


@pytest.mark.parametrize(
    "value", ["socks5://proxy.test:1080", "ftp://proxy.test", "http://[bad", "http://a:b:c"]
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(JobError, match="ALL_PROXY"):
        HttpxTransport().route("https://api.test/v1")


async def test_a_local_server_is_reached_though_the_proxy_setting_is_broken(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://nowhere:1")
    monkeypatch.setenv("NO_PROXY", "fe80::/10")
    async with FakeOpenAI() as server:
        assert await send(make, server)


async def test_an_address_of_another_kind_stops_the_cell(make: Make) -> None:
    transport = make()
    with pytest.raises(CellStopped, match="http"):
        await transport.send("ftp://127.0.0.1/v1", {}, BODY, 5)
    await transport.close()


async def test_a_packed_reply_is_unpacked_and_one_that_is_not_what_it_says_is_a_failure(make: Make) -> None:
    packed = gzip.compress(b'{"choices": []}')
    answers = [(200, {"content-encoding": "gzip"}, packed), (200, {"content-encoding": "gzip"}, b"plain")]
    async with FakeOpenAI(lambda body, k: answers[k]) as server:
        transport = make()
        headers = {"accept-encoding": "gzip, deflate"}
        response = await transport.send(f"{server.url}/completions", headers, BODY, 5)
        assert response.body == b'{"choices": []}'
        with pytest.raises(Transient) as caught:
            await transport.send(f"{server.url}/completions", headers, BODY, 5)
        await transport.close()
    assert caught.value.billed


async def test_a_redirect_is_a_response(make: Make) -> None:
    async with FakeOpenAI(lambda body, k: (307, {"location": "/elsewhere"}, b"")) as server:
        transport = make()
        assert (await transport.send(f"{server.url}/completions", {}, BODY, 5)).status == 307
        await transport.close()
    assert len(server.requests) == 1


def test_what_the_native_transport_cannot_be_told_is_left_to_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(usual_transport("https://api.example.com/v1"), NativeTransport)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert isinstance(usual_transport("https://api.example.com/v1"), HttpxTransport)
    assert isinstance(usual_transport("http://127.0.0.1:8000/v1"), NativeTransport)
