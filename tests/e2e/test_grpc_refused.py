"""Calls that a gRPC server refuses without having begun with them are sent again, as gRPC's own clients do: those with
streams from their start, as long as all that they have sent is kept.

grpcio's server does it by chance: it may count a call whose end has been read already.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .h2_raw import END_HEADERS, HEADERS, SETTINGS, field, frame
from .h2_server import MAX_CONCURRENT_STREAMS, Refuse, Refusing, go_away, refuse_stream

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""


@nearcall.service
class Echo:
    def echo(self, value: int) -> int: ...

    def count(self, n: int) -> Iterator[int]: ...

    def gather(self, parts: Iterator[bytes]) -> int: ...

    def talk(self, xs: Iterator[int]) -> Iterator[int]: ...


def in_thread(url: str, method: str, argument: Any, **options: Any) -> Any:
    with nearcall.connect(url, Echo, **options) as client:
        result = getattr(client, method)(argument)
        return list(result) if method in ("count", "talk") else result


def in_loop(url: str, method: str, argument: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with nearcall.aio.connect(url, Echo, **options) as client:
            result = getattr(client, method)(argument)
            return [item async for item in result] if method in ("count", "talk") else await result

    return asyncio.run(main())


callers = pytest.mark.parametrize("call", [in_thread, in_loop])
refusals = pytest.mark.parametrize("refuse", [refuse_stream, go_away])


@callers
@refusals
def test_a_refused_call_is_sent_again(call: Callable[..., Any], refuse: Refuse) -> None:
    with Refusing(1, refuse=refuse) as server:
        assert call(server.url, "echo", 7) == 7
    assert (server.seen, server.connections) == (2, 1 if refuse is refuse_stream else 2)


@callers
@pytest.mark.parametrize("method", ["echo", "count"])
def test_a_server_that_always_refuses_is_not_asked_for_ever(call: Callable[..., Any], method: str) -> None:
    with Refusing(1000) as server, pytest.raises(nearcall.Unavailable, match="has not begun"):
        call(server.url, method, 7)
    assert 1 < server.seen < 10


def answers_and_refuses(stream: int) -> bytes:
    head = b"\x88" + field(b"content-type", b"application/grpc")
    return frame(HEADERS, head, flags=END_HEADERS, stream=stream) + refuse_stream(stream)


def answers_and_goes_away(stream: int) -> bytes:
    return answers_and_refuses(stream)[: -len(refuse_stream(stream))] + go_away(stream)


@callers
@pytest.mark.parametrize("method", ["echo", "count"])
@pytest.mark.parametrize("refuse", [answers_and_refuses, answers_and_goes_away])
def test_what_a_server_has_begun_to_answer_is_not_sent_again(
    call: Callable[..., Any], method: str, refuse: Refuse
) -> None:
    with Refusing(1, refuse=refuse) as server, pytest.raises(nearcall.Unavailable, match="it may have run"):
        call(server.url, method, 7)
    assert server.seen == 1


@callers
@refusals
def test_a_refused_stream_of_replies_is_sent_again(call: Callable[..., Any], refuse: Refuse) -> None:
    with Refusing(2, refuse=refuse, after=1) as server:
        assert call(server.url, "count", 3) == [3]
    assert server.seen == 3


@callers
@refusals
@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_refused_stream_of_arguments_is_sent_again(call: Callable[..., Any], refuse: Refuse, after: int) -> None:
    parts = [bytes([number]) * number for number in range(1, 5)]
    with Refusing(1, refuse=refuse, after=after, totals=True) as server:
        assert call(server.url, "gather", iter(parts)) == sum(map(len, server.messages))
    assert server.seen == 2
    assert [sent[2:] for sent in server.messages] == parts, "each of them once, and in their order"


@callers
@refusals
@pytest.mark.parametrize("after", [0, 1, 50])
def test_refused_streams_both_ways_are_sent_again(call: Callable[..., Any], refuse: Refuse, after: int) -> None:
    with Refusing(1, refuse=refuse, after=after) as server:
        assert call(server.url, "talk", range(50)) == list(range(50))
    assert server.seen == 2


def test_items_that_wait_for_replies_do_not_hold_up_a_stream_that_is_sent_again() -> None:
    """The next item is sent when the reply to the one before has come: only who reads can find the refusal."""
    replies: list[int] = []
    come = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for number in range(5):
            yield number
            assert come.acquire(timeout=PATIENCE)

    with Refusing(1, after=1) as server, nearcall.connect(server.url, Echo) as client:
        for reply in client.talk(items()):
            replies.append(reply)
            come.release()
    assert (replies, server.seen) == (list(range(5)), 2)


@callers
def test_a_stream_that_has_sent_too_much_is_not_sent_again(call: Callable[..., Any]) -> None:
    part = bytes(10_000)
    with Refusing(1, after=40, totals=True) as server, pytest.raises(nearcall.Unavailable, match="has not begun"):
        call(server.url, "gather", (part for _ in range(100)))
    assert server.seen == 1


def test_a_stream_is_given_up_while_there_is_nobody_to_send_it_to() -> None:
    async def main(server: Refusing) -> None:
        async with nearcall.aio.connect(server.url, Echo, wait_for_ready=True) as client:
            server.close()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(client.talk(iter([1]))), 0.5)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            await asyncio.wait_for(client.count(1).aclose(), PATIENCE)
        await asyncio.wait(left, timeout=PATIENCE)
        assert all(task.done() for task in left)

    with Refusing(1, refuse=go_away) as server:
        asyncio.run(main(server))
    assert server.seen == 1


def test_calls_that_wait_for_their_turn_when_the_connection_is_lost_are_sent_again() -> None:
    """The server takes one call at a time, and answers none on its first connection."""

    async def main(server: Refusing) -> tuple[Any, ...]:
        async with nearcall.aio.connect(server.url, Echo) as client:
            first = asyncio.ensure_future(client.echo(1))
            assert await asyncio.to_thread(server.begun.wait, PATIENCE)
            others = asyncio.gather(client.echo(2), replies(client.count(3)), replies(client.talk(iter([4, 5]))))
            await asyncio.sleep(0)
            server.hang_up()
            with pytest.raises(nearcall.Unavailable):
                await first
            return tuple(await others)

    async def replies(stream: Any) -> list[int]:
        return [item async for item in stream]

    with Refusing(1, refuse=lambda _: b"", most_streams=1) as server:
        assert asyncio.run(main(server)) == (2, [3], [4, 5])


GOODBYE = b"\x07\x00\x00\x00\x00\x00"
"""Kind, flags and stream of a GOAWAY."""


class Relay:
    """Stands between a client and the servers of its connections; what they send back may be kept for a while."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.parted = threading.Event()
        """The server has said goodbye, and then which call was its last, and the client has not read that."""
        self._lock, self._keeps, self._kept = threading.Lock(), False, b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def keep_back(self) -> None:
        with self._lock:
            self._keeps = True

    def release(self) -> None:
        with self._lock:
            self._keeps = False
            self._first.sendall(self._kept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if len(self._threads) == 1:
                    self._first = client
                host, port = self.upstream.removeprefix("grpc://").rsplit(":", 1)
                server = socket.create_connection((host, int(port)))
                for copy in (self._forth, self._back):
                    thread = threading.Thread(target=copy, args=(client, server))
                    self._threads.append(thread)
                    thread.start()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), server:
            while some := client.recv(1 << 16):
                server.sendall(some)
            # Wakes the thread that waits for more of the server's.
            server.shutdown(socket.SHUT_RDWR)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while some := server.recv(1 << 16):
                with self._lock:
                    if not self._keeps:
                        client.sendall(some)
                        continue
                    self._kept += some
                    if self._kept.count(GOODBYE) == 2:
                        self.parted.set()
            client.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Relay:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()


@nearcall.service(name="Echo")
class Talker:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.held, self.gate = threading.Event(), threading.Event()

    def echo(self, value: int) -> int:
        self.held.set()
        self.gate.wait(PATIENCE)
        return value

    def gather(self, parts: Iterator[bytes]) -> int:
        self.calls.append("gather")
        return sum(map(len, parts))

    def count(self, n: int) -> Iterator[int]:
        self.calls.append("count")
        yield from range(n)

    def talk(self, xs: Iterator[int]) -> Iterator[int]:
        self.calls.append("talk")
        yield from xs


def test_what_a_server_that_drains_has_not_begun_is_sent_to_the_next() -> None:
    """The client begins its calls when the server has said which was the last, and hears of that only then."""
    old, new = Talker(), Talker()
    first = nearcall.Server(old, "grpc://127.0.0.1:0").start()
    with (
        nearcall.Server(new, "grpc://127.0.0.1:0") as second,
        Relay(first.urls[0]) as relay,
        nearcall.connect(relay.url, Echo) as client,
        ThreadPoolExecutor(5) as pool,
    ):
        held = pool.submit(client.echo, 1)
        assert old.held.wait(PATIENCE)
        relay.keep_back()
        stopped = pool.submit(first.stop, PATIENCE)
        # A client that is silent but calls is taken to have heard of the goodbye after a moment.
        early = []
        while not relay.parted.wait(0.1):
            early.append(client.count(1))
        relay.upstream = second.urls[0]
        talk = client.talk(iter(range(100)))
        count = client.count(3)
        gathered = pool.submit(client.gather, iter([b"one", b"three"]))
        relay.release()
        assert (list(talk), list(count), gathered.result(PATIENCE)) == (list(range(100)), [0, 1, 2], 8)
        old.gate.set()
        assert held.result(PATIENCE) == 1
        assert all(list(items) == [0] for items in early)
        assert stopped.result(PATIENCE)
    assert set(old.calls) <= {"count"}
    assert sorted(set(new.calls)) == ["count", "gather", "talk"]
    assert len(old.calls) + len(new.calls) == 3 + len(early), "each was begun once"


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
