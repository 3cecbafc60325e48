"""The floor: a Python function called in the same process, timed like everything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

MECHANISMS = (
    Mechanism(
        "noop",
        "no-op in process",
        "floor",
        settings="a plain function call: the cost of the clock pair itself",
        typed="the object itself",
        transport="none",
        same_process=True,
        in_caller=True,
        operations=("echo", "quote", "wait", "count"),
        concurrent_calls=True,
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    raise NotImplementedError("served in the client process")


def connect(spec: Spec) -> SimpleSession:
    count_call = spec.served.count

    def echo(data: Any) -> Any:
        count_call()
        return data

    def quote(order: Order) -> Fill:
        count_call()
        return fill(order)

    def wait(seconds: float) -> Named:
        count_call()
        time.sleep(seconds)
        return named(seconds)

    def count(items: int) -> Iterator[int]:
        count_call()
        yield from range(items)

    return SimpleSession({"echo": echo, "quote": quote, "wait": wait}, on_stream=count)
