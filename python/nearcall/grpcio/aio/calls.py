"""The callables of stubs of ``grpc.aio``, and the call objects that they return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from ...call.metadata import metadata as sending
from ...errors import FailedPrecondition, Unimplemented
from ...errors import RpcError as NearcallError
from ..calls import CallableBase, before
from ..failures import RpcError, trailing_of
from ..outcome import pairs_of
from ..peer import grpc, status_code
from ..settings import compressing

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["MultiCallable", "ResponseCall", "StreamCall", "StreamMultiCallable"]

_END: Any = object()


class _Callable(CallableBase):
    """A method of a server, for one stub."""

    def __init__(self, channel: Channel, path: str, streams_in: bool, serializer: Any, deserializer: Any) -> None:
        super().__init__(path, streams_in, serializer, deserializer)
        self._channel = channel

    async def _target(self, patient: bool) -> Callable[..., Any]:
        target = self._bound
        if target is None:
            try:
                target = self._bound = await self._channel._callable(self._method, self._service, patient)
            except FailedPrecondition as error:
                raise Unimplemented(error.message) from None
        return target


class _Call:
    """A call: the base of calls with one response and of calls with a stream of responses."""

    def __init__(
        self,
        method: _Callable,
        requests: Any,
        timeout: float | None,
        metadata: Any,
        patient: bool | None,
        compression: Any,
    ) -> None:
        self._method = method
        self._meta = sending(metadata or ())
        self._compressing = compressing(compression)
        self._timeout = timeout
        self._until = None if timeout is None else time.monotonic() + timeout
        self._patient = bool(patient)
        self._written: _Written | None = None
        if method._method.streams_in:
            if requests is None:
                requests = self._written = _Written()
            self._message: Any = _encoded(method, requests)
        else:
            self._message = method._write(requests)
        self._error: grpc.aio.AioRpcError | None = None
        self._cancelled = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _end(self, error: BaseException | None) -> BaseException | None:
        """Ends the call with ``error``, or well; returns the exception to raise for it. Only the first call of this
        method counts.
        """
        if not self._ended.done():
            if isinstance(error, asyncio.CancelledError):
                self._cancelled = True
            elif isinstance(error, NearcallError):
                trailing = trailing_of(error, pairs_of(self._meta.trailing))
                self._error = _aio_error(
                    status_code(int(error.code)), error.message, pairs_of(self._meta.initial), trailing
                )
            elif isinstance(error, RpcError):
                self._error = _aio_error(error.code(), error.details(), (), ())
            self._ended.set_result(None)
        return self._error or error

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """The metadata that the server sent ahead of its response."""
        await self._ended
        return grpc.aio.Metadata(*pairs_of(self._meta.initial))

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """The metadata that the server sent with the end of the call."""
        await self._ended
        if self._error is not None:
            return self._error.trailing_metadata()
        return grpc.aio.Metadata(*pairs_of(self._meta.trailing))

    async def code(self) -> grpc.StatusCode:
        """The status code, when the call has ended."""
        await self._ended
        if self._cancelled:
            return grpc.StatusCode.CANCELLED
        return grpc.StatusCode.OK if self._error is None else self._error.code()

    async def details(self) -> str:
        """The status message, when the call has ended."""
        await self._ended
        if self._cancelled:
            return "the call was cancelled here"
        return "" if self._error is None else self._error.details() or ""

    async def wait_for_connection(self) -> None:
        """Waits until there is a connection."""
        await self._method._channel._opened(patient=True)

    def cancelled(self) -> bool:
        """Whether the call was given up here."""
        return self._cancelled

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._ended.done()

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; ``None`` if it has none."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls a function with this call when it has ended."""
        self._ended.add_done_callback(lambda _: callback(self))

    async def write(self, request: Any) -> None:
        """Sends a request, once the one before it was taken.

        Raises:
            asyncio.InvalidStateError: the requests come from an iterator, or are complete.
            grpc.aio.AioRpcError: the call has ended.
        """
        if self._written is None:
            raise asyncio.InvalidStateError("the requests of this call come from an iterator")
        await self._written.put(request, self._ended)
        if self._error is not None:
            raise self._error

    async def done_writing(self) -> None:
        """Ends the stream of requests. Harmless when repeated."""
        if self._written is not None:
            self._written.close()


class ResponseCall(_Call):
    """A call with one response: await it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._task = asyncio.ensure_future(self._run())
        self._method._channel._calls.add(self._task)
        self._task.add_done_callback(self._method._channel._calls.discard)
        self._task.add_done_callback(_look)

    async def _run(self) -> Any:
        try:
            with before(self._timeout), self._compressing, self._meta:
                target = await self._method._target(self._patient)
                response = self._method._read(await target(self._message))
        except BaseException as error:
            failure = self._end(error)
            if failure is error or failure is None:
                raise
            raise failure from None
        self._end(None)
        return response

    def __await__(self) -> Generator[Any, None, Any]:
        return self._task.__await__()

    def cancel(self) -> bool:
        """Gives the call up."""
        return self._task.cancel()


class StreamCall(_Call):
    """A call with a stream of responses: iterate over it, or :meth:`read` them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._replies: Any = None
        self._opening = asyncio.ensure_future(self._open())
        self._opening.add_done_callback(_look)
        self._items: AsyncIterator[Any] | None = None

    async def _open(self) -> None:
        try:
            with before(self._timeout), self._compressing, self._meta:
                target = await self._method._target(self._patient)
                self._replies = target(self._message)
        except BaseException as error:
            self._end(error)

    async def read(self) -> Any:
        """The next response; ``grpc.aio.EOF`` if there is none.

        Raises:
            grpc.aio.AioRpcError: the call failed.
        """
        response = await self._next()
        return grpc.aio.EOF if response is _END else response

    async def _next(self) -> Any:
        if not self._ended.done():
            await self._opening
        if self._ended.done():
            if self._cancelled:
                raise asyncio.CancelledError
            if self._error is not None:
                raise self._error
            return _END
        try:
            response = self._method._read(await self._replies.__anext__())
        except StopAsyncIteration:
            self._end(None)
            return _END
        except BaseException as error:
            failure = self._end(error)
            if failure is error or failure is None:
                raise
            raise failure from None
        return response

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._items is None:
            self._items = self._iterate()
        return self._items

    async def _iterate(self) -> AsyncIterator[Any]:
        while (response := await self._next()) is not _END:
            yield response

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """The metadata that the server sent ahead of its responses, if it has arrived with them."""
        await asyncio.wait((self._opening,))
        return grpc.aio.Metadata(*pairs_of(self._meta.initial))

    def cancel(self) -> bool:
        """Gives the call up."""
        if self._ended.done():
            return False
        self._end(asyncio.CancelledError())
        self._opening.cancel()
        if self._replies is not None:
            closing = asyncio.ensure_future(self._replies.aclose())
            self._method._channel._calls.add(closing)
            closing.add_done_callback(self._method._channel._calls.discard)
        return True


class MultiCallable(_Callable):
    """A method with one response: ``grpc.aio.UnaryUnaryMultiCallable`` or ``grpc.aio.StreamUnaryMultiCallable``."""

    def __call__(
        self,
        request: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
        request_iterator: Any = None,
    ) -> ResponseCall:
        """Begins the call; awaiting it gives the response."""
        self._check(credentials)
        requests = request_iterator if request is None else request
        return ResponseCall(self, requests, timeout, metadata, wait_for_ready, compression)


class StreamMultiCallable(_Callable):
    """A method with a stream of responses: ``grpc.aio.UnaryStreamMultiCallable`` or
    ``grpc.aio.StreamStreamMultiCallable``.
    """

    _streams_out = True

    def __call__(
        self,
        request: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
        request_iterator: Any = None,
    ) -> StreamCall:
        """Begins the call; iterating over it gives the responses."""
        self._check(credentials)
        requests = request_iterator if request is None else request
        return StreamCall(self, requests, timeout, metadata, wait_for_ready, compression)


class _Written:
    """The requests of a call that are written one by one."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._closed = asyncio.Event()

    async def put(self, request: Any, ended: asyncio.Future[None]) -> None:
        if self._closed.is_set():
            raise asyncio.InvalidStateError("the requests of this call are complete")
        taken = asyncio.ensure_future(self._hand_over(request))
        try:
            await asyncio.wait((taken, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            taken.cancel()

    async def _hand_over(self, request: Any) -> None:
        await self._queue.put(request)
        await self._queue.join()

    def close(self) -> None:
        self._closed.set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._each()

    async def _each(self) -> AsyncIterator[Any]:
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            while True:
                request = asyncio.ensure_future(self._queue.get())
                try:
                    await asyncio.wait((request, closed), return_when=asyncio.FIRST_COMPLETED)
                    if not request.done():
                        return
                    yield request.result()
                    self._queue.task_done()
                finally:
                    request.cancel()
        finally:
            closed.cancel()


def _is_async(requests: Any) -> TypeGuard[AsyncIterable[Any]]:
    return hasattr(requests, "__aiter__")


async def _encoded(method: _Callable, requests: Any) -> AsyncIterator[bytes]:
    """The requests of a stream, encoded."""
    try:
        if _is_async(requests):
            async for request in requests:
                yield method._write(request)
        else:
            for request in cast("Iterable[Any]", requests):
                yield method._write(request)
    except (RpcError, asyncio.CancelledError, GeneratorExit):
        raise
    except Exception as error:
        raise method._broken_iterator(error) from error


def _aio_error(code: grpc.StatusCode, message: str, initial: Any, trailing: Any) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata
    return grpc.aio.AioRpcError(code, metadata(*initial), metadata(*trailing), message, f"{code.name}: {message}")


def _look(task: asyncio.Future[Any]) -> None:
    """Reads a task's exception, so that the event loop does not warn of an exception that nobody retrieved."""
    if not task.cancelled():
        task.exception()
