"""TCP ports of servers that can only bind by themselves, and do not say when they accept."""

from __future__ import annotations

import asyncio
import socket


def free_port() -> int:
    """A port of the loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def accepting(port: int) -> None:
    """Returns once somebody accepts connections at a port of the loopback."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.005)
            continue
        writer.close()
        return
