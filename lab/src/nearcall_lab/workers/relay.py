"""A network between the clients and the server of a launch: a process that passes on what comes, later or slower.

It stands between TCP connections, not between packets: bytes of a connection stay in order and none is lost, so that
jitter never reorders them, and loss is out of its reach. What a sender hands over is acknowledged at once by this
machine, as with a network that has room for everything under way.

Each direction of a connection is a line of its own. Bytes that came at a time leave when the line has sent those
before them at its rate, and then after the delay.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import itertools
import json
import random
import select
import socket
import sys
import time
from dataclasses import dataclass, field

from nearcall_lab.workers.lifeline import die_with
from nearcall_lab.workers.protocol import Channel, PeerGone

_PR_SET_TIMERSLACK = 29
_CHUNK = 1 << 16
_ROOM = 64 << 20
"""Bytes under way in one direction of a connection, beyond which the sender has to wait."""


@dataclass(eq=False)
class Line:
    """One direction of a connection."""

    source: socket.socket
    target: socket.socket
    free_ns: int = 0
    """When the last byte taken will have been sent at the line's rate."""
    last_ns: int = 0
    """When the last chunk is due at the other end: later ones must not come before it."""
    forth: bool = False
    """From a client to the server."""
    under_way: int = 0
    """Bytes that have come and have not left."""
    ended: bool = False
    """Nothing more comes."""
    waiting: bytearray = field(default_factory=bytearray)
    """What is due and had no room at the other end."""
    closing: bool = False
    """The end is due, after what is waiting."""
    finished: bool = False


class Relay:
    """All connections of a launch."""

    def __init__(self, delay_s: float, jitter_s: float, bytes_per_s: float, seed: int) -> None:
        self._delay_ns, self._jitter_ns = round(delay_s * 1e9), round(jitter_s * 1e9)
        self._bytes_per_s = bytes_per_s
        self._chance = random.Random(seed)
        self._listeners: dict[socket.socket, tuple[str, int]] = {}
        self._lines: dict[socket.socket, Line] = {}
        self._due: list[tuple[int, int, Line, bytes]] = []
        self._order = itertools.count()
        self._full: dict[socket.socket, Line] = {}
        """Lines whose other end had no room, by that end."""
        self.connections = self.forth = self.back = 0

    def listen(self, target: tuple[str, int]) -> int:
        """A port of the loopback that leads to `target`."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        self._listeners[listener] = target
        return int(listener.getsockname()[1])

    def run(self, channel: Channel, control: int) -> None:
        """Until the lab closes the channel. Raises `PeerGone` then."""
        while True:
            readable: list[int | socket.socket] = [control, *self._listeners]
            readable += [s for s, line in self._lines.items() if not line.ended and line.under_way < _ROOM]
            left_s = None if not self._due else max(0.0, (self._due[0][0] - time.monotonic_ns()) / 1e9)
            ready, writable, _ = select.select(readable, list(self._full), [], left_s)
            for each in ready:
                if isinstance(each, int):
                    self._answer(channel)
                elif each in self._listeners:
                    self._accept(each)
                elif each in self._lines:  # else it was closed a moment ago
                    self._take(self._lines[each])
            for each in writable:
                if each in self._full:
                    self._write(self._full[each])
            self._deliver()

    def _answer(self, channel: Channel) -> None:
        request, _ = channel.receive()
        if request["do"] == "listen":
            channel.send({"port": self.listen((request["host"], request["port"]))})
        else:
            channel.send({"connections": self.connections, "forth": self.forth, "back": self.back})

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            near, _ = listener.accept()
            try:
                far = socket.create_connection(self._listeners[listener], timeout=10.0)
            except OSError:
                near.close()
                return
            for one, other in ((near, far), (far, near)):
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._lines[one] = Line(one, other, forth=one is near)
            self.connections += 1

    def _take(self, line: Line) -> None:
        try:
            data = line.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = time.monotonic_ns()
        if self._bytes_per_s:
            line.free_ns = max(line.free_ns, now) + round(len(data) / self._bytes_per_s * 1e9)
        sent_ns = max(now, line.free_ns)
        jitter_ns = self._chance.randint(-self._jitter_ns, self._jitter_ns)
        line.last_ns = max(line.last_ns, sent_ns + max(0, self._delay_ns + jitter_ns))
        line.under_way += len(data)
        line.ended = not data
        if line.forth:
            self.forth += len(data)
        else:
            self.back += len(data)
        heapq.heappush(self._due, (line.last_ns, next(self._order), line, data))

    def _deliver(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, _, line, data = heapq.heappop(self._due)
            line.waiting += data
            line.closing = not data
            self._write(line)

    def _write(self, line: Line) -> None:
        """Pass on as much as there is room for at the other end, and after the last of it that it was the last."""
        try:
            sent = line.target.send(line.waiting) if line.waiting else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(line.waiting)  # its end is noticed where it is read
        line.under_way -= sent
        del line.waiting[:sent]
        if line.waiting:
            self._full[line.target] = line
            return
        self._full.pop(line.target, None)
        if line.closing and not line.finished:
            self._finish(line)

    def _finish(self, line: Line) -> None:
        """One direction is over; the connection is when both are."""
        line.finished = True
        with contextlib.suppress(OSError):
            line.target.shutdown(socket.SHUT_WR)
        if self._lines[line.target].finished:
            for sock in (line.source, line.target):
                del self._lines[sock]
                sock.close()


def main() -> None:
    """Entry point of the process: ``python -m nearcall_lab.workers.relay CONFIG``."""
    config = json.loads(sys.argv[1])
    die_with(config["parent"])
    if sys.platform == "linux":  # otherwise the kernel wakes it up to 50 µs late
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    channel = Channel(config["read_fd"], config["write_fd"])
    relay = Relay(config["delay_s"], config["jitter_s"], config["bytes_per_s"], config["seed"])
    channel.send({"ready": True})
    with contextlib.suppress(PeerGone):
        relay.run(channel, config["read_fd"])


if __name__ == "__main__":
    main()
