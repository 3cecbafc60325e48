"""A node's side of the route manager: it tells what it takes, and puts the tables in force that come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from ..client.channel import connect
from ..errors import RpcError, Unavailable
from ..log import ERROR, WARNING, log
from .manager import NodeInfo, RouteManager
from .service import RouteTable

__all__ = ["Attachment"]

_SHORTEST, _LONGEST = 0.05, 2.0
"""Seconds between two attempts to reach the manager."""


class Attachment:
    """Stays attached to a manager, and goes on with the last table while there is none.

    Args:
        url: Where the manager is.
        node: What the node says of itself.
        install: Puts a table in force, or raises.
        options: The options of the connection.
    """

    def __init__(
        self, url: str, node: NodeInfo, install: Callable[[RouteTable], None], options: dict[str, Any]
    ) -> None:
        self._url = url
        self._node = node
        self._install = install
        self._options = options
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._client: Any = None

    def run(self) -> None:
        """Works until :meth:`end` is called. For a thread of its own."""
        pause, told = _SHORTEST, False
        while not self._ended.is_set():
            try:
                for table in self._tables():
                    pause, told = _SHORTEST, False
                    self._take(table)
            except RpcError as error:
                if not told and not self._ended.is_set():
                    told = True
                    level = WARNING if isinstance(error, Unavailable) else ERROR
                    log(level, "node %s goes on without its manager: %s", self._node.name, str(error))
            except Exception as error:
                log(ERROR, "node %s and its manager at %s", self._node.name, self._url, error=error)
            self._close()
            self._ended.wait(pause)
            pause = min(pause * 2, _LONGEST)

    def end(self) -> None:
        """Leaves the manager."""
        self._ended.set()
        self._close()

    def _tables(self) -> Any:
        client = connect(self._url, RouteManager, **self._options)
        with self._lock:
            self._client = client
        return () if self._ended.is_set() else client.service.attach(self._node)

    def _take(self, table: RouteTable) -> None:
        problem = None
        try:
            self._install(table)
        except RpcError as error:
            problem = str(error)
            log(ERROR, "node %s refuses table %s: %s", self._node.name, table.id, problem)
        self._node = msgspec.structs.replace(self._node, table=table.id)
        self._client.service.acknowledge(self._node.name, table.id, problem)

    def _close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
