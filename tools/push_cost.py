"""What subscriptions to a topic cost a server: threads, memory, and the time of a publication.

Usage: python tools/push_cost.py [subscribers ...]

Servers are processes of their own, and so are the clients, over Unix sockets. A hundred streams share a connection. At
the end one more subscriber asks for long items and never reads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import nearcall

STREAMS = 100
"""Of one connection."""
ROUNDS = 50


@nearcall.service
class News:
    """What is measured, and what measures."""

    def __init__(self) -> None:
        self._topic: nearcall.Topic[str] = nearcall.Topic()
        self._blocks: nearcall.Topic[bytes] = nearcall.Topic()

    def lines(self) -> Iterator[str]:
        """What everybody listens to."""
        return self._topic.subscribe()

    def blocks(self) -> Iterator[bytes]:
        """What somebody asks for and does not read."""
        return self._blocks.subscribe()

    def cost(self) -> tuple[int, int, int]:
        """Subscribers, threads, and memory in KiB."""
        status = Path("/proc/self/status").read_text()
        return self._topic.subscribers, threading.active_count(), int(status.split("VmRSS:")[1].split()[0])

    def publish(self, times: int) -> list[float]:
        """Microseconds of processor time that each publication took this thread."""
        took: list[float] = []
        for number in range(times):
            begun = time.thread_time()
            self._topic.publish(f"line number {number}")
            took.append((time.thread_time() - begun) * 1e6)
        return took

    def flood(self, megabytes: int) -> int:
        """Publishes that much to one who does not read; the memory afterwards in KiB."""
        for _ in range(megabytes):
            self._blocks.publish(bytes(1 << 20))
        return self.cost()[2]


def measure(subscribers: int) -> None:
    """Prints what so many subscribers cost."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"unix://{directory}/news"
        server = subprocess.Popen([sys.executable, __file__, "serve", url])
        try:
            _measure(url, subscribers)
        finally:
            server.terminate()
            server.wait()


def _measure(url: str, subscribers: int) -> None:
    with nearcall.connect(url, News, wait_for_ready=True) as news:
        _, threads, memory = news.cost()
        clients = [nearcall.connect(url, News) for _ in range(-(-subscribers // STREAMS))]
        streams = [clients[number % len(clients)].lines() for number in range(subscribers)]
        while (found := news.cost())[0] < subscribers:
            time.sleep(0.01)
        took = sorted(news.publish(ROUNDS))
        for stream in streams[1:]:
            for _ in range(ROUNDS):
                next(stream)
        stuck, before = news.blocks(), news.cost()[2]
        flooded = news.flood(200)
        median = took[len(took) // 2]
        print(
            f"{subscribers:6} subscribers on {len(clients):3} connections: {found[1] - threads:+} threads, "
            f"{(found[2] - memory) / subscribers:.1f} KiB each; a publication takes its thread {median:.0f} µs "
            f"of processor time; after 200 MiB for one who does not read: "
            f"{(flooded - before) / 1024:+.1f} MiB"
        )
        del stuck
        for client in clients:
            client.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        nearcall.serve(News(), sys.argv[2], max_pending=100_000, max_streams=1000)
    else:
        for count in map(int, sys.argv[1:] or ("100", "1000", "10000")):
            measure(count)
