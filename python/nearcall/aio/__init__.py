"""nearcall for asyncio."""

from ..service.for_loops import Interface
from .channel import Channel, connect
from .child import AsyncChild, spawn
from .client import AsyncClient

__all__ = ["AsyncChild", "AsyncClient", "Channel", "Interface", "connect", "spawn"]
