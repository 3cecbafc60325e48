"""The context of a servicer's method in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .caller import CallerOf
from .outcome import Aborted, Metadatum, Outcome
from .peer import grpc

__all__ = ["ServicerContext"]

_ENDLESS = float(1 << 63)


class ServicerContext(CallerOf, grpc.ServicerContext):
    """What ``context`` is in a servicer: grpcio's interface, of a call that nearcall serves."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def is_active(self) -> bool:
        """Whether the client waits for an answer still."""
        return self._outcome.active

    def time_remaining(self) -> float:
        """Seconds until the deadline; without one some hundred thousand million years, as grpcio has it here."""
        left = self._outcome.call.time_left
        return _ENDLESS if left is None else left

    def cancel(self) -> bool:
        """Ends the call as cancelled when the servicer returns."""
        active = self._outcome.active
        self._outcome.abort(grpc.StatusCode.CANCELLED, "the servicer has cancelled the call")
        return active

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Calls something when the call ends: soon after the client gave it up, or its deadline has passed."""
        return self._outcome.add_callback(callback)

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        """What the client sent beside its request."""
        return self._outcome.invocation_metadata

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Sends metadata at once, ahead of the response."""
        self._outcome.send_initial(initial_metadata)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Metadata that goes back with the end of the call, in place of what was set before."""
        self._outcome.set_trailing(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """What was set."""
        return self._outcome.trailing

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """Ends the call here, by an exception."""
        self._outcome.abort(code, details)
        raise Aborted(f"{code}: {details}")

    def abort_with_status(self, status: Any) -> NoReturn:
        """The same, with details: a status of ``grpc_status.rpc_status.to_status``."""
        self._outcome.abort(status.code, status.details, status.trailing_metadata)
        raise Aborted(f"{status.code}: {status.details}")

    def set_code(self, code: grpc.StatusCode) -> None:
        """The status with which the call ends."""
        self._outcome.set_code(code)

    def set_details(self, details: str) -> None:
        """What is said of it."""
        self._outcome.set_message(details)

    def code(self) -> Any:
        """The code that was set; ``None`` if none was."""
        return self._outcome.code

    def details(self) -> Any:
        """What was set, as bytes."""
        return (self._outcome.message or "").encode()

    def set_compression(self, compression: Any) -> None:
        """How messages are compressed from here on: with gzip, or not, for clients that read it."""
        self._outcome.set_compression(compression)

    def disable_next_message_compression(self) -> None:
        """The next response is not compressed."""
        self._outcome.skip_next_compression()
