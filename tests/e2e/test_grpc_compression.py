"""Compressed messages in both directions, with grpcio and with ourselves at the other end.

How many bytes travelled says whether they were.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall.options.common import Compression

from .grpc_services import Raw
from .h2_raw import RawClient, data, headers, message, request
from .process import ServerProcess, start_program
from .test_grpc_client import PEER, AsyncClient, Client
from .test_grpc_server import Client as Peer
from .test_grpc_server import target

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
LONG = b"the same again, " * 10_000
SHORT = b"x" * 1000
NOISE = os.urandom(100_000)
ENCODINGS: list[Compression] = ["gzip", "zstd"]


class Wire:
    """Passes on what a client and a server say to each other, and counts it."""

    def __init__(self, to: str) -> None:
        self.sent = self.received = 0
        self._to = to.rsplit(":", 1)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((self._to[0], int(self._to[1])))
            self._open += [client, server]
            for source, drain, name in ((client, server, "sent"), (server, client, "received")):
                threading.Thread(target=self._carry, args=(source, drain, name), daemon=True).start()

    def _carry(self, source: socket.socket, drain: socket.socket, name: str) -> None:
        try:
            while part := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(part))
                drain.sendall(part)
        except OSError:
            pass

    def during(self, call: Callable[[], object]) -> tuple[int, int]:
        """How many bytes a call sent and received, when nothing else is said."""
        before = self.sent, self.received
        call()
        return self.sent - before[0], self.received - before[1]

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.fixture
def through() -> Iterator[Callable[[str], Wire]]:
    wires: list[Wire] = []

    def made(to: str) -> Wire:
        wires.append(Wire(to))
        return wires[-1]

    yield made
    for wire in wires:
        wire.close()


@pytest.fixture(scope="module", params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> Compression:
    chosen: Compression = request.param
    return chosen


@pytest.fixture(scope="module")
def compressing(encoding: Compression) -> Iterator[ServerProcess]:
    options: Any = {"compression": encoding, "max_message_size": 1 << 20}
    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw", **options) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[ServerProcess]:
    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        yield server


def test_our_client_compresses_what_it_sends(
    plain: ServerProcess, through: Callable[[str], Wire], encoding: Compression
) -> None:
    wire = through(target(plain.url))
    client = Client(f"grpc://{wire.target}", compression=encoding)
    assert client.length(b"") == b"0"
    sent, _ = wire.during(lambda: client.length(LONG))
    assert sent < len(LONG) / 20
    assert len(SHORT) < wire.during(lambda: client.length(SHORT))[0], "short ones are not worth it"
    sent, _ = wire.during(lambda: client.length(NOISE))
    assert len(NOISE) < sent < len(NOISE) + 1000, "what becomes longer goes as it is"
    sent, _ = wire.during(lambda: client.total(iter([LONG, SHORT, b"", NOISE, LONG] * 5)))
    assert 5 * len(NOISE) < sent < 5 * len(NOISE) + len(LONG)
    expected = str(5 * (2 * len(LONG) + len(SHORT) + len(NOISE))).encode()
    assert client.total(iter([LONG, SHORT, b"", NOISE, LONG] * 5)) == expected
    _, received = wire.during(lambda: client.echo(LONG))
    assert received > len(LONG), "the server was not asked to"
    client.connection.close()


def test_our_client_and_our_server_compress(compressing: ServerProcess, encoding: Compression) -> None:
    client = Client(compressing.url, compression=encoding)
    for body in (b"", SHORT, LONG, NOISE):
        assert client.echo(body) == body
    blocks = [LONG, b"", SHORT, NOISE] * 5
    assert list(client.both(iter(blocks))) == [block[::-1] for block in blocks]
    client.connection.close()


def test_an_event_loop_compresses(plain: ServerProcess) -> None:
    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield LONG

    async def main() -> None:
        async with nearcall.aio.Channel(plain.url, compression="gzip") as channel:
            client = AsyncClient(channel)
            assert await client.echo(LONG) == LONG
            assert await client.total(blocks()) == str(10 * len(LONG)).encode()

    asyncio.run(main())


def test_grpcio_reads_what_our_server_compresses(
    compressing: ServerProcess, through: Callable[[str], Wire], encoding: Compression
) -> None:
    wire = through(target(compressing.url))
    client = Peer(wire.target)
    assert client.unary("echo")(b"") == b""
    _, received = wire.during(lambda: client.unary("many")(b"500000", timeout=PATIENCE))
    if encoding == "gzip":
        assert received < 50_000
    else:
        assert received > 500_000, "grpcio does not read zstd"
    assert client.unary("many")(b"500000") == bytes(500_000)
    assert client.unary("echo")(SHORT) == SHORT
    assert client.unary("echo_in_loop")(LONG) == LONG
    assert client.unary("echo")(NOISE) == NOISE
    blocks = list(client.streamed("blocks")(b"20", timeout=PATIENCE))
    assert blocks == [bytes([number]) * (64 << 10) for number in range(20)]
    reply, call = client.unary("metadata").with_call(b"", metadata=(("x-word", "hello"),))
    assert (reply, call.initial_metadata()[0]) == (repr([("x-word", "hello")]).encode(), ("x-word", "hello"))
    client.channel.close()


def test_our_server_reads_what_grpcio_compresses(compressing: ServerProcess) -> None:
    client = Peer(target(compressing.url), **{"grpc.default_compression_algorithm": 2})
    for body in (b"", SHORT, LONG, NOISE):
        assert client.unary("echo")(body, timeout=PATIENCE) == body
    assert list(client.both("both")(iter([LONG] * 10), timeout=PATIENCE)) == [LONG[::-1]] * 10
    client.channel.close()


def test_grpcio_reads_what_our_client_compresses(through: Callable[[str], Wire]) -> None:
    with start_program(PEER) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        wire = through(f"127.0.0.1:{process.stdout.readline().strip()}")
        client = Client(f"grpc://{wire.target}", compression="gzip")
        for body in (b"", SHORT, LONG, NOISE):
            assert client.echo(body) == body
        assert wire.during(lambda: client.total(iter([LONG] * 10)))[0] < len(LONG)
        client.connection.close()
        # It does not know zstd, and says so in its own way.
        other = Client(f"grpc://{wire.target}", compression="zstd")
        with pytest.raises((nearcall.Internal, nearcall.Unimplemented)):
            other.echo(LONG)
        other.connection.close()
        process.stdin.close()
        process.wait(10)


def test_a_client_that_does_not_read_it_gets_plain_messages(compressing: ServerProcess) -> None:
    host, port = target(compressing.url).rsplit(":", 1)
    for accepts in (None, b"identity", b"deflate,br", b"gzipped", b"\xff"):
        with RawClient((host, int(port)), window=1 << 20) as client:
            more = [(b"grpc-accept-encoding", accepts)] if accepts is not None else []
            client.send(headers(request(b"/test.Raw/many", *more), 1), data(message(b"50000"), 1, ends=True))
            assert client.status(1) == 0
            assert client.bytes_of[1] == 50_005


def test_the_option_is_checked() -> None:
    makers: list[Any] = [functools.partial(nearcall.Server, Raw()), nearcall.Channel]
    for make in makers:
        with pytest.raises(nearcall.InvalidArgument, match='compression must be None, "gzip" or "zstd", not \'br\''):
            make("grpc://127.0.0.1:1", compression="br")
        with pytest.raises(ValueError, match="compression is for grpc:// and http:// URLs, and there is none"):
            make("tcp://127.0.0.1:1", compression="gzip")
