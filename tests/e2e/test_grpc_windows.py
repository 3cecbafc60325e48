"""Windows of HTTP/2 as others grant them: little at a time, much at once, or for some streams and not for others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nearcall
from nearcall.introspection import Introspection

from .h2_raw import DATA, PREFACE, RawClient, data, headers, message, request, settings, window
from .process import ServerProcess
from .test_introspection import until

BLOCK = 64 << 10
MUCH = 1 << 30
LITTLE = {"max_memory": 4 << 20, "max_message_size": 1 << 20}


@pytest.fixture(params=[{}, LITTLE], ids=["much memory", "little memory"])
def client(request: pytest.FixtureRequest) -> Iterator[RawClient]:
    """Its streams have windows of 64 KiB, and the connection one that is never the bound."""
    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw", **request.param) as server:
        host, _, port = server.url.removeprefix("grpc://").rpartition(":")
        with RawClient((host, int(port))) as client:
            client.send(window(MUCH))
            yield client


def blocks(client: RawClient, stream: int, count: int) -> None:
    client.send(headers(request(b"/test.Raw/blocks"), stream), data(message(str(count).encode()), stream, ends=True))


def wait_for(client: RawClient, stream: int, length: int) -> None:
    """Until so many bytes of a stream have come; nothing is granted meanwhile."""
    while client.bytes_of.get(stream, 0) < length:
        assert client.receive(), f"{client.bytes_of.get(stream, 0)} of {length} bytes have come"


def read(client: RawClient, stream: int, length: int) -> None:
    """Reads so much of a stream, and grants what it has read."""
    granted = 0
    while client.bytes_of.get(stream, 0) < length:
        assert client.receive(), f"{client.bytes_of.get(stream, 0)} of {length} bytes have come"
        if more := client.bytes_of.get(stream, 0) - granted:
            granted += more
            client.send(window(more, stream))


def test_streams_that_are_read_and_calls_go_on_beside_streams_that_are_not(client: RawClient) -> None:
    unread, first, second, echoes = range(1, 33, 2), 33, 35, range(37, 237, 2)
    for stream in unread:
        blocks(client, stream, 100)
    for stream in unread:
        wait_for(client, stream, 65_535)
    # More of these than the memory is large.
    for stream in (first, second):
        blocks(client, stream, 200)
        read(client, stream, 200 * BLOCK)
        assert client.status(stream) == 0
    for stream in echoes:
        assert client.call("/test.Raw/echo", b"x" * 10_000, stream) == 0
    # A long message comes in although much waits to go out.
    client.send(headers(request(b"/test.Raw/length"), 237))
    whole = message(bytes(700_000))
    assert client.push(whole, 237, 20.0, ends=True) == len(whole)
    assert client.status(237) == 0
    # None of them has lost anything.
    for stream in reversed(unread):
        client.send(window(100 * BLOCK, stream))
        wait_for(client, stream, 100 * BLOCK)
        assert client.status(stream) == 0


def test_streams_are_read_one_after_the_other_by_small_grants(client: RawClient) -> None:
    streams = range(1, 17, 2)
    for stream in streams:
        blocks(client, stream, 40)
        wait_for(client, stream, 65_535)
    for stream in streams:
        while stream not in client.statuses:
            client.send(window(5_000, stream))
            assert client.receive(), f"{client.bytes_of.get(stream, 0)} bytes have come"
            client.drain()


def test_a_large_grant_is_used_whole(client: RawClient) -> None:
    """Whoever grants much at once says nothing more until most of it has come."""
    for stream in range(1, 81, 2):
        blocks(client, stream, 100)
        wait_for(client, stream, 65_535)
        client.send(window(5 << 20, stream))
        wait_for(client, stream, 65_535 + (5 << 20))
        client.send(window(2 << 20, stream))
        assert client.status(stream) == 0


def long_items(client: RawClient, stream: int, length: int) -> None:
    asked = message(str(length).encode())
    client.send(headers(request(b"/test.Raw/long_in_loop"), stream), data(asked, stream, ends=True))


def test_a_stream_goes_on_when_other_connections_free_the_memory(runtime_dir: Path) -> None:
    """Its client has nothing to say meanwhile: nothing of that stream has come that it could acknowledge."""
    urls = ("grpc://127.0.0.1:0", f"unix://{runtime_dir}/windows.unix")
    with (
        # A connection may have all of the memory: two longest messages, and a megabyte beside each.
        ServerProcess(*urls, services="tests.e2e.grpc_services:raw", **LITTLE) as server,
        contextlib.ExitStack() as stack,
    ):
        host, _, port = server.url.removeprefix("grpc://").rpartition(":")
        watcher = stack.enter_context(nearcall.connect(server.urls[1], Introspection))
        others = stack.enter_context(contextlib.ExitStack())
        for _ in range(2):
            other = others.enter_context(RawClient((host, int(port))))
            blocks(other, 1, 100)
            blocks(other, 3, 100)
        client = stack.enter_context(RawClient((host, int(port))))
        client.send(window(MUCH))
        blocks(client, 1, 100)
        until(lambda: watcher.read().memory > LITTLE["max_memory"])
        # The first begins as little is kept for this client, and of the others' rests one may wait beyond that.
        for stream in (3, 5, 7):
            long_items(client, stream, 1_300_000)
        for stream in (3, 5):
            wait_for(client, stream, 65_535)
        assert client.call("/test.Raw/echo_in_loop", b"", 9) == 0
        assert client.bytes_of.get(7, 0) == 0
        others.close()
        wait_for(client, 7, 65_535)


@nearcall.service
class Sink:
    def gather(self, parts: Iterator[bytes]) -> int: ...


def grants_much_at_once(listener: socket.socket) -> int:
    """A server that grants as much twice and says nothing else. How many bytes of the client's stream have come."""
    connection, _ = listener.accept()
    connection.settimeout(20.0)
    with connection, connection.makefile("rb") as incoming:
        connection.sendall(settings() + window(MUCH))
        assert incoming.read(len(PREFACE)) == PREFACE
        came, most = 0, 65_535
        while head := incoming.read(9):
            payload = incoming.read(int.from_bytes(head[:3], "big"))
            if head[3] == DATA:
                came += len(payload)
                if came == most and most < 10 << 20:
                    most += 5 << 20
                    connection.sendall(window(5 << 20, int.from_bytes(head[5:], "big")))
                elif came == most:
                    break
        return came


def test_a_client_uses_a_large_grant_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        came = pool.submit(grants_much_at_once, listener)
        with nearcall.connect(f"grpc://127.0.0.1:{listener.getsockname()[1]}", Sink) as client:
            parts = (bytes(BLOCK) for _ in range(1000))
            with pytest.raises(nearcall.Unavailable):
                client.gather(parts)
        assert came.result() == 65_535 + 2 * (5 << 20)
