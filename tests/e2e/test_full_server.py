"""Servers that have as many calls under way as they may have."""

from __future__ import annotations

import threading

import pytest

import nearcall

PATIENCE = 30.0


@nearcall.service
class Gate:
    def __init__(self) -> None:
        self.open = threading.Event()
        self.came = threading.Semaphore(0)

    def wait(self) -> None:
        self.came.release()
        assert self.open.wait(PATIENCE)

    def add(self, a: int, b: int) -> int:
        return a + b


def test_a_client_that_fills_a_server_shuts_nobody_out(new_url: str) -> None:
    gate = Gate()
    with nearcall.Server(gate, new_url, max_pending=8, max_concurrency=20) as server:
        url = server.urls[0]
        with nearcall.connect(url, Gate) as greedy, nearcall.connect(url, Gate) as other:
            waiting = [nearcall.start(greedy.wait) for _ in range(8)]
            for _ in waiting:
                assert gate.came.acquire(timeout=PATIENCE)
            with pytest.raises(nearcall.ResourceExhausted, match="8 calls under way, which is its limit"):
                greedy.add(1, 2)
            # A quarter of the limit is there for each client.
            assert [other.add(number, 2) for number in range(20)] == list(range(2, 22))
            waiting += [nearcall.start(other.wait) for _ in range(2)]
            for _ in range(2):
                assert gate.came.acquire(timeout=PATIENCE)
            with pytest.raises(nearcall.ResourceExhausted, match="8 calls under way"):
                other.add(1, 2)
            gate.open.set()
            for call in waiting:
                call.result()
            assert greedy.add(1, 2) == other.add(1, 2) == 3
