"""The service behind the probes over gRPC, and the probes: measurements of a gRPC server beyond sequential calls."""

from __future__ import annotations

import contextlib
import statistics
import time
from array import array
from collections.abc import Callable
from typing import Any

from nearcall_lab.adapters import grpc_messages
from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.runtime_bench.service import service
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "nearcall-runtime-grpc",
        "nearcall grpc",
        "nearcall",
        "TCP",
        ("nearcall",),
        "nearcall",
        "the service of the probes over gRPC",
    ),
)
ORDER = Order("SYM1", 107, 1.25, True)
TURNS = 5
"""The compared measurements take turns, so that a slow moment of the machine affects all of them."""


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import nearcall

    with nearcall.Server(service()(), "grpc://127.0.0.1:0") as server:
        ready(server.urls[0])
        stop.wait()


def connect(spec: Spec) -> SimpleSession:
    raise NotImplementedError("this service is driven by probes")


def calls(spec: Spec, count: int) -> int:
    """`count` sequential calls on one connection; returns how many had a right reply."""
    import nearcall

    with nearcall.connect(spec.address, service()) as client:
        add = client.add
        return sum(add(number, 1) == number + 1 for number in range(count))


def beside_grpcio(spec: Spec, address: str, seconds: float) -> dict[str, float]:
    """Median nanoseconds of the lab's typed call to a server at `address`, by nearcall's client and by grpcio's."""
    import grpc
    import nearcall

    @nearcall.service(name=grpc_messages.SERVICE)
    class Lab:
        def quote(self, order: Order) -> Fill: ...  # type: ignore[empty-body]

    with contextlib.ExitStack() as stack:
        client: Any = stack.enter_context(nearcall.connect(f"grpc://{address}", Lab))
        channel = stack.enter_context(grpc.insecure_channel(address))
        kinds = grpc_messages.classes()
        theirs = grpc_messages.methods(channel, kinds).quote
        order = kinds.order(symbol=ORDER.symbol, quantity=ORDER.quantity, price=ORDER.price, urgent=ORDER.urgent)
        ways: dict[str, Callable[[], Any]] = {"nearcall": lambda: client.quote(ORDER), "grpcio": lambda: theirs(order)}
        samples = {name: array("q") for name in ways}
        for _ in range(TURNS):
            for name, call in ways.items():
                samples[name] += _timed(call, seconds / TURNS)
    return {name: statistics.median(found) for name, found in samples.items()}


def _timed(call: Callable[[], Any], seconds: float) -> array[int]:
    """Nanoseconds of calls with a right reply, after some that are not counted."""
    clock, samples, cost = time.perf_counter_ns, array("q"), fill(ORDER).cost
    for _ in range(50):
        call()
    end = clock() + int(seconds * 1e9)
    while (started := clock()) < end:
        reply = call()
        samples.append(clock() - started)
        if reply.cost != cost:
            raise ValueError(f"wrong reply: {reply}")
    return samples
