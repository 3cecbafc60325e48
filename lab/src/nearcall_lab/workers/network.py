"""The lab's end of a relay: starting it, finding out what it really does, and the address that clients are given."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from nearcall_lab.contract import LOOPBACK
from nearcall_lab.workers.protocol import Channel, PeerGone, Timeout
from nearcall_lab.workers.worker import LaunchFailed

_ANSWER_LIMIT_S = 15.0
_PROBE_S = 0.3
_FEWEST, _MOST = 5, 50
"""Round trips of a probe."""
_PROBED_BYTES = 1 << 20
_PATIENCE_S = 60.0
_BEYOND = 0.25
"""Share by which a network may be slower than asked, besides what a relay needs itself."""
_OWN_S = 0.002
"""The latter: waking up twice for each way, on a machine that is busy."""
_LEAST_RATE, _MOST_RATE = 0.7, 1.1
"""Of the rate that was asked for."""


class Relay:
    """A context of one launch. Raises `LaunchFailed`."""

    def __init__(self, delay_ms: float, jitter_ms: float, mbit: float, seed: int) -> None:
        self._delay_s, self._jitter_s, self._bytes_per_s = delay_ms / 1e3, jitter_ms / 1e3, mbit * 125_000
        to_child, from_parent = (end.detach() for end in socket.socketpair())
        to_parent, from_child = os.pipe()
        config = {
            "parent": os.getpid(),
            "delay_s": self._delay_s,
            "jitter_s": self._jitter_s,
            "bytes_per_s": self._bytes_per_s,
            "seed": seed,
            "read_fd": to_child,
            "write_fd": from_child,
        }
        try:
            # In the lab's own session: in another it would be taken for a process that a mechanism has left.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nearcall_lab.workers.relay", json.dumps(config)],
                stdin=subprocess.DEVNULL,
                pass_fds=(to_child, from_child),
            )
        finally:
            os.close(to_child)
            os.close(from_child)
        self._channel = Channel(to_parent, from_parent)
        try:
            self._answer()
        except BaseException:
            self.end()
            raise

    def to(self, address: str, host: str) -> str:
        """An address at which the server is reached through the network, in place of its own."""
        found = re.fullmatch(r"(.*?)(\d+)", address, re.DOTALL)
        if found is None:
            raise LaunchFailed(f"the server's address {address!r} does not end in a port that a relay could stand for")
        port = self._ask({"do": "listen", "host": host, "port": int(found[2])})["port"]
        return found[1].replace(host, LOOPBACK) + str(port)

    def passed(self) -> tuple[int, int]:
        """Bytes that have come so far from clients, and from the server."""
        answer = self._ask({"do": "passed"})
        return int(answer["forth"]), int(answer["back"])

    def probe(self) -> dict[str, float]:
        """What an empty program sees of this network: the median round trip, without and with it, and its rate.

        Raises `LaunchFailed` where that is not what was asked for.
        """
        with _echo() as target:
            through = (LOOPBACK, int(self._ask({"do": "listen", "host": target[0], "port": target[1]})["port"]))
            asked_s = 2 * self._delay_s
            count = max(_FEWEST, min(_MOST, round(_PROBE_S / max(asked_s, 1e-4))))
            direct_s, there_s = _round_trip_s(target, count), _round_trip_s(through, count)
            bytes_per_s = self._probed_rate(through) if self._bytes_per_s else 0.0
        most_s = asked_s * (1 + _BEYOND) + 2 * self._jitter_s + direct_s + _OWN_S
        if not asked_s - 2 * self._jitter_s <= there_s <= most_s:
            raise LaunchFailed(
                f"network: a round trip is to take {asked_s * 1e3:g} ms longer than {direct_s * 1e3:.3f} ms, and a "
                f"probe's took {there_s * 1e3:.3f} ms; is this machine too busy for a relay?"
            )
        if self._bytes_per_s and not _LEAST_RATE <= bytes_per_s / self._bytes_per_s <= _MOST_RATE:
            raise LaunchFailed(
                f"network: it is to pass {self._bytes_per_s / 125_000:g} Mbit/s, and a probe got "
                f"{bytes_per_s / 125_000:.3g}; is that more than a relay can do here?"
            )
        return {"direct_ns": direct_s * 1e9, "through_ns": there_s * 1e9, "mbit": bytes_per_s / 125_000}

    def _probed_rate(self, where: tuple[str, int]) -> float:
        size = int(min(_PROBED_BYTES, max(20_000.0, self._bytes_per_s * 0.2)))
        with socket.create_connection(where, timeout=_PATIENCE_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(b"?")
            _receive(sock, 1)
            begin = time.monotonic()
            # The delay counts once, and so does the way back.
            sender = threading.Thread(target=sock.sendall, args=(bytes(size),))
            sender.start()
            _receive(sock, size)
            sender.join()
            return size / max(1e-9, time.monotonic() - begin - 2 * self._delay_s)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._channel.send(request)
        except PeerGone:
            raise LaunchFailed("network: the relay ended unexpectedly") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            return self._channel.receive(_ANSWER_LIMIT_S)[0]
        except (PeerGone, Timeout) as error:
            raise LaunchFailed(f"network: the relay does not answer: {error}") from None

    def end(self) -> None:
        """Safe to call twice."""
        if self.process.poll() is None:
            self.process.kill()
            self._channel.close()
        self.process.wait()


@contextlib.contextmanager
def _echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets, in a thread of its own."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve(sock: socket.socket) -> None:
            with sock, contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := sock.recv(1 << 16):
                    sock.sendall(data)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield LOOPBACK, listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _round_trip_s(where: tuple[str, int], count: int) -> float:
    with socket.create_connection(where, timeout=_PATIENCE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken = []
        for _ in range(count + 1):
            begin = time.monotonic()
            sock.sendall(b"?")
            _receive(sock, 1)
            taken.append(time.monotonic() - begin)
    return statistics.median(taken[1:])  # the first one opens the way


def _receive(sock: socket.socket, size: int) -> None:
    while size:
        data = sock.recv(min(size, 1 << 16))
        if not data:
            raise LaunchFailed("network: the relay closed the probe's connection")
        size -= len(data)
