"""iceoryx2's Python binding: request-response, and publish-subscribe. The binding has no blocking wait for a reply or a
sample, so both sides poll.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "iceoryx2",
        "iceoryx2 (Python)",
        "shared memory",
        requires=("iceoryx2",),
        distribution="iceoryx2",
        settings="busy polling on both sides; slice copied to slice in the server, bytes made in the client; "
        "one-way by publish-subscribe without overflow: the publisher waits for room",
        typed="ctypes structure in shared memory",
        transport="shared memory",
        operations=("echo", "quote", "send"),
        busy_polls=True,
        empty_messages=False,  # a slice has at least one element
    ),
)

_FIRST_SLICE = 2_000_000
"""Bytes reserved per sample at start, so that no call pays for growing."""
_FIRST_SAMPLE = 4_096
"""Likewise for one-way messages, of which many are in memory at once."""
_SAMPLES = 256
"""Messages that may wait for the subscriber."""
_PATIENCE = 10_000_000
"""Empty polls, which are some seconds, after which a reply is not expected any more: nothing tells of a dead server."""
_LOOK_AROUND = 256
"""Empty polls of the service used last before the other one is looked at."""


class OrderC(ctypes.Structure):
    """`Order` in shared memory."""

    _fields_ = (
        ("symbol", ctypes.c_char * 16),
        ("quantity", ctypes.c_int64),
        ("price", ctypes.c_double),
        ("urgent", ctypes.c_bool),
    )


class FillC(ctypes.Structure):
    """`Fill` in shared memory."""

    _fields_ = (
        ("symbol", ctypes.c_char * 16),
        ("cost", ctypes.c_double),
        ("lots", ctypes.c_int64),
        ("accepted", ctypes.c_bool),
    )


def node_of(prefix: str, directory: str) -> Any:
    """A node. Names of its segments begin with the prefix, its files are in the directory."""
    import iceoryx2 as iox2

    iox2.set_log_level(iox2.LogLevel.Error)
    config = iox2.config.default()
    config.global_cfg.prefix = iox2.FileName.new(prefix)
    config.global_cfg.root_path = iox2.Path.new(f"{directory}/iceoryx2/")
    return iox2.NodeBuilder.new().config(config).create(iox2.ServiceType.Ipc)


def _services(spec: Spec) -> tuple[Any, Any, Any]:
    """The node and the two services of calls."""
    import iceoryx2 as iox2

    node = node_of(f"{spec.token}_", spec.directory)
    octets = iox2.Slice[ctypes.c_uint8]
    echo = node.service_builder(iox2.ServiceName.new("lab/echo")).request_response(octets, octets).open_or_create()
    quote = node.service_builder(iox2.ServiceName.new("lab/quote")).request_response(OrderC, FillC).open_or_create()
    return node, echo, quote


def _samples(node: Any) -> Any:
    """The service of one-way messages."""
    import iceoryx2 as iox2

    return (
        node.service_builder(iox2.ServiceName.new("lab/send"))
        .publish_subscribe(iox2.Slice[ctypes.c_uint8])
        .enable_safe_overflow(False)
        .subscriber_max_buffer_size(_SAMPLES)
        .open_or_create()
    )


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import iceoryx2 as iox2

    node, echo_service, quote_service = _services(spec)
    strategy = iox2.AllocationStrategy.PowerOfTwo
    echo = echo_service.server_builder().initial_max_slice_len(_FIRST_SLICE).allocation_strategy(strategy).create()
    quote = quote_service.server_builder().create()
    inbox = _samples(node).subscriber_builder().create()
    served = spec.served
    ready(spec.token)

    def answer_echo(request: Any) -> None:
        served.count()
        source = request.payload()
        size = source.len()
        reply = request.loan_slice_uninit(size)
        ctypes.memmove(reply.payload().as_ptr(), source.as_ptr(), size)
        reply.assume_init().send()

    def answer_quote(request: Any) -> None:
        served.count()
        order = request.payload().contents
        result = fill(Order(order.symbol.decode(), order.quantity, order.price, order.urgent))
        request.send_copy(FillC(result.symbol.encode(), result.cost, result.lots, result.accepted))

    def take(sample: Any) -> None:
        payload = sample.payload()
        spec.receive(ctypes.string_at(payload.as_ptr(), payload.len()))
        sample.delete()

    def answered(answer: Any) -> Any:
        def handle(request: Any) -> None:
            answer(request)
            request.delete()

        return handle

    lanes = [
        (echo.receive, answered(answer_echo)),
        (quote.receive, answered(answer_quote)),
        (inbox.receive, take),
    ]
    while True:
        receive, handle = lanes[0]
        idle = 0
        while idle < _LOOK_AROUND:
            request = receive()
            if request is None:
                idle += 1
                continue
            idle = 0
            handle(request)
        lanes.append(lanes.pop(0))
        if stop.is_set():
            break
    echo.delete()
    quote.delete()
    inbox.delete()
    del node
    # One small file per prefix is meant to stay, which is one per machine; the prefix of its own is the lab's doing.
    for path in Path("/dev/shm").glob(f"{spec.token}_*.global_mgmt"):
        path.unlink(missing_ok=True)


def _poll(pending: Any) -> Any:
    receive = pending.receive
    for _ in range(_PATIENCE):
        response = receive()
        if response is not None:
            return response
    raise TimeoutError(f"no reply after {_PATIENCE:,} polls")


def connect(spec: Spec) -> SimpleSession:
    import iceoryx2 as iox2

    node, echo_service, quote_service = _services(spec)
    strategy = iox2.AllocationStrategy.PowerOfTwo
    echo_client = (
        echo_service.client_builder().initial_max_slice_len(_FIRST_SLICE).allocation_strategy(strategy).create()
    )
    quote_client = quote_service.client_builder().create()

    def echo(data: bytes) -> bytes:
        size = len(data)
        request = echo_client.loan_slice_uninit(size)
        ctypes.memmove(request.payload().as_ptr(), data, size)
        pending = request.assume_init().send()
        response = _poll(pending)
        payload = response.payload()
        reply = ctypes.string_at(payload.as_ptr(), payload.len())
        response.delete()
        pending.delete()
        return reply

    def quote(order: Order) -> Fill:
        pending = quote_client.send_copy(OrderC(order.symbol.encode(), order.quantity, order.price, order.urgent))
        response = _poll(pending)
        result = response.payload().contents
        reply = Fill(result.symbol.decode(), result.cost, result.lots, result.accepted)
        response.delete()
        pending.delete()
        return reply

    publisher: Any = None

    def send(data: bytes) -> None:
        nonlocal publisher
        if publisher is None:
            publisher = (
                _samples(node)
                .publisher_builder()
                .initial_max_slice_len(_FIRST_SAMPLE)
                .allocation_strategy(strategy)
                .backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered)
                .create()
            )
        size = len(data)
        sample = publisher.loan_slice_uninit(size)
        ctypes.memmove(sample.payload().as_ptr(), data, size)
        sample.assume_init().send()

    def close() -> None:
        echo_client.delete()
        quote_client.delete()
        if publisher is not None:
            publisher.delete()

    session = SimpleSession({"echo": echo, "quote": quote, "send": send}, close)
    session.node = node  # type: ignore[attr-defined]  # the ports live only as long as their node
    return session
