"""nearcall for asyncio."""

from .client import AsyncClient, connect

__all__ = ["AsyncClient", "connect"]
