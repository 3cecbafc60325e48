"""The floor: a Python function called in the same process, timed like everything else."""

from __future__ import annotations

from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "noop",
        "no-op in process",
        "floor",
        settings="a plain function call: the cost of the clock pair itself",
        typed="the object itself",
        same_process=True,
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    raise NotImplementedError("served in the client process")


def connect(spec: Spec) -> SimpleSession:
    served = spec.served

    def echo(data: Any) -> Any:
        served.calls += 1
        return data

    def quote(order: Order) -> Fill:
        served.calls += 1
        return fill(order)

    return SimpleSession({"echo": echo, "quote": quote})
