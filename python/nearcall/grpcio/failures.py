"""Errors as grpcio's stubs raise them."""

from __future__ import annotations

from typing import Any

from ..errors import RpcError as NearcallError
from .details import DETAILS, status_of
from .outcome import Metadatum
from .peer import grpc, status_code

__all__ = ["RpcError", "broken_message", "failure_of", "trailing_of"]


class RpcError(grpc.RpcError):
    """A call that did not end well, as grpcio has it: an error, and what is known of the call."""

    def __init__(
        self, code: grpc.StatusCode, details: str, initial: tuple[Metadatum, ...], trailing: tuple[Metadatum, ...]
    ) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code, self._message = code, details
        self._initial, self._trailing = initial, trailing

    def code(self) -> grpc.StatusCode:
        """The status code."""
        return self._code

    def details(self) -> str:
        """The status message."""
        return self._message

    def debug_error_string(self) -> str:
        """Both in a line."""
        return str(self)

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        """What the server sent ahead."""
        return self._initial

    def trailing_metadata(self) -> Any:
        """What the server sent with the end."""
        return self._trailing

    # A call that has ended, which interceptors of clients are given in place of one that goes on.

    def is_active(self) -> bool:
        """It has ended."""
        return False

    def time_remaining(self) -> None:
        """It has ended."""

    def cancel(self) -> bool:
        """It has ended."""
        return False

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._code == grpc.StatusCode.CANCELLED

    def running(self) -> bool:
        """It has ended."""
        return False

    def done(self) -> bool:
        """It has ended."""
        return True

    def add_callback(self, callback: Any) -> bool:
        """It has ended."""
        return False

    def add_done_callback(self, fn: Any) -> None:
        """Calls it at once."""
        fn(self)

    def result(self, timeout: float | None = None) -> Any:
        """Raises this error."""
        raise self

    def exception(self, timeout: float | None = None) -> RpcError:
        """This error."""
        return self

    def traceback(self, timeout: float | None = None) -> Any:
        """Where it was raised."""
        return self.__traceback__


def trailing_of(error: NearcallError, trailing: tuple[Metadatum, ...]) -> tuple[Metadatum, ...]:
    """What came with the end of a call, and the details among it, as grpcio has them."""
    status = status_of(error)
    return trailing if status is None else (*trailing, Metadatum(DETAILS, status))


def failure_of(
    error: NearcallError, initial: tuple[Metadatum, ...] = (), trailing: tuple[Metadatum, ...] = ()
) -> RpcError:
    """The error of grpcio's for one of ours."""
    return RpcError(status_code(int(error.code)), error.message, initial, trailing_of(error, trailing))


def broken_message(path: str, what: str, error: BaseException) -> RpcError:
    """The error for a message that cannot be written or read."""
    text = f"{path}: the {what}: {type(error).__name__}: {error}"
    return RpcError(grpc.StatusCode.INTERNAL, text, (), ())
