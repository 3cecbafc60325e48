"""Server push: what a topic publishes reaches all who subscribed, over every transport, and costs nobody a thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import nearcall
from nearcall import aio
from nearcall.introspection import Introspection

from .conftest import TRANSPORTS
from .services import Point


@nearcall.service
class Feed:
    """Subscriptions from a thread and from an event loop, to the same topics."""

    def __init__(self, **options: Any) -> None:
        self.topic: nearcall.Topic[int] = nearcall.Topic(**options)
        self.blocks: nearcall.Topic[bytes] = nearcall.Topic(**options)
        self.points: nearcall.Topic[Point] = nearcall.Topic()
        self.arrays: nearcall.Topic[np.ndarray[Any, Any]] = nearcall.Topic()

    def numbers(self) -> Iterator[int]:
        return self.topic.subscribe()

    def numbers_in_loop(self) -> AsyncIterator[int]:
        return self.topic.subscribe()

    def bytes(self) -> Iterator[bytes]:
        return self.blocks.subscribe()

    def structures(self) -> Iterator[Point]:
        return self.points.subscribe()

    def pictures(self) -> Iterator[np.ndarray[Any, Any]]:
        return self.arrays.subscribe()

    def echo(self, x: int) -> int:
        return x


@nearcall.service
class Program:
    """What gives subscriptions, and is passed."""

    def numbers(self) -> Iterator[int]: ...
    def numbers_in_loop(self) -> AsyncIterator[int]: ...


class OwnProgram(Program):
    def __init__(self) -> None:
        self.topic: nearcall.Topic[int] = nearcall.Topic()
        self.closed = threading.Event()

    def numbers(self) -> Iterator[int]:
        return self.topic.subscribe()

    def numbers_in_loop(self) -> AsyncIterator[int]:
        return self.topic.subscribe()

    def close(self) -> None:
        self.closed.set()


@nearcall.service
class Studio:
    def __init__(self) -> None:
        self.given: list[OwnProgram] = []

    def program(self) -> Program:
        self.given.append(OwnProgram())
        return self.given[-1]


METHODS = ["numbers", "numbers_in_loop"]
Start = Callable[..., "tuple[Feed, str]"]


@pytest.fixture
def start(new_url: str) -> Iterator[Start]:
    """Serves a feed of the test's own: it publishes from here."""
    with ExitStack() as stack:

        def started(*more: str, server: dict[str, Any] | None = None, **options: Any) -> tuple[Feed, str]:
            feed = Feed(**options)
            running = stack.enter_context(nearcall.Server(feed, new_url, *more, **(server or {})))
            feed.server = running  # type: ignore[attr-defined]
            return feed, running.urls[-1] if more else running.urls[0]

        yield started


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.001)


class Reader:
    """Reads a stream to its end in a thread."""

    def __init__(self, stream: Any) -> None:
        self.items: list[Any] = []
        self.error: nearcall.RpcError | None = None
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Any) -> None:
        try:
            self.items.extend(stream)
        except nearcall.RpcError as error:
            self.error = error

    def end(self) -> list[Any]:
        self._thread.join(20)
        assert not self._thread.is_alive(), "the stream does not end"
        if self.error is not None:
            raise self.error
        return self.items


@pytest.mark.parametrize("method", METHODS)
def test_everybody_gets_every_item_in_order(start: Start, method: str) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as one, nearcall.connect(url, Feed) as other:
        readers = [Reader(getattr(client, method)()) for client in (one, one, other)]
        until(lambda: feed.topic.subscribers == 3, "not all have subscribed")
        for number in range(5000):
            assert feed.topic.publish(number) == 3
            if number % 50 == 0:  # readers that keep up
                until(lambda n=number: all(r.items and r.items[-1] >= n - 500 for r in readers) or n < 500, "stuck")
        feed.topic.close()
        for reader in readers:
            assert reader.end() == list(range(5000))
    assert feed.topic.subscribers == 0
    with pytest.raises(RuntimeError, match="closed"):
        feed.topic.publish(1)


@pytest.mark.parametrize("method", METHODS)
def test_asyncio_clients_see_an_ordinary_stream(start: Start, method: str) -> None:
    feed, url = start()

    async def main() -> list[int]:
        async with aio.connect(url, Feed) as client:
            items: list[int] = []
            async for item in getattr(client, method)():
                items.append(item)
                if len(items) < 100:
                    feed.topic.publish(item + 1)  # from the loop itself
                else:
                    break
            return items

    publisher = threading.Thread(
        target=lambda: (until(lambda: feed.topic.subscribers, "nobody came"), feed.topic.publish(0))
    )
    publisher.start()
    assert asyncio.run(main()) == list(range(100))
    publisher.join(20)
    until(lambda: feed.topic.subscribers == 0, "a client that left is still there")


@pytest.mark.parametrize("method", METHODS)
def test_an_object_lives_as_long_as_subscriptions_of_its_methods(new_url: str, method: str) -> None:
    studio = Studio()
    with nearcall.Server(studio, new_url) as server, nearcall.connect(server.urls[0], Studio) as client:
        program = client.program()
        reader = Reader(getattr(program, method)())
        own = studio.given[0]
        until(lambda: own.topic.subscribers == 1, "nobody came")
        nearcall.release(program)
        other = client.program()
        nearcall.release(other)
        # Both releases went the same way, one after the other.
        assert studio.given[1].closed.wait(20)
        assert own.topic.publish(1) == 1
        assert not own.closed.is_set()
        own.topic.close()
        assert reader.end() == [1]
        assert own.closed.wait(20)


def test_one_topic_in_several_codecs_and_methods(start: Start) -> None:
    feed, grpc = start("grpc://127.0.0.1:0")
    own = feed.server.urls[0]  # type: ignore[attr-defined]
    with nearcall.connect(own, Feed) as near, nearcall.connect(grpc, Feed) as far:
        readers = [Reader(stream) for stream in (near.numbers(), near.numbers_in_loop(), far.numbers())]
        structures = [Reader(client.structures()) for client in (near, far)]
        pictures = [Reader(client.pictures()) for client in (near, far)]
        until(lambda: feed.topic.subscribers == 3 and feed.points.subscribers == feed.arrays.subscribers == 2, "late")
        for number in range(50):
            feed.topic.publish(number)
            feed.points.publish(Point(number, "p", b"x" * number))
            feed.arrays.publish(np.full((3, number), float(number)))
        for topic in (feed.topic, feed.points, feed.arrays):
            topic.close()
        for reader in readers:
            assert reader.end() == list(range(50))
        for reader in structures:
            assert reader.end() == [Point(number, "p", b"x" * number) for number in range(50)]
        for reader in pictures:
            for number, array in enumerate(reader.end()):
                assert np.array_equal(array, np.full((3, number), float(number)))


def test_the_last_item_is_kept_for_who_comes_later(start: Start) -> None:
    feed, grpc = start("grpc://127.0.0.1:0", keep_last=True)
    own = feed.server.urls[0]  # type: ignore[attr-defined]
    feed.topic.publish(7)
    with nearcall.connect(own, Feed) as near, nearcall.connect(grpc, Feed) as far:
        for number, client in enumerate((near, far, near), start=7):
            stream = client.numbers()
            assert next(stream) == number
            feed.topic.publish(number + 1)
            assert next(stream) == number + 1
            stream.close()


def test_who_does_not_read_is_ended_and_holds_nobody_up(start: Start) -> None:
    feed, url = start(max_buffer=1 << 20)
    with nearcall.connect(url, Feed) as slow, nearcall.connect(url, Feed) as quick:
        stuck = slow.bytes()
        reader = Reader(quick.bytes())
        until(lambda: feed.blocks.subscribers == 2, "not all have subscribed")
        sent = 0
        while feed.blocks.subscribers == 2:
            feed.blocks.publish(b"x" * 10_000)
            sent += 1
            assert sent < 20_000, "200 MB wait for a client that does not read"
            until(lambda: len(reader.items) > sent - 20, "a slow client holds up a quick one")  # noqa: B023
        feed.blocks.close()
        assert len(reader.end()) == sent
        with pytest.raises(nearcall.ResourceExhausted, match=r"reads too slowly.*1048576 bytes.*max_buffer"):
            list(stuck)


def test_who_must_not_miss_items_is_told_that_some_were_lost_on_their_way(start: Start) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as client:
        stream = client.numbers()
        until(lambda: feed.topic.subscribers, "nobody came")
        feed.topic._core.skip(1)  # as for items of another worker
        with pytest.raises(nearcall.ResourceExhausted, match="too slow for them; listen again, or let the Topic"):
            next(stream)


def test_who_does_not_read_misses_the_oldest_and_is_told_how_many(start: Start) -> None:
    feed, url = start(max_buffer=100_000, when_full="drop_oldest")
    with nearcall.connect(url, Feed) as client, nearcall.metadata() as told:
        stream = client.bytes()
        until(lambda: feed.blocks.subscribers, "nobody came")
        for number in range(2000):
            feed.blocks.publish(number.to_bytes(4, "big") * 2500)
        feed.blocks.close()
        got = [int.from_bytes(block[:4], "big") for block in stream]
        assert got == sorted(set(got))
        assert got[-1] == 1999
        assert 0 < len(got) < 2000
        assert int(told.trailing["nearcall-missed"]) == 2000 - len(got)


@pytest.mark.parametrize("method", METHODS)
def test_who_leaves_is_forgotten(start: Start, method: str) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as client:
        stream = getattr(client, method)()
        until(lambda: feed.topic.subscribers == 1, "nobody came")
        stream.close()
        until(lambda: feed.topic.subscribers == 0, "a stream that was closed is still there")
        left = getattr(client, method)()
        until(lambda: feed.topic.subscribers == 1, "nobody came")
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(0.05):
            next(getattr(client, method)())
        until(lambda: feed.topic.subscribers == 1, "a stream whose deadline has passed is still there")
    until(lambda: feed.topic.subscribers == 0, "a client that is gone is still there")
    del left
    assert feed.topic.publish(1) == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_stops_ends_them(start: Start, method: str) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as client:
        reader = Reader(getattr(client, method)())
        until(lambda: feed.topic.subscribers == 1, "nobody came")
        feed.topic.publish(1)
        assert feed.server.stop(20), "a subscription is waited for"  # type: ignore[attr-defined]
        with pytest.raises(nearcall.Unavailable):
            reader.end()
        assert reader.items == [1]
        assert feed.topic.subscribers == 0


def test_subscriptions_take_no_thread(start: Start) -> None:
    feed, url = start(server={"max_concurrency": 4, "max_streams": 1000})
    with nearcall.connect(url, Feed) as client:
        client.echo(1)
        before = threading.active_count()
        streams = [client.numbers() for _ in range(300)] + [client.numbers_in_loop() for _ in range(300)]
        until(lambda: feed.topic.subscribers == 600, "not all have subscribed")
        assert client.echo(2) == 2
        assert threading.active_count() <= before + 5  # workers up to max_concurrency, and the event loop
        assert feed.topic.publish(9) == 600
        assert [next(stream) for stream in streams] == [9] * 600
        for stream in streams:
            stream.close()
    until(lambda: feed.topic.subscribers == 0, "some are still there")


def test_several_publishers_reach_all_in_one_order(start: Start) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as client:
        readers = [Reader(client.numbers()) for _ in range(3)]
        until(lambda: feed.topic.subscribers == 3, "not all have subscribed")

        def publish(base: int) -> None:
            for number in range(300):
                feed.topic.publish(base + number)

        threads = [threading.Thread(target=publish, args=(base,)) for base in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        feed.topic.close()
        first, *others = [reader.end() for reader in readers]
        assert others == [first, first]
        for base in (0, 1000, 2000):
            assert [n for n in first if base <= n < base + 1000] == list(range(base, base + 300))


def test_an_item_of_another_type_reaches_nobody(start: Start) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as client:
        reader = Reader(client.numbers())
        until(lambda: feed.topic.subscribers, "nobody came")
        with pytest.raises(nearcall.Internal, match=r"Feed.numbers\(\): an item of the result must be int, got str"):
            feed.topic.publish("no")  # type: ignore[arg-type]
        feed.topic.publish(1)
        feed.topic.close()
        assert reader.end() == [1]
        assert list(client.numbers()) == [], "a closed topic has no items"


def test_a_topic_that_nothing_refers_to_ends_its_streams(start: Start) -> None:
    feed, url = start()
    with nearcall.connect(url, Feed) as client:
        reader = Reader(client.numbers())
        until(lambda: feed.topic.subscribers, "nobody came")
        feed.topic.publish(1)
        feed.topic = nearcall.Topic()
        gc.collect()
        assert reader.end() == [1]


IN_ONE_PROCESS = next(iter(TRANSPORTS))


@pytest.mark.parametrize("transport", [IN_ONE_PROCESS])
def test_interceptors_pass_subscriptions_on(start: Start) -> None:
    seen: list[str] = []

    def intercept(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        seen.append(call.method)
        return proceed(call)

    log = nearcall.observe.access_log()
    feed, url = start(server={"interceptors": [log, intercept, log]})
    with nearcall.connect(url, Feed) as client:
        readers = [Reader(client.numbers()), Reader(client.numbers_in_loop())]
        until(lambda: feed.topic.subscribers == 2, "not all have subscribed")
        feed.topic.publish(1)
        feed.topic.close()
        assert [reader.end() for reader in readers] == [[1], [1]]
    assert sorted(seen) == ["Feed.numbers", "Feed.numbers_in_loop"]


@nearcall.service(name="Feed")
class FeedInLoop:
    """All of it runs in an event loop."""

    def __init__(self) -> None:
        self.topic: nearcall.Topic[int] = nearcall.Topic()

    def numbers(self) -> AsyncIterator[int]:
        return self.topic.subscribe()

    async def echo(self, x: int) -> int:
        return x


async def awaits(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    return await proceed(call)


async def passes_on(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    await asyncio.sleep(0)
    return proceed(call)


async def refuses(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    raise nearcall.PermissionDenied("not for you")


@pytest.mark.parametrize("interceptors", [[awaits], [passes_on], [awaits, passes_on, awaits]])
@pytest.mark.parametrize("transport", [IN_ONE_PROCESS])
def test_coroutines_as_interceptors_pass_subscriptions_on(new_url: str, interceptors: list[Any]) -> None:
    feed = FeedInLoop()
    with (
        nearcall.Server(feed, new_url, interceptors=[nearcall.observe.access_log(), *interceptors]),
        nearcall.connect(new_url, Feed) as client,
    ):
        reader = Reader(client.numbers())
        until(lambda: feed.topic.subscribers == 1, "it has not subscribed")
        feed.topic.publish(1)
        feed.topic.close()
        assert reader.end() == [1]
        assert client.echo(2) == 2


@pytest.mark.parametrize("transport", [IN_ONE_PROCESS])
def test_a_coroutine_as_interceptor_may_refuse_a_subscription(new_url: str) -> None:
    feed = FeedInLoop()
    with (
        nearcall.Server(feed, new_url, interceptors=[awaits, refuses]),
        nearcall.connect(new_url, Feed) as client,
        pytest.raises(nearcall.PermissionDenied, match="not for you"),
    ):
        next(client.numbers())
    assert feed.topic.subscribers == 0


@nearcall.service
class Item:
    def name(self) -> str: ...


@nearcall.service
class Shop:
    def __init__(self) -> None:
        self.topic: nearcall.Topic[Item] = nearcall.Topic()

    def items(self) -> Iterator[Item]:
        return self.topic.subscribe()


@pytest.mark.parametrize("transport", [IN_ONE_PROCESS])
def test_mistakes_are_told(new_url: str) -> None:
    refused = pytest.raises(nearcall.RpcError, match=r"Shop.items.*cannot hold references")
    with nearcall.Server(Shop(), new_url), nearcall.connect(new_url, Shop) as client, refused:
        next(client.items())
    topic = nearcall.Topic[int]()
    subscription = topic.subscribe()
    assert isinstance(subscription, nearcall.Subscription)
    with pytest.raises(TypeError, match="return it from a method"):
        next(subscription)
    with pytest.raises(ValueError, match="when_full must be 'end' or 'drop_oldest', not 'block'"):
        nearcall.Topic(when_full="block")  # type: ignore[arg-type]
    with pytest.raises(nearcall.InvalidArgument, match="max_buffer"):
        nearcall.Topic(max_buffer=0)
    assert repr(topic) == "<nearcall.Topic subscribers=0>"
    with topic:
        assert topic.publish(1) == 0
    assert repr(topic) == "<nearcall.Topic closed>"


def test_what_is_kept_for_slow_clients_counts_among_the_memory_of_the_server(start: Start) -> None:
    feed, url = start(max_buffer=4 << 20)
    with nearcall.connect(url, Feed) as slow, nearcall.connect(url, Introspection) as look:
        stream = slow.bytes()
        until(lambda: feed.blocks.subscribers == 1, "nobody has subscribed")
        before = look.read().memory
        for _ in range(50):
            feed.blocks.publish(bytes(100_000))
        # What is on the way to the client is at most a window and what the link holds.
        until(lambda: look.read().memory - before > 2 << 20, "it is not counted")
        assert look.read().memory - before < 8 << 20
        stream.close()
        until(lambda: feed.blocks.subscribers == 0, "it goes on")
        feed.blocks.publish(b"")
        until(lambda: look.read().memory - before < 1 << 20, "it is counted for ever")
