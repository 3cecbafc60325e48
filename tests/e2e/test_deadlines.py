"""Deadlines: they end calls in time, and no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import nearcall

from .deadlines import longer_and_longer
from .services import Basics, Streams, Waiting

SHORT = 0.05
LONG = 25.0


@pytest.fixture
def waiting(url: str) -> Iterator[Any]:
    with nearcall.connect(url, Waiting) as service:
        yield service


@pytest.mark.parametrize("method", ["hold", "hold_in_loop"])
def test_a_call_ends_at_its_deadline(waiting: Any, key: str, method: str) -> None:
    begun = time.monotonic()
    with nearcall.timeout(SHORT), pytest.raises(nearcall.DeadlineExceeded) as caught:
        getattr(waiting, method)(key)
    assert SHORT <= time.monotonic() - begun < LONG
    assert f"Waiting.{method}" in caught.value.message
    waiting.release(key)
    assert getattr(waiting, method)(key) == key


def test_a_coroutine_handler_is_cancelled_at_the_deadline(waiting: Any, key: str) -> None:
    for seconds in longer_and_longer():
        with nearcall.timeout(seconds), pytest.raises(nearcall.DeadlineExceeded):
            waiting.hold_in_loop(key)
        if waiting.has_entered(key):
            break
    assert waiting.how_it_ended(key) == "cancelled"


def test_the_clients_own_timeout(url: str, waiting: Any, key: str) -> None:
    with nearcall.connect(url, Waiting, timeout=SHORT) as hasty:
        with pytest.raises(nearcall.DeadlineExceeded):
            hasty.hold(key)
        with nearcall.timeout(LONG), pytest.raises(nearcall.DeadlineExceeded):
            hasty.hold(key)
    waiting.release(key)


def test_the_nearest_deadline_counts(waiting: Any, key: str) -> None:
    with nearcall.timeout(LONG), nearcall.timeout(SHORT), pytest.raises(nearcall.DeadlineExceeded):
        waiting.hold(key)
    with nearcall.timeout(SHORT), nearcall.timeout(LONG), pytest.raises(nearcall.DeadlineExceeded):
        waiting.hold(key)
    waiting.release(key)
    with nearcall.timeout(LONG):
        assert waiting.hold(key) == key


def test_no_time_at_all(url: str, waiting: Any, key: str) -> None:
    with nearcall.timeout(0), pytest.raises(nearcall.DeadlineExceeded):
        waiting.hold(key)
    waiting.release(key)
    with nearcall.connect(url, Basics) as basics:
        assert basics.add(1) == 6


def test_a_deadline_of_a_stream_from_the_server(url: str, key: str) -> None:
    got: list[int] = []
    with nearcall.connect(url, Streams) as streams:
        for seconds in longer_and_longer():
            with nearcall.timeout(seconds):
                items = streams.silent_in_loop(key)  # type: ignore[attr-defined]
            with pytest.raises(nearcall.DeadlineExceeded):
                got.extend(items)
            if got:
                break
        assert got == [1]
        assert streams.how_it_closed(key) == "closed"


def test_a_deadline_of_a_stream_to_the_server(url: str, key: str) -> None:
    stop = threading.Event()

    def slowly() -> Iterator[int]:
        while not stop.wait(0.01):
            yield 1

    with nearcall.connect(url, Streams) as streams:
        try:
            with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded):
                streams.total(slowly())
            with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded):
                for _ in streams.scaled(map(float, slowly()), 2.0):
                    pass
        finally:
            stop.set()
        assert streams.total([1]) == 1


def test_other_threads_have_no_deadline(waiting: Any, key: str) -> None:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(waiting.hold(key)))
    thread.start()
    assert waiting.entered(key)
    with nearcall.timeout(SHORT), pytest.raises(nearcall.DeadlineExceeded):
        waiting.hold(key)
    assert results == []
    waiting.release(key)
    thread.join()
    assert results == [key]


def test_what_is_no_timeout() -> None:
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout must be a number of seconds from 0 to 1e9"):
            nearcall.timeout(seconds)
    block = nearcall.timeout(1)
    with block, pytest.raises(RuntimeError, match="in use"):
        block.__enter__()
