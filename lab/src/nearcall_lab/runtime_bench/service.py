"""The service behind the probes, in the shape of an adapter: methods that the targets need and the demo does not
call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop

MECHANISMS = (
    Mechanism(
        "nearcall-runtime",
        "nearcall shm",
        "nearcall",
        "shm",
        ("nearcall",),
        "nearcall",
        "all call kinds on one service",
    ),
)


def service() -> Any:
    """The service class; imported by the server and, for its signatures, by the probes."""
    import nearcall

    class Runtime:
        def __init__(self) -> None:
            self.left = 0
            self.octets = 0
            self._begin_ns = 0
            self.end_ns = 0

        def echo(self, data: bytes) -> bytes:
            return data

        def digest(self, data: memoryview) -> int:
            """Small reply to a large argument; depends on its length and its last byte."""
            return len(data) + data[-1]

        def add(self, a: int, b: int) -> int:
            return a + b

        async def echo_in_loop(self, data: bytes) -> bytes:
            return data

        async def add_in_loop(self, a: int, b: int) -> int:
            return a + b

        async def nap(self, seconds: float) -> float:
            await asyncio.sleep(seconds)
            return seconds

        def block(self, seconds: float) -> float:
            """Keeps its thread, and lets other threads run."""
            time.sleep(seconds)
            return seconds

        def flow(self, items: int, size: int) -> Iterator[bytes]:
            """As fast as it is taken."""
            item = bytes(size)
            for _ in range(items):
                yield item

        def swallow(self, data: Iterator[bytes], pause_s: float, every: int) -> int:
            """Takes a stream slowly: a pause after so many items. Octets taken."""
            return sum(len(item) for item in slowly(data, pause_s, every))

        def through(self, data: Iterator[bytes]) -> Iterator[bytes]:
            yield from data

        def countdown(self, n: int) -> Iterator[int]:
            yield from range(n, 0, -1)

        def expect(self, messages: int) -> None:
            """Start counting one-way messages; the receiver's clock starts here."""
            self.left, self.octets, self.end_ns = messages, 0, 0
            self._begin_ns = time.perf_counter_ns()

        @nearcall.oneway  # type: ignore[untyped-decorator]
        def drop(self, data: bytes) -> None:
            self.octets += len(data)
            self.left -= 1
            if not self.left:
                self.end_ns = time.perf_counter_ns()

        def arrived(self) -> tuple[int, int, int]:
            """Messages missing, octets received, and nanoseconds from `expect` to the last message (0 before it)."""
            return self.left, self.octets, max(0, self.end_ns - self._begin_ns)

    return nearcall.service(Runtime)


def slowly(items: Iterable[Any], pause_s: float, every: int) -> Iterator[Any]:
    """The same items, with a pause of `pause_s` seconds after each `every` of them."""
    for number, item in enumerate(items, 1):
        if number % every == 0:
            time.sleep(pause_s)
        yield item


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import nearcall

    from nearcall_lab.runtime_bench import passing, routing

    url, served = passing.url(spec, "shm"), service()()
    with (
        nearcall.Server(served, *passing.served(), url, passing.url(spec, "unix")),
        routing.node_of(spec, served),
    ):
        ready(url)
        stop.wait()


def connect(spec: Spec) -> SimpleSession:
    raise NotImplementedError("this service is driven by probes")
