"""Objects that are passed, for builds that can."""

from __future__ import annotations

from exchanged import Listener

import nearcall


@nearcall.service
class Seat:
    """What the server passes."""

    def __init__(self, number: int = 0) -> None:
        self._number = number

    def number(self) -> int:
        return self._number


@nearcall.service
class Room:
    def __init__(self) -> None:
        self._kept: list[Listener] = []

    def seat(self, number: int) -> Seat:
        return Seat(number)

    def ask(self, listener: Listener, text: str) -> str:
        return listener.said(text)

    def ask_many(self, listener: Listener, n: int) -> int:
        return sum(listener.many(n))

    def keep(self, listener: Listener) -> int:
        self._kept.append(listener)
        return len(self._kept)

    def same(self, listener: Listener) -> Listener:
        return listener

    def forget(self) -> list[str]:
        said = [listener.said("bye") for listener in self._kept]
        for listener in self._kept:
            nearcall.release(listener)
        self._kept.clear()
        return said

    def seats(self, n: int) -> list[Seat]:
        return [Seat(number) for number in range(n)]

    def number_of(self, seat: Seat) -> int:
        return seat.number()
