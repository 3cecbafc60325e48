"""One-way calls to a server that is slow or stands still: what was sent was delivered or counted as dropped."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nearcall
import nearcall.aio

from .conftest import OUTSIDE, TRANSPORTS
from .process import ServerProcess

PATIENCE = 30
SIZES = [0, 1_000, 60_000, 2_000_000]
"""Bytes beside each message: within the ring, beside it; within a socket's buffer, beyond it."""
LIMIT = 1_000_000
"""Messages after which something must have been full."""
CLOSED = -2
"""Put by a stream that was given up."""


@nearcall.service
class Sink:
    def __init__(self) -> None:
        self._got: dict[str, list[int]] = defaultdict(list)
        self._changed = threading.Condition()
        self._open: dict[str, bool] = defaultdict(bool)

    @nearcall.oneway
    def put(self, key: str, number: int, data: bytes = b"") -> None:
        with self._changed:
            self._got[key].append(number)
            self._changed.notify_all()

    @nearcall.oneway
    def put_slowly(self, key: str, number: int, data: bytes = b"") -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open[key], PATIENCE)
        self.put(key, number)

    @nearcall.oneway
    async def put_in_loop(self, key: str, number: int) -> None:
        while not self._open[key]:  # noqa: ASYNC110 - it is opened from a thread
            await asyncio.sleep(0.001)
        self.put(key, number)

    def endless(self, key: str) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            self.put(key, CLOSED)

    def open(self, key: str) -> None:
        with self._changed:
            self._open[key] = True
            self._changed.notify_all()

    def wait_for(self, key: str, count: int) -> list[int]:
        with self._changed:
            self._changed.wait_for(lambda: len(self._got[key]) >= count, PATIENCE)
            return self._got[key]

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)


def services() -> list[object]:
    return [Sink()]


def at_last(call: Callable[[], Any]) -> Any:
    """What the server answers as soon as it takes calls again."""
    while True:
        try:
            return call()
        except nearcall.ResourceExhausted:
            pass


class Served(NamedTuple):
    url: str
    pid: int


@pytest.fixture(scope="module")
def sinks(runtime_dir: Path) -> Iterator[dict[str, Served]]:
    """One process, over every transport; each test has a key of its own there, and lets it go on in the end."""
    asked = [TRANSPORTS[name](f"sinks{os.getpid()}", runtime_dir) for name in OUTSIDE]
    with ServerProcess(*asked, services=f"{__name__}:services") as process:
        yield {name: Served(url, process.pid) for name, url in zip(OUTSIDE, process.urls, strict=True)}


@pytest.fixture
def server(sinks: dict[str, Served], outside: str) -> Served:
    return sinks[outside]


@contextmanager
def standing_still(server: Served) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def send_until(full: Callable[[int], bool], put: Callable[[int], None]) -> int:
    """Sends until something was full. How many were tried."""
    for number in range(LIMIT):
        put(number)
        if full(number):
            return number + 1
    raise AssertionError(f"there was room for {LIMIT} messages")


@pytest.mark.slow
def test_a_stream_that_is_given_up_while_there_is_no_room(server: Served, key: str) -> None:
    """The server learns of it when it reads again."""
    client = nearcall.connect(server.url, Sink, oneway="drop")
    items = client.service.endless(key)
    assert next(items) == 0
    with standing_still(server):
        tried = send_until(
            lambda _: client.dropped.get("Sink.put", 0) >= 10, lambda number: client.service.put(key, number)
        )
        items.close()
    assert CLOSED in client.service.wait_for(key, tried - client.dropped["Sink.put"] + 1)
    client.close()


@pytest.mark.parametrize("size", SIZES)
def test_drop_counts_each(server: Served, key: str, size: int, caplog: pytest.LogCaptureFixture) -> None:
    client = nearcall.connect(server.url, Sink, oneway="drop")
    put, data = client.service.put, bytes(size)
    assert client.dropped == {}
    with caplog.at_level(logging.WARNING, "nearcall"):
        with standing_still(server):
            tried = send_until(lambda _: client.dropped.get("Sink.put", 0) >= 10, lambda number: put(key, number, data))
        dropped = client.dropped["Sink.put"]
        got = list(client.service.wait_for(key, tried - dropped))
        put(key, -1)
        assert client.service.wait_for(key, tried - dropped + 1) == [*got, -1]
        client.close()
    assert got == sorted(set(got))
    assert len(got) + dropped == tried
    assert client.dropped == {"Sink.put": dropped}
    reports = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    # The first at once, and when the client is closed those since the last report.
    assert 1 <= len(reports) < dropped
    assert f"in all: {dropped} of Sink.put" in reports[-1]


@pytest.mark.parametrize("size", SIZES)
def test_error_says_what_is_full(server: Served, key: str, size: int) -> None:
    with nearcall.connect(server.url, Sink, oneway="error") as sink:
        accepted: list[int] = []
        errors: list[nearcall.ResourceExhausted] = []

        def put(number: int) -> None:
            try:
                sink.put(key, number, bytes(size))
            except nearcall.ResourceExhausted as error:
                errors.append(error)
            else:
                accepted.append(number)

        with standing_still(server):
            send_until(lambda _: len(errors) >= 10, put)
        assert sink.wait_for(key, len(accepted)) == accepted
        put(-1)
        assert sink.wait_for(key, len(accepted)) == accepted
    full = "the ring" if server.url.startswith("shm") else "the socket"
    assert f"Sink.put: {full} to {server.url} is full" in errors[0].message
    assert 'oneway="block"' in errors[0].message


@pytest.mark.parametrize("size", SIZES)
def test_block_waits(server: Served, key: str, size: int) -> None:
    with nearcall.connect(server.url, Sink) as sink, nearcall.connect(server.url, Sink) as other:
        with standing_still(server):
            accepted: list[int] = []

            def put(number: int) -> None:
                sink.put(key, number, bytes(size))
                accepted.append(number)

            # A deadline ends the wait, and then nothing was sent.
            with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded, match="nothing was sent"):
                send_until(lambda _: False, put)
            first = len(accepted)
            sender = threading.Thread(target=lambda: [put(number) for number in range(first, first + 20)])
            sender.start()
        sender.join(PATIENCE)
        assert not sender.is_alive()
        # While the server works off what has come meanwhile, it may have all it takes.
        got = at_last(lambda: other.wait_for(key, len(accepted)))
        assert got == accepted == list(range(first + 20))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_block_awaits(server: Served, key: str, size: int) -> None:
    """The loop goes on, and the order is kept."""

    async def main() -> None:
        async with nearcall.aio.connect(server.url, Sink) as sink:
            sent: list[int] = []

            async def put(number: int) -> None:
                await sink.put(key, number, bytes(size))
                sent.append(number)

            with standing_still(server):

                async def put_many() -> None:
                    for number in range(len(sent), LIMIT):
                        await put(number)

                first = -1
                while len(sent) != first:  # until there really is no room, however slow the machine
                    first = len(sent)
                    with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded, match="nothing was sent"):
                        await put_many()
                tasks = [asyncio.create_task(put(first + number)) for number in range(50)]
                given_up = asyncio.create_task(put(-1))
                for _ in range(20):
                    await asyncio.sleep(0.002)
                assert not all(task.done() for task in tasks)
                given_up.cancel()
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            assert await sink.wait_for(key, len(sent)) == sent == list(range(first + 50))

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["error", "drop"])
def test_in_an_event_loop(server: Served, key: str, policy: Any) -> None:
    async def main() -> None:
        client = await nearcall.aio.connect(server.url, Sink, oneway=policy)
        accepted, refused = 0, 0
        with standing_still(server):
            for number in range(LIMIT):
                try:
                    await client.service.put(key, number, bytes(1000))
                except nearcall.ResourceExhausted:
                    refused += 1
                else:
                    accepted += 1
                if refused + sum(client.dropped.values()) >= 10:
                    break
        dropped = client.dropped.get("Sink.put", 0)
        assert (dropped > 0) == (policy == "drop")
        got = await client.service.wait_for(key, accepted - dropped)
        assert len(got) == accepted - dropped
        client.close()

    asyncio.run(main())


def test_many_threads_lose_nothing(server: Served, key: str) -> None:
    client = nearcall.connect(server.url, Sink, oneway="drop")
    sent = 3000

    def send(thread: int) -> None:
        for number in range(sent):
            client.service.put(key, thread * sent + number, bytes(500))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        with standing_still(server):
            assert sum(client.dropped.values()) >= 0
    for thread in threads:
        thread.join(PATIENCE)
    with client as sink:
        delivered = 4 * sent - client.dropped.get("Sink.put", 0)
        assert len(set(sink.wait_for(key, delivered))) == delivered


def test_a_long_message_cut_off_by_closing_is_counted(server: Served, key: str) -> None:
    if server.url.startswith("shm"):
        pytest.skip("shared memory takes a message whole")
    client = nearcall.connect(server.url, Sink, oneway="drop", max_message_size=1 << 26)
    with standing_still(server):
        client.service.put(key, 1, bytes(60_000_000))
        client.service.put(key, 2)
        client.close()
        assert client.dropped == {"Sink.put": 2}


@pytest.mark.parametrize("method", ["put_slowly", "put_in_loop"])
def test_a_full_server_reads_no_more(new_url: str, key: str, method: str) -> None:
    """With many calls under way one-way calls stay where they are: none is dropped there, and nobody is refused."""
    # No more than a socket holds of messages that its server does not read: Linux counts some 770 bytes for each.
    many, service = 200, Sink()
    with nearcall.Server(service, new_url, max_pending=10) as server:
        url = server.urls[0]
        with nearcall.connect(url, Sink) as sink, nearcall.connect(url, Sink) as other:
            for number in range(many):
                getattr(sink, method)(key, number)
            assert [other.total(iter([1, 2])) for _ in range(20)] == [3] * 20
            other.put(key, -1)  # each client has one way through
            assert service.wait_for(key, 1) == [-1]
            service.open(key)
            got = service.wait_for(key, many + 1)
            # Coroutines begin in order, but go on as they like.
            assert (sorted(got) if method == "put_in_loop" else got) == [-1, *range(many)]
            assert at_last(lambda: sink.total(iter([1, 2]))) == 3


def test_a_client_that_leaves_while_it_is_held_back(new_url: str, key: str) -> None:
    service = Sink()
    with nearcall.Server(service, new_url, max_pending=10) as server:
        with nearcall.connect(server.urls[0], Sink) as sink:
            for number in range(100):
                sink.put_slowly(key, number)
        service.open(key)
        assert service.wait_for(key, 100) == list(range(100))


def test_a_server_ends_while_it_holds_back(new_url: str, key: str) -> None:
    service = Sink()
    with nearcall.Server(service, new_url, max_pending=10) as server, nearcall.connect(server.urls[0], Sink) as sink:
        for number in range(100):
            sink.put_slowly(key, number)
        with nearcall.connect(server.urls[0], Sink) as other:
            assert other.total(iter([1, 2])) == 3
        assert not server.stop(grace=0)
        service.open(key)


def test_a_server_that_stops_says_what_it_dropped(new_url: str, key: str, caplog: pytest.LogCaptureFixture) -> None:
    service = Sink()
    server = nearcall.Server(service, new_url).start()
    client, other = (nearcall.connect(server.urls[0], Sink) for _ in range(2))
    with caplog.at_level(logging.WARNING, "nearcall"):
        client.service.put_slowly(key, 0)
        client.ping()
        stopper = threading.Thread(target=server.stop, args=(PATIENCE,))
        stopper.start()
        while takes_calls(other):
            pass
        sent = 0
        try:
            for _ in range(100):
                client.service.put(key, 1)
                sent += 1
        except nearcall.Unavailable:
            pass  # it has heard the goodbye
        try:
            client.ping()  # the server has read them all
        except nearcall.Unavailable:
            sent = 0  # it has heard the goodbye, and cannot ask on this connection any more
        service.open(key)
        stopper.join(PATIENCE)
    client.close()
    other.close()
    said = [record.getMessage() for record in caplog.records if "while the server stopped" in record.getMessage()]
    text = f"dropped {sent} one-way calls that came while the server stopped"
    assert said == [text] or not sent
    assert service.wait_for(key, 1) == [0]


def takes_calls(client: nearcall.Client[Any]) -> bool:
    try:
        client.service.total(iter([1]))
    except nearcall.Unavailable:
        return False
    return True


def test_policies_are_checked() -> None:
    with pytest.raises(nearcall.InvalidArgument, match="oneway must be 'block', 'error' or 'drop', not 'wait'"):
        nearcall.connect("inproc://nobody", Sink, oneway="wait")  # type: ignore[call-overload]
    with pytest.raises(nearcall.InvalidArgument, match="oneway must be 'block', 'error' or 'drop', not 3"):
        nearcall.aio.connect("inproc://nobody", Sink, oneway=3)  # type: ignore[arg-type]
