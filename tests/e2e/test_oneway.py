"""One-way calls: each is delivered exactly once, and in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import nearcall

from .services import Lines, Waiting

MANY = 5_000


@pytest.fixture
def lines(url: str) -> Iterator[Any]:
    with nearcall.connect(url, Lines) as service:
        yield service


@pytest.mark.parametrize("method", ["log", "log_in_loop"])
def test_each_once_and_in_order(lines: Any, key: str, method: str) -> None:
    log = getattr(lines, method)
    for number in range(MANY):
        assert log(key, number) is None
    assert lines.wait_for(key, MANY) == list(range(MANY))


@pytest.mark.parametrize("method", ["log", "log_in_loop"])
def test_in_order_beside_a_handler_that_computes(lines: Any, url: str, key: str, method: str) -> None:
    """The handlers compete for the interpreter, so that each may be stopped anywhere."""
    with nearcall.connect(url, Waiting) as waiting, nearcall.connect(url, Waiting) as other:
        busy = threading.Thread(target=waiting.spin, args=(key,))
        busy.start()
        assert other.entered(key)
        try:
            for number in range(MANY):
                getattr(lines, method)(key, number)
            assert lines.wait_for(key, MANY) == list(range(MANY))
        finally:
            other.release(key)
            busy.join()


def test_large_ones_wait_for_room(lines: Any, key: str) -> None:
    sizes = [0, 100, 60_000, 1_000_000, 5_000_000, 10] * 4
    for size in sizes:
        lines.blob(key, bytes(size))
    assert lines.wait_for(key, len(sizes)) == sizes


def test_from_many_threads(lines: Any, key: str) -> None:
    def send(thread: int) -> None:
        for number in range(500):
            lines.log(key, thread * 1000 + number)

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = lines.wait_for(key, 3000)
    assert sorted(got) == sorted(thread * 1000 + number for thread in range(6) for number in range(500))
    for thread in range(6):
        mine = [number for number in got if number // 1000 == thread]
        assert mine == sorted(mine)


def test_those_sent_before_closing_arrive(url: str, lines: Any, key: str) -> None:
    for number in range(20):
        with nearcall.connect(url, Lines) as short:
            for part in range(50):
                short.log(key, number * 50 + part)
    assert sorted(lines.wait_for(key, 1000)) == list(range(1000))


def test_mistakes_are_found_before_sending(lines: Any, key: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match="argument 'number' must be int, got str"):
        lines.log(key, "x")
    with pytest.raises(nearcall.InvalidArgument, match="argument 'number' is missing"):
        lines.log(key)
    lines.log(key, 1)
    assert lines.wait_for(key, 1) == [1]


def test_on_a_closed_client(url: str, key: str) -> None:
    client = nearcall.connect(url, Lines)
    client.close()
    with pytest.raises(nearcall.Cancelled):
        client.service.log(key, 1)
