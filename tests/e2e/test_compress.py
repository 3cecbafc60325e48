"""``nearcall.context().compress``: a handler says whether what it sends is compressed."""

from __future__ import annotations

import gzip
import http.client
import struct
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nearcall

from .h2_raw import DATA, RawClient, data, headers, message, request

LONG, SHORT = b"the same again, " * 1000, b"aaaa " * 20


@nearcall.service(name="Pack")
class Pack:
    """Sends messages as it is asked: ``"+"`` compressed, ``"-"`` not, ``"."`` as the server's options say."""

    def one(self, how: str, long: bool) -> bytes:
        _say(how)
        return LONG if long else SHORT

    async def one_in_loop(self, how: str, long: bool) -> bytes:
        return Pack.one(self, how, long)

    def many(self, how: str, long: bool) -> Iterator[bytes]:
        if "+" in how:
            nearcall.context().compress = True
        nearcall.context().send_metadata({"early": "1"})
        for each in how:
            _say(each)
            yield LONG if long else SHORT

    def bare(self, how: str, long: bool) -> Iterator[bytes]:
        for each in how:
            _say(each)
            yield LONG if long else SHORT

    async def bare_in_loop(self, how: str, long: bool) -> AsyncIterator[bytes]:
        for item in Pack.bare(self, how, long):
            yield item

    async def many_in_loop(self, how: str, long: bool) -> AsyncIterator[bytes]:
        for item in Pack.many(self, how, long):
            yield item


def _say(how: str) -> None:
    context = nearcall.context()
    context.compress = {"+": True, "-": False, ".": None}[how]
    assert context.compress == {"+": True, "-": False, ".": None}[how]


@pytest.fixture(scope="module", params=[None, "gzip"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[nearcall.Server, str]]:
    """A server, and what it does by itself."""
    urls = ("grpc://127.0.0.1:0", "http://127.0.0.1:0", "inproc://pack")
    with nearcall.Server(Pack(), *urls, compression=request.param) as server:
        yield server, "+" if request.param else "-"


def arguments(how: str, long: bool) -> bytes:
    return b"\x0a" + bytes([len(how)]) + how.encode() + (b"\x10\x01" if long else b"")


class Bodies(RawClient):
    """Keeps what came."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.body = b""
        super().__init__(target)

    def _take_in(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self.body += payload
        super()._take_in(kind, flags, stream, payload)


def compressed(server: nearcall.Server, method: str, how: str, *, long: bool, accepts: bytes = b"gzip") -> str:
    """Which of the messages came compressed: ``"+"`` for each that did."""
    return compressed_at(server.urls[0], method, arguments(how, long), accepts)


def compressed_at(url: str, method: str, sent: bytes, accepts: bytes) -> str:
    host, port = url.removeprefix("grpc://").rsplit(":", 1)
    with Bodies((host, int(port))) as client:
        block = request(f"/Pack/{method}".encode(), (b"grpc-accept-encoding", accepts))
        client.send(headers(block, 1), data(message(sent), 1, ends=True))
        assert client.status(1) == 0
        flags, rest = "", client.body
    while rest:
        flag, length = struct.unpack_from(">BI", rest)
        payload, rest = rest[5 : 5 + length], rest[5 + length :]
        assert (gzip.decompress(payload) if flag else payload).endswith((LONG, SHORT))
        flags += "+" if flag else "-"
    return flags


@pytest.mark.parametrize("suffix", ["", "InLoop"])
def test_a_handler_says_so_for_each_message(served: tuple[nearcall.Server, str], suffix: str) -> None:
    server, usual = served
    for how in "+-.":
        assert compressed(server, f"One{suffix}", how, long=True) == how.replace(".", usual)
    # With nothing said of it in the headers, nothing is compressed.
    for how in ("+-+.", "-+", "--", ".-."):
        assert compressed(server, f"Many{suffix}", how, long=True) == how.replace(".", usual)
        assert compressed(server, f"Bare{suffix}", how, long=True) == (
            how.replace(".", usual) if usual == "+" or how[0] == "+" else "-" * len(how)
        )


def test_short_messages_are_compressed_if_the_handler_says_so(served: tuple[nearcall.Server, str]) -> None:
    assert compressed(served[0], "Many", "+.-", long=False) == "+--"


def test_who_reads_no_compression_gets_none(served: tuple[nearcall.Server, str]) -> None:
    assert compressed(served[0], "One", "+", long=True, accepts=b"identity") == "-"
    assert compressed(served[0], "Many", "+-", long=True, accepts=b"identity") == "--"


def test_over_http(served: tuple[nearcall.Server, str]) -> None:
    host, port = served[0].urls[1].removeprefix("http://").rsplit(":", 1)
    for how, expected in (("+", "+"), ("-", "-"), (".", served[1])):
        client = http.client.HTTPConnection(host, int(port), timeout=20)
        fields = {"content-type": "application/proto", "accept-encoding": "gzip"}
        client.request("POST", "/Pack/One", arguments(how, True), fields)
        response = client.getresponse()
        body, encoding = response.read(), response.headers["content-encoding"]
        assert encoding == ("gzip" if expected == "+" else None)
        assert (gzip.decompress(body) if encoding else body).endswith(LONG)
        client.close()


def test_our_clients_read_what_comes(served: tuple[nearcall.Server, str]) -> None:
    for url in served[0].urls:
        with nearcall.connect(url, Pack) as pack:
            assert [pack.one(how, True) for how in "+-."] == [LONG] * 3
            assert list(pack.many("+-.+", False)) == [SHORT] * 4


def test_another_word_is_refused() -> None:
    with nearcall.Server(Wrong(), "inproc://wrong") as server, nearcall.connect(server.urls[0], Wrong) as wrong:
        assert "True, False or None" in wrong.say()


@nearcall.service
class Wrong:
    def say(self) -> str:
        try:
            nearcall.context().compress = "gzip"  # type: ignore[assignment]
        except TypeError as error:
            return str(error)
        return ""


def test_servicers_of_grpcio_say_so() -> None:
    grpc = pytest.importorskip("grpc")
    import nearcall.grpcio

    def many(how: bytes, context: Any) -> Iterator[bytes]:
        if b"+" in how:
            context.set_compression(grpc.Compression.Gzip)
        for each in how.decode():
            if each == "-":
                context.disable_next_message_compression()
            yield LONG

    def one(how: bytes, context: Any) -> bytes:
        context.set_compression(grpc.Compression.Gzip if how == b"+" else grpc.Compression.NoCompression)
        return LONG

    handlers = {"Many": grpc.unary_stream_rpc_method_handler(many), "One": grpc.unary_unary_rpc_method_handler(one)}
    server = nearcall.grpcio.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Pack", handlers),))
    target = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        for how in ("+-+", "-+", "--"):
            expected = how if "+" in how else "--"
            assert compressed_at(target, "Many", how.encode(), b"gzip") == expected
        assert [compressed_at(target, "One", how, b"gzip") for how in (b"+", b"-")] == ["+", "-"]
    finally:
        server.stop(None).wait()
