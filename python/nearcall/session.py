"""What belongs to one client of a server: its session, and its first and last moment."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

from .failures import Failures
from .instances import end_of
from .shown import shown

__all__ = ["Hook", "ServerConnection", "Session", "Sessions", "check_hook"]

Hook: TypeAlias = "Callable[[ServerConnection], object]"


class Session(SimpleNamespace):
    """A place for what belongs to one client: set any attribute, and read it in later calls of the same client.

    It begins empty with each connection, and goes with it. Calls of one client may run at the same time in several
    threads, which share it.
    """

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this client's session has no '{name}': set it in on_connect, or in an earlier call")


class ServerConnection:
    """A client's connection, as ``on_connect`` and ``on_disconnect`` of a :class:`~nearcall.Server` get it."""

    def __init__(self, peer: dict[str, Any]) -> None:
        self._peer = peer
        self._session = Session()
        self._instances: dict[object, object] = {}
        self._making = threading.Lock()

    @property
    def peer(self) -> dict[str, Any]:
        """Who the client is, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. A
        client with a certificate also has ``subject`` and ``names``, which that is for.
        """
        return dict(self._peer)

    @property
    def session(self) -> Session:
        """What its handlers find as ``nearcall.context().session``."""
        return self._session

    def _instance(self, make: Callable[[], object]) -> Any:
        """The object of this client that ``make`` makes, once."""
        instance = self._instances.get(make)
        if instance is None:
            with self._making:  # of several first calls, one makes it
                instance = self._instances.get(make)
                if instance is None:
                    instance = self._instances[make] = make()
        return instance

    def __repr__(self) -> str:
        who = ", ".join(f"{key}={shown(str(value))}" for key, value in self._peer.items())
        return f"<connection of a client: {who}>"


def check_hook(option: str, hook: Hook | None) -> Hook | None:
    """The options ``on_connect`` and ``on_disconnect``.

    Raises:
        TypeError: it is no ordinary function.
    """
    if hook is not None and not callable(hook):
        raise TypeError(f"{option} must be a function that takes the client's connection, not {hook!r}")
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(type(hook), "__call__", None)):  # noqa: B004
        raise TypeError(f"{option} must be an ordinary function, not 'async def': it runs in a thread of the server")
    return hook


class Sessions:
    """Deals with the clients of one server that come and go. Any of its threads may call it.

    Args:
        on_connect: Called before a client's first call.
        on_disconnect: Called after a client's last call.
        failures: Where what these raise is told.
    """

    def __init__(self, on_connect: Hook | None, on_disconnect: Hook | None, failures: Failures) -> None:
        self._on_connect = check_hook("on_connect", on_connect)
        self._on_disconnect = check_hook("on_disconnect", on_disconnect)
        self._failures = failures
        self.finish: Callable[[Awaitable[object]], object] | None = None
        """Waits for something in the server's event loop, if it has one."""

    def for_core(self) -> dict[str, Any]:
        """Options of :class:`nearcall._core.Server`."""
        return {
            "make_client": ServerConnection,
            "on_arrival": None if self._on_connect is None else self._arrived,
            "on_departure": self._departed,
            "departures": self._on_disconnect is not None,
        }

    def _arrived(self, connection: ServerConnection) -> None:
        self._call("on_connect", self._on_connect, connection)

    def _departed(self, connection: ServerConnection) -> None:
        for instance in reversed(connection._instances.values()):
            self._end(instance, connection)
        connection._instances.clear()
        self._call("on_disconnect", self._on_disconnect, connection)

    def _end(self, instance: object, connection: ServerConnection) -> None:
        end = end_of(instance)
        if end is None:
            return
        try:
            ended = end()
            if inspect.isawaitable(ended):
                if self.finish is None:
                    raise RuntimeError("there is no event loop to await it in")
                self.finish(ended)
        except BaseException as error:
            self._failures.tell(f"{type(instance).__name__}.{end.__name__}", error, connection.peer)

    def _call(self, option: str, hook: Hook | None, connection: ServerConnection) -> None:
        if hook is None:
            return
        try:
            hook(connection)
        except BaseException as error:
            # SystemExit, too: it does not end the server.
            self._failures.tell(option, error, connection.peer)
