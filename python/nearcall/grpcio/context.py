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
    """The ``context`` that a servicer gets: grpcio's interface, for a call that nearcall serves."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def is_active(self) -> bool:
        """Whether the client still waits for an answer."""
        return self._outcome.active

    def time_remaining(self) -> float:
        """Seconds until the deadline; without a deadline 2**63, as in grpcio: some three hundred thousand million
        years.
        """
        left = self._outcome.call.time_left
        return _ENDLESS if left is None else left

    def cancel(self) -> bool:
        """Ends the call as cancelled when the servicer returns."""
        active = self._outcome.active
        self._outcome.abort(grpc.StatusCode.CANCELLED, "the servicer has cancelled the call")
        return active

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Calls a function when the call ends, or soon after the client gave it up or its deadline has passed."""
        return self._outcome.add_callback(callback)

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        """The metadata that the client sent with its request."""
        return self._outcome.invocation_metadata

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Sends metadata at once, ahead of the response."""
        self._outcome.send_initial(initial_metadata)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Sets the metadata that is sent with the end of the call, in place of metadata that was set before."""
        self._outcome.set_trailing(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """The metadata that was set."""
        return self._outcome.trailing

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """Ends the call, and the servicer's method by an exception."""
        self._outcome.abort(code, details)
        raise Aborted(f"{code}: {details}")

    def abort_with_status(self, status: Any) -> NoReturn:
        """The same, with details: a status of ``grpc_status.rpc_status.to_status``."""
        self._outcome.abort(status.code, status.details, status.trailing_metadata)
        raise Aborted(f"{status.code}: {status.details}")

    def set_code(self, code: grpc.StatusCode) -> None:
        """Sets the status code with which the call ends."""
        self._outcome.set_code(code)

    def set_details(self, details: str) -> None:
        """Sets the status message."""
        self._outcome.set_message(details)

    def code(self) -> Any:
        """The code that was set; ``None`` if none was."""
        return self._outcome.code

    def details(self) -> Any:
        """The status message that was set, as bytes."""
        return (self._outcome.message or "").encode()

    def set_compression(self, compression: Any) -> None:
        """Sets how further messages are compressed: with gzip, for clients that can read it, or not at all."""
        self._outcome.set_compression(compression)

    def disable_next_message_compression(self) -> None:
        """Sends the next response uncompressed."""
        self._outcome.skip_next_compression()
