"""The message router: a message goes by its type to whom a table says, not to an address.

A :class:`Node` sends and takes messages. Its table, in RMR's text or in TOML, says who gets which type: groups whose
members take turns, copies to several groups, the owner of a managed entity. ``docs/guide/routing.md`` explains it all.
"""

from . import aio
from .manager import AttachedNode, NodeInfo, RouteManager, manager
from .message import Message, message
from .metrics import prometheus
from .node import Direct, Node
from .sending import WhenFull
from .service import EndpointStatus, LeftStatus, NodeStatus, RmrStatus, Route, RouteTable

__all__ = [
    "AttachedNode",
    "Direct",
    "EndpointStatus",
    "LeftStatus",
    "Message",
    "Node",
    "NodeInfo",
    "NodeStatus",
    "RmrStatus",
    "Route",
    "RouteManager",
    "RouteTable",
    "WhenFull",
    "aio",
    "manager",
    "message",
    "prometheus",
]
