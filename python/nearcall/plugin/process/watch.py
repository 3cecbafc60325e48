"""One thread that watches all plugins of a host: their ends, their output, and timers."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ...log import ERROR, log

__all__ = ["Watch"]


class Watch:
    """A thread with a list of descriptors and timers to wait for. It starts with the first of them, and sleeps while
    nothing happens.

    The functions that it calls must not wait. Its methods may be called from any thread, unless they say otherwise.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._selector.register(self._reading, selectors.EVENT_READ, None)
        self._calls: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._ended = False
        self._closed = False
        self._calling = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], object]) -> bool:
        """Has the thread call a function soon. ``False`` if the thread has ended, and will not call it."""
        with self._calling:
            if self._closed:
                return False
            self._calls.append(function)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nearcall-plugins", daemon=True)
                self._thread.start()
            with contextlib.suppress(BlockingIOError):  # the pipe is full: the thread is awake
                os.write(self._writing, b"x")
            return True

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        """Has the thread call a function after some seconds, unless the thread ends before."""
        at = time.monotonic() + seconds
        self.call(lambda: heapq.heappush(self._timers, (at, next(self._numbers), function)))

    def follow(self, descriptor: int, function: Callable[[], object]) -> None:
        """Has the thread call a function whenever a descriptor can be read. Only to be called in the thread itself."""
        self._selector.register(descriptor, selectors.EVENT_READ, function)

    def forget(self, descriptor: int) -> None:
        """Ends :meth:`follow`. Only to be called in the thread itself. Harmless when repeated."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def end(self) -> None:
        """Ends the thread, and waits for that."""

        def end() -> None:
            self._ended = True

        if self.call(end) and self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(timeout):
                function: Any = key.data
                if function is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._reading, 4096)
                elif self._selector.get_map().get(key.fd) is key:  # an earlier function may have called forget()
                    self._safely(function)
            for _ in range(len(self._calls)):
                self._safely(self._calls.popleft())
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                self._safely(heapq.heappop(self._timers)[2])
        with self._calling:
            self._closed = True
            self._selector.close()
            os.close(self._reading)
            os.close(self._writing)
        while self._calls:  # threads may wait for these calls
            self._safely(self._calls.popleft())

    @staticmethod
    def _safely(function: Callable[[], object]) -> None:
        try:
            function()
        except Exception as error:
            log(ERROR, "the thread that watches plugins met an error", error=error)
