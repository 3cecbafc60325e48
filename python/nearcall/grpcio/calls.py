"""The callables of grpcio's stubs, and the call objects that they return, for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from .. import _core
from ..call.deadline import timeout as within
from ..call.metadata import metadata as sending
from ..errors import Cancelled, FailedPrecondition, Unimplemented
from ..errors import RpcError as NearcallError
from ..service.encoded import EncodedMethod
from .failures import RpcError, broken_message, failure_of
from .outcome import Metadatum, pairs_of
from .peer import grpc
from .settings import compressing

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["CallableBase", "FutureCall", "MultiCallable", "StreamCall", "StreamMultiCallable", "before"]

_ENDLESS = float("inf")
_LONGEST = 1e9
"""Seconds, some thirty years: a longer timeout is no deadline."""


class CallableBase:
    """A method of a server, for one stub: the base for threads and for event loops."""

    _streams_out = False

    def __init__(self, path: str, streams_in: bool, serializer: Any, deserializer: Any) -> None:
        self._path = path
        self._service, name = _split_path(path)
        self._method = EncodedMethod(name, streams_in, self._streams_out)
        self._serializer, self._deserializer = serializer, deserializer
        self._bound: Callable[..., Any] | None = None

    def _write(self, request: Any) -> bytes:
        try:
            written: bytes = request if self._serializer is None else self._serializer(request)
        except Exception as error:
            raise broken_message(self._path, "request cannot be written", error) from error
        return written

    def _read(self, response: bytes) -> Any:
        if self._deserializer is None:
            return response
        try:
            return self._deserializer(response)
        except Exception as error:
            raise broken_message(self._path, "response cannot be read", error) from error

    def _check(self, credentials: Any) -> None:
        if credentials is not None:
            raise ValueError(
                f"{self._path}: grpcio's credentials cannot be read: send the metadata 'authorization', or give the "
                "channel an interceptor (nearcall.auth.token)"
            )

    def _broken_iterator(self, error: BaseException) -> RpcError:
        text = f"{self._path}: the iterator of requests has raised {type(error).__name__}: {error}"
        return RpcError(grpc.StatusCode.UNKNOWN, text, (), ())


def _split_path(path: str) -> tuple[str, str]:
    """The names of service and method in ``/package.Service/Method``.

    Raises:
        ValueError: ``path`` is no such path.
    """
    start, _, method = path.rpartition("/")
    service = start.removeprefix("/")
    if not service or not method:
        raise ValueError(f"'{path}' is no path of a method: it is /package.Service/Method")
    return service, method


class _Callable(CallableBase):
    """The same for threads."""

    def __init__(self, channel: Channel, path: str, streams_in: bool, serializer: Any, deserializer: Any) -> None:
        super().__init__(path, streams_in, serializer, deserializer)
        self._channel = channel

    def _target(self, timeout: float | None, wait_for_ready: bool | None) -> Callable[..., Any]:
        """The callable of the method, which takes and returns encoded messages.

        Raises:
            nearcall.RpcError: there is no connection, or the server has no such method.
        """
        target = self._bound
        if target is None:
            until = time.monotonic() + (_ENDLESS if timeout is None else timeout) if wait_for_ready else None
            try:
                target = self._bound = self._channel._callable(self._method, self._service, until)
            except FailedPrecondition as error:
                raise Unimplemented(error.message) from None  # at nearcall's own URLs this is known before the call
        return target

    def _encoded(self, request: Any) -> Any:
        """The request as it is sent: bytes, or an iterator of them."""
        if self._method.streams_in:
            return _Requests(self, request)
        return self._write(request)


class _Requests(Iterator[bytes]):
    """The requests of a stream, encoded. If the caller's iterator raises, the call ends."""

    def __init__(self, method: _Callable, requests: Iterable[Any]) -> None:
        self._method, self._requests = method, iter(requests)

    def __next__(self) -> bytes:
        try:
            request = next(self._requests)
        except StopIteration:
            raise
        except Exception as error:
            raise self._method._broken_iterator(error) from error
        return self._method._write(request)


class _Ended:
    """A call that has succeeded, which ``with_call`` returns with the response."""

    def __init__(self, meta: sending) -> None:
        self._meta = meta

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    def details(self) -> str:
        return ""

    def debug_error_string(self) -> str:
        return ""

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        return pairs_of(self._meta.initial)

    def trailing_metadata(self) -> tuple[Metadatum, ...]:
        return pairs_of(self._meta.trailing)

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> None:
        return None

    def cancel(self) -> bool:
        return False

    def add_callback(self, callback: object) -> bool:
        return False


class MultiCallable(_Callable):
    """A method with one response: ``grpc.UnaryUnaryMultiCallable`` or ``grpc.StreamUnaryMultiCallable``."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        """Calls the method, and waits for the response.

        Raises:
            grpc.RpcError: the call did not end well.
        """
        return self.with_call(request, timeout, metadata, credentials, wait_for_ready, compression)[0]

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> tuple[Any, Any]:
        """The same; returns the response and the ended call."""
        self._check(credentials)
        message = self._encoded(request)
        meta = sending(metadata or ())
        try:
            with before(timeout), compressing(compression), meta:
                response = self._target(timeout, wait_for_ready)(message)
        except NearcallError as error:
            raise failure_of(error, pairs_of(meta.initial), pairs_of(meta.trailing)) from None
        return self._read(response), _Ended(meta)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> FutureCall:
        """Sends the request, and does not wait for the response."""
        self._check(credentials)
        message = self._encoded(request)
        meta = sending(metadata or ())
        call = FutureCall(self._read, meta, timeout)
        try:
            with before(timeout), compressing(compression), meta:
                target = self._target(timeout, wait_for_ready)
                if isinstance(target, _core.Unary):
                    started = target.start(message)
                    call._begin(started.result, started.cancel, at_once=False)
                    return call
        except NearcallError as error:
            call._end(call._failed(error))
            return call

        def work() -> Any:
            with before(timeout), compressing(compression), meta:
                return target(call._ending(message) if self._method.streams_in else message)

        call._begin(work, None, at_once=True)
        return call


def before(timeout: float | None) -> AbstractContextManager[object]:
    """A block that gives a call its deadline."""
    # A servicer that passes on its own remaining time may pass grpcio's number for "no deadline".
    return nullcontext() if timeout is None or timeout > _LONGEST else within(max(timeout, 0.0))


class _Call:
    """A call that may be under way: the base of futures and streams."""

    def __init__(self, meta: sending, timeout: float | None) -> None:
        self._meta = meta
        self._until = None if timeout is None else time.monotonic() + timeout
        self._changed = threading.Condition()
        self._failure: RpcError | None = None
        self._over = False
        self._callbacks: list[Callable[[], object]] = []

    def _end(self, failure: RpcError | None) -> bool:
        """Ends the call. Only the first call of this method counts; returns whether this was the first."""
        with self._changed:
            if self._over:
                return False
            self._over, self._failure = True, failure
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback()
        return True

    def _failed(self, error: NearcallError) -> RpcError:
        return failure_of(error, pairs_of(self._meta.initial), pairs_of(self._meta.trailing))

    def _wait(self, timeout: float | None) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._over, timeout):
                raise grpc.FutureTimeoutError

    def is_active(self) -> bool:
        return not self._over

    def running(self) -> bool:
        return not self._over

    def done(self) -> bool:
        return self._over

    def cancelled(self) -> bool:
        return self._failure is not None and self._failure.cancelled()

    def time_remaining(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def add_callback(self, callback: Callable[[], object]) -> bool:
        with self._changed:
            if self._over:
                return False
            self._callbacks.append(callback)
            return True

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def code(self) -> grpc.StatusCode:
        self._wait(None)
        return grpc.StatusCode.OK if self._failure is None else self._failure.code()

    def details(self) -> str:
        self._wait(None)
        return "" if self._failure is None else self._failure.details()

    def debug_error_string(self) -> str:
        self._wait(None)
        return "" if self._failure is None else str(self._failure)

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        self._wait(None)
        return pairs_of(self._meta.initial)

    def trailing_metadata(self) -> tuple[Metadatum, ...]:
        self._wait(None)
        return pairs_of(self._meta.trailing) if self._failure is None else self._failure.trailing_metadata()

    def exception(self, timeout: float | None = None) -> RpcError | None:
        self._wait(timeout)
        if self._failure is not None and self._failure.cancelled():
            raise grpc.FutureCancelledError
        return self._failure

    def traceback(self, timeout: float | None = None) -> Any:
        failure = self.exception(timeout)
        return None if failure is None else failure.__traceback__


def _given_up(what: str) -> RpcError:
    return RpcError(grpc.StatusCode.CANCELLED, f"{what} was cancelled here", (), ())


class FutureCall(_Call):
    """A call whose response comes later: a ``grpc.Future`` and a ``grpc.Call``.

    A thread of its own waits for the response if there are callbacks, if :meth:`done` is asked, or for a wait with a
    timeout. A thread that asks for the result without a timeout waits itself.
    """

    def __init__(self, read: Callable[[bytes], Any], meta: sending, timeout: float | None) -> None:
        super().__init__(meta, timeout)
        self._read = read
        self._result: Any = None
        self._work: Callable[[], bytes] | None = None
        self._give_up: Callable[[], object] | None = None
        self._waits = threading.Lock()

    def _begin(self, work: Callable[[], bytes], give_up: Callable[[], object] | None, *, at_once: bool) -> None:
        self._work, self._give_up = work, give_up
        if at_once:
            self._be_told()

    def _be_told(self) -> None:
        """Lets a thread of its own wait for the response."""
        with self._waits:
            work, self._work = self._work, None
        if work is not None:
            threading.Thread(target=self._run, args=(work,), name="nearcall-grpcio-future", daemon=True).start()

    def _run(self, work: Callable[[], bytes]) -> None:
        try:
            result = self._read(work())
        except NearcallError as error:
            self._end(self._failed(error))
        except RpcError as error:
            self._end(error)
        except BaseException as error:
            self._end(RpcError(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}", (), ()))
        else:
            with self._changed:
                self._result = result
            self._end(None)

    def _ending(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        """The requests, until the call is given up."""
        for request in requests:
            if self._over:
                raise Cancelled("the call was cancelled here")
            yield request

    def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            with self._waits:
                work, self._work = self._work, None
            if work is not None:
                self._run(work)
        else:
            self._be_told()
        super()._wait(timeout)

    def done(self) -> bool:
        """Whether the call has ended."""
        self._be_told()
        return super().done()

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Calls a function when the call has ended. ``False`` if it has ended already."""
        self._be_told()
        return super().add_callback(callback)

    def cancel(self) -> bool:
        """Gives the call up."""
        ended = self._end(_given_up("the call"))
        if ended and self._give_up is not None:
            self._give_up()
        return ended

    def result(self, timeout: float | None = None) -> Any:
        """The response.

        Raises:
            grpc.RpcError: the call did not end well.
            grpc.FutureTimeoutError: the call has not ended in time.
            grpc.FutureCancelledError: the call was cancelled here.
        """
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        return self._result


class StreamMultiCallable(_Callable):
    """A method with a stream of responses: ``grpc.UnaryStreamMultiCallable`` or ``grpc.StreamStreamMultiCallable``."""

    _streams_out = True

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> StreamCall:
        """Begins the call. Iterating over the result receives the responses, and raises errors."""
        self._check(credentials)
        message = self._encoded(request)
        meta = sending(metadata or ())
        call = StreamCall(self._read, meta, timeout)
        try:
            with before(timeout), compressing(compression), meta:
                call._stream = self._target(timeout, wait_for_ready)(message)
        except NearcallError as error:
            call._end(call._failed(error))
        return call


class StreamCall(_Call):
    """A call with a stream of responses: iterate over it. It is a ``grpc.Call`` as well."""

    _stream: Any = None

    def __init__(self, read: Callable[[bytes], Any], meta: sending, timeout: float | None) -> None:
        super().__init__(meta, timeout)
        self._read = read
        self._ahead: list[bytes] = []

    def __iter__(self) -> StreamCall:
        return self

    def __next__(self) -> Any:
        if self._ahead:
            return self._read(self._ahead.pop())
        return self._read(self._next())

    next = __next__

    def _next(self) -> Any:
        if self._over:
            if self._failure is not None:
                raise self._failure
            raise StopIteration
        try:
            return next(self._stream)
        except StopIteration:
            self._end(None)
        except NearcallError as error:
            self._end(self._failed(error))
        except RpcError as error:
            self._end(error)
        if self._failure is not None:
            raise self._failure
        raise StopIteration

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        """The metadata that the server sent ahead of its first response; waits for that."""
        if not self._ahead and not self._over and not self._meta.initial:
            with suppress(StopIteration, RpcError):
                self._ahead.append(self._next())
        return pairs_of(self._meta.initial)

    def cancel(self) -> bool:
        """Gives the call up."""
        ended = self._end(_given_up("the call"))
        if ended and self._stream is not None:
            self._stream.close()
        return ended

    def result(self, timeout: float | None = None) -> StreamCall:
        """This call, when it has ended.

        Raises:
            grpc.RpcError: the call failed.
        """
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        return self

    def __del__(self) -> None:
        if not self._over and self._stream is not None:
            self._stream.close()
