"""The status of a finished call: gRPC's seventeen codes, with gRPC's numbers and meanings."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["StatusCode"]


_OF_NUMBERS = frozenset("bcdeEfFgGnoxX%")
"""The last characters of formats for numbers."""


class StatusCode(IntEnum):
    """How a call ended.

    The numbers are those of gRPC (``grpc/doc/statuscodes.md``), so a status means the same on every transport.
    """

    OK = 0
    """The call succeeded."""
    CANCELLED = 1
    """The caller gave up on the call."""
    UNKNOWN = 2
    """The handler raised an exception that carries no code of its own."""
    INVALID_ARGUMENT = 3
    """The arguments are wrong whatever the state of the server."""
    DEADLINE_EXCEEDED = 4
    """The time allowed for the call ran out."""
    NOT_FOUND = 5
    """The thing asked for does not exist."""
    ALREADY_EXISTS = 6
    """The thing to be made exists already."""
    PERMISSION_DENIED = 7
    """The caller is known, and may not do this."""
    RESOURCE_EXHAUSTED = 8
    """A limit was reached: message size, quota, memory, concurrency."""
    FAILED_PRECONDITION = 9
    """The system is not in the state the call needs; trying again does not help."""
    ABORTED = 10
    """The call lost a race with another; trying again from a higher level may help."""
    OUT_OF_RANGE = 11
    """A value lies past the valid range, which may change later."""
    UNIMPLEMENTED = 12
    """The server has no such method."""
    INTERNAL = 13
    """The server broke one of its own rules."""
    UNAVAILABLE = 14
    """The server cannot be reached now; trying again may help."""
    DATA_LOSS = 15
    """Data was lost or arrived damaged."""
    UNAUTHENTICATED = 16
    """The caller did not prove who it is."""

    def __str__(self) -> str:
        """``"StatusCode.NOT_FOUND"``. Without this, an ``IntEnum`` is shown as ``"5"`` from Python 3.11 on."""
        return f"StatusCode.{self.name}"

    def __format__(self, spec: str) -> str:
        """Formats the name as text, unless the format is for numbers, such as ``d``."""
        return int.__format__(self, spec) if spec[-1:] in _OF_NUMBERS else str(self).__format__(spec)
