"""A node's side of the route manager: it tells what it takes, and puts the tables in force that come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..client.channel import connect
from ..client.standing import Standing
from ..errors import RpcError, Unavailable
from ..log import ERROR, WARNING, log
from .manager import NodeInfo, RouteManager
from .service import RouteTable

__all__ = ["Attachment"]


class Attachment(Standing):
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
        super().__init__()
        self._url = url
        self._node = node
        self._install = install
        self._options = options
        self._told = False

    def connect(self) -> Any:
        """Connects to the manager."""
        return connect(self._url, RouteManager, **self._options)

    def begin(self, service: RouteManager) -> Any:
        """Attaches the node."""
        return service.attach(self._node)

    def take(self, service: RouteManager, item: RouteTable) -> None:
        """Puts a table in force, and says so."""
        self._told = False
        problem = None
        try:
            self._install(item)
        except RpcError as error:
            problem = str(error)
            log(ERROR, "node %s refuses table %s: %s", self._node.name, item.id, problem)
        self._node = msgspec.structs.replace(self._node, table=item.id)
        service.acknowledge(self._node.name, item.id, problem)

    def failed(self, error: Exception) -> None:
        """Logs it, once until a table comes."""
        if not isinstance(error, RpcError):
            log(ERROR, "node %s and its manager at %s", self._node.name, self._url, error=error)
        elif not self._told:
            self._told = True
            level = WARNING if isinstance(error, Unavailable) else ERROR
            log(level, "node %s goes on without its manager: %s", self._node.name, str(error))
