"""Spinning is bounded: who waits for long sleeps, and who has nothing to do uses no CPU."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

import nearcall

from .process import ServerProcess
from .services import PATIENCE, Basics, Waiting

A_WHILE = 0.5
AT_MOST = 0.1
"""CPU seconds in a while: far more than the longest spin, a hundred microseconds, and far less than spinning on."""

MANY = 20
"""More tasks than there must be for them to let each other run first."""


@pytest.mark.slow
def test_a_client_that_waits_for_long_sleeps(outside_url: str, key: str) -> None:
    used: list[float] = []
    with (
        ServerProcess(outside_url) as server,
        nearcall.connect(server.url, Waiting) as waiting,
        nearcall.connect(server.url, Waiting) as other,
    ):

        def call() -> None:
            before = time.thread_time()
            assert waiting.hold(key) == key
            used.append(time.thread_time() - before)

        caller = threading.Thread(target=call)
        caller.start()
        assert other.entered(key)
        time.sleep(A_WHILE)  # what is measured, not what the test waits for
        other.release(key)
        caller.join(PATIENCE)
    assert len(used) == 1
    assert used[0] < AT_MOST


@pytest.mark.slow
def test_many_tasks_that_wait_for_long_sleep(outside_url: str, key: str) -> None:
    """Tasks first let each other run: not for ever."""
    used: list[float] = []

    async def call_all(url: str) -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            holds = [asyncio.ensure_future(waiting.hold(f"{key}-{number}")) for number in range(MANY)]
            assert all([await waiting.entered(f"{key}-{number}") for number in range(MANY)])
            before = time.thread_time()
            await asyncio.sleep(A_WHILE)  # what is measured
            used.append(time.thread_time() - before)
            holds.pop().cancel()
            for number in range(MANY):
                await waiting.release(f"{key}-{number}")
            assert await asyncio.gather(*holds) == [f"{key}-{number}" for number in range(MANY - 1)]

    with ServerProcess(outside_url) as server:
        asyncio.run(call_all(server.url))
    assert used[0] < AT_MOST


@pytest.mark.slow
def test_a_server_at_rest_uses_no_cpu(outside_url: str) -> None:
    with ServerProcess(outside_url) as server, nearcall.connect(server.url, Basics) as basics:

        def used() -> float:
            times = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

        for _ in range(50):
            assert basics.add(1) == 6
        for _ in range(10):  # threads that have only just begun may have something to do
            before = used()
            time.sleep(A_WHILE)
            if used() - before < AT_MOST:
                break
        else:
            raise AssertionError("the server does not come to rest")
        assert basics.add(1) == 6
