"""pyzmq over ipc (Unix sockets) and TCP: REQ/REP, one call at a time; DEALER/ROUTER, any number of calls under way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from nearcall_lab.adapters.event_loops import run, until_stopped
from nearcall_lab.contract import Mechanism, Operation, Ready, SimpleSession, Spec, Stop, Transport
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_TYPED = "msgspec msgpack"
_HIGH_WATER = 10_000
_PUSH = "one-way by PUSH/PULL"
_PUB = "one-way by PUB/SUB after the subscription has come, with XPUB_NODROP: it waits where PUB drops and tells nobody"
_REQUESTERS: tuple[tuple[str, str, str, str, str, Transport], ...] = (
    ("pyzmq", "pyzmq REQ/REP", "req", "ipc", _PUSH, "UDS"),
    ("pyzmq-tcp", "pyzmq REQ/REP, TCP", "req", "TCP", _PUSH, "TCP"),
    ("pyzmq-curve", "pyzmq REQ/REP, CURVE", "curve", "TCP, encrypted by CURVE", _PUSH, "TCP"),
    ("pyzmq-pubsub", "pyzmq PUB/SUB", "pubsub", "ipc", _PUB, "UDS"),
)
MECHANISMS = (
    *(
        Mechanism(
            *(name, label, "messaging", variant, ("zmq",), "pyzmq"),
            f"{scheme}, one I/O thread, calls by REQ/REP in two-part messages; {one_way}",
            _TYPED,
            transport=transport,
            operations=("echo", "quote", "send"),
        )
        for name, label, variant, scheme, one_way, transport in _REQUESTERS
    ),
    Mechanism(
        "pyzmq-dealer",
        "pyzmq DEALER/ROUTER, asyncio",
        "messaging",
        "dealer",
        ("zmq",),
        "pyzmq",
        f"ipc, zmq.asyncio, call number and method in frames of their own, high-water mark {_HIGH_WATER:,}",
        _TYPED,
        transport="UDS",
        operations=("echo", "quote", "wait"),
        style="asyncio",
        concurrent_calls=True,
    ),
)

_QUIT = b"quit"


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    if spec.mechanism.variant == "dealer":
        run(_serve_router(spec, ready, stop), on_uvloop=False)
    else:
        _serve_rep(spec, ready, stop)


def _serve_rep(spec: Spec, ready: Ready, stop: Stop) -> None:
    import zmq

    decode = msgspec.msgpack.Decoder(Order).decode
    encode = msgspec.msgpack.Encoder().encode
    count_call, receive = spec.served.count, spec.receive
    context = zmq.Context()
    subscribes = spec.mechanism.variant == "pubsub"
    socket, inbox = context.socket(zmq.REP), context.socket(zmq.SUB if subscribes else zmq.PULL)
    if subscribes:
        inbox.subscribe(b"")
    if spec.mechanism.variant == "curve":
        public, secret = zmq.curve_keypair()
        _key_file(spec).write_bytes(public)
        for each in (socket, inbox):
            each.curve_server, each.curve_secretkey = True, secret
    if spec.mechanism.transport == "UDS":
        address, pushed_to = (f"ipc://{os.path.join(spec.directory, name)}" for name in ("zmq.sock", "one-way.sock"))
        socket.bind(address)
        inbox.bind(pushed_to)
    else:
        address, pushed_to = (
            f"tcp://{spec.host}:{each.bind_to_random_port(f'tcp://{spec.host}')}" for each in (socket, inbox)
        )

    def wake() -> None:
        asker = _knowing(context.socket(zmq.REQ), spec)
        asker.connect(address)
        asker.send_multipart((_QUIT, b""))
        asker.close(linger=500)

    stop.on(wake)
    ready(address)
    poller = zmq.Poller()
    while True:
        method, data = socket.recv_multipart()
        if method == _QUIT:
            os._exit(0)  # nothing in here needs tidying; the context would wait for its peers
        if method == b"one-way":
            # From now on this connection only pushes: one thread looks at both sockets.
            socket.send(pushed_to.encode())
            poller.register(socket, zmq.POLLIN)
            poller.register(inbox, zmq.POLLIN)
            while not dict(poller.poll()).get(socket):
                receive(inbox.recv())
            continue
        count_call()
        socket.send(encode(fill(decode(data))) if method == b"quote" else data)


def _key_file(spec: Spec) -> Path:
    """The server's public key: both sides of a launch have one directory."""
    return Path(spec.directory) / "curve.key"


def _knowing(socket: Any, spec: Spec) -> Any:
    """A client's socket, which knows the server's key if it is to be encrypted."""
    import zmq

    if spec.mechanism.variant == "curve":
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = _key_file(spec).read_bytes()
    return socket


def connect(spec: Spec) -> SimpleSession | _Dealer:
    return _Dealer(spec) if spec.mechanism.variant == "dealer" else _requester(spec)


def _requester(spec: Spec) -> SimpleSession:
    import zmq

    decode = msgspec.msgpack.Decoder(Fill).decode
    encode = msgspec.msgpack.Encoder().encode
    context = zmq.Context()
    socket = _knowing(context.socket(zmq.REQ), spec)
    outbox: Any = None
    publishes = spec.mechanism.variant == "pubsub"
    send, receive = socket.send_multipart, socket.recv

    def echo(data: bytes) -> bytes:
        send((b"echo", data))
        reply: bytes = receive()
        return reply

    def quote(order: Order) -> Fill:
        send((b"quote", encode(order)))
        return decode(receive())

    def push(data: bytes) -> None:
        nonlocal outbox
        if outbox is None:
            send((b"one-way", b""))
            pushed_to = receive().decode()
            outbox = _knowing(context.socket(zmq.XPUB if publishes else zmq.PUSH), spec)
            if publishes:
                outbox.setsockopt(zmq.XPUB_NODROP, 1)
            outbox.connect(pushed_to)
            if publishes:
                outbox.recv()  # the subscription: what is published before it is lost
        outbox.send(data)

    def open_() -> None:
        socket.connect(spec.address)

    def close() -> None:
        socket.close(linger=0)
        if outbox is not None:
            outbox.close()
        context.term()

    return SimpleSession({"echo": echo, "quote": quote, "send": push}, close, open_)


async def _serve_router(spec: Spec, ready: Ready, stop: Stop) -> None:
    import zmq
    import zmq.asyncio

    decode_order = msgspec.msgpack.Decoder(Order).decode
    decode_wait = msgspec.msgpack.Decoder(float).decode
    encode = msgspec.msgpack.Encoder().encode
    count_call = spec.served.count
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    socket.set_hwm(_HIGH_WATER)
    address = f"ipc://{os.path.join(spec.directory, 'zmq.sock')}"
    socket.bind(address)
    waiting: set[asyncio.Task[None]] = set()

    async def answer_later(client: bytes, number: bytes, data: bytes) -> None:
        seconds = decode_wait(data)
        await asyncio.sleep(seconds)
        await socket.send_multipart((client, number, encode(named(seconds))))

    async def loop() -> None:
        while True:
            client, number, method, data = await socket.recv_multipart()
            count_call()
            if method == b"wait":
                task = asyncio.create_task(answer_later(client, number, data))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                continue
            await socket.send_multipart(
                (client, number, encode(fill(decode_order(data))) if method == b"quote" else data)
            )

    serving = asyncio.create_task(loop())
    ready(address)
    await until_stopped(stop)
    serving.cancel()
    socket.close(linger=0)
    context.term()


class _Dealer:
    """Replies find their caller by number."""

    def __init__(self, spec: Spec) -> None:
        import zmq
        import zmq.asyncio

        self._address = spec.address
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(_HIGH_WATER)
        self._pending: dict[bytes, asyncio.Future[bytes]] = {}
        self._number = 0
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._socket.connect(self._address)
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            number, data = await self._socket.recv_multipart()
            self._pending.pop(number).set_result(data)

    async def _ask(self, method: bytes, data: bytes) -> bytes:
        self._number += 1
        number = self._number.to_bytes(8, "little")
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[number] = reply
        await self._socket.send_multipart((number, method, data))
        return await reply

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        encode = msgspec.msgpack.Encoder().encode
        decode_fill = msgspec.msgpack.Decoder(Fill).decode
        decode_named = msgspec.msgpack.Decoder(Named).decode

        async def echo(data: bytes) -> bytes:
            return await self._ask(b"echo", data)

        async def quote(order: Order) -> Fill:
            return decode_fill(await self._ask(b"quote", encode(order)))

        async def wait(seconds: float) -> Named:
            return decode_named(await self._ask(b"wait", encode(seconds)))

        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {"echo": echo, "quote": quote, "wait": wait}
        return calls[operation]

    def stream(self, items: int) -> AsyncIterator[int]:
        raise NotImplementedError("sockets of messages have no streams")

    async def flush(self) -> None:
        return None

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        self._socket.close(linger=0)
        self._context.term()
