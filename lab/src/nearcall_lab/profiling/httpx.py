"""httpx: each request of a client, for threads and for event loops."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.following import MadeHere, Stepped
from nearcall.profile.recorder import Call, Recorder, here

from nearcall_lab.profiling.connections import connects
from nearcall_lab.profiling.urls import length_of, name_of

_LIBRARY = "httpx"
_VERBS = ("get", "options", "head", "post", "put", "patch", "delete", "request", "send")


def patch(module: ModuleType, recorder: Recorder) -> None:
    client: Any = module.Client
    in_loop: Any = module.AsyncClient
    send, send_in_loop = client.send, in_loop.send

    @wraps(send)
    def sent(self: Any, request: Any, **kwargs: Any) -> Any:
        call = _begin(recorder, request, "")
        if call is None:
            return send(self, request, **kwargs)
        try:
            response = send(self, request, **kwargs)
        except BaseException as error:
            call.end(error)
            raise
        call.takes(received=response.num_bytes_downloaded)
        call.end()
        return response

    @wraps(send_in_loop)
    async def sent_in_loop(self: Any, request: Any, **kwargs: Any) -> Any:
        call = _begin(recorder, request, recorder.task())
        if call is None:
            return await send_in_loop(self, request, **kwargs)
        call.leave()
        try:
            response = await _Within(call, send_in_loop(self, request, **kwargs))
        except BaseException as error:
            call.end_elsewhere(error)
            raise
        call.takes(received=response.num_bytes_downloaded)
        call.end_elsewhere()
        return response

    client.send, in_loop.send = sent, sent_in_loop
    # `gather(client.get(...), ...)` makes coroutines here and runs them elsewhere.
    for verb in _VERBS:
        original = getattr(in_loop, verb)

        def made(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            coroutine = _original(self, *args, **kwargs)
            return coroutine if here.made_at >= 0 else MadeHere(recorder.stack_here(), coroutine)

        setattr(in_loop, verb, wraps(original)(made))


def _begin(recorder: Recorder, request: Any, task: str) -> Call | None:
    url = request.url
    host = url.netloc.decode("ascii", "replace")
    name = recorder.name(_LIBRARY, "call", name_of(request.method, url.scheme, host, url.path))
    call = recorder.begin(connects(name, _LIBRARY), task, 3)
    if call is not None:
        if request.method in ("GET", "HEAD"):
            call.arguments = recorder.arguments_of(name, (hash(str(url)),))
        call.takes(sent=length_of(request.headers))
    return call


class _Within(Stepped):  # type: ignore[misc]
    """Runs each step of a coroutine inside a call, so that connections that it opens are that call's."""

    __slots__ = ("_call",)

    def __init__(self, call: Call, coroutine: Any) -> None:
        super().__init__(coroutine)
        self._call = call

    def step(self, function: Any, *args: Any) -> Any:
        self._call.enter()
        try:
            return function(*args)
        finally:
            self._call.leave()
