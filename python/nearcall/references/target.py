"""Calls of one object at the other end. Functions that make callables take it in place of a service's calls."""

from __future__ import annotations

from typing import Any, TypeAlias

from .. import _core

__all__ = ["Calls", "Target"]


class Target:
    """An object at the other end of a connection, for calls.

    Args:
        references: The references of the connection.
        number: The object's number there.
        keeps: Kept alive by callables and by calls under way, so that the object is not released meanwhile.
    """

    __slots__ = ("_keeps", "_number", "_references")

    def __init__(self, references: _core.References, number: int, keeps: object) -> None:
        self._references = references
        self._number = number
        self._keeps = keeps

    def unary(self, method: _core.Method) -> Any:
        """See :class:`nearcall._core.ServiceCalls`."""
        return self._references.unary(method, self._number, keeps=self._keeps)

    def oneway(self, method: _core.Method, *, for_loop: bool) -> _core.Oneway:
        """See :class:`nearcall._core.ServiceCalls`."""
        return self._references.oneway(method, self._number, for_loop=for_loop, keeps=self._keeps)

    def async_unary(self, method: _core.Method) -> Any:
        """See :class:`nearcall._core.ServiceCalls`."""
        return self._references.async_unary(method, self._number, keeps=self._keeps)

    def open(
        self, method: _core.Method, arguments: tuple[Any, ...] | dict[str, Any], *, for_loop: bool
    ) -> _core.Stream:
        """See :class:`nearcall._core.ServiceCalls`."""
        return self._references.open(method, self._number, arguments, for_loop=for_loop, keeps=self._keeps)

    @property
    def patience(self) -> float:
        """``0``: nothing is waited for."""
        return 0.0

    @property
    def connected(self) -> bool:
        """``True``: a call on a lost connection fails by itself, and no new connection would have the object."""
        return True

    @property
    def closed(self) -> bool:
        """Whether the connection is gone, for good."""
        return not self._references.alive

    def time_left(self) -> float | None:
        """Seconds that a call made now may take; ``None`` for ever."""
        return self._references.time_left()

    def check_loop(self) -> None:
        """Raises if this is not the event loop that the connection belongs to."""
        self._references.check_loop()

    def sent(self) -> None:
        """The event loop calls it when it has sent a one-way call."""
        self._references.sent()


Calls: TypeAlias = "_core.ServiceCalls | Target"
"""Where calls go: to what a server serves, or to one object."""
