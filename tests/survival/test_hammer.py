"""Many threads use one client at once while others look at it and close it, and its server comes and goes: nobody waits
for ever, and looking never waits at all.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

import nearcall

from ..e2e.process import ServerProcess
from .conftest import SERVICES
from .observing import stopped
from .services import SMALL, Target

pytestmark = pytest.mark.crash
THREADS = 12
ACTIONS = 150
"""How many things each thread does."""
STUCK = 30.0
"""Seconds without an action of a thread that mean that it is stuck: far more than any deadline here."""


class Hammer:
    """Threads that share a client, which is replaced by another one whenever a thread has closed it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self.client = self._connect()
        self.ended: Counter[str] = Counter()
        self._last = [time.monotonic()] * THREADS
        self._over = [False] * THREADS

    def _connect(self) -> nearcall.Client[Target]:
        return nearcall.connect(self._url, Target, timeout=0.3, wait_for_ready=True, handshake_timeout=20.0)

    def run(self, number: int) -> None:
        chance = random.Random(number)
        actions: list[Callable[[nearcall.Client[Target]], object]] = [
            lambda client: client.closed,
            repr,
            lambda client: client.connected,
            lambda client: client.service.echo(SMALL),
            lambda client: client.ping(0.3),
            self._stream,
            self._both_ways,
            lambda client: client.service.length(memoryview(bytes(100_000))),
        ]
        try:
            for _ in range(ACTIONS):
                client = self.client
                action = self._replace if chance.random() < 0.01 else chance.choice(actions)
                try:
                    action(client)
                    self.ended["well"] += 1
                except nearcall.RpcError as error:
                    self.ended[type(error).__name__] += 1
                self._last[number] = time.monotonic()
        finally:
            self._over[number] = True

    def _replace(self, client: nearcall.Client[Target]) -> None:
        client.close()
        if self._lock.acquire(blocking=False):
            try:
                if self.client.closed:
                    self.client = self._connect()
            finally:
                self._lock.release()

    @staticmethod
    def _stream(client: nearcall.Client[Target]) -> None:
        numbers = client.service.endless("hammer")
        for expected in range(5):
            assert next(numbers, expected) == expected
        numbers.close()

    @staticmethod
    def _both_ways(client: nearcall.Client[Target]) -> None:
        assert list(client.service.doubled(iter(range(20)))) == list(range(0, 40, 2))

    def watch(self) -> bool:
        """Whether threads are still at work; ends the test with all stacks if one is stuck."""
        now = time.monotonic()
        working = [number for number, over in enumerate(self._over) if not over]
        if any(now - self._last[number] > STUCK for number in working):
            faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
            pytest.fail(f"stuck: threads {working}, {self.ended}")
        return bool(working)


def test_nobody_is_stuck_whatever_the_others_do(new_url: str) -> None:
    server = ServerProcess(new_url, services=SERVICES)
    with server:
        url = server.url
        hammer = Hammer(url)
        threads = [threading.Thread(target=hammer.run, args=[number], daemon=True) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        with stopped(server.pid):
            _let_work(hammer, 0.5)
        _let_work(hammer, 0.5)
        server.kill()
    _let_work(hammer, 0.2)
    with ServerProcess(url, services=f"{SERVICES}_and_more") as second:
        # Clients find a server that does not finish their handshakes, and then one that describes itself differently.
        with stopped(second.pid):
            _let_work(hammer, 1.0)
        while hammer.watch():
            time.sleep(0.02)  # looking again, not what the test waits for
        for thread in threads:
            thread.join(20)
        hammer.client.close()
        assert hammer.client.closed
        with nearcall.connect(url, Target) as target:
            assert target.echo(SMALL) == SMALL
    assert sum(hammer.ended.values()) == THREADS * ACTIONS, hammer.ended
    assert set(hammer.ended) <= {"well", "Unavailable", "DeadlineExceeded", "Cancelled"}, hammer.ended


def _let_work(hammer: Hammer, seconds: float) -> None:
    """Lets the threads work for a while: nothing that is asserted depends on how long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and hammer.watch():
        time.sleep(0.02)
