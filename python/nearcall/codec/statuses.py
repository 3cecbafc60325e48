"""Turns exceptions into statuses, and back: a code, a message, and details in msgpack.

The core calls these two functions. For a service that declares exceptions, they are bound to these exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from .._core import check_keys
from ..errors import RpcError, error_class
from ..metadata_pairs import Metadata, MetadataPairs
from ..status import StatusCode
from ..types.shown import traceback_of
from .anything import ENVELOPE, pack_plainly
from .decoders import make_decoder
from .hashed import ANYTHING
from .msgpack.functions import decode_any, encode_parts, encode_plainly, parts_decoder
from .raised import attributes_of, empty_error, exceptions_in, set_attributes, with_context

__all__ = ["MakeError", "describe_error", "make_error"]

MakeError: TypeAlias = "Callable[[int, str, bytes, MetadataPairs | None], BaseException]"
"""What the core calls with a status and the metadata that came with it."""

_LONGEST_TEXT: Final = 16 * 1024
"""Characters of an exception's text; the core sends as many bytes."""
_LONGEST_TRACEBACK: Final = 64 * 1024
"""Characters of a traceback that are sent, from its end, which says most."""


_decode_with_arrays: Final = parts_decoder(Any)


def make_error(
    code: int,
    message: str,
    details: bytes = b"",
    trailing: MetadataPairs | None = None,
    *,
    declared: Mapping[str, type[Exception]] | None = None,
) -> Exception:
    """The exception for a status that arrived.

    Args:
        code: The status code's number. One that gRPC does not define gives :class:`Unknown`.
        message: The status message.
        details: The details in msgpack; empty for none. Details that cannot be decoded are kept as bytes.
        trailing: The metadata that came with the status.
        declared: The application's exceptions that the client knows, by name.
    """
    return with_context(_made(code, message, details, trailing, declared))


def _made(
    code: int,
    message: str,
    details: bytes,
    trailing: MetadataPairs | None,
    declared: Mapping[str, type[Exception]] | None,
) -> Exception:
    value: Any = None
    envelope: dict[str, Any] = {}
    if details:
        try:
            if (inner := _in_envelope(details)) is None:
                value = _decoded(details)
            else:
                envelope = msgspec.convert(_decoded(inner), dict[str, Any])
                value = envelope.get("details")
        except Exception:
            value = bytes(details)
    error: Exception | None = None
    if declared and "error" in envelope:
        error = _restored(envelope["error"], message, value, declared)
    if error is None:
        error = error_class(code)(message, details=value)
    if trailing and isinstance(error, RpcError):
        set_attributes(error, {"_trailing": Metadata(trailing)})
    remote = envelope.get("traceback")
    if isinstance(remote, str):
        cast(Any, error).remote_traceback = remote
        if hasattr(error, "add_note"):  # Python 3.11
            cast(Any, error).add_note(f"At the server:\n{remote.rstrip()}")
    return error


_extension = make_decoder(msgspec.msgpack.Ext).decode


def _in_envelope(details: bytes) -> bytes | None:
    """What an envelope holds; ``None`` if the details are in none."""
    try:
        found = _extension(details)
    except msgspec.MsgspecError:
        return None
    return bytes(found.data) if found.code == ENVELOPE else None


def _decoded(details: bytes) -> Any:
    """Decodes details. It may raise anything, because a peer chose the bytes."""
    check_keys(details, ANYTHING)
    return decode_any(details)


def _restored(described: Any, message: str, details: Any, declared: Mapping[str, type[Exception]]) -> Exception | None:
    """The application's own exception as it was raised; ``None`` if the client does not know it."""
    try:
        name, args, attributes = described["name"], tuple(described["args"]), dict(described["attributes"])
        cls = declared.get(name)
        if cls is None:
            return None
        for key, content in described.get("others", {}).items():
            value = _other(content)
            if isinstance(key, int):
                args = (*args[:key], value, *args[key + 1 :])
            else:
                attributes[key] = value
        group = [_made(code, text, content, None, declared) for code, text, content in described.get("exceptions", ())]
        error = empty_error(cls, (args[0], group) if group else args)
        error.args = args if not group else error.args
        # A peer must not replace methods.
        own = {
            key: value for key, value in attributes.items() if _travels(key) and not callable(getattr(cls, key, None))
        }
        set_attributes(error, own)
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
        declared: The application's exceptions that arrive as the same class.
        tracebacks: Whether its traceback is sent.
    """
    code, message, details = int(StatusCode.UNKNOWN), "", None
    if isinstance(error, RpcError):
        code, message, details = int(error.code), _text(error, with_class=False), error.details
    else:
        message = _text(error)
    if details is None and not declared and not tracebacks:
        return code, message, b""
    envelope: dict[str, Any] = {}
    if details is not None:
        try:
            encoded = encode_plainly(details)
        except Exception as problem:
            message = f"{message} (its details could not be encoded: {_text(problem)})"
        else:
            if not declared and not tracebacks:
                return code, message, encoded
            envelope["details"] = msgspec.Raw(encoded)
    # Classes that the status's own class derives from, such as OSError, say less than the status.
    status: type = error_class(code) if isinstance(error, RpcError) else BaseException
    nearest = (
        cls for cls in type(error).__mro__ if cls in declared and not (cls is not status and issubclass(status, cls))
    )
    cls = next(nearest, None)
    if cls is not None:
        envelope["error"] = _described(error, cls.__name__, declared)
    if tracebacks and (text := _traceback(error)):
        envelope["traceback"] = text
    if not envelope.keys() - {"details"}:
        return code, message, bytes(envelope["details"]) if envelope else b""
    return code, message, msgspec.msgpack.encode(msgspec.msgpack.Ext(ENVELOPE, msgspec.msgpack.encode(envelope)))


def _described(error: BaseException, name: str, declared: Collection[type[Exception]]) -> dict[str, Any]:
    """The data from which the client makes the same exception again. Values that cannot be encoded are left out."""
    others: dict[str | int, Any] = {}

    def raw(key: str | int, value: Any) -> msgspec.Raw | None:
        try:
            return msgspec.Raw(encode_plainly(value))
        except Exception:
            if (content := _describe_other(value)) is not None:
                others[key] = content
            return None

    taken = {"message", "details"} if isinstance(error, RpcError) else set[str]()
    held = {key: value for key, value in attributes_of(error).items() if _travels(key) and key not in taken}
    attributes = {key: raw(key, value) for key, value in held.items()}
    described: dict[str, Any] = {
        "name": name,
        "args": [raw(index, value) for index, value in enumerate(error.args)],
        "attributes": {key: value for key, value in attributes.items() if value is not None},
    }
    # Keys of their own: an older client does not know them, and goes without what they hold.
    if others:
        described["others"] = others
    if (inner := exceptions_in(error)) is not None:
        described["exceptions"] = [describe_error(each, declared=declared) for each in inner]
    return described


def _describe_other(value: Any) -> Any:
    """What is sent of a value that msgpack alone cannot hold; ``None`` if nothing can be."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")  # as a UnicodeEncodeError has it
        body, buffers = encode_parts(pack_plainly(value))
        return body, [bytes(buffer) for buffer in buffers]
    except Exception:
        return None


def _other(content: Any) -> Any:
    """The value of :func:`_describe_other`. It may raise anything, because a peer chose the content."""
    if isinstance(content, bytes):
        return content.decode("utf-8", "surrogatepass")
    body, buffers = content
    check_keys(body, ANYTHING)
    return _decode_with_arrays(body, [memoryview(buffer) for buffer in buffers])


def _travels(key: Any) -> bool:
    """Whether an exception's attribute of that name is sent. Its notes and a traceback stay at the server."""
    return isinstance(key, str) and not key.startswith("_") and key != "remote_traceback"


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback_of(error, begin_with_user=True).format())
    except Exception as problem:
        return f"(the traceback could not be made: {type(problem).__name__})"
    if len(text) > _LONGEST_TRACEBACK:
        text = f"...\n{text[-_LONGEST_TRACEBACK:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _text(error: BaseException, *, with_class: bool = True) -> str:
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST_TEXT]
        # A str may hold lone surrogates, which UTF-8, the form that is sent, cannot.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception as problem:
        return f"{name} (its text could not be made: {type(problem).__name__})"
    if not with_class:
        return text
    return f"{name}: {text}" if text else name
