"""What the study does not ask and a router is for: one message to several receivers, and receivers that take turns.

Each receiver is a process of its own. A sender sends as fast as it goes; then each receiver says how many have come,
and when the last did. The clock is the same for all processes of a machine.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from nearcall_lab.studies.replica import Findings
from nearcall_lab.studies.serving import server_process

RECEIVERS = (1, 10)
MESSAGES = 100_000
SIZE = 20
REPORT = struct.Struct("<qq")
"""How many messages have come, and when the last did: nanoseconds of CLOCK_MONOTONIC."""
PATIENCE_S = 30.0
_DATA, _HOW_MANY = 1, 2
_ASK = b""
"""ZeroMQ's messages have no type: an empty one is the question."""

Reports = list[tuple[int, int]]
Send = Callable[[bytes], object]
Opened = tuple[Send, Callable[[], Reports]]
"""Sends a message; asks all receivers, once all is sent."""


class Tally:
    """What a receiver has seen."""

    def __init__(self) -> None:
        self._count = self._last = 0

    def take(self) -> None:
        self._last = time.monotonic_ns()
        self._count += 1

    def report(self) -> bytes:
        """What was seen since the last report."""
        report = REPORT.pack(self._count, self._last)
        self._count = 0
        return report


def serve_route(url: str, ready: Callable[[Any], None]) -> None:
    """A node."""
    from nearcall import route

    tally, node = Tally(), route.Node(url)
    node.on(_DATA)(lambda message: tally.take())
    node.on(_HOW_MANY)(lambda message: message.reply(tally.report()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that its socket's file goes with it
    with node:
        ready(node.urls[0])
        while True:
            time.sleep(PATIENCE_S)


@contextmanager
def route_to(urls: Sequence[str], own: str, between: str) -> Iterator[Opened]:
    """A node that sends to all of them: each gets a copy if ``;`` is between them, they take turns if it is ``,``."""
    from nearcall import route

    with route.Node(own) as node:
        node.install(f"newrt | start | t\nrte | {_DATA} | {between.join(urls)}\nnewrt | end | 1\n")
        node.ready(PATIENCE_S)

        def ask() -> Reports:
            replies = [node.call(_HOW_MANY, to=url, timeout=PATIENCE_S).payload for url in urls]
            return [REPORT.unpack(reply) for reply in replies]

        yield lambda data: node.send(_DATA, data), ask


def serve_zmq(kind: str, url: str, reports: str, ready: Callable[[Any], None]) -> None:
    """A socket that pulls, or one that has subscribed."""
    import zmq

    tally, context = Tally(), zmq.Context()
    socket, answers = context.socket(zmq.SUB if kind == "copies" else zmq.PULL), context.socket(zmq.PUSH)
    if kind == "copies":
        socket.subscribe(b"")
    socket.connect(url)
    answers.connect(reports)
    ready(url)
    while True:
        if socket.recv() == _ASK:
            answers.send(tally.report())
        else:
            tally.take()


@contextmanager
def zmq_to(kind: str, count: int, url: str, reports: str) -> Iterator[tuple[Any, Opened]]:
    """The sender's socket, which receivers connect to; and what sends, and asks."""
    import zmq

    context = zmq.Context()
    socket, answers = context.socket(zmq.XPUB if kind == "copies" else zmq.PUSH), context.socket(zmq.PULL)
    if kind == "copies":
        socket.setsockopt(zmq.XPUB_NODROP, 1)  # it waits for the slowest, where PUB drops and tells nobody
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # it tells of each subscription, also of a second equal one
    answers.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1e3))
    socket.bind(url)
    answers.bind(reports)

    def ask() -> Reports:
        for _ in range(1 if kind == "copies" else count):  # who takes turns gets one each
            socket.send(_ASK)
        return [REPORT.unpack(answers.recv()) for _ in range(count)]

    try:
        yield socket, (socket.send, ask)
    finally:
        context.destroy(linger=0)


def measure(opened: Opened, messages: int) -> tuple[float, list[int]]:
    """Messages a second until the last receiver had its last one, and how many each had."""
    send, ask = opened
    data = os.urandom(SIZE)
    begin = time.monotonic_ns()
    for _ in range(messages):
        send(data)
    reports = ask()
    return messages / (max(last for _, last in reports) - begin) * 1e9, [count for count, _ in reports]


@contextmanager
def nodes(scheme: str) -> Iterator[Callable[[str, int, int], tuple[float, list[int]]]]:
    """As many receivers as are needed at most; what measures with some of them."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:

        def url(name: str) -> str:
            token = f"nclab-{os.getpid()}-{name}"
            return {"shm": f"shm://{token}", "unix": f"unix://{directory}/{name}", "tcp": "tcp://127.0.0.1:0"}[scheme]

        starting = [server_process(serve_route, url(f"r{number}")) for number in range(max(RECEIVERS))]
        urls = [stack.enter_context(each) for each in starting]

        def measured(kind: str, count: int, messages: int) -> tuple[float, list[int]]:
            with route_to(urls[:count], url("sender"), ";" if kind == "copies" else ",") as opened:
                return measure(opened, messages)

        yield measured


@contextmanager
def sockets() -> Iterator[Callable[[str, int, int], tuple[float, list[int]]]]:
    """What measures ZeroMQ, with receivers of its own each time."""
    yield by_zmq


def by_zmq(kind: str, count: int, messages: int) -> tuple[float, list[int]]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        url, reports = f"ipc://{directory}/data", f"ipc://{directory}/reports"
        socket, opened = stack.enter_context(zmq_to(kind, count, url, reports))
        for _ in range(count):
            stack.enter_context(server_process(serve_zmq, kind, url, reports))
        if kind == "copies":
            for _ in range(count):
                socket.recv()  # the subscriptions: what is published before them is lost
        return measure(opened, messages)


def run(findings: Findings, scale: float) -> None:
    """Copies to one receiver and to ten; then as many that take turns."""
    messages = max(200, round(MESSAGES * scale))
    columns = ["1 receiver" if count == 1 else f"{count} receivers" for count in RECEIVERS]
    findings.add("fan-out", "A copy to each receiver, messages/s until the last has all", columns)
    findings.add("turns", "Receivers take turns: most less fewest messages of one, % of an even share", columns)
    ways: dict[str, Callable[[], Any]] = {
        f"nearcall.route {scheme}": partial(nodes, scheme) for scheme in ("shm", "unix", "tcp")
    }
    ways["pyzmq PUB/SUB, PUSH/PULL"] = sockets

    def row(name: str) -> None:
        rates: list[float | None] = []
        spreads: list[float | None] = []
        with ways[name]() as measured:
            for count in RECEIVERS:
                rate, had = measured("copies", count, messages)
                if any(each != messages for each in had):
                    raise RuntimeError(f"{count} receivers had {had} of {messages} messages each")
                rates.append(rate)
                _, had = measured("turns", count, messages)
                if sum(had) != messages:
                    raise RuntimeError(f"{count} receivers had {had} of {messages} messages")
                spreads.append((max(had) - min(had)) * count / messages * 100)
        findings.put("fan-out", name, rates)
        findings.put("turns", name, spreads)

    for name in ways:
        findings.attempt(f"{name}, one to many", partial(row, name))
