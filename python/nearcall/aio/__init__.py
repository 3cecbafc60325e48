"""nearcall for asyncio."""

from .channel import Channel, connect
from .child import AsyncChild, spawn
from .client import AsyncClient

__all__ = ["AsyncChild", "AsyncClient", "Channel", "connect", "spawn"]
