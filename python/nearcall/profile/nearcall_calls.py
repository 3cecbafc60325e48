"""Calls of nearcall's own clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import msgspec

from .. import _core
from ..call.around import put_around, startable
from ..service.outward import dressed
from ..service.plan import BIDI_STREAM, ONEWAY, SERVER_STREAM, UNARY, MethodPlan
from .following import AsyncItems, Awaited, Items, waited
from .recorder import MEASURED, Call, Recorder

__all__ = ["patch"]

Function = Callable[..., Any]

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
    _follow_waits(recorder)
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
    found: Function = recorder.around(name, function, (_Size().of, _Size().of))
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
    """What sends a call without waiting for its reply; who waits for that is seen by `_follow_waits`."""
    name = recorder.name(LIBRARY, "started", plan.full_name)
    waits = recorder.name(LIBRARY, "wait", plan.full_name)

    def start(*args: Any, **kwargs: Any) -> Any:
        result = waited(recorder.begin(name, depth=3), function.start, *args, **kwargs)
        _started_calls[id(result)] = waits
        return result

    return start


_started_calls: dict[int, int] = {}
"""What a wait for a started call is named, by the call's address, which the next one there takes over: as many as were
ever under way at once.
"""


def _follow_waits(recorder: Recorder) -> None:
    """Follows threads that wait for calls which were started before. One that has ended is not waited for."""
    kind: Any = _core.StartedCall
    unknown = recorder.name(LIBRARY, "wait", "a started call")
    is_done: Callable[[Any], bool] = kind.done

    def waiting(function: Function) -> Function:
        @wraps(function)
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_done(self):
                return function(self, *args, **kwargs)
            return waited(recorder.begin(_started_calls.get(id(self), unknown)), function, self, *args, **kwargs)

        return wait

    for method in ("result", "exception"):
        setattr(kind, method, waiting(getattr(kind, method)))
    wait_for_one, name = _core.wait_for_started, recorder.name(LIBRARY, "wait", "nearcall.as_completed")

    @wraps(wait_for_one)
    def wait_for_started(calls: Any, timeout: float | None = None) -> list[int]:
        if any(map(is_done, calls)):
            return wait_for_one(calls, timeout)
        return waited(recorder.begin(name), wait_for_one, calls, timeout)

    _core.wait_for_started = wait_for_started


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
        found = self.of(values)
        self._left = MEASURED - 1 if found >= 0 else 0
        return found

    def of(self, values: tuple[Any, ...]) -> int:
        """Measures now."""
        size = self._beside = 0
        try:
            for value in values:
                # Long bytes are not copied for this.
                size += len(value) if type(value) in _BYTES else len(self._encode(value))
        except Exception:  # no data: a reference, for example
            return -1
        return size + self._beside

    def _instead(self, value: Any) -> None:
        """In place of what is sent as it lies in memory: an array, for example."""
        size = getattr(value, "nbytes", None)
        if not isinstance(size, int):
            raise TypeError
        self._beside += size


_BYTES = frozenset({bytes, bytearray})
