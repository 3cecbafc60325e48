"""A stream from another process that is kept: begun anew, after a pause, whenever it ends."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import uniform
from typing import Any, Final

from ..errors import RpcError

__all__ = ["Standing"]

_SHORTEST: Final = 0.05
_LONGEST: Final = 2.0
"""Seconds between two attempts."""


class Standing(ABC):
    """Keeps one; a class of its own says what it is about."""

    spread = False
    """Whether a pause is half as long or longer, by chance: not all who lose the same server come back at once."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._client: Any = None

    @abstractmethod
    def connect(self) -> Any:
        """Makes a client."""

    @abstractmethod
    def begin(self, service: Any) -> Iterable[Any]:
        """Begins the stream."""

    @abstractmethod
    def take(self, service: Any, item: Any) -> None:
        """Takes an item."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """Hears what ended the stream, or kept it from beginning, unless :meth:`end` did."""

    def run(self) -> None:
        """Works until :meth:`end` is called. For a thread of its own."""
        pause = _SHORTEST
        while not self._ended.is_set():
            try:
                client = self.connect()
                with self._lock:
                    self._client = client
                for item in () if self._ended.is_set() else self.begin(client.service):
                    pause = _SHORTEST
                    self.take(client.service, item)
            except Exception as error:
                if not (isinstance(error, RpcError) and self._ended.is_set()):
                    self.failed(error)
            self._close()
            self._ended.wait(uniform(pause / 2, pause) if self.spread else pause)
            pause = min(pause * 2, _LONGEST)

    def end(self) -> None:
        """Ends the stream."""
        self._ended.set()
        self._close()

    def _close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
