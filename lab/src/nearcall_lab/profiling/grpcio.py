"""grpcio, for threads. It has no hook for all channels of a process, so the classes behind them are patched.

Of streams the waiting for items is counted, but not their bytes: they are decoded in a thread of gRPC's.
"""

from __future__ import annotations

import weakref
from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.following import count_bytes, waited
from nearcall.profile.recorder import Call, Recorder, clock

_LIBRARY = "grpcio"
_CALL = "_nearcall_profiled"


def patch(module: ModuleType, recorder: Recorder) -> None:
    follow_connecting(module.Channel, recorder)
    _follow_channels(module.Channel)
    for kind in ("UnaryUnary", "StreamUnary"):
        owner = getattr(module, f"_{kind}MultiCallable")
        _follow_waiting(owner, "__call__", recorder)
        _follow_waiting(owner, "with_call", recorder)
        _follow_future(owner, recorder)
    for kind in ("_SingleThreadedUnaryStream", "_UnaryStream", "_StreamStream"):
        _follow_stream(getattr(module, f"{kind}MultiCallable"), recorder)
    for kind in ("_SingleThreadedRendezvous", "_MultiThreadedRendezvous"):
        _follow_items(getattr(module, kind))


def method_of(callable_: Any) -> str:
    """``package.Service/Method``"""
    method = callable_._method
    return (method.decode("utf-8", "replace") if isinstance(method, bytes) else str(method)).lstrip("/")


def follow_connecting(channel: Any, recorder: Recorder) -> None:
    """Records that channels of this class are made."""
    init = channel.__init__

    @wraps(init)
    def made(self: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        call = recorder.begin(recorder.name(_LIBRARY, "connect", f"channel to {target}"))
        waited(call, init, self, target, *args, **kwargs)

    channel.__init__ = made


def _follow_channels(channel: Any) -> None:
    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        original = getattr(channel, kind)

        def bound(
            self: Any,
            method: Any,
            request_serializer: Any = None,
            response_deserializer: Any = None,
            *args: Any,
            _original: Any = original,
            **kwargs: Any,
        ) -> Any:
            return _original(self, method, _sent(request_serializer), _received(response_deserializer), *args, **kwargs)

        setattr(channel, kind, wraps(original)(bound))


def _sent(serializer: Any) -> Any:
    def serialized(message: Any) -> Any:
        data = message if serializer is None else serializer(message)
        count_bytes(sent=len(data) if isinstance(data, bytes) else 0)
        return data

    return serialized


def _received(deserializer: Any) -> Any:
    def deserialized(data: Any) -> Any:
        count_bytes(received=len(data))
        return data if deserializer is None else deserializer(data)

    return deserialized


def _follow_waiting(owner: Any, method: str, recorder: Recorder) -> None:
    original = getattr(owner, method)

    @wraps(original)
    def called(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        name = recorder.name(_LIBRARY, "call", method_of(self))
        call = recorder.begin(name)
        if call is not None:
            call.arguments = arguments_of(recorder, name, request)
        return waited(call, original, self, request, *args, **kwargs)

    setattr(owner, method, called)


def arguments_of(recorder: Recorder, name: int, request: Any) -> int:
    """A number for the request, if it is a short message."""
    encode = getattr(request, "SerializeToString", None)
    data = request if isinstance(request, bytes) else encode() if encode is not None and _is_short(request) else None
    return recorder.arguments_of(name, (data,)) if isinstance(data, bytes) else 0


def _is_short(message: Any) -> bool:
    return bool(message.ByteSize() <= 200)


def _follow_future(owner: Any, recorder: Recorder) -> None:
    original = owner.future

    @wraps(original)
    def started(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = recorder.begin(recorder.name(_LIBRARY, "started", method_of(self)))
        if call is None:
            return original(self, *args, **kwargs)
        try:
            future = original(self, *args, **kwargs)
        except BaseException as error:
            call.end(error)
            raise
        call.leave()
        call.waited = clock() - call.begun
        future.add_done_callback(lambda done: call.end_elsewhere(_error_of(done)))
        return future

    owner.future = started


def _error_of(done: Any) -> BaseException | None:
    """The error of a future that is done."""
    if done.cancelled():
        return GeneratorExit()
    error = done.exception()
    return error if isinstance(error, BaseException) else None


def _follow_stream(owner: Any, recorder: Recorder) -> None:
    original = owner.__call__

    @wraps(original)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = recorder.begin(recorder.name(_LIBRARY, "stream", method_of(self)))
        if call is None:
            return original(self, *args, **kwargs)
        try:
            items = original(self, *args, **kwargs)
        except BaseException as error:
            call.end(error)
            raise
        call.leave()
        call.waited = clock() - call.begun
        setattr(items, _CALL, call)
        items._nearcall_left = weakref.finalize(items, call.end_elsewhere, GeneratorExit())
        return items

    owner.__call__ = called


def _follow_items(owner: Any) -> None:
    original = owner._next

    @wraps(original)
    def item(self: Any) -> Any:
        call: Call | None = getattr(self, _CALL, None)
        if call is None:
            return original(self)
        begun = clock()
        try:
            found = original(self)
        except BaseException as error:
            call.waited += clock() - begun
            setattr(self, _CALL, None)
            if self._nearcall_left.detach() is not None:
                call.end_elsewhere(None if isinstance(error, StopIteration) else error)
            raise
        call.waited += clock() - begun
        return found

    owner._next = item
