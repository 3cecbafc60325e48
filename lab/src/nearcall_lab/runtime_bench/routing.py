"""Messages of the router beside one-way calls, and the node behind them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import nearcall
from nearcall import route

from nearcall_lab.contract import Spec

KIND = 1
"""The type of the messages."""
TURNS = 3
"""One-way calls and messages take turns, so that a slow moment of the machine meets both."""


@nearcall.service
class Counted:
    """Counts what arrives by either way."""

    def __init__(self) -> None:
        self._left = self._octets = self._begin_ns = self._end_ns = 0

    def expect(self, messages: int) -> None:
        """Start counting; the receiver's clock starts here."""
        self._left, self._octets, self._end_ns = messages, 0, 0
        self._begin_ns = time.perf_counter_ns()

    @nearcall.oneway  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> None:
        self._octets += len(data)
        self._left -= 1
        if not self._left:
            self._end_ns = time.perf_counter_ns()

    def arrived(self) -> tuple[int, int, int]:
        """Messages missing, octets received, and nanoseconds from `expect` to the last message (0 before it)."""
        return self._left, self._octets, max(0, self._end_ns - self._begin_ns)


def url(spec: Spec) -> str:
    """Where the node is."""
    return f"shm://{spec.token}-route"


def node_of(spec: Spec, counted: Counted) -> route.Node:
    """The node, not started yet; it counts in the service."""
    node = route.Node(url(spec))

    @node.on(KIND)  # type: ignore[untyped-decorator]
    def take(message: route.Message[Any]) -> None:
        counted.take(message.payload)

    return node


def one_way(spec: Spec, size: int, messages: int, timeout_s: float) -> dict[str, float]:
    """Messages per second of one-way calls (``plain``) and by the router (``routed``), timed and counted in the
    receiver; every message and octet must arrive.
    """
    data = b"x" * size
    table = f"newrt|start|bench\nrte|{KIND}|{url(spec)}\nnewrt|end|1\n"
    with nearcall.connect(spec.address, Counted) as counted, route.Node(f"shm://{spec.token}-sender") as sender:
        sender.install(table)
        sender.ready(timeout_s)
        ways: dict[str, Callable[[], object]] = {
            "plain": lambda: counted.take(data),
            "routed": lambda: sender.send(KIND, data),
        }
        seconds = dict.fromkeys(ways, 0.0)
        for turn in range(TURNS + 1):
            for name, send in ways.items():
                took = _timed(counted, send, size, messages // TURNS, timeout_s)
                seconds[name] += took if turn else 0.0  # the first turn is the warm-up
    return {name: messages // TURNS * TURNS / took for name, took in seconds.items()}


def _timed(counted: Any, send: Callable[[], object], size: int, messages: int, timeout_s: float) -> float:
    counted.expect(messages)
    for _ in range(messages):
        send()
    end = time.monotonic() + timeout_s
    while True:
        left, octets, elapsed_ns = counted.arrived()
        if left == 0:
            break
        if time.monotonic() > end:
            raise TimeoutError(f"{left} of {messages} messages missing after {timeout_s:.0f} s")
        time.sleep(0.001)
    if octets != messages * size:
        raise ValueError(f"{octets} octets arrived instead of {messages * size}")
    return float(elapsed_ns / 1e9)
