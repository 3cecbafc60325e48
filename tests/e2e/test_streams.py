"""Streams from the server, to the server, and both ways."""

from __future__ import annotations

import gc
import itertools
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nearcall

from .services import Point, Streams

MANY = 20_000


@pytest.fixture
def streams(url: str) -> Iterator[Any]:
    with nearcall.connect(url, Streams) as service:
        yield service


@pytest.mark.parametrize("n", [0, 1, 2, 1000, MANY])
@pytest.mark.parametrize("method", ["count", "listed", "count_in_loop"])
def test_from_the_server(streams: Any, method: str, n: int) -> None:
    assert list(getattr(streams, method)(n)) == list(range(n))


@pytest.mark.parametrize("n", [0, 1, 2, 1000, MANY])
@pytest.mark.parametrize("method", ["total", "total_in_loop"])
def test_to_the_server(streams: Any, method: str, n: int) -> None:
    call = getattr(streams, method)
    assert call(range(n)) == sum(range(n))
    assert call(iter(range(n)), start=5) == 5 + sum(range(n))
    assert call(numbers=(number for number in range(n))) == sum(range(n))


@pytest.mark.parametrize("n", [0, 1, 2, 1000, MANY])
@pytest.mark.parametrize("method", ["scaled", "scaled_in_loop"])
def test_both_ways(streams: Any, method: str, n: int) -> None:
    assert list(getattr(streams, method)((float(x) for x in range(n)), by=2.0)) == [x * 2.0 for x in range(n)]


@pytest.mark.parametrize("method", ["scaled", "scaled_in_loop"])
def test_items_go_back_and_forth_one_at_a_time(streams: Any, method: str) -> None:
    """The next item is made of the last reply: nothing may be kept back until there is more."""
    to_send: queue.Queue[float | None] = queue.Queue()
    replies = getattr(streams, method)(iter(to_send.get, None), 2.0)
    value = 1.0
    for _ in range(50):
        to_send.put(value)
        value = next(replies)
    to_send.put(None)
    assert value == 2.0**50
    assert list(replies) == []


@pytest.mark.parametrize("n", [2, 3, 100])
@pytest.mark.parametrize("method", ["count_and_wait", "count_and_wait_in_loop"])
def test_what_was_sent_quickly_comes_although_nothing_follows(streams: Any, key: str, method: str, n: int) -> None:
    items = getattr(streams, method)(n, key)
    assert list(itertools.islice(items, n)) == list(range(n))
    streams.go_on(key)
    assert list(items) == []


def test_blocks_larger_than_any_window(streams: Any) -> None:
    for n, size in ((300, 10_000), (30, 300_000), (3, 5_000_000), (50, 0)):
        blocks = streams.blocks(n, size)
        assert [(block[:1], len(block)) for block in blocks] == [
            (bytes([number % 256]) if size else b"", size) for number in range(n)
        ]
        assert streams.lengths(bytes(size) for _ in range(n)) == [size] * n


def test_all_is_sent_before_anything_is_answered(streams: Any) -> None:
    blocks = [bytes([number % 251]) * 10_000 for number in range(500)]
    assert list(streams.all_then_all(blocks)) == blocks


def test_structures_and_arrays_as_items(streams: Any) -> None:
    points = [Point(number, "p" * number, bytes(number)) for number in range(100)]
    assert list(streams.points(points)) == [Point(p.x + 1, p.label, p.data) for p in points]
    arrays = [np.full((number, 100), float(number)) for number in (0, 1, 5, 500)]
    for sent, got in zip(arrays, streams.arrays(arrays), strict=True):
        assert np.array_equal(got, sent * 2)


def test_many_streams_of_one_client_at_once(streams: Any) -> None:
    open_streams = [streams.count(500) for _ in range(20)]
    open_streams += [streams.scaled((float(x) for x in range(500)), 1.0) for _ in range(5)]
    for items in zip(*open_streams, strict=True):
        assert len(set(items)) == 1


def test_calls_between_the_items(streams: Any) -> None:
    seen = [streams.total([number, 1]) for number in streams.count(200)]
    assert seen == list(range(1, 201))


def test_a_handler_may_leave_items_unread(streams: Any) -> None:
    assert streams.first(range(MANY), 3) == [0, 1, 2]
    assert streams.first(itertools.count(), 3) == [0, 1, 2]
    assert streams.total([1]) == 1


@pytest.mark.parametrize("method", ["fail_after", "fail_after_in_loop"])
@pytest.mark.parametrize("n", [0, 3])
def test_an_error_comes_after_the_items(streams: Any, method: str, n: int) -> None:
    items = getattr(streams, method)(n)
    assert [next(items) for _ in range(n)] == list(range(n))
    with pytest.raises(nearcall.OutOfRange, match=f"only {n}") as caught:
        next(items)
    assert caught.value.details == {"n": n}
    assert list(items) == []


def test_an_item_of_the_wrong_type(streams: Any) -> None:
    items = streams.wrong_item(2)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(nearcall.Internal, match=r"Streams.wrong_item\(\): an item of the result must be int, got str"):
        next(items)


@pytest.mark.parametrize("method", ["endless", "endless_in_loop", "silent_in_loop"])
@pytest.mark.parametrize("way", ["close", "with", "drop", "break"])
def test_giving_up_a_stream_runs_the_handlers_cleanup(streams: Any, key: str, method: str, way: str) -> None:
    items = getattr(streams, method)(key)
    next(items)
    if way == "close":
        items.close()
        items.close()
        assert list(items) == []
    elif way == "with":
        with items:
            pass
    elif way == "break":
        for _ in items if method != "silent_in_loop" else ():
            break
    del items
    gc.collect()
    assert streams.how_it_closed(key) == "closed"


@pytest.mark.parametrize("method", ["endless_echo", "endless_echo_in_loop"])
@pytest.mark.parametrize("way", ["close", "with", "drop"])
def test_giving_up_both_ways_stops_both_sides(streams: Any, key: str, method: str, way: str) -> None:
    replies = getattr(streams, method)(key, itertools.count())
    assert [next(replies), next(replies)] == [0, 1]
    if way == "close":
        replies.close()
        assert list(replies) == []
    elif way == "with":
        with replies:
            pass
    del replies
    gc.collect()
    assert streams.how_it_closed(key) == "closed"


def test_a_stream_that_fails_at_the_client(streams: Any, key: str) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        streams.take_until_cancelled(key, numbers())
    assert streams.how_it_closed(key) == "cancelled"
    with pytest.raises(ZeroDivisionError, match="mine"):
        list(streams.endless_echo(key + "b", numbers()))
    assert streams.how_it_closed(key + "b") == "closed"


def test_an_item_that_does_not_fit_is_refused_at_the_client(streams: Any) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"Streams.total\(\): an item of 'numbers' must be int, got str"):
        streams.total([1, "x"])
    with pytest.raises(nearcall.InvalidArgument, match="an item of 'numbers' must be float, got str"):
        list(streams.scaled([1.0, "x"], 2.0))
    assert streams.total([1]) == 1


def test_what_is_no_stream_is_refused(streams: Any) -> None:
    with pytest.raises((TypeError, nearcall.InvalidArgument), match=r"'numbers'.* iterable"):
        streams.total(3)


def test_closing_the_client_ends_its_streams(url: str, streams: Any, key: str) -> None:
    client = nearcall.connect(url, Streams)
    items = client.service.endless(key)
    next(items)
    client.close()
    with pytest.raises(nearcall.Cancelled):
        for _ in items:
            pass
    assert streams.how_it_closed(key) == "closed"


@pytest.mark.parametrize("method", ["count", "count_in_loop"])
def test_a_connection_has_so_many_streams_at_once(new_url: str, method: str) -> None:
    with nearcall.Server(Streams(), new_url, max_streams=2) as server:
        url = server.urls[0]
        with nearcall.connect(url, Streams) as streams, nearcall.connect(url, Streams) as another:
            count = getattr(streams, method)
            # More than is sent ahead: they stay open.
            first, second = count(1_000_000), count(1_000_000)
            assert [next(first), next(second)] == [0, 0]
            for refused in (lambda: next(count(1)), lambda: streams.total([1])):
                with pytest.raises(nearcall.ResourceExhausted, match=r"has 2 streams open.* max_streams"):
                    refused()
            # The others go on.
            assert list(another.count(3)) == [0, 1, 2]
            assert next(second) == 1
            first.close()
            with nearcall.timeout(30):
                while True:
                    try:
                        assert list(count(3)) == [0, 1, 2]
                        break
                    except nearcall.ResourceExhausted:
                        pass  # the server has not heard of the end yet
