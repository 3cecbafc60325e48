"""Instruments of a laboratory, each in a process of its own and found by name: what was a program for Pyro5.

Written from the pages of docs/ alone: from-pyro5, guide/objects, guide/sessions, guide/interfaces,
guide/failures, guide/reconnecting. Where Pyro5 has its name server, this has forty lines, `Names`. Run by
test_instruments.py, and by hand, each in a terminal:

    python instruments.py names tcp://127.0.0.1:7300
    python instruments.py serve tcp://127.0.0.1:7300 scope 3
    python instruments.py record tcp://127.0.0.1:7300 scope 4
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import nearcall


@dataclass(frozen=True)
class Place:
    """What is said of an instrument: Pyro5's URI, with the words of its yellow pages."""

    url: str
    words: frozenset[str] = frozenset()


class Taken(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is a {name} already")
        self.name = name


class NotArmed(Exception):
    """An instrument was to record, and nobody has said at what level."""


@nearcall.service(errors=[Taken])
class Names(Protocol):
    """Says where instruments are: what threads see of it."""

    def keep(self, name: str, place: Place) -> Iterator[None]:
        """One item once the name is known. It lasts as long as the stream: nothing is left of the dead."""
        ...

    def lookup(self, name: str) -> Place: ...
    def having(self, words: frozenset[str]) -> dict[str, Place]: ...


@nearcall.service(name="Names", errors=[Taken])
class Directory:
    """The same with coroutines: those who keep a name cost no thread, and one loop needs no lock."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    async def keep(self, name: str, place: Place) -> AsyncIterator[None]:
        if name in self._places:
            raise Taken(name)
        self._places[name] = place
        try:
            yield
            await asyncio.Event().wait()  # until the caller is gone
        finally:
            del self._places[name]

    async def lookup(self, name: str) -> Place:
        if name not in self._places:
            raise nearcall.NotFound(f"there is no {name}", details=sorted(self._places))
        return self._places[name]

    async def having(self, words: frozenset[str]) -> dict[str, Place]:
        return {name: place for name, place in self._places.items() if words <= place.words}


@nearcall.service
class Listener(Protocol):
    """Implemented by who records: Pyro5 needs a daemon and a thread for it there."""

    def reading(self, number: int, volts: float) -> None: ...
    def warning(self, text: str) -> None: ...


@nearcall.service(instance="session", errors=[NotArmed])
class Scope:
    """Each client has one of its own, as with Pyro5's `instance_mode="session"`."""

    def __init__(self, factor: float, log: Callable[[str], None]) -> None:
        self._factor = factor
        self._log = log
        self._level: float | None = None

    def arm(self, level: float) -> None:
        self._level = level

    def record(self, count: int, listener: Listener, wanted: Callable[[int], bool] | None = None) -> int:
        """How many readings were told; `wanted` is asked for each."""
        if self._level is None:
            raise NotArmed("say arm(level) first")
        told = 0
        for number in range(count):
            if wanted is not None and not wanted(number):
                continue
            volts = number * self._factor
            listener.reading(number, volts)
            if volts > self._level:
                listener.warning(f"{volts:g} V is over {self._level:g} V")
            told += 1
        return told

    def watch(self) -> Iterator[float]:
        """Readings until nobody wants more."""
        number = 0
        while True:
            yield number * self._factor
            number += 1
            time.sleep(0.001)

    def close(self) -> None:
        """Its client is gone."""
        self._log("disarmed" if self._level is not None else "never armed")


def names(url: str) -> None:
    nearcall.serve(Directory(), url, on_ready=lambda server: print(*server.urls, flush=True))


def keep_name(names_url: str, name: str, place: Place) -> None:
    """Whatever happens to the name server: when it is there again, it is told again."""
    with nearcall.connect(names_url, Names, wait_for_ready=True, handshake_timeout=1e9) as names:
        while True:
            try:
                for _ in names.keep(name, place):
                    print("known as", name, flush=True)
            except nearcall.Unavailable:
                continue
            except Taken as error:
                print(error, flush=True)
                time.sleep(0.05)  # one that has died may be forgotten soon


def serve(names_url: str, name: str, factor: str, *words: str) -> None:
    def make() -> Scope:
        return Scope(float(factor), lambda text: print(text, flush=True))

    def ready(server: nearcall.Server) -> None:
        place = Place(server.urls[0], frozenset(words))
        threading.Thread(target=keep_name, args=(names_url, name, place), daemon=True).start()

    nearcall.serve(make, "tcp://127.0.0.1:0", on_ready=ready)


class Printer(Listener):
    def reading(self, number: int, volts: float) -> None:
        print(f"{number}: {volts:g} V", flush=True)

    def warning(self, text: str) -> None:
        print("warning:", text, flush=True)


def record(names_url: str, name: str, count: str) -> None:
    with nearcall.connect(names_url, Names) as names:
        place = names.lookup(name)
    with nearcall.connect(place.url, Scope) as scope:
        try:
            scope.record(1, Printer())
        except NotArmed as error:
            print(error)
        scope.arm(level=7.0)
        told = scope.record(int(count), Printer(), lambda number: number % 2 == 0)
        print(told, "told")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    commands: dict[str, Callable[..., None]] = {"names": names, "serve": serve, "record": record}
    commands[command](*rest)
