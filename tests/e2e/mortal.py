"""A service that may die, in a module that is quickly imported: many processes serve it, one after the other."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator

import nearcall

from .process import serve_encrypted

SERVICES = f"{__name__}:served"


@nearcall.service
class Mortal:
    def pid(self) -> int:
        return os.getpid()

    @nearcall.idempotent
    def pid_again(self) -> int:
        return os.getpid()

    def count(self) -> Iterator[int]:
        yield from itertools.count()

    def die(self) -> None:
        os.kill(os.getpid(), 9)

    def wait_for_go(self, name: str) -> int:
        going(f"{name} has begun").set()
        going(name).wait(20)
        return os.getpid()


_events: dict[str, threading.Event] = {}


def going(name: str) -> threading.Event:
    """Set when a call of this process goes on."""
    return _events.setdefault(name, threading.Event())


def served() -> list[object]:
    serve_encrypted()  # also in programs of other tests, which ask for these services
    return [Mortal()]
