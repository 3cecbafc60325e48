"""requests: each request of a session; one that is redirected has those that follow inside it."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from nearcall.profile.recorder import Recorder

from nearcall_lab.profiling.connections import connects
from nearcall_lab.profiling.urls import length_of, name_of

_LIBRARY = "requests"


def patch(module: ModuleType, recorder: Recorder) -> None:
    session: Any = module.Session
    send = session.send

    @wraps(send)
    def sent(self: Any, request: Any, **kwargs: Any) -> Any:
        parts = urlsplit(getattr(request, "url", "") or "")
        method = getattr(request, "method", None) or "?"
        name = recorder.name(
            _LIBRARY, "call", name_of(method, parts.scheme, parts.netloc.rpartition("@")[2], parts.path)
        )
        call = recorder.begin(connects(name, _LIBRARY))
        if call is None:
            return send(self, request, **kwargs)
        if method in ("GET", "HEAD"):
            call.arguments = recorder.arguments_of(name, (hash(request.url),))
        call.takes(sent=length_of(request.headers))
        try:
            response = send(self, request, **kwargs)
        except BaseException as error:
            call.end(error)
            raise
        call.takes(received=_received(response))
        call.end()
        return response

    session.send = sent


def _received(response: Any) -> int:
    """Bytes of the body, as they came; of a stream those that were read until now."""
    tell = getattr(response.raw, "tell", None)
    try:
        return int(tell()) if tell is not None else 0
    except (OSError, ValueError):
        return 0
