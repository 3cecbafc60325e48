"""One client and many threads that use all of it at once, beside attackers: ``python -m tests.hostile.hammer URL
SECONDS DEADLINE``. Prints how often each thing was done, as JSON; shows where all threads are and ends if one does not
get on.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import nearcall

from .services import Target

HUNG = 3
"""Deadlines without a step after which a thread hangs: three times what its longest step may take."""
_PR_SET_PDEATHSIG = 1


class Hammer:
    """What the threads share."""

    def __init__(self, url: str, seconds: float, deadline: float) -> None:
        self.url = url
        self.deadline = deadline
        self.end = time.monotonic() + seconds
        self.client: Any = self.connect()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.steps: dict[str, float] = {}

    def connect(self) -> Any:
        return nearcall.connect(self.url, Target, timeout=self.deadline, handshake_timeout=self.deadline)

    def thread(self, number: int, name: str, step: Callable[[random.Random], None]) -> threading.Thread:
        """Repeats a step until the end, or until it was done once: after the end nobody closes the client."""
        chance = random.Random(number)

        def run() -> None:
            key = f"{name} {number}"
            while time.monotonic() < self.end or not (self.done[name] or self.wrong):
                self.steps[key] = time.monotonic()
                try:
                    step(chance)
                except nearcall.RpcError as error:
                    # Clients are closed under those who use them; nothing else may fail.
                    if not isinstance(error, nearcall.Unavailable | nearcall.Cancelled):
                        self.wrong.append(f"{key}: {type(error).__name__}: {error}")
                    self.done[f"{name} refused"] += 1
                except Exception as error:
                    self.wrong.append(f"{key}: {type(error).__name__}: {error}")
                else:
                    self.done[name] += 1
            del self.steps[key]

        return threading.Thread(target=run, daemon=True)

    def echo(self, chance: random.Random) -> None:
        data = os.urandom(chance.choice([1, 100, 30_000, 200_000]))
        assert self.client.service.echo(data) == data

    def counts(self, chance: random.Random) -> None:
        assert list(self.client.service.count(50)) == list(range(50))

    def leaves_a_stream(self, chance: random.Random) -> None:
        stream = self.client.service.blocks(chance.choice([10, 50_000]))
        for _ in range(chance.randrange(5)):
            next(stream)
        stream.close()

    def mirrors(self, chance: random.Random) -> None:
        blocks = [os.urandom(chance.randrange(40_000)) for _ in range(10)]
        assert list(self.client.service.mirrored(iter(blocks))) == blocks

    def pings(self, chance: random.Random) -> None:
        assert self.client.ping(self.deadline) < self.deadline

    def looks(self, chance: random.Random) -> None:
        client = self.client
        assert client.closed in (True, False)
        assert client.connected in (True, False)
        assert "client" in repr(client)
        with contextlib.suppress(nearcall.RpcError):
            assert client.peer

    def is_late(self, chance: random.Random) -> None:
        """A call that the client gives up."""
        with contextlib.suppress(nearcall.DeadlineExceeded), nearcall.timeout(0.002):
            self.client.service.nap(0.01)

    def notes(self, chance: random.Random) -> None:
        for _ in range(20):
            self.client.service.note(bytes(chance.choice([10, 20_000])))

    def replaces(self, chance: random.Random) -> None:
        """Closes the client that all use, so seldom that longer calls end in between on a busy machine."""
        time.sleep(0.3)
        client, self.client = self.client, self.connect()
        client.close()

    def run(self) -> int:
        steps = (self.echo, self.echo, self.counts, self.leaves_a_stream, self.mirrors, self.pings, self.looks)
        numbers = itertools.count()
        threads = [self.thread(next(numbers), step.__name__, step) for step in (*steps, *steps)]
        threads += [self.thread(next(numbers), one.__name__, one) for one in (self.is_late, self.notes, self.replaces)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            now = time.monotonic()
            hung = [key for key, since in list(self.steps.items()) if now - since > HUNG * self.deadline]
            if hung:
                print(json.dumps({"hung": hung, "wrong": self.wrong[:10]}), flush=True)
                faulthandler.dump_traceback(all_threads=True)
                return 2
        self.client.close()
        print(json.dumps({"done": self.done, "wrong": self.wrong[:10]}), flush=True)
        return 1 if self.wrong else 0


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    status = Hammer(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])).run()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
