"""Interfaces whose methods are as coroutines call them."""

from __future__ import annotations

from typing import ClassVar, Protocol

__all__ = ["Interface", "is_for_loops", "only_for_loops"]


class Interface(Protocol):
    """The base of an interface whose methods are as a client in an event loop has them: ``async def``, or ``def`` and
    an ``AsyncIterator`` for a stream. :func:`nearcall.aio.connect` gives type checkers an object of that interface::

        @nearcall.service(name="Calculator")
        class AsyncCalculator(nearcall.aio.Interface, Protocol):
            async def add(self, a: int, b: int) -> int: ...

    ``nearcall stub --async`` writes it for any service. A class whose handlers are all ``async def`` may derive from
    this, too. The decorator refuses other methods. :func:`nearcall.connect` refuses a ``Protocol`` that derives from
    this: threads get values, and there is nothing to await.
    """

    _nearcall_for_loops: ClassVar[bool] = True  # a member, or type checkers took every class for one of these


def is_for_loops(cls: type) -> bool:
    """Whether the methods of a class are declared as a client in an event loop has them."""
    return Interface in cls.__mro__


def only_for_loops(cls: type) -> bool:
    """Whether a class is nothing but an interface for clients in event loops. One with handlers is also what threads
    call.
    """
    return is_for_loops(cls) and bool(getattr(cls, "_is_protocol", False))
