"""Errors as grpcio's stubs raise them."""

from __future__ import annotations

from typing import Any

from ..errors import RpcError as NearcallError
from .details import DETAILS, status_of
from .outcome import Metadatum
from .peer import grpc, status_code

__all__ = ["RpcError", "broken_message", "failure_of", "trailing_of"]


class RpcError(grpc.RpcError):
    """A failed call, as in grpcio: an error, which is also the ended call."""

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
        """Code and message in one line."""
        return str(self)

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        """The metadata that the server sent ahead of its response."""
        return self._initial

    def trailing_metadata(self) -> Any:
        """The metadata that the server sent with the end of the call."""
        return self._trailing

    # The interface of a call that has ended, for interceptors of clients, which get this error in place of a call.

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
        """Calls ``fn`` at once."""
        fn(self)

    def result(self, timeout: float | None = None) -> Any:
        """Raises this error."""
        raise self

    def exception(self, timeout: float | None = None) -> RpcError:
        """This error."""
        return self

    def traceback(self, timeout: float | None = None) -> Any:
        """The traceback of this error."""
        return self.__traceback__


def trailing_of(error: NearcallError, trailing: tuple[Metadatum, ...]) -> tuple[Metadatum, ...]:
    """The trailing metadata of a call, with the error's details added as grpcio has them."""
    status = status_of(error)
    return trailing if status is None else (*trailing, Metadatum(DETAILS, status))


def failure_of(
    error: NearcallError, initial: tuple[Metadatum, ...] = (), trailing: tuple[Metadatum, ...] = ()
) -> RpcError:
    """The error of grpcio's kind for one of nearcall's."""
    return RpcError(status_code(int(error.code)), error.message, initial, trailing_of(error, trailing))


def broken_message(path: str, what: str, error: BaseException) -> RpcError:
    """The error for a message that cannot be written or read."""
    text = f"{path}: the {what}: {type(error).__name__}: {error}"
    return RpcError(grpc.StatusCode.INTERNAL, text, (), ())
