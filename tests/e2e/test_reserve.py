"""Threads for slow handlers are kept for a while, and not started for each anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import nearcall

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
AT_REST = 3
"""Workers that a server keeps: one receives, two stand by."""
AT_ONCE = 6
"""Slow handlers."""


@nearcall.service
class Sleepy:
    def nap(self) -> int:
        time.sleep(0.004)
        return threading.get_native_id()

    def quick(self) -> int:
        return threading.get_native_id()


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("nearcall-worker-")}


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def bursts(client: Sleepy, count: int) -> set[int]:
    """The threads that ran the handlers."""
    seen: set[int] = set()
    for _ in range(count):
        naps = [nearcall.start(client.nap) for _ in range(AT_ONCE)]
        seen.add(client.quick())
        seen.update(nap.result() for nap in naps)
    return seen


@pytest.mark.slow
def test_slow_handlers_get_threads_that_are_there_already(new_url: str) -> None:
    others = workers()
    with nearcall.Server(Sleepy(), new_url) as server, nearcall.connect(server.urls[0], Sleepy) as client:
        assert len(bursts(client, 50)) <= 2 * AT_ONCE + AT_REST
        assert len(workers() - others) > AT_REST
        until(lambda: len(workers() - others) <= AT_REST)
        assert len(bursts(client, 1)) > 1, "they are there again when they are needed"


def test_a_server_that_stops_waits_for_no_thread_in_reserve(new_url: str) -> None:
    others = workers()
    for _ in range(10):
        with nearcall.Server(Sleepy(), new_url) as server, nearcall.connect(server.urls[0], Sleepy) as client:
            bursts(client, 1)
        # One that was only being started ends a moment later.
        until(lambda: not workers() - others)
