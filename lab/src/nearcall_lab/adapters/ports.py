"""TCP ports of servers that can only bind by themselves, and do not say when they accept."""

from __future__ import annotations

import asyncio
import socket


def free_port(host: str) -> int:
    """A port of this machine's address `host` that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


async def accepting(host: str, port: int) -> None:
    """Returns once somebody accepts connections at a port of this machine's address `host`."""
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.005)
            continue
        writer.close()
        return
