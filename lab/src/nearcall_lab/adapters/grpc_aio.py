"""grpcio's asyncio API, with asyncio's own event loop and with uvloop, over TCP and over a Unix socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from nearcall_lab.adapters import grpc_messages as messages
from nearcall_lab.adapters.event_loops import run, until_stopped
from nearcall_lab.contract import OPERATIONS, Mechanism, Operation, Ready, Spec, Stop
from nearcall_lab.workloads import Order, fill, named

_ROOM = 20_000
_WHY = (
    "gRPC's C core documents two options for calls that wait for a handler to take them up (max_pending_requests and "
    "its hard limit, 1,000 and 3,000 by default); a server that expects bursts is to raise them."
)
MECHANISMS = tuple(
    Mechanism(
        name,
        label,
        "rpc",
        variant,
        (*messages.NEEDS, "uvloop") if "uvloop" in variant else messages.NEEDS,
        "grpcio",
        f"asyncio API on {'uvloop' if 'uvloop' in variant else 'asyncio'}, insecure, own connections; "
        f"{f'room for {_ROOM:,} waiting calls; ' if tuned else ''}echo as raw bytes, no Protobuf",
        messages.TYPED,
        transport="UDS" if variant.startswith("unix") else "TCP",
        operations=OPERATIONS,
        style="asyncio",
        concurrent_calls=True,
        protocol="" if variant.startswith("unix") else messages.PROTOCOL,
        loop="uvloop" if "uvloop" in variant else "asyncio",
        tuned=tuned,
        why=_WHY if tuned else "",
    )
    for name, label, variant, tuned in (
        ("grpc-aio-tcp", "grpc.aio, TCP", "tcp", False),
        ("grpc-aio-uds", "grpc.aio, UDS", "unix", False),
        ("grpc-aio-uvloop-tcp", "grpc.aio + uvloop, TCP", "tcp-uvloop", False),
        ("grpc-aio-uvloop-uds", "grpc.aio + uvloop, UDS", "unix-uvloop", False),
        ("grpc-aio-uvloop-tcp-tuned", "grpc.aio + uvloop, TCP, tuned", "tcp-uvloop", True),
    )
)


def _server_options(spec: Spec) -> list[tuple[str, Any]]:
    if not spec.mechanism.tuned:
        return messages.limits(spec)
    room = [("grpc.server.max_pending_requests", _ROOM), ("grpc.server.max_pending_requests_hard_limit", _ROOM)]
    return [*messages.limits(spec), *room]


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    run(_serve(spec, ready, stop), "uvloop" in spec.mechanism.variant)


async def _serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import grpc

    kinds = messages.classes()
    count_call, receive = spec.served.count, spec.receive

    async def echo(data: bytes, context: Any) -> bytes:
        count_call()
        return data

    async def quote(request: Any, context: Any) -> Any:
        count_call()
        result = fill(Order(request.symbol, request.quantity, request.price, request.urgent))
        return kinds.fill(symbol=result.symbol, cost=result.cost, lots=result.lots, accepted=result.accepted)

    async def wait(request: Any, context: Any) -> Any:
        count_call()
        await asyncio.sleep(request.seconds)
        reply = named(request.seconds)
        return kinds.named(id=reply.id, name=reply.name)

    async def count(request: Any, context: Any) -> AsyncIterator[Any]:
        count_call()
        for value in range(request.value):
            yield kinds.number(value=value)

    async def send(requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for data in requests:
            receive(data)
        return b""

    server = grpc.aio.server(options=_server_options(spec))
    handlers = messages.handlers(grpc, kinds, echo, quote, wait, count, send)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(messages.SERVICE, handlers),))
    if spec.mechanism.variant.startswith("unix"):
        address = f"unix:{os.path.join(spec.directory, 'grpc.sock')}"
        server.add_insecure_port(address)
    else:
        address = f"{spec.host}:{server.add_insecure_port(f'{spec.host}:0')}"
    await server.start()
    ready(address)
    await until_stopped(stop)
    await server.stop(0)


class _Session:
    """One channel."""

    def __init__(self, spec: Spec) -> None:
        import grpc

        self._kinds = messages.classes()
        self._channel = grpc.aio.insecure_channel(
            spec.address, options=[*messages.limits(spec), messages.OWN_CONNECTION]
        )
        self._methods = messages.methods(self._channel, self._kinds)
        self._sending: Any = None

    async def open(self) -> None:
        await asyncio.wait_for(self._channel.channel_ready(), 10)

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        kinds, methods = self._kinds, self._methods

        async def quote(order: Order) -> Any:
            return await methods.quote(
                kinds.order(symbol=order.symbol, quantity=order.quantity, price=order.price, urgent=order.urgent)
            )

        async def wait(seconds: float) -> Any:
            return await methods.wait(kinds.wait(seconds=seconds))

        async def send(data: bytes) -> None:
            if self._sending is None:
                self._sending = methods.send()
            await self._sending.write(data)

        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {"quote": quote, "wait": wait, "send": send}
        return calls.get(operation) or methods.echo

    async def stream(self, items: int) -> AsyncIterator[int]:
        async for reply in self._methods.count(self._kinds.number(value=items)):
            yield reply.value

    async def flush(self) -> None:
        if self._sending is not None:
            await self._sending.done_writing()
            await self._sending
            self._sending = None

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        await self._channel.close()


def connect(spec: Spec) -> _Session:
    return _Session(spec)
