"""Connections: those that are opened during a call over HTTP, by `http.client`, `urllib3` and `httpcore`; and the bytes
that go over those of other libraries.
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.following import count_bytes, waited
from nearcall.profile.recorder import Recorder, here


def patch(module: ModuleType, recorder: Recorder) -> None:
    """Follow the opening of connections during calls: those of other programs are of no interest here."""
    name = module.__name__
    if name.startswith("httpcore."):
        owner = getattr(module, "AsyncHTTPConnection" if "_async" in name else "HTTPConnection")
        _follow(owner, "_connect", recorder, "_async" in name)
    else:
        for each in ("HTTPConnection", "HTTPSConnection"):
            if "connect" in vars(getattr(module, each)):
                _follow(getattr(module, each), "connect", recorder, False)


def _follow(owner: Any, method: str, recorder: Recorder, in_loop: bool) -> None:
    original = getattr(owner, method)

    def named(self: Any) -> int | None:
        """None: not during a call, or during that of a class below, which connects as well."""
        call = here.call
        if call is None or (library := _libraries.get(call.name)) is None:
            return None
        if hasattr(self, "_origin"):
            host = f"{self._origin.host.decode()}:{self._origin.port}"
        else:
            host = f"{self.host}:{self.port}"
        return int(recorder.name(library, "connect", f"connect {host}"))

    if in_loop:

        @wraps(original)
        async def connected(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = named(self)
            call = None if name is None else recorder.begin(name, recorder.task())
            if call is None:
                return await original(self, *args, **kwargs)
            call.leave()
            try:
                result = await original(self, *args, **kwargs)
            except BaseException as error:
                call.end_elsewhere(error)
                raise
            call.end_elsewhere()
            return result
    else:

        @wraps(original)
        def connected(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = named(self)
            return waited(None if name is None else recorder.begin(name), original, self, *args, **kwargs)

    setattr(owner, method, connected)


_libraries: dict[int, str] = {}


def connects(name: int, library: str) -> int:
    """Say that calls of this name may open connections; returns the name."""
    _libraries[name] = library
    return name


def count_all(connection: Any) -> None:
    """Counts what a class with ``send(data)`` and ``recv(...)`` sends and receives."""
    send, recv = connection.send, connection.recv

    @wraps(send)
    def sent(self: Any, data: Any) -> Any:
        count_bytes(sent=len(data))
        return send(self, data)

    @wraps(recv)
    def received(self: Any, *args: Any) -> Any:
        data = recv(self, *args)
        count_bytes(received=len(data))
        return data

    connection.send, connection.recv = sent, received
