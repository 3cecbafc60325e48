"""What threads and loops of a process wait for."""

from __future__ import annotations

import threading


class Events(dict[str, threading.Event]):
    """One for each key, the same for all threads that ask for it at once: a ``defaultdict`` may make each its own."""

    def __missing__(self, key: str) -> threading.Event:
        return self.setdefault(key, threading.Event())
