"""nearcall through its public API: the same service over its transports, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from nearcall_lab.adapters import certificates
from nearcall_lab.adapters.broker import absent as no_server
from nearcall_lab.adapters.broker import nats_server
from nearcall_lab.adapters.grpc_messages import PROTOCOL, SERVICE
from nearcall_lab.adapters.ports import free_port
from nearcall_lab.contract import (
    LOOPBACK,
    OPERATIONS,
    Mechanism,
    Operation,
    Ready,
    SimpleSession,
    Spec,
    Stop,
    Transport,
)
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_NEEDS = ("nearcall",)
_TYPED = "dataclass by nearcall's msgpack"


_SPINS = "looks for up to 100 µs before it sleeps, on both sides (spin=auto, its default)"
_SLEEPS = "sleeps at once, on both sides (spin=0)"
_WHY = (
    "Its page on waiting recommends spin=0 where CPU time matters more than latency, or busy processes are many more "
    "than CPUs; it shows how much of the default's time is the transport, and how much is not having slept."
)
_TRANSPORTS: dict[str, Transport] = {
    "shm": "shared memory",
    "unix": "UDS",
    "tcp": "TCP",
    "inproc": "none",
    "grpc": "TCP",
    "nats": "TCP",
    "tls": "TCP",
}


def _row(name: str, label: str, variant: str, settings: str = "", **more: Any) -> Mechanism:
    more = {"typed": _TYPED, "operations": OPERATIONS, "concurrent_calls": True, **more}
    spins = _SLEEPS if variant.endswith("-sleeping") else _SPINS
    transport = _TRANSPORTS[variant.partition("-")[0]]
    settings = f"{settings}; {spins}" if settings else spins
    return Mechanism(name, label, "nearcall", variant, _NEEDS, "nearcall", settings, transport=transport, **more)


_GRPC = "grpc://"
_NATS = "a nats-server on the server's CPUs between the two"
_SUBJECT = "/lab"
_VIEW = "handler takes and returns a memoryview"
_PROTOBUF: dict[str, Any] = {"typed": "dataclass by nearcall's Protobuf, from its type hints", "protocol": PROTOCOL}
_COROUTINES = "coroutine handlers on the server's event loop, nearcall.aio client"
MECHANISMS = (
    _row("nearcall-shm", "nearcall shm", "shm"),
    _row("nearcall-shm-view", "nearcall shm, memoryview", "shm-view", _VIEW, operations=("echo",), typed=""),
    _row("nearcall-shm-sleeping", "nearcall shm, spin=0", "shm-sleeping", tuned=True, why=_WHY),
    _row("nearcall-unix", "nearcall unix", "unix"),
    _row("nearcall-unix-sleeping", "nearcall unix, spin=0", "unix-sleeping", tuned=True, why=_WHY),
    _row("nearcall-tcp", "nearcall tcp", "tcp"),
    _row("nearcall-grpc", "nearcall grpc", "grpc", "gRPC over HTTP/2", **_PROTOBUF),
    _row("nearcall-tls", "nearcall tls", "tls", "TLS 1.3, rustls"),
    _row("nearcall-nats", "nearcall nats", "nats", _NATS),
    _row("nearcall-inproc", "nearcall inproc", "inproc", "client and server in one process", same_process=True),
    _row("nearcall-aio-shm", "nearcall.aio shm", "shm", _COROUTINES, style="asyncio"),
    _row("nearcall-aio-unix", "nearcall.aio unix", "unix", _COROUTINES, style="asyncio"),
    _row("nearcall-aio-tcp", "nearcall.aio tcp", "tcp", _COROUTINES, style="asyncio"),
    _row("nearcall-aio-grpc", "nearcall.aio grpc", "grpc", _COROUTINES, style="asyncio", **_PROTOBUF),
)


def absent(mechanism: Mechanism) -> str:
    """Why it cannot run here."""
    return no_server() if mechanism.variant == "nats" else ""


@functools.lru_cache(maxsize=1)
def _service(spec: Spec) -> Any:
    """The service class: the server makes an instance of it, the clients, which share it, only read its signatures."""
    import nearcall

    count_call, receive = spec.served.count, spec.receive

    class Lab:
        def echo(self, data: bytes) -> bytes:
            count_call()
            return data

        def echo_view(self, data: memoryview) -> memoryview:
            count_call()
            return data

        def quote(self, order: Order) -> Fill:
            count_call()
            return fill(order)

        def wait(self, seconds: float) -> Named:
            count_call()
            time.sleep(seconds)
            return named(seconds)

        def count(self, items: int) -> Iterator[int]:
            count_call()
            yield from range(items)

        @nearcall.oneway  # type: ignore[untyped-decorator]
        def send(self, data: bytes) -> None:
            receive(data)

    return nearcall.service(Lab, name=SERVICE)


@functools.lru_cache(maxsize=1)
def _async_service(spec: Spec) -> Any:
    """The same with coroutines."""
    import nearcall

    count_call, receive = spec.served.count, spec.receive

    class Lab:
        async def echo(self, data: bytes) -> bytes:
            count_call()
            return data

        async def quote(self, order: Order) -> Fill:
            count_call()
            return fill(order)

        async def wait(self, seconds: float) -> Named:
            count_call()
            await asyncio.sleep(seconds)
            return named(seconds)

        async def count(self, items: int) -> AsyncIterator[int]:
            count_call()
            for value in range(items):
                yield value

        @nearcall.oneway  # type: ignore[untyped-decorator]
        async def send(self, data: bytes) -> None:
            receive(data)

    return nearcall.service(Lab, name=SERVICE)


def _url(spec: Spec) -> str:
    transport = spec.mechanism.variant.partition("-")[0]
    if transport == "unix":
        return f"unix://{os.path.join(spec.directory, 'nearcall.sock')}"
    if transport in ("tcp", "grpc", "tls"):
        return f"{transport}://{spec.host}:{free_port(spec.host)}"
    return f"{transport}://{spec.token}"


@contextlib.contextmanager
def _place(spec: Spec, stop: Stop) -> Iterator[str]:
    """Where the server listens, as long as there is such a place."""
    if spec.mechanism.variant == "nats":
        with nats_server(spec, stop) as broker:
            yield f"{broker}{_SUBJECT}"
    else:
        yield _url(spec)


def _target(spec: Spec) -> str:
    """The server's URL. One that speaks gRPC may be another mechanism's, which knows only host and port; and in front
    of one behind a broker there may be the lab's relay, which changes the port at the end.
    """
    if spec.mechanism.variant == "nats":
        return f"{spec.address}{_SUBJECT}"
    return f"{_GRPC}{spec.address}" if spec.mechanism.protocol else spec.address


def _server_options(spec: Spec) -> dict[str, Any]:
    import nearcall

    if spec.mechanism.variant != "tls":
        return _options(spec)
    made = certificates.make(spec)
    return {**_options(spec), "tls": nearcall.TLS(cert=made.cert, key=made.key)}


def _client_options(spec: Spec) -> dict[str, Any]:
    import nearcall

    trusting = {"tls": nearcall.TLS(ca=certificates.of(spec).ca)} if spec.mechanism.variant == "tls" else {}
    return {**_options(spec), **trusting}


def _options(spec: Spec) -> dict[str, Any]:
    """What both sides are given beyond the defaults."""
    spin = {"spin": 0} if spec.mechanism.variant.endswith("-sleeping") else {}
    # Another machine is to reach it, as the scenario says; on the loopback there is nothing to allow.
    plain = {"allow_plaintext": True} if spec.host != LOOPBACK else {}
    return {"max_message_size": max(spec.max_message, 64 << 20), **spin, **plain}


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import nearcall

    service = _async_service(spec) if spec.mechanism.style == "asyncio" else _service(spec)
    with _place(spec, stop) as url, nearcall.Server(service(), url, **_server_options(spec)):
        ready(url.removeprefix(_GRPC).removesuffix(_SUBJECT))
        stop.wait()


def connect(spec: Spec) -> SimpleSession | _AsyncSession:
    if spec.mechanism.style == "asyncio":
        return _AsyncSession(spec)
    return _session(spec)


_here = threading.Lock()
_servers: dict[str, Any] = {}
"""Servers in this process by URL: one for all its connections, until the process ends."""


def _served_here(spec: Spec, service: Any) -> str:
    import nearcall

    url = _url(spec)
    with _here:
        if url not in _servers:
            _servers[url] = nearcall.Server(service(), url, **_options(spec))
            _servers[url].start()
    return url


def _session(spec: Spec) -> SimpleSession:
    import nearcall

    service = _service(spec)
    stack = contextlib.ExitStack()
    client: Any = None

    def open_() -> None:
        nonlocal client
        url = _served_here(spec, service) if spec.mechanism.same_process and not spec.address else _target(spec)
        client = stack.enter_context(nearcall.connect(url, service, **_client_options(spec)))
        session.provide(
            echo=client.echo_view if spec.mechanism.variant.endswith("-view") else client.echo,
            quote=client.quote,
            wait=client.wait,
            send=client.send,
        )

    session = SimpleSession({}, stack.close, open_, lambda items: iter(client.count(items)))
    return session


class _AsyncSession:
    """One connection of an event loop."""

    def __init__(self, spec: Spec) -> None:
        import nearcall

        self._client: Any = nearcall.aio.connect(_target(spec), _async_service(spec), **_options(spec))

    async def open(self) -> None:
        await self._client

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        method: Callable[[Any], Awaitable[Any]] = getattr(self._client, operation)
        return method

    def stream(self, items: int) -> AsyncIterator[int]:
        replies: AsyncIterator[int] = self._client.count(items)
        return replies

    async def flush(self) -> None:
        return None

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        self._client.close()
