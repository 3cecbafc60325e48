"""Connecting through a proxy, by HTTP's CONNECT."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .connect_proxy import ConnectProxy
from .fleet import Fleet
from .process import CERTIFICATES, ServerProcess

VARIABLES = ["grpc_proxy", "GRPC_PROXY", "https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"]
VARIABLES += ["no_grpc_proxy", "no_proxy", "NO_PROXY"]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with ConnectProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module", params=["tcp", "tls", "grpc", "grpcs"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with ServerProcess(f"{request.param}://127.0.0.1:0", services="tests.e2e.fleet:fleet") as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[ServerProcess]:
    with ServerProcess("tcp://127.0.0.1:0", "grpc://127.0.0.1:0", services="tests.e2e.fleet:fleet") as server:
        yield server


def options_for(url: str) -> dict[str, Any]:
    import os

    if url.startswith(("tls:", "grpcs:")):
        return {"tls": nearcall.TLS(ca=f"{os.environ[CERTIFICATES]}/ca.pem")}
    return {}


def port(url: str) -> str:
    return url.rpartition(":")[2]


def renamed(url: str, host: str) -> str:
    return f"{url.partition('://')[0]}://{host}:{port(url)}"


def test_a_proxy_that_is_named_is_used(server: ServerProcess, proxy: ConnectProxy) -> None:
    options = options_for(server.url) | {"proxy": proxy.url}
    with nearcall.connect(server.url, Fleet, **options) as client:
        assert client.pid() == server.pid

    async def in_loop() -> int:
        async with nearcall.aio.connect(server.url, Fleet, **options) as client:
            result: int = await client.pid()
            return result

    assert asyncio.run(in_loop()) == server.pid
    assert proxy.asked == [f"127.0.0.1:{port(server.url)}"] * 2


@pytest.mark.parametrize(
    ("which", "variables", "is_used"),
    [
        (0, ["https_proxy"], True),
        (0, ["HTTPS_PROXY"], True),
        (0, ["http_proxy"], True),
        (0, ["HTTP_PROXY"], False),
        (0, ["grpc_proxy"], False),
        (1, ["grpc_proxy"], True),
        (1, ["http_proxy"], True),
    ],
)
def test_the_usual_variables(
    plain: ServerProcess,
    proxy: ConnectProxy,
    monkeypatch: pytest.MonkeyPatch,
    which: int,
    variables: list[str],
    is_used: bool,
) -> None:
    """The name is the proxy's to look up: here nobody knows it."""
    for name in variables:
        monkeypatch.setenv(name, proxy.url)
    url = renamed(plain.urls[which], "inside.invalid")
    if is_used:
        with nearcall.connect(url, Fleet, allow_plaintext=True) as client:
            assert client.pid() == plain.pid
        assert proxy.asked == [f"inside.invalid:{port(url)}"]
        return
    with pytest.raises((nearcall.Unavailable, nearcall.DeadlineExceeded), match=r"no address for inside\.invalid"):
        nearcall.connect(url, Fleet, allow_plaintext=True)
    assert proxy.asked == []


def test_this_machine_and_no_proxy_are_gone_to_directly(
    plain: ServerProcess, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", proxy.url)
    for url in (plain.url, renamed(plain.url, "localhost")):
        with nearcall.connect(url, Fleet) as client:
            assert client.pid() == plain.pid
    monkeypatch.setenv("no_proxy", "example.org, .invalid")
    with pytest.raises((nearcall.Unavailable, nearcall.DeadlineExceeded), match="no address for"):
        nearcall.connect(renamed(plain.url, "inside.invalid"), Fleet, allow_plaintext=True)
    monkeypatch.delenv("no_proxy")
    with pytest.raises((nearcall.Unavailable, nearcall.DeadlineExceeded), match="no address for"):
        nearcall.connect(renamed(plain.url, "inside.invalid"), Fleet, allow_plaintext=True, proxy=None)
    assert proxy.asked == []


def test_through_a_proxy_nothing_goes_in_the_clear_unasked(plain: ServerProcess, proxy: ConnectProxy) -> None:
    with pytest.raises(
        nearcall.InvalidArgument, match=r"through the proxy .* leaves this machine.*allow_plaintext=True"
    ):
        nearcall.connect(renamed(plain.url, "inside.invalid"), Fleet, proxy=proxy.url)
    assert proxy.asked == []


def test_calls_in_turn_through_a_proxy(plain: ServerProcess, proxy: ConnectProxy) -> None:
    where = port(plain.url)
    url = f"tcp://one.invalid:{where},two.invalid:{where}"
    client = nearcall.connect(url, Fleet, proxy=proxy.url, allow_plaintext=True, balancing="round_robin")
    with client as service, nearcall.timeout(20.0):
        while len(client.peers) < 2:
            service.pid()
        assert sorted(proxy.asked) == [f"one.invalid:{where}", f"two.invalid:{where}"]


def test_a_password(plain: ServerProcess) -> None:
    with ConnectProxy(user="ann:se:cret/") as proxy:
        with nearcall.connect(plain.url, Fleet, proxy=f"http://ann:se%3Acret%2F@{proxy.place}") as client:
            assert client.pid() == plain.pid
        with pytest.raises(nearcall.Unauthenticated, match=r"http://user:password@") as caught:
            nearcall.connect(plain.url, Fleet, proxy=f"http://ann:wrong@{proxy.place}")
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ("HTTP/1.1 403 Not there\r\n\r\n", nearcall.PermissionDenied, "it answered 403 Not there"),
        ("HTTP/1.1 503 Later\r\n\r\n", nearcall.Unavailable, "it answered 503 Later"),
        ("HTTP/1.1 \x1b[31m\r\n\r\n", nearcall.Unavailable, "it answered "),
        ("SSH-2.0-x\r\n", nearcall.FailedPrecondition, "no HTTP proxy"),
        ("HTTP/1.1 200 OK\r\n" + "a: b\r\n" * 4000, nearcall.FailedPrecondition, "has no end"),
        ("", nearcall.Unavailable, "it hung up"),
    ],
)
def test_a_proxy_that_does_not_connect(answer: str, error: type[Exception], said: str) -> None:
    with ConnectProxy(answer=answer) as proxy:
        with pytest.raises(error, match=said) as caught:
            nearcall.connect("tls://server.invalid:7000", Fleet, proxy=proxy.url)
        assert f"tls://server.invalid:7000 through the proxy {proxy.place}" in str(caught.value)
        assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["https://secret@proxy:3128", "socks5://secret@proxy:1080", "http://", "http://a:b"])
def test_what_is_no_proxy_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"proxy names .*write http://host:port") as caught:
        nearcall.connect("tcp://server.invalid:7000", Fleet, proxy=wrong)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("https_proxy", wrong)
    with pytest.raises(nearcall.InvalidArgument, match="https_proxy names"):
        nearcall.connect("tcp://server.invalid:7000", Fleet)
    with pytest.raises(ValueError, match="names none"):
        nearcall.connect("shm://calc", Fleet, proxy="http://proxy:3128")
