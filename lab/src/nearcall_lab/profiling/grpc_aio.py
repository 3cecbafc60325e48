"""grpcio, for event loops: from the call until it is done. Their bytes are not known: tasks of gRPC's encode them."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.recorder import Call, Recorder

from nearcall_lab.profiling.grpcio import arguments_of, follow_connecting, method_of

_LIBRARY = "grpcio"


class AioRpcError(Exception):
    """Stands for the error of a call that was seen by its status."""


def patch(module: ModuleType, recorder: Recorder) -> None:
    follow_connecting(module.Channel, recorder)
    for name in ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream"):
        _follow(getattr(module, f"{name}MultiCallable"), recorder, name)


def _follow(owner: Any, recorder: Recorder, kind: str) -> None:
    original = owner.__call__
    streams = kind.endswith("Stream")

    @wraps(original)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = recorder.name(_LIBRARY, "stream" if streams else "call", method_of(self))
        call = recorder.begin(name, recorder.task())
        if call is None:
            return original(self, *args, **kwargs)
        call.leave()
        if kind == "UnaryUnary" and args:
            call.arguments = arguments_of(recorder, name, args[0])
        try:
            under_way = original(self, *args, **kwargs)
        except BaseException as error:
            call.end_elsewhere(error)
            raise
        under_way.add_done_callback(lambda done: _end(call, done))
        return under_way

    owner.__call__ = called


def _end(call: Call, done: Any) -> None:
    error: BaseException | None = None
    if done.cancelled():
        error = GeneratorExit()
    else:
        try:
            error = None if done._cython_call.is_ok() else AioRpcError()
        except AttributeError:  # one with interceptors around it: it does not tell
            error = None
    call.end_elsewhere(error)
