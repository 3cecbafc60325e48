"""Calls of nearcall's own clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import msgspec

from ..call.around import put_around, startable
from ..service.outward import dressed
from ..service.plan import BIDI_STREAM, ONEWAY, SERVER_STREAM, UNARY, MethodPlan
from .following import AsyncItems, Awaited, Items
from .recorder import Call, Recorder

__all__ = ["patch"]

Function = Callable[..., Any]

MEASURED = 16
"""The arguments and the result of one call in so many are measured, since that encodes them anew."""
LIBRARY = "nearcall"


def patch(module: ModuleType, recorder: Recorder) -> None:
    """Follows the calls of clients that are made from now on, and the opening of channels."""
    for_loops = module.__name__ == "nearcall.aio.channel"
    channel = module.Channel
    if for_loops:
        begin = channel._begin

        @wraps(begin)
        async def begun(self: Any) -> None:
            call = recorder.begin(recorder.name(LIBRARY, "connect", f"connect {self._shown}"), task=recorder.task())
            await _awaited(call, begin, self)

        channel._begin = begun
        return
    init = channel.__init__

    @wraps(init)
    def opened(self: Any, url: str, **options: Any) -> None:
        call = recorder.begin(recorder.name(LIBRARY, "connect", f"connect {url}"))
        try:
            init(self, url, **options)
        except BaseException as error:
            if call is not None:
                call.end(error)
            raise
        if call is not None:
            call.end()

    channel.__init__ = opened
    put_around(lambda plan, function, in_loop: _follow(recorder, plan, function, in_loop))


async def _awaited(call: Call | None, function: Function, *args: Any) -> None:
    try:
        await function(*args)
    except BaseException as error:
        if call is not None:
            call.end(error)
        raise
    if call is not None:
        call.end()


def _follow(recorder: Recorder, plan: MethodPlan, function: Function, for_loop: bool) -> Function:
    if plan.kind in (SERVER_STREAM, BIDI_STREAM):
        found = _stream(recorder, plan, function, for_loop)
    elif for_loop:
        found = _awaitable(recorder, plan, function)
    else:
        found = _plain(recorder, plan, function)
        if plan.kind == UNARY and hasattr(function, "start"):
            startable(found, _started(recorder, plan, function))
    dressed(found, plan, for_loop=for_loop)
    return found


def _plain(recorder: Recorder, plan: MethodPlan, function: Function) -> Function:
    """A method that waits for one result, or sends and returns."""
    name = recorder.name(LIBRARY, "oneway" if plan.kind == ONEWAY else "call", plan.full_name)
    found: Function = recorder.around(name, function, (_Size(), _Size()))
    return found


def _awaitable(recorder: Recorder, plan: MethodPlan, function: Function) -> Function:
    begin, arguments_of, task = recorder.begin, recorder.arguments_of, recorder.task
    name = recorder.name(LIBRARY, "oneway" if plan.kind == ONEWAY else "call", plan.full_name)
    sent, received = _Size(), _Size()

    def call(*args: Any, **kwargs: Any) -> Any:
        record = begin(name, task=task())
        if record is None:
            return function(*args, **kwargs)
        try:
            record.arguments = arguments_of(name, args, kwargs)
            record.sent = sent((*args, *kwargs.values()) if kwargs else args)
            return Awaited(record, function(*args, **kwargs), received)
        except BaseException as error:
            record.end_elsewhere(error)
            raise
        finally:
            record.leave()

    return call


def _stream(recorder: Recorder, plan: MethodPlan, function: Function, for_loop: bool) -> Function:
    name = recorder.name(LIBRARY, "stream", plan.full_name)
    kind = AsyncItems if for_loop else Items

    def call(*args: Any, **kwargs: Any) -> Any:
        record = recorder.begin(name, task=recorder.task() if for_loop else "")
        if record is None:
            return function(*args, **kwargs)
        try:
            return kind(record, function(*args, **kwargs))
        except BaseException as error:
            record.end_elsewhere(error)
            raise
        finally:
            record.leave()

    return call


def _started(recorder: Recorder, plan: MethodPlan, function: Any) -> Function:
    """What sends a call without waiting for its reply. When that comes is not seen."""
    name = recorder.name(LIBRARY, "started", plan.full_name)

    def start(*args: Any, **kwargs: Any) -> Any:
        record = recorder.begin(name, depth=3)
        if record is None:
            return function.start(*args, **kwargs)
        try:
            result = function.start(*args, **kwargs)
        except BaseException as error:
            record.end(error)
            raise
        record.end()
        return result

    return start


class _Size:
    """Measures what would be sent: bytes of the values in MessagePack, which may not be quite what the connection's
    codec makes of them. -1: not measured.
    """

    __slots__ = ("_beside", "_encode", "_left")

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._instead).encode
        self._left = 0
        self._beside = 0

    def __call__(self, values: tuple[Any, ...]) -> int:
        if self._left:
            self._left -= 1
            return -1
        size = self._beside = 0
        try:
            for value in values:
                # Long bytes are not copied for this.
                size += len(value) if type(value) in _BYTES else len(self._encode(value))
        except Exception:  # no data: a reference, for example
            return -1
        self._left = MEASURED - 1
        return size + self._beside

    def _instead(self, value: Any) -> None:
        """In place of what is sent as it lies in memory: an array, for example."""
        size = getattr(value, "nbytes", None)
        if not isinstance(size, int):
            raise TypeError
        self._beside += size


_BYTES = frozenset({bytes, bytearray})
