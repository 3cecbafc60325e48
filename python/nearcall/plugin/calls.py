"""Calls of the host that plugins have under way: each has a limit, and all together share the host's threads."""

from __future__ import annotations

import itertools
import threading
import weakref

from ..errors import ResourceExhausted

__all__ = ["Calls", "Pool", "pool"]

_THREADS = 256
"""Calls that plugins can have run at once in one process; see :mod:`nearcall.client.callbacks`."""


class Pool:
    """What all plugins of a process share.

    Three quarters of the threads go to whoever comes first. Of the last quarter each plugin has an equal share: so a
    few that call without end cannot keep the calls of another from being run.

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
        """Whether one more call may begin of a plugin that has so many under way. Only with the lock."""
        return self.under_way < self._free or own < max(1, self._shared // max(1, len(self.members)))


pool = Pool(_THREADS)
"""That of this process: all plugin hosts in it have the same threads."""


class Calls:
    """The calls of one plugin's process that are under way. Any thread may use it.

    Args:
        plugin: Its id, for messages.
        most: How many there may be, of all services together: a plugin that calls itself through the host ends here.
        shared: What it shares with others.
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
        """Begins a call; its number.

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
