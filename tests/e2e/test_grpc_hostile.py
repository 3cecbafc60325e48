"""gRPC clients that are hostile or unlucky: the server keeps its limits, and serves the others."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from .h2_raw import RawClient, headers, message, request
from .process import ServerProcess

MIB = 1 << 20
MEMORY = 130 * MIB
LONG = 60 * MIB
RESOURCE_EXHAUSTED = 8


@pytest.fixture(scope="module")
def server(runtime_dir: Path) -> Iterator[ServerProcess]:
    urls = (f"grpc+unix://{runtime_dir}/hostile.grpc", f"unix://{runtime_dir}/hostile.unix")
    with ServerProcess(*urls, services="tests.e2e.grpc_services:raw", max_memory=MEMORY) as server:
        yield server


@pytest.fixture
def place(server: ServerProcess) -> str:
    return server.url.removeprefix("grpc+unix://")


def peak(server: ServerProcess) -> int:
    """The most memory that it has had since that was forgotten, bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def half_a_message(client: RawClient, path: bytes, stream: int) -> int:
    """Or as much of it as the server takes: how many bytes."""
    client.send(headers(request(path), stream))
    return client.push(message(bytes(LONG // 2), length=LONG), stream, 1.0)


@pytest.mark.parametrize("path", [b"/test.Raw/length", b"/test.Raw/total"])
def test_halves_of_messages_do_not_keep_each_other_from_ending(place: str, path: bytes) -> None:
    """A server whose memory is full of parts of messages can end none of them, unless it says no to some."""
    with RawClient(place) as client:
        streams = range(1, 11, 2)
        sent = {stream: half_a_message(client, path, stream) for stream in streams}
        refused = [stream for stream in streams if client.statuses.get(stream) == RESOURCE_EXHAUSTED]
        assert refused
        left = [stream for stream in streams if stream not in client.statuses]
        assert left
        # The last one has room at the latest.
        for stream in left:
            client.push(bytes(len(message(b"")) + LONG - sent[stream]), stream, 10.0, ends=True)
        assert 0 in [client.status(stream) for stream in left]


def test_halves_of_several_clients_do_not_shut_others_out(place: str) -> None:
    """What all of them keep is full, though none has as much as one client may have."""
    clients = [RawClient(place) for _ in range(5)]
    try:
        for client in clients:
            half_a_message(client, b"/test.Raw/echo", 1)
        assert any(client.statuses.get(1) == RESOURCE_EXHAUSTED for client in clients)
        with RawClient(place) as honest:
            assert honest.call("/test.Raw/length", bytes(50_000), 1) == 0
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("path", [b"/test.Raw/hold", b"/test.Raw/slow_total"])
def test_messages_that_grow_when_they_are_decompressed_are_counted(
    server: ServerProcess, place: str, path: bytes
) -> None:
    """The windows bound compressed bytes, of which a thousandth is enough."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    before = peak(server)
    bomb = message(gzip.compress(bytes(LONG)), flag=1)
    block = request(path, (b"grpc-encoding", b"gzip"))
    clients = [RawClient(place) for _ in range(4)]
    try:
        for client in clients:
            for stream in range(1, 11, 2):
                client.send(headers(block, stream))
                client.push(bomb, stream, 20.0)
                if path == b"/test.Raw/slow_total":
                    client.push(bomb, stream, 20.0)
        for client in clients:
            # Behind what came before.
            client.call("/test.Raw/length", b"", 99)
        refused = sum(status == RESOURCE_EXHAUSTED for client in clients for status in client.statuses.values())
        assert refused >= 17
        # What is kept, the copies that handlers get, and one that is being made on each connection.
        assert peak(server) - before < 2 * MEMORY + 4 * LONG
        with RawClient(place) as honest:
            assert honest.call("/test.Raw/length", bytes(50_000), 1) == 0
    finally:
        for client in clients:
            client.close()
