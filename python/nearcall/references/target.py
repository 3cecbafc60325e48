"""Calls of one object at the other end: what makes callables uses it in the place of a connection."""

from __future__ import annotations

from typing import Any, TypeAlias

from .. import _core

__all__ = ["Calls", "Target"]


class Target:
    """An object at the other end of a connection, for calls.

    Args:
        references: Those of the connection.
        number: What stands for the object there.
        keeps: What lives as long as something can be called or is being called: the object is not let go of meanwhile.
    """

    __slots__ = ("_keeps", "_number", "_references")

    def __init__(self, references: _core.References, number: int, keeps: object) -> None:
        self._references = references
        self._number = number
        self._keeps = keeps

    def unary(self, method: _core.Method) -> Any:
        """See :class:`nearcall._core.Connection`."""
        return self._references.unary(method, self._number, keeps=self._keeps)

    def oneway(self, method: _core.Method, *, for_loop: bool) -> _core.Oneway:
        """See :class:`nearcall._core.Connection`."""
        return self._references.oneway(method, self._number, for_loop=for_loop, keeps=self._keeps)

    def async_unary(self, method: _core.Method) -> Any:
        """See :class:`nearcall._core.Connection`."""
        return self._references.async_unary(method, self._number, keeps=self._keeps)

    def open(
        self, method: _core.Method, arguments: tuple[Any, ...] | dict[str, Any], *, for_loop: bool
    ) -> _core.Stream:
        """See :class:`nearcall._core.Connection`."""
        return self._references.open(method, self._number, arguments, for_loop=for_loop, keeps=self._keeps)

    @property
    def connected(self) -> bool:
        """``True``: a call on a connection that is gone fails by itself, and no other one would do."""
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
        """To be called by the event loop when it has sent a one-way call."""
        self._references.sent()


Calls: TypeAlias = "_core.Connection | Target"
"""Where calls go: to what a server serves, or to one object."""
