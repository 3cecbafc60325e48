"""A server whose handlers all wait says so, once."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import nearcall

from .services import PATIENCE
from .test_introspection import until


@nearcall.service
class Waiting:
    def __init__(self) -> None:
        self.go_on = threading.Event()

    def ticks(self) -> Iterator[int]:
        yield 1
        self.go_on.wait(PATIENCE)

    def wait(self) -> int:
        self.go_on.wait(PATIENCE)
        return 1

    def fine(self) -> int:
        return 1


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "calls wait" in record.getMessage()]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["streams", "handlers"])
def test_it_is_said_once(new_url: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    service = Waiting()
    caplog.set_level(logging.WARNING, "nearcall")
    with (
        nearcall.Server(service, new_url, max_concurrency=2) as server,
        nearcall.connect(server.urls[0], Waiting) as client,
        contextlib.ExitStack() as ending,
    ):
        results: list[int] = []

        def call(method: Any) -> None:
            results.append(method())

        busy: list[Any] = []
        waiting = [threading.Thread(target=call, args=(client.fine,)) for _ in range(3)]
        if how == "streams":
            other = ending.enter_context(nearcall.connect(server.urls[0], Waiting))
            busy = [client.ticks(), other.ticks()]
            assert [next(items) for items in busy] == [1, 1]
        else:
            waiting = [threading.Thread(target=call, args=(client.wait,)) for _ in range(4)]
        for thread in waiting:
            thread.start()
        try:
            (text,) = until(lambda: warnings(caplog))
            assert "2 handlers run in threads, which is the limit" in text
            assert "raise max_concurrency" in text
            assert "async def" in text
            with nearcall.timeout(1.5), pytest.raises(nearcall.DeadlineExceeded):
                client.fine()
        finally:
            service.go_on.set()
        for thread in waiting:
            thread.join(PATIENCE)
        assert results == [1] * len(waiting)
    assert len(warnings(caplog)) == 1


@pytest.mark.slow
def test_streams_leave_threads_for_other_calls_and_places_for_other_clients(
    new_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Waiting()
    caplog.set_level(logging.WARNING, "nearcall")
    with (
        nearcall.Server(service, new_url, max_concurrency=8) as server,
        nearcall.connect(server.urls[0], Waiting) as greedy,
        nearcall.connect(server.urls[0], Waiting) as other,
        nearcall.connect(server.urls[0], Waiting) as third,
    ):
        streams: list[Any] = [greedy.ticks() for _ in range(20)]
        try:
            # There are six places. A client gets one more while it has fewer than are free.
            assert [next(items) for items in streams[:3]] == [1] * 3
            with nearcall.timeout(PATIENCE):
                assert [client.fine() for client in (greedy, other) for _ in range(20)] == [1] * 40
            (text,) = until(lambda: warnings(caplog))
            assert "of the 6 places for streams, three quarters of max_concurrency, their clients have as many" in text
            with nearcall.timeout(PATIENCE):
                others: list[Any] = []
                # One after the other: which of two connections is read first is not said.
                for client in (other, other, third):
                    others.append(client.ticks())
                    assert next(others[-1]) == 1
            with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded):
                next(greedy.ticks())
        finally:
            service.go_on.set()
        # Those that waited have their turn; none is lost.
        assert [list(items) for items in streams] == [[]] * 3 + [[1]] * 17
        assert [list(items) for items in others] == [[]] * 3
    assert len(warnings(caplog)) == 1


def test_a_busy_server_is_not_stuck(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "nearcall")
    with (
        nearcall.Server(Waiting(), new_url, max_concurrency=1) as server,
        nearcall.connect(server.urls[0], Waiting) as client,
    ):
        threads = [threading.Thread(target=lambda: [client.fine() for _ in range(100)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert warnings(caplog) == []
