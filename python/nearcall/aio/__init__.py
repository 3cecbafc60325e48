"""nearcall for asyncio."""

from ..service.for_loops import Interface
from ..types.streams import AsyncStream
from .channel import Channel, connect
from .child import AsyncChild, spawn
from .client import AsyncClient

__all__ = ["AsyncChild", "AsyncClient", "AsyncStream", "Channel", "Interface", "connect", "spawn"]
