"""A service whose workers share topics; :mod:`.workers_program` serves it."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nearcall


@dataclass
class Said:
    by: int
    number: int
    text: bytes = b""


@nearcall.service
class Room:
    def __init__(self) -> None:
        self._said = nearcall.Topic[Said](name="said", keep_last=True)
        self._all = nearcall.Topic[Said](name="all")
        self._some = nearcall.Topic[Said](name="some", when_full="drop_oldest", max_buffer=1 << 16)
        self._kept = nearcall.Topic[int](name="kept", keep_last=True)
        self._anything = nearcall.Topic[Any](name="anything")

    def pid(self) -> int:
        return os.getpid()

    def say(self, numbers: int, size: int = 0) -> int:
        """Says so many things in all topics; returns its process."""
        for number in range(numbers):
            for topic in (self._said, self._all, self._some):
                topic.publish(Said(os.getpid(), number, bytes(size)))
            self._anything.publish((number, {"a"}))
        return os.getpid()

    def mark(self, number: int) -> None:
        """Says one thing, in the topic that keeps its last item."""
        self._said.publish(Said(os.getpid(), number))

    def mark_when_told(self, number: int, path: str) -> None:
        """The same, once something is written to a pipe. Until then no other thread of the process runs Python."""
        library, interval = ctypes.PyDLL(None), sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            pipe = library.open(path.encode(), os.O_RDONLY)
            library.read(pipe, ctypes.create_string_buffer(1), 1)
            self.mark(number)
            os.close(pipe)
        finally:
            sys.setswitchinterval(interval)

    def said(self) -> Iterator[Said]:
        return self._said.subscribe()

    def keep(self, number: int) -> None:
        self._kept.publish(number)

    def kept(self) -> Iterator[int]:
        return self._kept.subscribe()

    def all(self) -> Iterator[Said]:
        return self._all.subscribe()

    def some(self) -> Iterator[Said]:
        return self._some.subscribe()

    def end_some(self) -> None:
        self._some.close()

    def anything(self) -> Iterator[Any]:
        return self._anything.subscribe()

    def made_late(self) -> Iterator[Said]:
        """Of a topic that was made after others have published."""
        return nearcall.Topic[Said](name="said", keep_last=True).subscribe()

    def hog(self, seconds: int) -> None:
        """Keeps the interpreter's lock."""
        ctypes.PyDLL(None).sleep(seconds)


def logged() -> Room:
    """Writes its log to the standard error stream."""
    logging.basicConfig(level=logging.INFO)
    return Room()
