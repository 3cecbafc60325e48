"""grpcio, the synchronous API, over TCP and over a Unix socket."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nearcall_lab.adapters import certificates
from nearcall_lab.adapters import grpc_messages as messages
from nearcall_lab.contract import OPERATIONS, Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Order, fill, named

_SETTINGS = "sync API, 10 threads, own connections; echo as raw bytes, no Protobuf"
_TUNED = "minimal_stack, optimization_target latency, no BDP probe, SingleThreadedUnaryStream"
_WHY = (
    "Options of gRPC's C core whose documentation says that they leave out optional features (minimal_stack), favour "
    "latency (optimization_target) and spare probes of the bandwidth; for streams the one that its page on performance "
    "names for Python."
)
_CORE = [("grpc.minimal_stack", 1), ("grpc.optimization_target", "latency"), ("grpc.http2.bdp_probe", 0)]
MECHANISMS = tuple(
    Mechanism(
        name,
        label,
        "rpc",
        variant,
        messages.NEEDS,
        "grpcio",
        f"{_TUNED}; {_SETTINGS}" if tuned else f"{'TLS' if variant == 'tls' else 'insecure'}, {_SETTINGS}",
        messages.TYPED,
        transport="UDS" if variant.startswith("unix") else "TCP",
        operations=OPERATIONS,
        tuned=tuned,
        why=_WHY if tuned else "",
        concurrent_calls=True,
        protocol=messages.PROTOCOL if variant == "tcp" else "",
    )
    for name, label, variant, tuned in (
        ("grpcio-tcp", "grpcio, TCP", "tcp", False),
        ("grpcio-tls", "grpcio, TLS", "tls", False),
        ("grpcio-uds", "grpcio, UDS", "unix", False),
        ("grpcio-uds-tuned", "grpcio, UDS, tuned", "unix-tuned", True),
    )
)


def _options(spec: Spec) -> list[tuple[str, Any]]:
    """Of both sides; an option that a side does not know is ignored."""
    tuned = [*_CORE, ("SingleThreadedUnaryStream", 1)] if spec.mechanism.tuned else []
    return [*messages.limits(spec), *tuned]


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import grpc

    kinds = messages.classes()
    count_call, receive = spec.served.count, spec.receive

    def echo(data: bytes, context: Any) -> bytes:
        count_call()
        return data

    def quote(request: Any, context: Any) -> Any:
        count_call()
        result = fill(Order(request.symbol, request.quantity, request.price, request.urgent))
        return kinds.fill(symbol=result.symbol, cost=result.cost, lots=result.lots, accepted=result.accepted)

    def wait(request: Any, context: Any) -> Any:
        count_call()
        time.sleep(request.seconds)
        reply = named(request.seconds)
        return kinds.named(id=reply.id, name=reply.name)

    def count(request: Any, context: Any) -> Iterator[Any]:
        count_call()
        for value in range(request.value):
            yield kinds.number(value=value)

    def send(requests: Iterator[bytes], context: Any) -> bytes:
        for data in requests:
            receive(data)
        return b""

    handlers = messages.handlers(grpc, kinds, echo, quote, wait, count, send)
    server = grpc.server(ThreadPoolExecutor(max_workers=10), options=_options(spec))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(messages.SERVICE, handlers),))
    if spec.mechanism.variant.startswith("unix"):
        address = f"unix:{os.path.join(spec.directory, 'grpc.sock')}"
        server.add_insecure_port(address)
    elif spec.mechanism.variant == "tls":
        made = certificates.make(spec)
        credentials = grpc.ssl_server_credentials([(made.key.read_bytes(), made.cert.read_bytes())])
        address = f"{spec.host}:{server.add_secure_port(f'{spec.host}:0', credentials)}"
    else:
        address = f"{spec.host}:{server.add_insecure_port(f'{spec.host}:0')}"
    server.start()
    ready(address)
    stop.wait()
    server.stop(grace=0).wait(1)


def connect(spec: Spec) -> SimpleSession:
    import grpc

    kinds = messages.classes()
    options = [*_options(spec), messages.OWN_CONNECTION]
    if spec.mechanism.variant == "tls":
        credentials = grpc.ssl_channel_credentials(certificates.of(spec).ca.read_bytes())
        channel = grpc.secure_channel(spec.address, credentials, options=options)
    else:
        channel = grpc.insecure_channel(spec.address, options=options)
    methods = messages.methods(channel, kinds)

    def quote(order: Order) -> Any:
        return methods.quote(
            kinds.order(symbol=order.symbol, quantity=order.quantity, price=order.price, urgent=order.urgent)
        )

    def stream(items: int) -> Iterator[int]:
        return (reply.value for reply in methods.count(kinds.number(value=items)))

    outbox = messages.Outbox(methods.send)
    return SimpleSession(
        {
            "echo": methods.echo,
            "quote": quote,
            "wait": lambda seconds: methods.wait(kinds.wait(seconds=seconds)),
            "send": outbox.put,
        },
        channel.close,
        on_open=lambda: grpc.channel_ready_future(channel).result(timeout=10),
        on_stream=stream,
        on_flush=outbox.flush,
    )
