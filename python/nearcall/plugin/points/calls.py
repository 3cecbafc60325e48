"""Counts the calls of the host that plugins have under way: each plugin has a limit, and all share the host's
threads.
"""

from __future__ import annotations

import itertools
import threading
import weakref

from ...errors import ResourceExhausted

__all__ = ["Calls", "Pool", "pool"]

_THREADS = 256
"""Calls of plugins that can run at once in one process; see :mod:`nearcall.client.callbacks`."""


class Pool:
    """The threads that all plugins of a process share.

    Three quarters of the threads go to whichever plugin calls first. Of the last quarter each plugin has an equal
    share, so that a few plugins which call without end cannot keep those of another from running.

    Args:
        threads: How many calls can run at once.
    """

    def __init__(self, threads: int) -> None:
        self.lock = threading.Lock()
        self.members: weakref.WeakSet[Calls] = weakref.WeakSet()
        self.under_way = 0
        self._free = threads * 3 // 4
        self._shared = threads - self._free

    def allows(self, own: int) -> bool:
        """Whether a plugin with ``own`` calls under way may begin one more. Only with the lock held."""
        return self.under_way < self._free or own < max(1, self._shared // max(1, len(self.members)))


pool = Pool(_THREADS)
"""The pool of this process: all plugin hosts in it have the same threads."""


class Calls:
    """The calls of one plugin's process that are under way. Any thread may use it.

    Args:
        plugin: Its id, for messages.
        most: How many calls there may be, of all services together. This also ends a plugin's calls of itself through
            the host.
        shared: The pool that it shares with other plugins.
    """

    def __init__(self, plugin: str, most: int, shared: Pool = pool) -> None:
        self._plugin = plugin
        self._most = most
        self._pool = shared
        self._numbers = itertools.count()
        self._under_way: set[int] = set()
        with shared.lock:
            shared.members.add(self)

    def enter(self) -> int:
        """Begins a call, and returns its number.

        Raises:
            ResourceExhausted: there are too many.
        """
        with self._pool.lock:
            count = len(self._under_way)
            if count >= self._most or not self._pool.allows(count):
                what = "as many as it may" if count >= self._most else "and those of all plugins are too many"
                raise ResourceExhausted(
                    f"{self._plugin} has {count} calls of the host under way, {what}: wait for one to end"
                )
            number = next(self._numbers)
            self._under_way.add(number)
            self._pool.under_way += 1
        return number

    def leave(self, number: int) -> None:
        """Ends a call. Harmless when repeated."""
        with self._pool.lock:
            if number in self._under_way:
                self._under_way.discard(number)
                self._pool.under_way -= 1
