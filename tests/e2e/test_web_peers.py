"""Clients of Connect, gRPC-Web and gRPC of others' make, in Node, Go and Python, call our server, and ours calls their
servers. `make web-peers` installs them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .process import ServerProcess
from .web_peers import PEERS, ROOT, Choice, Peer

pytestmark = pytest.mark.skipif(
    not any(peer.is_here for peer in PEERS.values()), reason="no peer is here: `make web-peers`, with Node and Go"
)


@nearcall.service(name="test.v1.Web")
class Web:
    @nearcall.no_side_effects
    def add(self, a: int, b: int) -> int:
        return a + b

    def greet(self, name: str) -> str:
        return name

    def fail(self, why: str) -> None:
        raise nearcall.FailedPrecondition(why)

    def metadata(self) -> None:
        context = nearcall.context()
        word, data = context.metadata["x-word"], context.metadata["x-bytes-bin"]
        context.send_metadata([("x-word-back", word)])
        context.add_trailing_metadata([("x-word-tail", word), ("x-bytes-tail-bin", data)])

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    def breaks(self) -> Iterator[int]:
        yield 1
        raise nearcall.Aborted("enough")

    def hold(self) -> None:
        while not nearcall.context().cancelled:
            time.sleep(0.01)

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    def both(self, xs: Iterator[int]) -> Iterator[int]:
        for x in xs:
            yield -x

    def given_up(self) -> int:
        """How many calls of `hold` were. Only the peer knows."""
        raise NotImplementedError

    @nearcall.no_side_effects
    def method(self) -> str:
        """HTTP's, of this call. Only the peer knows."""
        raise NotImplementedError


def web() -> list[object]:
    return [Web()]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("http://127.0.0.1:0", services="tests.e2e.test_web_peers:web") as server:
        yield server


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what protoc makes of our `.proto`: descriptors, and Python."""
    folder = tmp_path_factory.mktemp("descriptors")
    command = [sys.executable, "-m", "nearcall", "proto", "tests.e2e.test_web_peers:Web"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    (folder / "web.proto").write_text(text)
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports", f"--python_out={folder}"]
    subprocess.run([*protoc, f"--descriptor_set_out={folder}/web.bin", "web.proto"], check=True)
    return folder


def here(name: str) -> Peer:
    """That one; the test is skipped where it is missing."""
    if not PEERS[name].is_here:
        pytest.skip(f"{name} is not here: `make web-peers`")
    return PEERS[name]


CLIENTS = [(name, choice) for name, peer in PEERS.items() for choice in peer.choices]


@pytest.mark.parametrize(("name", "choice"), CLIENTS, ids=[f"{name} {' '.join(choice)}" for name, choice in CLIENTS])
def test_their_clients(server: ServerProcess, descriptors: Path, name: str, choice: Choice) -> None:
    peer = here(name)
    expected: dict[str, Any] = {
        "unary": 3,
        "zeros": 0,
        "text": "Käse 🦀",
        "failure": ["FailedPrecondition", 'not "here"'],
        "metadata": ["hello", "hello", "AP8"],
        "countdown": [3, 2, 1],
        "broken stream": ["Aborted", "enough"],
        "deadline": "DeadlineExceeded",
        "total": 5050,
    }
    if "cancel" in peer.beyond:
        expected["cancel"] = "Canceled"
    if choice[1] == "2":
        expected["both"] = [-x for x in range(1, 101)]
    if choice[0] == "connect":
        expected |= {"get": 7, "compressed": 10_000}
        if "compressed get" in peer.beyond:
            expected["compressed get"] = 11
    assert peer.cases(server.url, descriptors, *choice) == expected


def test_googles_client(server: ServerProcess, descriptors: Path) -> None:
    assert here("connect-node").cases(server.url, descriptors, "grpc-web-text") == {
        "unary": 3,
        "text": "Käse 🦀",
        "failure": ["FailedPrecondition", 'not "here"'],
        "countdown": [3, 2, 1],
    }


@pytest.fixture(scope="module", params=PEERS)
def foreign(request: pytest.FixtureRequest, descriptors: Path) -> Iterator[tuple[Peer, dict[str, str]]]:
    """A server of others' make, and where it is by HTTP's version."""
    peer = here(request.param)
    with peer.serving(descriptors) as urls:
        yield peer, urls


SERVERS = [(version, codec) for version in ("1.1", "2") for codec in ("protobuf", "json")]


def url_of(foreign: tuple[Peer, dict[str, str]], version: str) -> str:
    peer, urls = foreign
    if version not in urls:
        pytest.skip(f"{peer.name}'s server does not speak HTTP/{version}")
    return urls[version]


@pytest.mark.parametrize(("version", "codec"), SERVERS)
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_our_client_and_their_server(
    foreign: tuple[Peer, dict[str, str]], version: str, codec: Any, compression: Any
) -> None:
    options: Any = {"codec": codec, "compression": compression, "use_get": compression is not None}
    with nearcall.connect(url_of(foreign, version), Web, **options) as web:
        assert web.add(1, 2) == 3
        assert web.add(0, 0) == 0
        assert web.greet("Käse 🦀") == "Käse 🦀"
        long = "x" * 300_000
        assert web.greet(long) == long
        assert web.method() == ("GET" if options["use_get"] else "POST")
        with nearcall.metadata() as metadata, pytest.raises(nearcall.FailedPrecondition, match='not "here"') as caught:
            web.fail('not "here"')
        assert caught.value.details == [
            {"type": "type.googleapis.com/google.protobuf.StringValue", "value": b"\n\x04more"}
        ]
        assert (metadata.initial.get("x-tail") or metadata.trailing.get("x-tail")) == "of the error"
        with nearcall.metadata({"x-word": "hello", "x-bytes-bin": b"\0\xff"}) as metadata:
            web.metadata()
        assert metadata.initial["x-word-back"] == "hello"
        assert (metadata.trailing["x-word-tail"], metadata.trailing["x-bytes-tail-bin"]) == ("hello", b"\0\xff")
        assert list(web.countdown(1000)) == list(range(1000, 0, -1))
        items = web.breaks()
        assert next(items) == 1
        with pytest.raises(nearcall.Aborted, match="enough"):
            next(items)
        assert web.total(iter(range(1, 101))) == 5050
        before = web.given_up()
        with nearcall.timeout(1.0), pytest.raises(nearcall.DeadlineExceeded):
            web.hold()
        until(lambda: web.given_up() == before + 1)
        early = web.countdown(1_000_000)
        assert next(early) == 1_000_000
        early.close()
        assert web.add(3, 4) == 7
        if version == "2" or foreign[0].both_over_http1:
            assert list(web.both(iter(range(100)))) == [-x for x in range(100)]
        else:
            with pytest.raises(nearcall.RpcError, match="HTTP status 505"):
                list(web.both(iter([1])))
            assert web.add(5, 6) == 11


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


@pytest.mark.parametrize(("version", "codec"), SERVERS)
def test_our_client_in_an_event_loop_and_their_server(
    foreign: tuple[Peer, dict[str, str]], version: str, codec: Any
) -> None:
    url = url_of(foreign, version)

    async def numbers() -> AsyncIterator[int]:
        for number in range(1, 101):
            yield number

    async def main() -> None:
        async with nearcall.aio.connect(url, Web, codec=codec) as web:
            assert await asyncio.gather(*(web.add(n, n) for n in range(50))) == [2 * n for n in range(50)]
            assert [value async for value in web.countdown(1000)] == list(range(1000, 0, -1))
            assert await web.total(numbers()) == 5050
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(web.hold(), 0.1)
            assert await web.add(1, 2) == 3

    asyncio.run(main())
