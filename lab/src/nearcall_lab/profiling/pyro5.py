"""Pyro5: calls of proxies, items of remote iterators, and connections."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.following import waited
from nearcall.profile.recorder import Recorder

from nearcall_lab.profiling.connections import count_all

_LIBRARY = "Pyro5"


def patch(module: ModuleType, recorder: Recorder) -> None:
    if module.__name__ == "Pyro5.socketutil":
        count_all(module.SocketConnection)
        return
    proxy: Any = module.Proxy
    invoke, connect = proxy._pyroInvoke, proxy._Proxy__pyroCreateConnection

    @wraps(invoke)
    def invoked(self: Any, methodname: str, vargs: Any, kwargs: Any, flags: int = 0, objectId: Any = None) -> Any:
        is_item = methodname == "get_next_stream_item"
        kind = "item" if is_item else "oneway" if methodname in self._pyroOneway else "call"
        what = "next item" if is_item else f"{objectId or self._pyroUri.object}.{methodname}"
        name = recorder.name(_LIBRARY, kind, what)
        call = recorder.begin(name)
        if call is not None and kind == "call" and isinstance(vargs, tuple):
            call.arguments = recorder.arguments_of(name, (id(self), *vargs), kwargs)
        return waited(call, invoke, self, methodname, vargs, kwargs, flags, objectId)

    @wraps(connect)
    def connected(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._pyroConnection is not None:
            return connect(self, *args, **kwargs)
        call = recorder.begin(recorder.name(_LIBRARY, "connect", f"connect {self._pyroUri}"))
        return waited(call, connect, self, *args, **kwargs)

    proxy._pyroInvoke, proxy._Proxy__pyroCreateConnection = invoked, connected
