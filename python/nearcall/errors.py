"""The exceptions of nearcall: one class per status code, all below :class:`RpcError`.

A handler raises one of them to end its call with that code; the caller receives the same class::

    raise nearcall.NotFound("no user 17", details={"id": 17})

Where Python has a builtin exception with the same meaning, the class is one of those as well, so that
``except TimeoutError`` catches :class:`DeadlineExceeded`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final, cast

import msgspec

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
    "describe_error",
    "error_class",
    "make_error",
]


class RpcError(Exception):
    """A call that did not end well.

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
    """The traceback at the server, if it sends them (``Server(tracebacks=True)``)."""

    def __init__(self, message: str = "", *, details: Any = None) -> None:
        # Not super().__init__: bases such as OSError would read meaning into the arguments.
        Exception.__init__(self, message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        details = "" if self.details is None else f", details={self.details!r}"
        return f"{type(self).__name__}({self.message!r}{details})"

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError, a base of some subclasses, reduces to its own constructor's arguments; ours differ.
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

_ENVELOPE: Final = 3
"""The msgpack extension type of details that have more beside them (see docs/protocol.md)."""
_LONGEST_TRACEBACK: Final = 64 * 1024
"""Characters of a traceback that travel; the end says most."""


def error_class(code: int) -> type[RpcError]:
    """The exception class of a status code; :class:`Unknown` for a number that gRPC does not define, and for OK."""
    return _CLASSES.get(code, Unknown)


def make_error(
    code: int, message: str, details: bytes = b"", *, declared: Mapping[str, type[Exception]] | None = None
) -> Exception:
    """The exception for a status that arrived.

    Args:
        code: The status code's number. One that gRPC does not define gives :class:`Unknown`.
        message: The status message.
        details: The details in msgpack; empty for none. Details that cannot be decoded are kept as the bytes they are.
        declared: The application's exceptions that the client knows, by name.
    """
    value: Any = None
    envelope: dict[str, Any] = {}
    if details:
        from .codec.msgpack import decode_any

        try:
            value = decode_any(details)
            if isinstance(value, msgspec.msgpack.Ext) and value.code == _ENVELOPE:
                envelope = msgspec.convert(decode_any(value.data), dict[str, Any])
                value = envelope.get("details")
        except Exception:
            value = bytes(details)
    error: Exception | None = None
    if declared and "error" in envelope:
        error = _restored(envelope["error"], message, value, declared)
    if error is None:
        error = error_class(code)(message, details=value)
    remote = envelope.get("traceback")
    if isinstance(remote, str):
        cast(Any, error).remote_traceback = remote
        if hasattr(error, "add_note"):  # Python 3.11
            cast(Any, error).add_note(f"At the server:\n{remote.rstrip()}")
    return error


def _restored(described: Any, message: str, details: Any, declared: Mapping[str, type[Exception]]) -> Exception | None:
    """The application's own exception as it was raised; ``None`` if the client does not know it."""
    try:
        name, args, attributes = described["name"], tuple(described["args"]), dict(described["attributes"])
        cls = declared.get(name)
        if cls is None:
            return None
        # As pickle does, but without the class's __init__: that takes what the class likes, and has run at the server.
        error = cls.__new__(cls, *args)
        error.args = args
        # A peer must not replace methods.
        own = {
            key: value for key, value in attributes.items() if _travels(key) and not callable(getattr(cls, key, None))
        }
        error.__dict__.update(own)
        if isinstance(error, RpcError):
            error.message, error.details = message, details
        return error
    except Exception:
        return None


def describe_error(
    error: BaseException, *, declared: Collection[type[Exception]] = (), tracebacks: bool = False
) -> tuple[int, str, bytes]:
    """The status to send for an exception that a handler raised: code, message, details in msgpack.

    An :class:`RpcError` keeps its code; any other exception becomes ``UNKNOWN`` with its class and text as the
    message. Never raises, whatever the exception's own methods do.

    Args:
        error: The exception.
        declared: The application's exceptions that travel as themselves.
        tracebacks: Whether its traceback travels.
    """
    code, message, details = int(StatusCode.UNKNOWN), "", None
    if isinstance(error, RpcError):
        code, message, details = int(error.code), _text(error, with_class=False), error.details
    else:
        message = _text(error)
    if details is None and not declared and not tracebacks:
        return code, message, b""
    # Imported when first needed: the codec's own modules raise these errors.
    from .codec.msgpack import encode_plainly as encode

    envelope: dict[str, Any] = {}
    if details is not None:
        try:
            encoded = encode(details)
        except Exception as problem:
            message = f"{message} (its details could not be encoded: {_text(problem)})"
        else:
            if not declared and not tracebacks:
                return code, message, encoded
            envelope["details"] = msgspec.Raw(encoded)
    cls = next((cls for cls in type(error).__mro__ if cls in declared), None)
    if cls is not None:
        envelope["error"] = _described(error, cls.__name__, encode)
    if tracebacks and (text := _traceback(error)):
        envelope["traceback"] = text
    if not envelope.keys() - {"details"}:
        return code, message, bytes(envelope["details"]) if envelope else b""
    return code, message, msgspec.msgpack.encode(msgspec.msgpack.Ext(_ENVELOPE, msgspec.msgpack.encode(envelope)))


def _described(error: BaseException, name: str, encode: Any) -> dict[str, Any]:
    """What makes the same exception of the same class again; what cannot be encoded is left out."""

    def raw(value: Any) -> msgspec.Raw | None:
        try:
            return msgspec.Raw(encode(value))
        except Exception:
            return None

    taken = {"message", "details"} if isinstance(error, RpcError) else set[str]()
    attributes = {key: raw(value) for key, value in vars(error).items() if _travels(key) and key not in taken}
    return {
        "name": name,
        "args": [raw(value) for value in error.args],
        "attributes": {key: value for key, value in attributes.items() if value is not None},
    }


def _travels(key: Any) -> bool:
    """Whether an exception's attribute of that name is its own. Its notes and a traceback are the server's business."""
    return isinstance(key, str) and not key.startswith("_") and key != "remote_traceback"


def _traceback(error: BaseException) -> str:
    try:
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:
        return f"(the traceback could not be made: {type(problem).__name__})"
    if len(text) > _LONGEST_TRACEBACK:
        text = f"...\n{text[-_LONGEST_TRACEBACK:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _text(error: BaseException, *, with_class: bool = True) -> str:
    name = type(error).__name__
    try:
        text = str(error)
        # Lone surrogates can be in a str but not in UTF-8, which is what travels.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception as problem:
        return f"{name} (its text could not be made: {type(problem).__name__})"
    if not with_class:
        return text
    return f"{name}: {text}" if text else name
