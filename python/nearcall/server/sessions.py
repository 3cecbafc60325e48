"""Clients that come and go: runs the user's hooks, and ends objects that were made for a client."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeAlias

from ..call.failures import Failures
from ..call.session import ServerConnection
from ..options.checked import with_option
from ..references.given import end_of_given, finish
from .instances import end_of

__all__ = ["Hook", "Sessions", "check_hook"]

Hook: TypeAlias = "Callable[[ServerConnection], object]"
"""A function that is called when a client connects or disconnects."""


def check_hook(option: str, hook: Hook | None) -> Hook | None:
    """The options ``on_connect`` and ``on_disconnect``.

    Raises:
        TypeError: the hook is no ordinary function of one argument.
    """
    if hook is not None and not callable(hook):
        raise with_option(
            TypeError(f"{option} must be a function that takes the client's connection, not {hook!r}"), option
        )
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(type(hook), "__call__", None)):  # noqa: B004
        raise with_option(
            TypeError(f"{option} must be an ordinary function, not 'async def': it runs in a thread of the server"),
            option,
        )
    if hook is not None:
        try:
            inspect.signature(hook).bind(None)
        except TypeError as error:
            raise with_option(
                TypeError(
                    f"{option} is called with one argument, the client's connection, and does not take it: {error}"
                ),
                option,
            ) from None
        except ValueError:
            pass  # a function written in C has no signature to look at
    return hook


class Sessions:
    """Runs hooks and ends objects when a client of one server comes or goes. Any thread of the server may call it.

    Args:
        on_connect: Called before a client's first call.
        on_disconnect: Called after a client's last call.
        failures: Reports what these functions raise.
    """

    def __init__(self, on_connect: Hook | None, on_disconnect: Hook | None, failures: Failures) -> None:
        self._on_connect = check_hook("on_connect", on_connect)
        self._on_disconnect = check_hook("on_disconnect", on_disconnect)
        self._failures = failures
        self._at_work: dict[int, str] = {}
        self.finish: Callable[[Awaitable[object]], object] | None = None
        """Awaits something in the server's event loop; ``None`` while there is no loop."""

    def for_core(self) -> dict[str, Any]:
        """Options of :class:`nearcall._core.Server`."""
        return {
            "make_client": ServerConnection,
            "on_arrival": None if self._on_connect is None else self._arrived,
            "on_departure": self._departed,
            "departures": self._on_disconnect is not None,
        }

    def is_in_hook(self) -> bool:
        """Whether the calling thread runs something for a client that has come or gone."""
        return threading.get_ident() in self._at_work

    def at_work(self) -> str:
        """The functions that run just now for clients that have come or gone, for messages."""
        counts = Counter(list(self._at_work.values()))
        running = (what if count == 1 else f"{what} ({count} times)" for what, count in counts.items())
        return ", ".join(running) or "clients that have gone"

    @contextmanager
    def _noted(self, what: str) -> Generator[None, None, None]:
        me = threading.get_ident()
        self._at_work[me] = what
        try:
            yield
        finally:
            del self._at_work[me]

    def _arrived(self, connection: ServerConnection) -> None:
        self._call("on_connect", self._on_connect, connection)

    def _departed(self, connection: ServerConnection) -> None:
        for instance in reversed(connection._instances.values()):
            copy_context().run(self._end, instance, connection)  # each in a context of its own
        connection._instances.clear()
        self._call("on_disconnect", self._on_disconnect, connection)

    def released(self, given: object) -> None:
        """An object that was passed to a client is needed no more: the last reference to it was released, or the
        client is gone.
        """
        self._finish(given, end_of_given(given), {})

    def _end(self, instance: object, connection: ServerConnection) -> None:
        self._finish(instance, end_of(instance), connection.peer)

    def _finish(self, ended: object, end: Callable[[], Any] | None, peer: dict[str, Any]) -> None:
        if end is not None:
            with self._noted(f"{type(ended).__name__}.{end.__name__}"):
                finish(ended, end, self.finish, self._failures, peer)

    def _call(self, option: str, hook: Hook | None, connection: ServerConnection) -> None:
        if hook is None:
            return
        try:
            with self._noted(option):
                hook(connection)
        except BaseException as error:
            # SystemExit, too: it does not end the server.
            self._failures.tell(option, error, connection.peer)
