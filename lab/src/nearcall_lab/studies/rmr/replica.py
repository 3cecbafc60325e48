"""The study's own method for those of its mechanisms that Python can use: as fast as possible, one connection, timed in
the receiver, once. gRPC is a bidirectional stream whose callback may copy each message into a ring first.
"""

from __future__ import annotations

import collections
import os
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nearcall_lab.studies.replica import Findings, main
from nearcall_lab.studies.rmr import fan_out, si95, swap
from nearcall_lab.studies.serving import server_process

SIZES = {"20 B": 20, "4 KB": 4_096}
RING = 4_096
LATENCY_RATE = 39_000
RATES = {100: 1_000, 850: 100_000, 4_000: 100_000, 8_500: 100_000, 39_000: 1_000_000}
"""Messages per second, and how many of them the study sent."""
DRAWN_MS = 1.0
"""Where the study's drawing ends."""
GRPC, NNG, SI95 = "gRPC, bidirectional stream", "NNG", "RMR over SI95"
MESSAGES = {GRPC: 3_000_000, NNG: 1_000_000, SI95: 10_000_000}
"""As many as the study sent, from C and C++."""
FEWER = 5
"""Long messages, and those that are copied, are so many times fewer: the study does not say how many there were."""
UNLIMITED_REPLY = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
"""For the latencies of all messages, which come back in one message."""


class Receptor:
    """Counts and times messages; answers with messages per second when all have arrived."""

    def __init__(self, expected: int, ring: bool) -> None:
        self._expected = expected
        self._ring: collections.deque[bytes] | None = collections.deque(maxlen=RING) if ring else None
        self._count = 0
        self._begin = 0.0

    def take(self, message: bytes) -> float | None:
        """One message; the rate once the last has come."""
        if not self._count:
            self._begin = time.perf_counter()
        self._count += 1
        if self._ring is not None:
            self._ring.append(bytes(bytearray(message)))
        if self._count == self._expected:
            return (self._expected - 1) / (time.perf_counter() - self._begin)
        return None


def serve_flow(flow: Callable[[Iterator[bytes], Any], Iterator[bytes]], ready: Callable[[Any], None]) -> None:
    """A gRPC server whose only method is this bidirectional stream."""
    import grpc

    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=UNLIMITED_REPLY)
    handlers = {"Flow": grpc.stream_stream_rpc_method_handler(flow)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("rmr.Bench", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ready(f"127.0.0.1:{port}")
    server.wait_for_termination()


def first_reply(target: str, messages: Iterator[bytes]) -> bytes:
    """Sends all messages in one stream and returns the first reply."""
    import grpc

    with grpc.insecure_channel(target, options=UNLIMITED_REPLY) as channel:
        reply: bytes = next(iter(channel.stream_stream("/rmr.Bench/Flow")(messages)))
        return reply


def serve_grpc(directory: str, expected: int, ring: bool, ready: Callable[[Any], None]) -> None:
    """A bidirectional stream; the one reply is the rate."""

    def flow(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        receptor = Receptor(expected, ring)
        for message in requests:
            rate = receptor.take(message)
            if rate is not None:
                yield str(rate).encode()
                return

    serve_flow(flow, ready)


def send_grpc(target: str, size: int, messages: int) -> float:
    """The rate that the receiver saw."""
    message = os.urandom(size)
    return float(first_reply(target, (message for _ in range(messages))))


def serve_paced(pinned: bool, ready: Callable[[Any], None]) -> None:
    """The same stream; each message begins with the time when it was sent, an empty one asks for the latencies."""
    if pinned:  # to the last CPU; the sender is pinned to the first
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def flow(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        taken = array("q")
        for message in requests:
            now = time.monotonic_ns()
            if not message:
                yield taken.tobytes()
                return
            taken.append(now - int.from_bytes(message[:8], "little"))

    serve_flow(flow, ready)


def send_paced(target: str, size: int, rate: float, messages: int) -> list[float]:
    """Milliseconds from sending to arrival of every message, in ascending order.

    A message is stamped when it is sent, not when it is due: as in the study, delays of the sender do not show.
    """
    padding = os.urandom(size - 8)

    def paced() -> Iterator[bytes]:
        begin = time.monotonic()
        for number in range(messages):
            left = begin + number / rate - time.monotonic()
            if left > 0:
                time.sleep(left)
            yield time.monotonic_ns().to_bytes(8, "little") + padding
        yield b""

    taken = array("q", first_reply(target, paced()))
    return sorted(nanoseconds / 1e6 for nanoseconds in taken)


def at_rates(findings: Findings, scale: float) -> None:
    """The study's rates, then the second highest with the receiver pinned and not."""

    def latencies(rate: int, pinned: bool) -> list[float]:
        messages = max(50, round(RATES[rate] * scale))
        with server_process(serve_paced, pinned) as target:
            return send_paced(target, 20, rate, messages)

    def quantile(ms: list[float], share: float) -> float:
        return ms[min(len(ms) - 1, int(len(ms) * share))]

    found = {rate: latencies(rate, pinned=False) for rate in RATES}
    findings.put("rates", f"{GRPC}, p50 ms", [quantile(ms, 0.5) for ms in found.values()])
    findings.put("rates", f"{GRPC}, p99 ms", [quantile(ms, 0.99) for ms in found.values()])
    fastest = found[LATENCY_RATE]
    shown = [fastest[0], *(quantile(fastest, share) for share in (0.5, 0.95, 0.99)), fastest[-1]]
    findings.put("latency", GRPC, list(shown))  # the study's drawing ends at 1 ms, the table does not
    for rate, ms in found.items():
        beyond = sum(value > DRAWN_MS for value in ms) / len(ms)
        findings.check("cut tail", **{f"{rate}, share": beyond, f"{rate}, longest": ms[-1]})
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(own)})
        pinned = latencies(8_500, pinned=True)
    finally:
        os.sched_setaffinity(0, own)
    findings.put("pinning", GRPC, [quantile(found[8_500], 0.99), quantile(pinned, 0.99)])


def serve_nng(directory: str, expected: int, ring: bool, ready: Callable[[Any], None]) -> None:
    """A pair of sockets over TCP; the rate goes back the same way."""
    import pynng

    with pynng.Pair0(listen="tcp://127.0.0.1:0") as socket:
        port = str(socket.listeners[0].local_address).rsplit(":", 1)[-1]
        ready(f"tcp://127.0.0.1:{port}")
        receptor = Receptor(expected, ring)
        while True:
            rate = receptor.take(socket.recv())
            if rate is not None:
                socket.send(str(rate).encode())


def send_nng(target: str, size: int, messages: int) -> float:
    """The rate that the receiver saw."""
    import pynng

    message = os.urandom(size)
    with pynng.Pair0(dial=target) as socket:
        for _ in range(messages):
            socket.send(message)
        return float(socket.recv())


def run(findings: Findings, scale: float) -> None:
    """Both mechanisms, both sizes, with and without the ring."""

    def rate(serve: Callable[..., None], send: Callable[..., float], messages: int, size: int, ring: bool) -> float:
        with tempfile.TemporaryDirectory() as directory, server_process(serve, directory, messages, ring) as target:
            return send(target, size, messages)

    def row(name: str, serve: Callable[..., None], send: Callable[..., float]) -> None:
        messages = max(2_000, round(MESSAGES[name] * scale))
        fewer = max(2_000, messages // FEWER)
        counts = {"20 B": messages, "4 KB": fewer}
        rates = {label: rate(serve, send, counts[label], size, ring=False) for label, size in SIZES.items()}
        findings.put("sizes", name, list(rates.values()))
        findings.put("throughput", name, [messages, messages / rates["20 B"], rates["20 B"]])
        for label, size in SIZES.items():
            findings.check(
                "ring copy",
                **{
                    f"{name}, {label}, messages/s": rates[label],
                    f"{name}, {label}, copied": rate(serve, send, fewer, size, True),
                },
            )

    def rmr() -> None:
        messages = max(2_000, round(MESSAGES[SI95] * scale))
        with si95.programs() as program:
            counts = (messages, max(2_000, messages // FEWER))
            rates = [si95.rate(program, size, count) for size, count in zip(SIZES.values(), counts, strict=True)]
        row_name = si95.name_of_row()
        findings.put("sizes", row_name, list(rates))
        findings.put("throughput", row_name, [messages, messages / rates[0], rates[0]])

    findings.attempt(GRPC, lambda: row(GRPC, serve_grpc, send_grpc))
    findings.attempt(NNG, lambda: row(NNG, serve_nng, send_nng))
    findings.attempt(SI95, rmr)
    findings.attempt(f"{GRPC}, at rates", lambda: at_rates(findings, scale))
    fan_out.run(findings, scale)
    swap.run(findings, scale)


if __name__ == "__main__":
    main(run)
