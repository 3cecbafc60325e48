"""Calls with streams, from threads."""

from __future__ import annotations

import atexit
import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from ..service.plan import MethodPlan

__all__ = ["BidiStream", "call_bidi_stream", "call_client_stream", "call_server_stream"]


def call_server_stream(connection: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
    """The callable of a method that returns a stream: it returns an iterator, which receives the items as they are
    taken.
    """
    bind = plan.arguments.bind

    def call(*args: Any, **kwargs: Any) -> _core.Stream:
        return connection.open(method, bind(args, kwargs), for_loop=False)

    return call


def call_client_stream(connection: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
    """The callable of a method that takes a stream: it sends the items and returns the result."""

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments, items = plan.split(args, kwargs)
        iterator = _iterator(plan, items)
        stream = connection.open(method, arguments, for_loop=False)
        try:
            send_all(stream, iterator)
            return stream.result()
        except BaseException:
            stream.cancel()
            raise

    return call


def call_bidi_stream(connection: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
    """The callable of a method with streams both ways: it returns an iterator while another thread sends."""

    def call(*args: Any, **kwargs: Any) -> BidiStream:
        arguments, items = plan.split(args, kwargs)
        iterator = _iterator(plan, items)
        return BidiStream(connection.open(method, arguments, for_loop=False), iterator, plan.full_name)

    return call


def send_all(stream: _core.Stream, items: Iterator[Any]) -> None:
    """Sends every item, then the end; stops early if the server has ended the call."""
    send = stream.send
    for item in items:
        if not send(item):
            return
    stream.end()


class _Sending:
    """The sending half of a call with streams both ways."""

    def __init__(self, stream: _core.Stream, items: Iterator[Any]) -> None:
        self.failure: BaseException | None = None
        self._stream = stream
        self._items = items

    def run(self) -> None:
        try:
            send_all(self._stream, self._items)
        except BaseException as error:
            self.failure = error
            self._stream.cancel()


class BidiStream:
    """The replies of a call with streams both ways; iterate over it, and close it to give the call up.

    A thread of its own takes the items to send from the caller's iterator, so that an iterator may wait for something,
    even for a reply.
    """

    def __init__(self, stream: _core.Stream, items: Iterator[Any], name: str) -> None:
        self._stream = stream
        # The thread must not refer to this object: when its user drops it, `__del__` gives the call up.
        self._sending = _Sending(stream, items)
        context = contextvars.copy_context()
        sender = threading.Thread(
            target=context.run, args=(self._sending.run,), name=f"nearcall-send-{name}", daemon=True
        )
        _senders[sender] = stream
        sender.start()

    def __del__(self) -> None:
        self._stream.cancel()

    def __iter__(self) -> BidiStream:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._stream)
        except Exception:
            if self._sending.failure is not None:
                raise self._sending.failure from None
            raise

    def close(self) -> None:
        """Gives the call up; the server stops. Harmless when it has ended."""
        self._stream.cancel()

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __getitem__(self, index: object) -> Any:
            return self._stream[index]  # says what to write instead

    def __enter__(self) -> BidiStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __aenter__(self) -> Any:
            return self._stream.__aenter__()  # says the same

        __aexit__ = __aenter__


_senders: weakref.WeakKeyDictionary[threading.Thread, _core.Stream] = weakref.WeakKeyDictionary()


@atexit.register
def _end_senders() -> None:
    # None of these threads may run while the interpreter is taken down. In a forked child none is alive.
    for sender, stream in list(_senders.items()):
        if sender.is_alive():
            stream.cancel()
            # A sender that waits for the caller's next item cannot be ended.
            sender.join(0.2)


def _iterator(plan: MethodPlan, items: Iterable[Any]) -> Iterator[Any]:
    try:
        return iter(items)
    except TypeError:
        name = plan.slots[plan.stream_position].name
        raise TypeError(
            f"{plan.full_name}(): '{name}' is a stream, give an iterable and not {type(items).__name__}"
        ) from None
