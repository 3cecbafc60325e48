"""What threads and loops of a process wait for."""

from __future__ import annotations

import math
import threading
import time
from types import SimpleNamespace


class Events(dict[str, threading.Event]):
    """One for each key, the same for all threads that ask for it at once: a ``defaultdict`` may make each its own."""

    def __missing__(self, key: str) -> threading.Event:
        return self.setdefault(key, threading.Event())


class Hung:
    """A hook that does not return before ``over`` is set.

    ``clock`` stands for the module ``time`` of who waits for the hook: it stands still until so many threads are in
    the hook, and then all patience has passed. So no machine is too slow for what is tested.
    """

    def __init__(self, count: int) -> None:
        self.over = threading.Event()
        self._count = count
        self._inside = 0
        self._change = threading.Lock()
        self.clock = SimpleNamespace(monotonic=self._monotonic, sleep=time.sleep)

    def __call__(self) -> None:
        with self._change:
            self._inside += 1
        self.over.wait()

    def _monotonic(self) -> float:
        return math.inf if self._inside >= self._count else 0.0
