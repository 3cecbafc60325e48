"""Methods that take one message, and get another number; and messages that say of their compression what is not so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nearcall

from .h2_raw import RawClient, data, headers, message, request, reset

MIB = 1 << 20
LONG = 10 * MIB
OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 8, 12, 13


@nearcall.service(name="test.Counting")
class Counting:
    def __init__(self) -> None:
        self.begun = 0

    def one(self, data: bytes) -> int:
        self.begun += 1
        return len(data)

    def many(self, data: bytes) -> Iterator[int]:
        self.begun += 1
        yield len(data)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def client(counting: Counting) -> Iterator[RawClient]:
    with nearcall.Server(counting, "grpc://127.0.0.1:0", max_memory=64 * MIB, max_message_size=16 * MIB) as server:
        host, port = server.urls[0].removeprefix("grpc://").rsplit(":", 1)
        with RawClient((host, int(port)), window=1 << 20) as client:
            yield client


@pytest.mark.parametrize("method", [b"One", b"Many"])
def test_a_second_message_is_refused_and_no_handler_runs(client: RawClient, counting: Counting, method: bytes) -> None:
    path = b"/test.Counting/" + method
    client.send(headers(request(path), 1), data(message(b""), 1), data(message(b""), 1, ends=True))
    assert client.status(1) == UNIMPLEMENTED
    # Also if both come in one frame.
    client.send(headers(request(path), 3), data(message(b"") + message(b""), 3, ends=True))
    assert client.status(3) == UNIMPLEMENTED
    # And none at all, or one that the client takes back.
    client.send(headers(request(path), 5, ends=True), headers(request(path), 7), data(message(b""), 7), reset(7))
    assert client.status(5) == UNIMPLEMENTED
    assert counting.begun == 0
    # The end may come behind the message.
    client.send(headers(request(path), 9), data(message(b""), 9), data(b"", 9, ends=True))
    assert client.status(9) == OK
    assert counting.begun == 1


def test_messages_that_wait_for_the_end_do_not_fill_the_memory(client: RawClient, counting: Counting) -> None:
    whole = message(b"\x0a\x80\x80\x80\x05" + bytes(LONG))
    streams = range(1, 17, 2)
    for stream in streams:
        client.send(headers(request(b"/test.Counting/One"), stream))
        client.push(whole, stream, 1.0)
    refused = [stream for stream in streams if client.statuses.get(stream) == RESOURCE_EXHAUSTED]
    assert refused
    assert counting.begun == 0
    left = [stream for stream in streams if stream not in client.statuses]
    client.send(*(data(b"", stream, ends=True) for stream in left))
    client.send(headers(request(b"/test.Counting/One"), 101), data(message(b""), 101, ends=True))
    assert client.status(101) == OK


@pytest.mark.parametrize(
    ("encoding", "flag", "status"),
    [
        (b"zstd", 1, OK),
        (b"gzip", 1, OK),
        (b"identity", 1, INTERNAL),
        (None, 1, INTERNAL),
        (b"other", 1, UNIMPLEMENTED),
        (b"other", 0, UNIMPLEMENTED),
    ],
)
def test_an_empty_message_that_says_that_it_is_compressed(
    client: RawClient, encoding: bytes | None, flag: int, status: int
) -> None:
    more = [] if encoding is None else [(b"grpc-encoding", encoding)]
    client.send(headers(request(b"/test.Counting/One", *more), 1), data(message(b"", flag=flag), 1, ends=True))
    assert client.status(1) == status
