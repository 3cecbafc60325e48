"""Messages of the router beside one-way calls, and the node behind them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import nearcall
from nearcall import route

from nearcall_lab.contract import Spec
from nearcall_lab.runtime_bench.probes import until_arrived
from nearcall_lab.runtime_bench.service import service

KIND = 1
"""The type of the messages."""
TURNS = 3
"""One-way calls and messages take turns, so that a slow moment of the machine meets both."""


def url(spec: Spec) -> str:
    """Where the node is."""
    return f"shm://{spec.token}-route"


def node_of(spec: Spec, served: Any) -> route.Node:
    """The node, not started yet. Its handler counts for the service what that counts of one-way calls, itself: calling
    `served.drop` would compare a handler in one function with one in two.
    """
    node = route.Node(url(spec))

    @node.on(KIND)  # type: ignore[untyped-decorator]
    def take(message: route.Message[Any]) -> None:
        served.octets += len(message.payload)
        served.left -= 1
        if not served.left:
            served.end_ns = time.perf_counter_ns()

    return node


def one_way(spec: Spec, size: int, messages: int, timeout_s: float) -> dict[str, float]:
    """Messages per second of one-way calls (``plain``) and by the router (``routed``), timed and counted in the
    receiver; every message and octet must arrive.
    """
    data = b"x" * size
    table = f"newrt|start|bench\nrte|{KIND}|{url(spec)}\nnewrt|end|1\n"
    with nearcall.connect(spec.address, service()) as client, route.Node(f"shm://{spec.token}-sender") as sender:
        sender.install(table)
        sender.ready(timeout_s)
        ways: dict[str, Callable[[bytes], object]] = {"plain": client.drop, "routed": partial(sender.send, KIND)}
        each, took = messages // TURNS, dict.fromkeys(ways, 0)
        for turn in range(TURNS + 1):
            for name, way in ways.items():
                elapsed_ns = until_arrived(client, way, data, each, timeout_s)
                took[name] += elapsed_ns if turn else 0  # the first turn is the warm-up
    return {name: each * TURNS / (nanoseconds / 1e9) for name, nanoseconds in took.items()}
