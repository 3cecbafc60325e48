"""One-line errors for values and messages that the Protobuf codec refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ...errors import InvalidArgument, ResourceExhausted, RpcError
from ..explain import caused, reason

__all__ = ["ArgumentErrors", "CodingError", "value_error"]

MISSING: Final = "is missing"
"""The compiled codec's message for a required field that is absent."""
_FIRST = re.compile(r"^([^.\[]*)(.*)$", re.DOTALL)


class CodingError(ValueError):
    """A value or a message that does not fit: why, and where.

    The compiled codec raises it, with a message and a path such as ``shapes[3].name``, which may be empty.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path

    def __str__(self) -> str:
        message = super().__str__()
        return f"at {self.path}: {message}" if self.path else message


class ArgumentErrors:
    """Makes errors that name the argument at fault.

    Args:
        method: The method's full name.
        parameter: The only parameter, if its message is the whole request.
    """

    def __init__(self, method: str, parameter: str | None) -> None:
        self.method = f"{method}()"
        self.parameter = parameter

    def encoding(self, error: BaseException, _values: object) -> RpcError:
        """The error for what the encoder raised."""
        return self._error(error, "cannot be sent")

    def decoding(self, error: BaseException) -> RpcError:
        """The error for what the decoder raised."""
        return self._error(error, "cannot be decoded")

    def _error(self, error: BaseException, what: str) -> RpcError:
        if not isinstance(error, CodingError):
            return _other(error, InvalidArgument, self.method, f"the arguments {what}", "the arguments")
        return caused(self._misfit(ValueError.__str__(error), error.path, what), error)

    def _misfit(self, message: str, path: str, what: str) -> RpcError:
        cls, method = InvalidArgument, self.method
        if not path and message == MISSING:
            return cls(f"{method}: the first message of the stream holds the arguments, and this one has none")
        name, rest = self.parameter, f".{path}" if path else ""
        if name is None:
            found = _FIRST.match(path)
            name, rest = (found[1], found[2]) if found else ("", "")
        if not name:
            return cls(f"{method}: the arguments {what}: {message}")
        if message == MISSING and not rest:
            return cls(f"{method}: argument '{name}' is missing")
        return cls(f"{method}: argument '{name}'{f' at {rest}' if rest else ''}: {message}")


def value_error(what: str, noun: str, cls: type[RpcError]) -> Callable[[BaseException], RpcError]:
    """Makes a function that turns a coding error in a result or an item into the error to raise."""

    def explain(error: BaseException) -> RpcError:
        return _other(error, cls, noun, what, "it")

    return explain


def _other(error: BaseException, cls: type[RpcError], noun: str, what: str, subject: str) -> RpcError:
    if isinstance(error, RpcError):
        return error
    colon = ":" if what.startswith("the ") else ""
    if isinstance(error, MemoryError):
        return ResourceExhausted(f"{noun}{colon} there is no memory for {subject}")
    return caused(cls(f"{noun}{colon} {what}: {reason(error)}"), error)
