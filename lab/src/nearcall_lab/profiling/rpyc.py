"""RPyC: each use of a remote object is a trip, and each attribute that is read on the way to it, too.

What is released by the garbage collector is not recorded: nobody waits for it.
"""

from __future__ import annotations

import threading
from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.following import waited
from nearcall.profile.recorder import Recorder

from nearcall_lab.profiling.connections import count_all

_LIBRARY = "rpyc"
_MOST_PATHS = 20_000
_LONGEST = 4
"""Parts of a path that is shown: a list that is walked along would make ever longer ones."""


def patch(module: ModuleType, recorder: Recorder) -> None:
    if module.__name__ == "rpyc.utils.factory":
        _follow_connect(module, recorder)
    elif module.__name__ == "rpyc.core.channel":
        count_all(module.Channel)
    else:
        _Requests(module, recorder)


def _follow_connect(module: Any, recorder: Recorder) -> None:
    for name in ("connect", "unix_connect", "ssl_connect", "connect_by_service"):
        original = getattr(module, name)

        def connected(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            where = ":".join(str(arg) for arg in args[:2])
            call = recorder.begin(recorder.name(_LIBRARY, "connect", f"connect {where}"))
            return waited(call, _original, *args, **kwargs)

        setattr(module, name, wraps(original)(connected))


class _Requests:
    def __init__(self, module: Any, recorder: Recorder) -> None:
        self._recorder = recorder
        self._paths: dict[Any, str] = {}
        """Of remote objects, by what RPyC knows them by: how the program got to them."""
        self._consts = consts = module.consts
        self._quiet = {consts.HANDLE_DEL, consts.HANDLE_CLOSE}
        self._words = {
            consts.HANDLE_GETROOT: "root",
            consts.HANDLE_PING: "ping",
            consts.HANDLE_REPR: "repr({})",
            consts.HANDLE_STR: "str({})",
            consts.HANDLE_HASH: "hash({})",
            consts.HANDLE_DIR: "dir({})",
            consts.HANDLE_PICKLE: "copy of {}",
            consts.HANDLE_INSPECT: "methods of {}",
            consts.HANDLE_BUFFITER: "next items of {}",
        }
        self._waits = threading.local()
        connection = module.Connection
        sync_request, async_request = connection.sync_request, connection.async_request

        @wraps(sync_request)
        def waiting(conn: Any, handler: Any, *args: Any) -> Any:
            if handler in self._quiet:
                self._waits.now = True
                return sync_request(conn, handler, *args)
            kind, text, values = self._about(handler, args)
            name = recorder.name(_LIBRARY, kind, text)
            call = recorder.begin(name)
            if call is not None and values is not None:
                call.arguments = recorder.arguments_of(name, values)
            self._waits.now = True
            result = waited(call, sync_request, conn, handler, *args)
            self._remember(result, text)
            return result

        @wraps(async_request)
        def begun(conn: Any, handler: Any, *args: Any, **kwargs: Any) -> Any:
            inside, self._waits.now = getattr(self._waits, "now", False), False
            if inside or handler in self._quiet:
                return async_request(conn, handler, *args, **kwargs)
            call = recorder.begin(recorder.name(_LIBRARY, "started", self._about(handler, args)[1]))
            if call is None:
                return async_request(conn, handler, *args, **kwargs)
            try:
                result = async_request(conn, handler, *args, **kwargs)
            except BaseException as error:
                call.end(error)
                raise
            call.leave()
            call.waited = 0
            result.add_callback(lambda _: call.end_elsewhere())
            return result

        connection.sync_request, connection.async_request = waiting, begun

    def _about(self, handler: int, args: tuple[Any, ...]) -> tuple[str, str, tuple[Any, ...] | None]:
        """What a request does: its kind, how one would write it, and what it is asked with."""
        consts = self._consts
        known = _identity(args[0]) if args else None
        path = self._paths.get(known, _type_of(known))
        if handler == consts.HANDLE_GETATTR:
            return "attribute", f"{path}.{_name(args[1])}", (repr(known),)
        if handler == consts.HANDLE_CALL:
            return "call", f"{path}()", self._values(known, args[1:])
        if handler == consts.HANDLE_CALLATTR:
            name = _name(args[1])
            text = f"{path}[…]" if name == "__getitem__" else f"{path}.{name}()"
            return "call", text, self._values(known, args[2:])
        if handler == consts.HANDLE_SETATTR:
            return "call", f"{path}.{_name(args[1])} = ...", None
        if handler == consts.HANDLE_BUFFITER:
            return "item", f"next items of {path}", None
        return "call", self._words.get(handler, f"request {handler} of {{}}").format(path), None

    @staticmethod
    def _values(known: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """An object of its own each time, such as a remote one, makes calls differ."""
        args, kwargs = (*given, (), ())[:2]
        return (repr(known), *args, *kwargs) if isinstance(args, tuple) else None

    def _remember(self, result: Any, text: str) -> None:
        known = _identity(result)
        if known is None:
            return
        if len(self._paths) >= _MOST_PATHS:
            self._paths.clear()
        parts = text.split(".")
        self._paths[known] = text if len(parts) <= _LONGEST else ".".join(("…", *parts[-_LONGEST:]))


def _identity(value: Any) -> Any:
    """What RPyC knows a remote object by; None for others. Looked up so that it makes no trip."""
    if type(value) is tuple and len(value) == 3:
        return value
    try:
        return object.__getattribute__(value, "____id_pack__")
    except AttributeError:
        return None


def _type_of(known: Any) -> str:
    return str(known[0]).rpartition(".")[2] if known else "object"


def _name(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
