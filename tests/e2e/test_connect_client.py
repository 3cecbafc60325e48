"""A typed service over Connect from end to end, and servers that do not keep to it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .http1_only import Http1Only
from .process import ServerProcess
from .test_grpc import RETRY, Full, Shop, Watched

CODECS = ("protobuf", "json")
PATIENCE = 20.0


@pytest.fixture(scope="module")
def server(runtime_dir: Any) -> Iterator[ServerProcess]:
    urls = ("http://127.0.0.1:0", f"http+unix://{runtime_dir}/shop.http", "https://127.0.0.1:0")
    with ServerProcess(*urls, services="tests.e2e.test_grpc:shop", compression="zstd") as server:
        yield server


@pytest.fixture(scope="module")
def old(server: ServerProcess) -> Iterator[str]:
    with Http1Only(server.url, words=False) as relay:
        yield relay.url


@pytest.fixture(params=["http", "http+unix", "https", "http1"])
def url(request: pytest.FixtureRequest, server: ServerProcess, certificates: Any) -> str:
    if request.param == "http1":
        return str(request.getfixturevalue("old"))
    return server.urls[["http", "http+unix", "https"].index(request.param)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_service_over_connect(url: str, codec: Any) -> None:
    with nearcall.connect(url, Shop, codec=codec, compression="zstd") as shop:
        assert shop.price("pen", 2) == 5.0
        assert shop.price("pen", count=4) == 10.0
        assert list(shop.countdown(1000)) == list(range(1000, 0, -1))
        assert shop.total(iter(range(1000))) == sum(range(1000))
        assert list(shop.scale(iter([1.0, 2.0]), 3.0)) == [3.0, 6.0]
        frames = [bytes([at]) * (300_000 * at) for at in range(8)]  # above the windows, in one message
        assert shop.film(frames, "the end") == ("the end", frames[::-1])
        shop.note("one way is answered, too")
        with pytest.raises(nearcall.NotFound, match="no nothing") as caught:
            shop.price("nothing")
        assert caught.value.details == {"asked": "nothing"}
        with pytest.raises(nearcall.ResourceExhausted, match="come back") as limited:
            shop.price("later")
        assert limited.value.details == [RETRY]
        with pytest.raises(Full) as full:
            shop.price("much")
        assert full.value.args == ("no room", 7)


@pytest.mark.parametrize("codec", CODECS)
def test_a_service_over_connect_in_an_event_loop(url: str, codec: Any) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(1000):
            yield number

    async def main() -> None:
        async with nearcall.aio.connect(url, Shop, codec=codec) as shop:
            assert await shop.price_in_loop("pen") == 2.5
            assert [number async for number in shop.countdown(100)] == list(range(100, 0, -1))
            assert await shop.total(numbers()) == sum(range(1000))
            prices = await asyncio.gather(*(shop.price("pen", count) for count in range(1, 100)))
            assert prices == [2.5 * count for count in range(1, 100)]
            with pytest.raises(nearcall.NotFound):
                await shop.price("nothing")

    asyncio.run(main())


def test_what_connect_cannot_say_is_refused_in_words(server: ServerProcess) -> None:
    with pytest.raises(nearcall.FailedPrecondition) as caught:
        nearcall.connect(server.url)
    assert (
        caught.value.message == f"{server.url}: Connect's servers do not describe themselves: give the service's class"
    )
    with pytest.raises(TypeError, match="is a reference"):
        nearcall.connect(server.url, Watched)


def test_options_of_connect_are_for_its_urls(server: ServerProcess) -> None:
    bad: Any
    for bad, error, words in (
        ({"codec": "xml"}, nearcall.InvalidArgument, 'codec must be "protobuf" or "json", not'),
        ({"use_get": 1}, TypeError, "use_get must be True or False"),
    ):
        with pytest.raises(error, match=words):
            nearcall.connect(server.url, Shop, **bad)
    for bad, words in (({"codec": "json"}, "codec is for http"), ({"use_get": True}, "use_get is for http")):
        with pytest.raises(ValueError, match=words):
            nearcall.connect("grpc://127.0.0.1:1", Shop, **bad)


@pytest.mark.parametrize("command", [["list"], ["call"], ["top", "--once"]], ids=lambda command: command[0])
def test_commands_that_need_a_description_say_so(command: list[str]) -> None:
    name, *flags = command
    arguments = [name, "http://127.0.0.1:1", *(["price"] if name == "call" else []), *flags]
    done = subprocess.run([sys.executable, "-m", "nearcall", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "nearcall: http://127.0.0.1:1: a server does not describe itself over Connect: "
        "write grpc://127.0.0.1:1 if it has reflection\n"
    )


def test_a_server_that_has_gone_to_http1_is_called_on(server: ServerProcess) -> None:
    with Http1Only(server.url) as relay:
        with nearcall.connect(relay.url, Shop) as shop:
            for _ in range(3):
                assert shop.price("pen") == 2.5
        assert relay.refused == 1, "what it speaks is asked once for each connection"


class Strange:
    """A server of HTTP/1.1 that answers each request with the same bytes.

    As others do, it takes a connection in while an earlier one is still open: a client that has given an answer up may
    connect anew before it closes the old one.
    """

    def __init__(self) -> None:
        self.answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            first = connection.recv(1 << 16)
            if first.startswith(b"PRI"):
                connection.sendall(b"HTTP/1.1 505 No\r\ncontent-length: 0\r\n\r\n")
            elif first:
                # With its end in the same packet: a client that has read the answer must find that this connection is
                # over, and not send its next request here. MSG_MORE would not do: the last packet of a long answer goes
                # out by itself when the client acknowledges the one before it.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                connection.sendall(self.answer)
                connection.shutdown(socket.SHUT_WR)
                # What it sends is lost if it closes with something unread.
                while connection.recv(1 << 16):
                    pass

    def __enter__(self) -> Strange:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


@pytest.fixture(scope="module")
def strange() -> Iterator[Strange]:
    with Strange() as strange:
        yield strange


def response(body: bytes, kind: str = "application/json", status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def envelope(flag: int, body: bytes, length: int | None = None) -> bytes:
    return bytes([flag]) + struct.pack(">I", len(body) if length is None else length) + body


def stream(*parts: bytes, headers: tuple[str, ...] = ()) -> bytes:
    return response(b"".join(parts), "application/connect+json", 200, *headers)


VALUE = b'{"value": 2.5}'
ITEM = envelope(0, b'{"value": "7"}')
END = envelope(2, b"{}")
UNARY: dict[str, tuple[bytes, type[nearcall.RpcError], str]] = {
    "another type": (response(VALUE, "text/html"), nearcall.Unknown, "answers with the type 'text/html'|text/html"),
    "another codec": (response(VALUE, "application/proto"), nearcall.Internal, "application/json is expected"),
    "no type": (b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n", nearcall.Unknown, "is expected"),
    "no length": (b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\n\r\n" + VALUE, nearcall.Internal, "how long"),
    "two lengths": (response(VALUE, "application/json", 200, "content-length: 3"), nearcall.Internal, "Content-Length"),
    "cut off": (response(VALUE)[:-1], nearcall.Unavailable, "lost"),
    "no JSON": (response(b"{"), nearcall.Internal, "Shop.price"),
    "an encoding nobody has": (
        response(VALUE, "application/json", 200, "content-encoding: br"),
        nearcall.Internal,
        "otherwise than this side has offered",
    ),
    "compressed nonsense": (
        response(VALUE, "application/json", 200, "content-encoding: gzip"),
        nearcall.Internal,
        "not what gzip makes",
    ),
    "a bomb": (
        response(gzip.compress(bytes(5 << 20)), "application/json", 200, "content-encoding: gzip"),
        nearcall.ResourceExhausted,
        "when it is decompressed",
    ),
    "much": (response(b" " * (2 << 20)), nearcall.ResourceExhausted, "limit"),
    "a failure in words": (response(b"come back\n", "text/plain", 503), nearcall.Unavailable, "503: come back"),
    "a failure of a code nobody knows": (
        response(b'{"code":"other","message":"come back"}', status=503),
        nearcall.Unavailable,
        "^come back",
    ),
    "a failure without a code": (
        response(b'{"code":null,"message":"come back"}', status=503),
        nearcall.Unavailable,
        "^come back",
    ),
    "a failure without words": (response(b"", "text/plain", 401), nearcall.Unauthenticated, "HTTP status 401"),
    "a failure that is called ok": (response(b'{"code":"ok"}', status=404), nearcall.Unimplemented, "404"),
    "a failure that is not one": (response(b'{"code":[1]}', status=429), nearcall.Unavailable, "429"),
    "a failure that is deep": (response(b'{"details":' + b"[" * 100_000, status=500), nearcall.Unknown, "500"),
    "a failure of much text": (
        response(json.dumps({"code": "aborted", "message": "x" * (1 << 20)}).encode(), status=409),
        nearcall.ResourceExhausted,
        "limit",
    ),
    "another way": (b"HTTP/1.1 302 X\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", nearcall.Unknown, "302"),
    "another protocol": (b"HTTP/1.1 101 X\r\nupgrade: x\r\n\r\n", nearcall.Internal, "another protocol"),
    "two responses": (response(b"{", "text/html") + response(VALUE), nearcall.RpcError, "type"),
    "metadata that is none": (response(VALUE, "application/json", 200, "x-bin: *"), nearcall.Internal, "malformed"),
    "much metadata": (
        response(VALUE, "application/json", 200, "x: " + "y" * 70_000),
        nearcall.ResourceExhausted,
        "more metadata",
    ),
}
STREAMS: dict[str, tuple[bytes, type[nearcall.RpcError], str]] = {
    "no end": (stream(ITEM), nearcall.Internal, "without what ends a stream"),
    "nothing": (stream(), nearcall.Internal, "without what ends a stream"),
    "more behind the end": (stream(ITEM, END, ITEM), nearcall.Internal, "goes on after its end"),
    "two ends": (stream(END, END), nearcall.Internal, "goes on after its end"),
    "a flag nobody has": (stream(envelope(4, b"")), nearcall.Internal, "flag"),
    "less than announced": (stream(ITEM, envelope(0, b"x", 5)), nearcall.Internal, "inside of a message"),
    "more than is taken": (stream(envelope(0, b"", 1 << 31)), nearcall.ResourceExhausted, "limit"),
    "compressed without a word": (stream(envelope(1, b"x")), nearcall.Internal, "no header says how"),
    "a compressed end that is none": (
        stream(envelope(3, b"x"), headers=("connect-content-encoding: gzip",)),
        nearcall.Internal,
        "gzip",
    ),
    "an end that is no JSON": (stream(envelope(2, b"x")), nearcall.Internal, "not JSON"),
    "an end that is a list": (stream(envelope(2, b"[]")), nearcall.Internal, "not JSON"),
    "an end that is long": (stream(envelope(2, b" " * ((1 << 20) - 5))), nearcall.Internal, "not JSON"),
    "an end with strange metadata": (
        stream(envelope(2, b'{"metadata":{"x-bin":["*"]}}')),
        nearcall.Internal,
        "malformed",
    ),
    "an end that names no code": (stream(envelope(2, b'{"error":{"message":"m"}}')), nearcall.Unknown, "m"),
    "a unary answer": (response(VALUE), nearcall.Internal, r"connect\+json is expected"),
    "a unary failure": (response(b'{"code":"not_found","message":"m"}', status=404), nearcall.NotFound, "m"),
}


@pytest.mark.parametrize("name", UNARY)
def test_answers_that_are_none(strange: Strange, name: str) -> None:
    strange.answer, error, words = UNARY[name]
    with nearcall.connect(strange.url, Shop, codec="json", timeout=PATIENCE, max_message_size=1 << 20) as shop:
        with pytest.raises(error, match=words):
            shop.price("pen")
        strange.answer = response(VALUE)
        assert shop.price("pen") == 2.5


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_are_none(strange: Strange, name: str) -> None:
    strange.answer, error, words = STREAMS[name]
    with nearcall.connect(strange.url, Shop, codec="json", timeout=PATIENCE, max_message_size=1 << 20) as shop:
        with pytest.raises(error, match=words):
            list(shop.countdown(3))
        strange.answer = stream(ITEM, END)
        assert list(shop.countdown(1)) == [7]
        strange.answer = stream(END)
        with pytest.raises(nearcall.Unimplemented, match="no message, and no failure"):
            shop.total(iter([1]))
        strange.answer = stream(ITEM, ITEM, END)
        with pytest.raises(nearcall.Unimplemented, match="more than one message"):
            shop.total(iter([1]))
