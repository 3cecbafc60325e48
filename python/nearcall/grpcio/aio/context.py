"""The context of a servicer's method in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

from ..caller import CallerOf
from ..outcome import Metadatum, Outcome
from ..peer import grpc

__all__ = ["ServicerContext"]


class ServicerContext(CallerOf, grpc.aio.ServicerContext[Any, Any]):
    """The ``context`` that a servicer gets: the interface of ``grpc.aio``, for a call that nearcall serves."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._requests: AsyncIterator[Any] | None = None
        self._written: asyncio.Queue[Any] | None = None

    async def read(self) -> Any:
        """The next request; ``grpc.aio.EOF`` if there is none."""
        if self._requests is None:
            raise RuntimeError(f"{self._outcome.path} takes one request, and has it already")
        async for request in self._requests:
            return request
        return grpc.aio.EOF

    async def write(self, message: Any) -> None:
        """Sends a response, once the one before it was taken."""
        if self._written is None:
            raise RuntimeError(f"{self._outcome.path} returns or yields its response: it cannot be written as well")
        await self._written.put(message)
        await self._written.join()

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Sends metadata at once, ahead of the response."""
        self._outcome.send_initial(initial_metadata)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """Ends the call, and the servicer's method by an exception."""
        self._outcome.abort(code, details, trailing_metadata)
        raise grpc.aio.AbortError(f"{code}: {details}")

    async def abort_with_status(self, status: Any) -> NoReturn:
        """The same, with details: a status of ``grpc_status.rpc_status.to_status``."""
        self._outcome.abort(status.code, status.details, status.trailing_metadata)
        raise grpc.aio.AbortError(f"{status.code}: {status.details}")

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Sets the metadata that is sent with the end of the call, in place of metadata that was set before."""
        self._outcome.set_trailing(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """The metadata that was set."""
        return self._outcome.trailing

    def invocation_metadata(self) -> tuple[Metadatum, ...]:  # type: ignore[override]
        """The metadata that the client sent with its request."""
        return self._outcome.invocation_metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Sets the status code with which the call ends."""
        self._outcome.set_code(code)

    def set_details(self, details: str) -> None:
        """Sets the status message."""
        self._outcome.set_message(details)

    def code(self) -> Any:
        """The code that was set; 0 if none was, as in ``grpc.aio``."""
        return self._outcome.code or 0

    def details(self) -> str:
        """The status message that was set."""
        return self._outcome.message or ""

    def set_compression(self, compression: Any) -> None:
        """Sets how further messages are compressed: with gzip, for clients that can read it, or not at all."""
        self._outcome.set_compression(compression)

    def disable_next_message_compression(self) -> None:
        """Sends the next response uncompressed."""
        self._outcome.skip_next_compression()

    def time_remaining(self) -> float | None:  # type: ignore[override]
        """Seconds until the deadline; ``None`` if there is none."""
        return self._outcome.call.time_left

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls a function with this context when the call has ended."""
        if not self._outcome.add_callback(lambda: callback(self)):
            callback(self)

    def cancelled(self) -> bool:
        """Whether the client gave the call up."""
        return self._outcome.call.cancelled

    def done(self) -> bool:
        """Whether the call has ended."""
        return not self._outcome.active
