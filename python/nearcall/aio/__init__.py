"""nearcall for asyncio."""

from .channel import Channel, connect
from .client import AsyncClient

__all__ = ["AsyncClient", "Channel", "connect"]
