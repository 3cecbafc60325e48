"""One-line errors for values and messages that the encoder and the decoder refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from ..errors import Internal, InvalidArgument, ResourceExhausted, RpcError
from ..types.hints import describe_value
from ..types.shown import shown
from .culprit import LONGEST_KEY, find_culprit, kind_of_text
from .msgpack.functions import encode_parts
from .raised import with_context
from .refused import users_error
from .senders import MisfitError, Sender

__all__ = [
    "caused",
    "explain_decode_error",
    "explain_encode_error",
    "explain_no_stream",
    "explain_value_decode_error",
    "explain_value_encode_error",
]


class Again(Protocol):
    """Decodes a message that was refused once more."""

    def __call__(self, body: bytes, /, *, buffers: list[memoryview]) -> Any: ...


# Compiled where they are used, because compiling takes longer than importing this file.
_PATH = r"(?s)^(?P<rest>.*) - at (?P<key>`key` in |`key in )?`?\$(?P<path>[^`]*)`$"
_QUOTED = r"`([^`]*)`"
_NULL = r"\bnull\b"
_INDEX = r"^\[(\d+)\](.*)$"
_FIELD = r"^\.([^.\[]+)(.*)$"
_WRONG_COUNT = r"^Expected `array` of (?:at least )?length (\d+)(?: to \d+)?, got (\d+)$"
_MISSING = r"^Object missing required field `(.+)`$"
_UNKNOWN = r"(?s)^Object contains unknown field `(.*)`$"
_NO_SUCH_TEXT = r"^Invalid (?:RFC3339 encoded |ISO8601 )?(date|datetime|time|duration|UUID|decimal string)$"
_TYPES = {"duration": "timedelta", "decimal string": "Decimal"}
_CONVERSIONS = {
    ("date", "datetime"): ": write value.date()",
    ("datetime", "date"): ": write datetime.combine(value, time())",
    ("time", "datetime"): ": write value.timetz()",
}


def explain_decode_error(
    method: str,
    names: Sequence[str],
    error: BaseException,
    body: bytes | None = None,
    buffers: list[memoryview] | None = None,
    decode: Again | None = None,
) -> RpcError:
    """The error to report when the arguments of a call could not be decoded.

    Args:
        method: The method's full name.
        names: The parameters in the coded group, in order.
        error: What the decoder raised.
        body: The message.
        buffers: The buffers beside it.
        decode: Decodes a message with those once more, if it may.
    """
    return caused(_why_not_decoded(method, names, error, body, buffers, decode), error)


def _why_not_decoded(
    method: str,
    names: Sequence[str],
    error: BaseException,
    body: bytes | None,
    buffers: list[memoryview] | None,
    decode: Again | None,
) -> RpcError:
    if isinstance(error, RpcError):
        return error
    if isinstance(error, MemoryError):
        return ResourceExhausted(f"{method}(): there is no memory for the arguments")
    message, path = _located(error, body, buffers, decode)
    if not isinstance(error, msgspec.ValidationError):
        return InvalidArgument(f"{method}(): the arguments cannot be decoded: {message}")
    if path == "":
        if found := re.match(_WRONG_COUNT, str(error)):
            return InvalidArgument(f"{method}(): expected {found[1]} encoded arguments, got {found[2]}")
        if found := re.match(_MISSING, str(error).split(" - at")[0]):
            return InvalidArgument(f"{method}(): argument '{found[1]}' is missing")
        if found := re.match(_UNKNOWN, str(error).split(" - at")[0]):
            return InvalidArgument(f"{method}(): unexpected argument '{found[1]}'")
        return InvalidArgument(f"{method}(): the arguments cannot be decoded: {message}")
    name, rest = path, ""
    if (found := re.match(_INDEX, path)) and int(found[1]) < len(names):
        name, rest = names[int(found[1])], found[2]
    elif found := re.match(_FIELD, path):
        name, rest = found[1], found[2]
    where = f"argument '{name}' at {rest}" if rest else f"argument '{name}'"
    return InvalidArgument(f"{method}(): {where}: {message}")


def explain_encode_error(
    method: str,
    names: Sequence[str],
    error: BaseException,
    values: tuple[Any, ...] | dict[str, Any],
    data: Mapping[str, Sender | None],
) -> RpcError:
    """The error to report when the arguments of a call could not be encoded: names the argument at fault.

    Args:
        method: The method's full name.
        names: The parameters in the coded group, in order.
        error: What the encoder raised.
        values: What was to be encoded: the tuple, or a dict by name.
        data: The parameters that hold no references, with what sees to their values: these can be encoded again, to
            find the one at fault.
    """
    if isinstance(error, RpcError):
        return error
    if isinstance(error, MemoryError):
        return ResourceExhausted(f"{method}(): there is no memory to encode the arguments")
    if isinstance(error, MisfitError) and error.argument is not None:
        why = reason(error) if error.path else f"cannot be sent: {reason(error)}"
        return caused(InvalidArgument(f"{method}(): argument '{error.argument}' {why}"), error)
    by_name = values if isinstance(values, dict) else dict(zip(names, values, strict=False))
    for name, value in by_name.items():
        if name not in data:
            continue
        try:
            sender = data[name]
            encode_parts(sender.rewrite(value) if sender is not None and sender.look(value) else value)
        except Exception as problem:
            return caused(InvalidArgument(f"{method}(): argument '{name}' cannot be sent: {reason(problem)}"), problem)
    return caused(InvalidArgument(f"{method}(): the arguments cannot be sent: {reason(error)}"), error)


def explain_value_encode_error(what: str, failure: type[RpcError]) -> Callable[[BaseException], RpcError]:
    """Makes the ``encode_error`` of a value's plan."""

    def explain(error: BaseException) -> RpcError:
        if isinstance(error, RpcError):
            return error
        if isinstance(error, MemoryError):
            return ResourceExhausted(f"{what}: there is no memory to encode it")
        return caused(failure(f"{what} cannot be sent: {reason(error)}"), error)

    return explain


def explain_value_decode_error(
    what: str, type_name: str, failure: type[RpcError], decode: Again | None
) -> Callable[..., RpcError]:
    """Makes the ``decode_error`` of a value's plan; ``decode`` as for :func:`explain_decode_error`."""

    def explain(error: BaseException, body: bytes | None = None, buffers: list[memoryview] | None = None) -> RpcError:
        if isinstance(error, RpcError):
            return error
        if isinstance(error, MemoryError):
            return ResourceExhausted(f"{what}: there is no memory for it")
        message, path = _located(error, body, buffers, decode)
        where = f" at {path}" if path else ""
        return caused(failure(f"{what} must be {type_name}{where}: {message}"), error)

    return explain


def explain_no_stream(method: str, result: object, *, in_loop: bool = False) -> RpcError:
    """The error for a handler that is to give a stream and has returned something else.

    Args:
        method: The method's full name.
        result: What the handler has returned.
        in_loop: Whether an event loop runs the handler.
    """
    problem = f"{method}(): the result must be a stream, got {describe_value(result)}"
    if in_loop:
        return Internal(f"{problem}: yield the items, or return an asynchronous iterator")
    if hasattr(result, "__aiter__"):
        return Internal(f"{problem}: annotate the method with AsyncIterator")
    return Internal(f"{problem}: yield the items, or return an iterable")


def caused(failure: RpcError, error: BaseException) -> RpcError:
    """The failure; what code of the user's raised is its cause, if that led to the error of an encoder or decoder."""
    if failure is not error:
        failure.__cause__ = users_error(error)
        with_context(failure)
    return failure


def reason(error: BaseException) -> str:
    """Why something could not be encoded or decoded, in one line."""
    if isinstance(error, OverflowError):
        return "an int beyond 64 bits; send it as str or Decimal"
    if isinstance(error, RecursionError):
        return "the value is nested too deeply, or holds itself"
    if isinstance(error, UnicodeEncodeError):
        return "a str holds a lone surrogate, which UTF-8 cannot carry"
    if isinstance(error, UnicodeDecodeError):
        return "a str is not valid UTF-8"
    if isinstance(error, BufferError):
        return "the buffer is not C-contiguous: copy it first"
    return _in_words(str(error)) or type(error).__name__


def _in_words(text: str) -> str:
    # Between backquotes, msgspec writes types, such as `int | null`.
    words = re.sub(_QUOTED, lambda found: re.sub(_NULL, "None", found[1]), text)
    return " ".join(words.replace("`", "").split())


def _located(
    error: BaseException, body: bytes | None, buffers: list[memoryview] | None, decode: Again | None
) -> tuple[str, str]:
    """An error's message, and the path in it, if any; both with what only the message that was refused can say."""
    message, path, is_key = _split(error)
    if not isinstance(error, msgspec.ValidationError):
        return message, path
    culprit = None
    if body is not None:
        again = None if decode is None else partial(decode, buffers=buffers or [])
        culprit = find_culprit(body, path, words=str(error), is_key=is_key, decode=again)
    given = "another text" if culprit is None else kind_of_text(culprit.value)
    if found := re.match(_NO_SUCH_TEXT, str(error).split(" - at")[0]):
        wanted = _TYPES.get(found[1], found[1])
        if given == "str":
            given = f"a str that is no {wanted}"
        message = f"expected {wanted}, got {given}{_CONVERSIONS.get((wanted, given), '')}"
    elif given == "datetime" and message.endswith("got ext"):
        wanted = message.removeprefix("expected ").removesuffix(", got ext")
        message = f"expected {wanted}, got datetime{_CONVERSIONS.get((wanted, given), '')}"
    if culprit is not None:
        path = culprit.path
    if is_key:
        message = "a key: " + message if culprit is None else f"the key {_shown_key(culprit.value)}: {message}"
    return message, path


def _shown_key(key: object) -> str:
    return shown(repr(key), LONGEST_KEY)


def _split(error: BaseException) -> tuple[str, str, bool]:
    """An error's message in lower case, the path in it, if any, and whether it is a key of what is there."""
    path, is_key, rest = "", False, str(error)
    # For each class that stands for another there is one path more, the outermost at the end.
    while not is_key and (found := re.match(_PATH, rest)):
        path, is_key, rest = path + found["path"], found["key"] is not None, found["rest"]
    message = _in_words(rest) or reason(error)
    if not isinstance(error, msgspec.MsgspecError):
        message = reason(error)
    if isinstance(error, msgspec.MsgspecError) and not message.startswith("MessagePack"):
        message = message[:1].lower() + message[1:]
    return message, path, is_key
