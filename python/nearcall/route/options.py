"""What nodes and messages take by name, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from ..options.nats import NATS
    from ..options.tls import TLS

__all__ = ["About", "DirectAbout", "NodeOptions"]


class About(TypedDict, total=False):
    """What is said of a message beside its payload."""

    subscription: int
    entity: str
    trace: bytes | None
    to: str | None


class DirectAbout(TypedDict, total=False):
    """The same of one that goes straight to a node."""

    subscription: int
    transaction: bytes | None
    entity: str
    trace: bytes | None
    timeout: float | None


class NodeOptions(TypedDict, total=False):
    """The options of a node that it has in common with servers and channels."""

    tls: TLS | None
    nats: NATS | None
    allow_plaintext: bool
    allow_users: Any
    allow_groups: Any
    max_message_size: int
    spin: float | Literal["auto"]
    handshake_timeout: float
    max_memory: int
    max_pending: int
    on_connect: Callable[..., object] | None
    on_disconnect: Callable[..., object] | None
