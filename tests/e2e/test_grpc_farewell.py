"""How a server ends its gRPC connections: what has begun is finished, and so is what comes before the client knows."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import nearcall

from ..hostile import raw
from .h2_raw import ACK, GOAWAY, PING, SETTINGS, Gone, RawClient, data, frame, headers, message, request

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
EVERY = 2**31 - 1
REFUSED_STREAM = 7


@nearcall.service
class Shop:
    def __init__(self) -> None:
        self.held, self.gate = threading.Event(), threading.Event()

    def hold(self) -> int:
        self.held.set()
        self.gate.wait(PATIENCE)
        return 1

    def price(self) -> int:
        return 2


def ask(client: RawClient, method: str, stream: int) -> None:
    client.send(headers(request(f"/Shop/{method}".encode()), stream), data(message(b""), stream, ends=True))


@pytest.fixture
def stopping() -> Iterator[tuple[Shop, RawClient, Future[bool]]]:
    """A server that has begun to stop while a call is under way, and a client who knows of it and has not said so."""
    shop = Shop()
    server = nearcall.Server(shop, "grpc://127.0.0.1:0").start()
    host, port = server.urls[0].removeprefix("grpc://").rsplit(":", 1)
    with RawClient((host, int(port))) as client, ThreadPoolExecutor(1) as pool:
        ask(client, "Hold", 1)
        assert shop.held.wait(PATIENCE)
        stopped = pool.submit(server.stop, PATIENCE)
        while client.last is None or not client.pings:
            assert client.receive()
        yield shop, client, stopped
        shop.gate.set()


def test_a_client_that_says_hello_meanwhile_is_told_to_go_elsewhere() -> None:
    for _ in range(5):  # on a busy machine this side may take longer than the server waits
        server = nearcall.Server(Shop(), "grpc://127.0.0.1:0").start()
        connection = raw.dial(server.urls[0])
        nearcall.connect(server.urls[0], Shop).close()  # so the one before is accepted
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(server.stop, PATIENCE)
            with contextlib.suppress(nearcall.Unavailable):
                while True:
                    nearcall.connect(server.urls[0], Shop).close()
            try:
                client = RawClient(connection)
                while client.last is None:
                    client.receive()
            except (Gone, ConnectionError):
                continue
            connection.close()
            assert stopped.result()
            return
    pytest.fail("the server never waited for a client's first bytes")


def test_a_server_that_leaves_at_once_is_dialled_again() -> None:
    """As another does that has just been told to end: the next connection goes to its successor."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    servers = list[nearcall.Server]()

    def leave() -> None:
        connection, _ = listener.accept()
        listener.close()
        servers.append(nearcall.Server(Shop(), f"grpc://127.0.0.1:{port}").start())
        connection.sendall(frame(SETTINGS) + frame(GOAWAY, bytes(8)))
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(leave)
        try:
            with nearcall.connect(f"grpc://127.0.0.1:{port}", Shop) as shop:
                assert shop.price() == 2
            left.result()
        finally:
            for server in servers:
                server.stop()


def test_calls_that_come_before_the_client_knows_are_served(stopping: tuple[Shop, RawClient, Future[bool]]) -> None:
    shop, client, stopped = stopping
    assert client.last == EVERY
    ask(client, "Price", 3)
    assert client.status(3) == 0
    client.send(frame(PING, client.pings[0], flags=ACK))
    while client.last == EVERY:
        assert client.receive()
    assert client.last == 3
    ask(client, "Price", 5)
    assert client.status(5) == -1
    assert client.resets[5] == REFUSED_STREAM, "so that it may be sent elsewhere"
    assert not stopped.done()
    shop.gate.set()
    assert client.status(1) == 0
    assert stopped.result(PATIENCE) is True


def test_a_client_that_says_nothing_is_not_waited_for_long(stopping: tuple[Shop, RawClient, Future[bool]]) -> None:
    shop, client, stopped = stopping
    shop.gate.set()
    assert client.status(1) == 0
    assert stopped.result(PATIENCE) is True
    while client.last == EVERY:
        assert client.receive()
    assert client.last == 1, "the client knows what was not begun"


def test_a_client_that_says_nothing_is_told_what_was_begun_while_that_goes_on(
    stopping: tuple[Shop, RawClient, Future[bool]],
) -> None:
    _, client, stopped = stopping
    while client.last == EVERY:
        assert client.receive(PATIENCE)
    assert client.last == 1
    assert not stopped.done()


def test_a_client_that_goes_on_calling_does_not_hold_up_the_end(
    stopping: tuple[Shop, RawClient, Future[bool]],
) -> None:
    _, client, _ = stopping
    stream = 3
    while client.last == EVERY:
        ask(client, "Price", stream)
        client.status(stream)
        stream += 2
    assert client.resets.get(stream - 2, REFUSED_STREAM) == REFUSED_STREAM
