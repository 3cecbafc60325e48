"""One client of a server, as handlers see it: its connection and its session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..types.shown import shown

__all__ = ["ServerConnection", "Session"]


class Session(SimpleNamespace):
    """A place for what belongs to one client: set any attribute, and read it in later calls of the same client.

    It begins empty with each connection, and is dropped with it. Calls of one client may run at the same time in
    several threads, which share it.
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
        """The client, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. A client with
        a certificate also has ``subject`` and ``names``, those of the certificate.
        """
        return dict(self._peer)

    @property
    def session(self) -> Session:
        """The client's session, which handlers find as ``nearcall.context().session``."""
        return self._session

    def _instance(self, make: Callable[[], object]) -> Any:
        """The object of this client that ``make`` makes; it is made once."""
        instance = self._instances.get(make)
        if instance is None:
            with self._making:  # if several first calls come at once, one makes the object
                instance = self._instances.get(make)
                if instance is None:
                    instance = self._instances[make] = make()
        return instance

    def __repr__(self) -> str:
        who = ", ".join(f"{key}={shown(str(value))}" for key, value in self._peer.items())
        return f"<connection of a client: {who}>"
