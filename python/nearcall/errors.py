"""The exceptions of nearcall: one class per status code, all below :class:`RpcError`.

A handler raises one of them to end its call with that code; the caller receives the same class::

    raise nearcall.NotFound("no user 17", details={"id": 17})

Where Python has a builtin exception with the same meaning, the class is one of those as well, so that
``except TimeoutError`` catches :class:`DeadlineExceeded`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .metadata_pairs import Metadata
from .status import StatusCode

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "DataLoss",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "ResourceExhausted",
    "RpcError",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "error_class",
]


class RpcError(Exception):
    """A call that failed.

    Raise a subclass rather than this class itself; catch this class to catch them all.

    Args:
        message: One line for a person: what, where, and what to do.
        details: Any value that nearcall can encode; it arrives at the caller as plain data
            (a dataclass arrives as a dict). ``None`` means there are none.
    """

    code: ClassVar[StatusCode] = StatusCode.UNKNOWN
    """The status code of this class."""

    message: str
    details: Any
    remote_traceback: str | None = None
    """The traceback at the server, if the server sends tracebacks (``Server(tracebacks=True)``)."""
    option: str | None = None
    """The name of the option, if the error is a wrong option: ``"ring_size"``, or ``"tls.ca"`` for an option of TLS."""

    _trailing = Metadata()

    def __init__(self, message: str = "", *, details: Any = None) -> None:
        # Not super().__init__: bases such as OSError would interpret the arguments.
        Exception.__init__(self, message)
        self.message = message
        self.details = details

    @property
    def trailing_metadata(self) -> Metadata:
        """The metadata that the server sent with the end of the call that failed: what its handler gave to
        ``add_trailing_metadata``, or a gRPC server in its trailers. Empty if there was none, or the call did not reach
        a server. It is not passed on when a handler raises the error on to its own caller.
        """
        return self._trailing

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        details = "" if self.details is None else f", details={self.details!r}"
        return f"{type(self).__name__}({self.message!r}{details})"

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError, a base of some subclasses, reduces to the arguments of its own constructor, which differ from
        # RpcError's.
        return _rebuild, (type(self), self.message, self.details), self.__dict__


def _rebuild(cls: type[RpcError], message: str, details: Any) -> RpcError:
    return cls(message, details=details)


class Cancelled(RpcError):
    """The caller gave up on the call."""

    code = StatusCode.CANCELLED


class Unknown(RpcError):
    """The handler raised an exception that carries no code of its own; the message begins with its class."""

    code = StatusCode.UNKNOWN


class InvalidArgument(RpcError, ValueError):
    """The arguments are wrong: their number, a name, a type or a value. Also a ``ValueError``."""

    code = StatusCode.INVALID_ARGUMENT


class DeadlineExceeded(RpcError, TimeoutError):
    """The time allowed for the call ran out. Also a ``TimeoutError``."""

    code = StatusCode.DEADLINE_EXCEEDED


class NotFound(RpcError, LookupError):
    """The thing asked for does not exist. Also a ``LookupError``."""

    code = StatusCode.NOT_FOUND


class AlreadyExists(RpcError):
    """The thing to be made exists already."""

    code = StatusCode.ALREADY_EXISTS


class PermissionDenied(RpcError, PermissionError):
    """The caller is known, and may not do this. Also a ``PermissionError``."""

    code = StatusCode.PERMISSION_DENIED


class ResourceExhausted(RpcError):
    """A limit was reached; the message names it and the option that raises it."""

    code = StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(RpcError):
    """The system is not in the state the call needs, or client and server disagree about the service."""

    code = StatusCode.FAILED_PRECONDITION


class Aborted(RpcError):
    """The call lost a race with another one."""

    code = StatusCode.ABORTED


class OutOfRange(RpcError, ValueError):
    """A value lies past the valid range. Also a ``ValueError``."""

    code = StatusCode.OUT_OF_RANGE


class Unimplemented(RpcError, NotImplementedError):
    """The server has no such method. Also a ``NotImplementedError``."""

    code = StatusCode.UNIMPLEMENTED


class Internal(RpcError):
    """The server broke one of its own rules, for example by returning what its annotation does not allow."""

    code = StatusCode.INTERNAL


class Unavailable(RpcError, ConnectionError):
    """The server cannot be reached, or died during the call. Also a ``ConnectionError``."""

    code = StatusCode.UNAVAILABLE


class DataLoss(RpcError):
    """Data was lost or arrived damaged."""

    code = StatusCode.DATA_LOSS


class Unauthenticated(RpcError):
    """The caller did not prove who it is."""

    code = StatusCode.UNAUTHENTICATED


_CLASSES: dict[int, type[RpcError]] = {
    int(cls.code): cls
    for cls in (
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
        Unauthenticated,
    )
}


def error_class(code: int) -> type[RpcError]:
    """The exception class of a status code; :class:`Unknown` for a number that gRPC does not define, and for OK."""
    return _CLASSES.get(code, Unknown)
