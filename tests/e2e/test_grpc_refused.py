"""Calls that a gRPC server refuses without having begun with them are sent again, as gRPC's own clients do.

grpcio's server does it by chance: it may count a call whose end has been read already.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

import nearcall
import nearcall.aio

from .h2_raw import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    data,
    field,
    frame,
    message,
    reset,
    settings,
)

REFUSED_STREAM = 7
MAX_CONCURRENT_STREAMS = 3


@nearcall.service
class Echo:
    def echo(self, value: int) -> int: ...

    def count(self, n: int) -> Iterator[int]: ...


class Refusing:
    """A server that refuses the first calls, as many as it is told, and answers the others with what they sent."""

    def __init__(self, refusals: int) -> None:
        self.seen = 0
        self._left = refusals
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as incoming:
            connection.sendall(settings())
            assert incoming.read(len(PREFACE)) == PREFACE
            refused: set[int] = set()
            while head := incoming.read(9):
                payload = incoming.read(int.from_bytes(head[:3], "big"))
                kind, stream = head[3], int.from_bytes(head[5:], "big")
                if kind == HEADERS:
                    self.seen += 1
                    if self._left:
                        self._left -= 1
                        refused.add(stream)
                        connection.sendall(reset(stream, REFUSED_STREAM))
                elif kind == DATA and stream not in refused:
                    connection.sendall(self._answer(stream, payload[5:]))

    def _answer(self, stream: int, body: bytes) -> bytes:
        ok = b"\x88" + field(b"content-type", b"application/grpc")
        end = field(b"grpc-status", b"0")
        return (
            frame(HEADERS, ok, flags=END_HEADERS, stream=stream)
            + data(message(body), stream)
            + frame(HEADERS, end, flags=END_HEADERS | END_STREAM, stream=stream)
        )

    def __enter__(self) -> Refusing:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join(20)
        self._listener.close()


def by_thread(url: str) -> int:
    with nearcall.connect(url, Echo) as client:
        return client.echo(7)


def by_loop(url: str) -> int:
    async def main() -> int:
        async with nearcall.aio.connect(url, Echo) as client:
            result: int = await client.echo(7)
            return result

    return asyncio.run(main())


callers = pytest.mark.parametrize("call", [by_thread, by_loop])


@callers
def test_a_refused_call_is_sent_again(call: Callable[[str], int]) -> None:
    with Refusing(1) as server:
        assert call(server.url) == 7
    assert server.seen == 2


@callers
def test_a_server_that_always_refuses_is_not_asked_for_ever(call: Callable[[str], int]) -> None:
    with Refusing(1000) as server, pytest.raises(nearcall.Unavailable):
        call(server.url)
    assert 1 < server.seen < 10


def test_a_refused_stream_fails() -> None:
    """Its items may have been taken from an iterator that cannot give them twice."""
    refused = pytest.raises(nearcall.Unavailable, match="may be sent again")
    with Refusing(1) as server, nearcall.connect(server.url, Echo) as client, refused:
        list(client.count(3))
    assert server.seen == 1


def test_a_server_that_takes_no_calls_is_said_to_take_none() -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as incoming:
            connection.sendall(frame(SETTINGS, struct.pack(">HI", MAX_CONCURRENT_STREAMS, 0)))
            incoming.read()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"grpc://127.0.0.1:{listener.getsockname()[1]}"
        with (
            nearcall.connect(url, Echo, timeout=0.05) as client,
            pytest.raises(
                nearcall.DeadlineExceeded, match=r"takes no calls at present \(its max_concurrent_streams is 0"
            ),
        ):
            client.echo(1)
        thread.join(20)
