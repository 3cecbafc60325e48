"""nats-py with a real nats-server between the two sides: publish and subscribe, request and reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from nearcall_lab.adapters.broker import absent as no_server
from nearcall_lab.adapters.broker import nats_server
from nearcall_lab.adapters.event_loops import run, until_stopped
from nearcall_lab.contract import Mechanism, Operation, Ready, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

_LIMIT_S = 5.0
"""Of a request: a server that has died does not end it."""

MECHANISMS = (
    Mechanism(
        "nats",
        "nats-py, nats-server",
        "messaging",
        requires=("nats",),
        distribution="nats-py",
        settings="a broker on the server's CPUs; a subject per operation, no limit of pending messages, "
        f"replies by inbox, a request waits {_LIMIT_S:g} s at most",
        typed="msgspec msgpack",
        transport="TCP",
        operations=("echo", "quote", "send"),
        style="asyncio",
        concurrent_calls=True,
    ),
)


def absent(mechanism: Mechanism) -> str:
    """Why it cannot run here."""
    return no_server()


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    run(_serve(spec, ready, stop), on_uvloop=False)


async def _serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import nats

    with nats_server(spec, stop) as url:
        client = await nats.connect(url)
        receive, count_call = spec.receive, spec.served.count
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Order).decode

        async def send(message: Any) -> None:
            receive(message.data)

        async def echo(message: Any) -> None:
            count_call()
            await message.respond(message.data)

        async def quote(message: Any) -> None:
            count_call()
            await message.respond(encode(fill(decode(message.data))))

        for name, handler in (("send", send), ("echo", echo), ("quote", quote)):
            await client.subscribe(name, cb=handler, pending_msgs_limit=0, pending_bytes_limit=0)
        await client.flush()  # the broker knows of the subscriptions
        ready(url)
        await until_stopped(stop)
        await client.close()


def connect(spec: Spec) -> _Client:
    return _Client(spec.address)


class _Client:
    """One connection to the broker."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: Any = None

    async def open(self) -> None:
        import nats

        self._client = await nats.connect(self._address, allow_reconnect=False)

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        client = self._client
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Fill).decode

        async def echo(data: bytes) -> bytes:
            reply: bytes = (await client.request("echo", data, timeout=_LIMIT_S)).data
            return reply

        async def quote(order: Order) -> Fill:
            return decode((await client.request("quote", encode(order), timeout=_LIMIT_S)).data)

        async def send(data: bytes) -> None:
            await client.publish("send", data)

        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {"echo": echo, "quote": quote, "send": send}
        return calls[operation]

    def stream(self, items: int) -> AsyncIterator[int]:
        raise NotImplementedError("subjects have no streams")

    async def flush(self) -> None:
        await self._client.flush()

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        await self._client.close()
