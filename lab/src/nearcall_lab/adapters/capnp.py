"""Cap'n Proto by pycapnp, whose calls live in asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from nearcall_lab.adapters.event_loops import run, until_stopped
from nearcall_lab.contract import Mechanism, Operation, Ready, Spec, Stop, Transport
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_DEFINITION = Path(__file__).parent.parent / "programs" / "lab.capnp"


def _row(name: str, label: str, transport: Transport) -> Mechanism:
    return Mechanism(
        *(name, label, "rpc"),
        requires=("capnp",),
        distribution="pycapnp",
        settings="two-party RPC on asyncio, traversal limit raised to what is sent"
        + (", TCP_NODELAY on both sides" if transport == "TCP" else ""),
        typed="Cap'n Proto struct, dataclass rebuilt on both sides",
        transport=transport,
        operations=("echo", "quote", "wait"),
        style="asyncio",
        concurrent_calls=True,
    )


MECHANISMS = (_row("capnp", "Cap'n Proto", "UDS"), _row("capnp-tcp", "Cap'n Proto, TCP", "TCP"))


def _load() -> Any:
    import capnp

    capnp.remove_import_hook()
    return capnp.load(str(_DEFINITION))


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    run(_serve(spec, ready, stop), on_uvloop=False)


async def _serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import capnp

    types = _load()
    count_call = spec.served.count

    class Lab(types.Lab.Server):  # type: ignore[misc, name-defined]
        async def echo(self, data: bytes, **_: Any) -> bytes:
            count_call()
            return data

        async def quote(self, order: Any, **_: Any) -> Any:
            count_call()
            filled = fill(Order(order.symbol, order.quantity, order.price, order.urgent))
            return types.Fill.new_message(**vars(filled))

        async def wait(self, seconds: float, **_: Any) -> Any:
            count_call()
            await asyncio.sleep(seconds)
            return types.Named.new_message(**vars(named(seconds)))

    async def connected(stream: Any) -> None:
        await capnp.TwoPartyServer(stream, bootstrap=Lab(), traversal_limit_in_words=spec.max_message).on_disconnect()

    async with capnp.kj_loop():
        if spec.mechanism.transport == "TCP":
            server = await capnp.AsyncIoStream.create_server(connected, spec.host, 0, family=socket.AF_INET)
            address = str(server.sockets[0].getsockname()[1])
        else:
            address = os.path.join(spec.directory, "capnp.sock")
            server = await capnp.AsyncIoStream.create_unix_server(connected, address)
        ready(address)
        await until_stopped(stop)
        server.close()


def connect(spec: Spec) -> _Client:
    return _Client(spec)


class _Loop:
    """The library's loop beside asyncio's, of which a thread has one: all connections of the process share it."""

    users = 0
    stack = AsyncExitStack()

    @classmethod
    async def join(cls) -> None:
        import capnp

        if not cls.users:
            await cls.stack.enter_async_context(capnp.kj_loop())
        cls.users += 1

    @classmethod
    async def leave(cls) -> None:
        cls.users -= 1
        if not cls.users:
            await cls.stack.aclose()


class _Client:
    """One connection."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._types = _load()
        self._client: Any = None
        self._lab: Any = None

    async def open(self) -> None:
        import capnp

        await _Loop.join()
        connections = capnp.AsyncIoStream
        if self._spec.mechanism.transport == "TCP":
            stream = await connections.create_connection(host=self._spec.host, port=int(self._spec.address))
        else:
            stream = await connections.create_unix_connection(self._spec.address)
        # Its own limit, of 8 million words, is for what strangers send.
        self._client = capnp.TwoPartyClient(stream, traversal_limit_in_words=self._spec.max_message)
        self._lab = self._client.bootstrap().cast_as(self._types.Lab)

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        lab, order_of = self._lab, self._types.Order.new_message

        async def echo(data: bytes) -> bytes:
            reply: bytes = (await lab.echo(data)).data
            return reply

        async def quote(order: Order) -> Fill:
            filled = (await lab.quote(order_of(**vars(order)))).fill
            return Fill(filled.symbol, filled.cost, filled.lots, filled.accepted)

        async def wait(seconds: float) -> Named:
            reply = (await lab.wait(seconds)).named
            return Named(reply.id, reply.name)

        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {"echo": echo, "quote": quote, "wait": wait}
        return calls[operation]

    def stream(self, items: int) -> AsyncIterator[int]:
        raise NotImplementedError("not measured")

    async def flush(self) -> None:
        pass

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        self._client.close()
        await _Loop.leave()
