"""One-line errors for what the Protobuf codec refuses."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import ResourceExhausted, RpcError
from ..explain import reason

__all__ = ["ArgumentErrors", "CodingError", "value_error"]

_FIRST = re.compile(r"^([^.\[]*)(.*)$", re.DOTALL)


class CodingError(ValueError):
    """A value or a message that does not fit: why, and where in the whole it is.

    The compiled codec makes it of a text and a path such as ``shapes[3].name``, which may be empty.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path

    def __str__(self) -> str:
        message = super().__str__()
        return f"at {self.path}: {message}" if self.path else message


class ArgumentErrors:
    """Says which argument was at fault.

    Args:
        method: The method's full name.
        parameter: The only parameter, if its message is the whole.
    """

    def __init__(self, method: str, parameter: str | None) -> None:
        self.method = method
        self.parameter = parameter

    def encoding(self, error: BaseException, cls: type[RpcError]) -> RpcError:
        """What the encoder raised."""
        return self._error(error, cls, "cannot be sent")

    def decoding(self, error: BaseException, cls: type[RpcError]) -> RpcError:
        """What the decoder raised."""
        return self._error(error, cls, "cannot be decoded")

    def _error(self, error: BaseException, cls: type[RpcError], what: str) -> RpcError:
        if isinstance(error, RpcError):
            return error
        if isinstance(error, MemoryError):
            return ResourceExhausted(f"{self.method}(): there is no memory for the arguments")
        if not isinstance(error, CodingError):
            return cls(f"{self.method}(): the arguments {what}: {reason(error)}")
        message, path = ValueError.__str__(error), error.path
        name, rest = self.parameter, f".{path}" if path else ""
        if name is None:
            found = _FIRST.match(path)
            name, rest = (found[1], found[2]) if found else ("", "")
        if not name:
            return cls(f"{self.method}(): the arguments {what}: {message}")
        if message == "is missing" and not rest:
            return cls(f"{self.method}(): argument '{name}' is missing")
        return cls(f"{self.method}(): argument '{name}'{f' at {rest}' if rest else ''}: {message}")


def value_error(what: str) -> Callable[[BaseException, type[RpcError]], RpcError]:
    """Says where in a result or an item the fault was; who calls it knows which."""

    def explain(error: BaseException, cls: type[RpcError]) -> RpcError:
        if isinstance(error, RpcError):
            return error
        if isinstance(error, MemoryError):
            return ResourceExhausted("there is no memory for it")
        return cls(f"{what}: {reason(error)}")

    return explain
