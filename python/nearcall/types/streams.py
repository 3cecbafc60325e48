"""What a client's stream offers, for annotations: interfaces that clients are made with say it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AsyncStream", "Stream"]

T_co = TypeVar("T_co", covariant=True)


class Stream(Iterator[T_co], Protocol[T_co]):
    """A stream from a server, as a client's thread has it: an iterator that can be closed.

    To leave it early, close it, or take it in a ``with`` block::

        with market.watch() as prices:
            print(next(prices))

    Interfaces that ``nearcall stub`` writes have it for results. In an annotation it makes a stream as ``Iterator``
    does. Handlers that yield are annotated ``Iterator``. Where an interceptor gives an iterator of its own in place of
    what ``proceed`` returned, that is the stream, and offers what it offers.
    """

    def close(self) -> None:
        """Gives the call up; the server stops. Harmless when it has ended."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class AsyncStream(Protocol[T_co]):
    """The same as a client in an event loop has it::

        async with market.watch() as prices:
            async for price in prices:
                ...

    It fits ``AsyncIterator``, from which Python 3.12 and earlier let no ``Protocol`` derive.
    """

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[T_co]: ...

    async def aclose(self) -> None:
        """Gives the call up; the server stops. Harmless when it has ended."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
