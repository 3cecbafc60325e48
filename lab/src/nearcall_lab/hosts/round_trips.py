"""Asking another machine for its time, over a connection of its own: both sides look without sleeping meanwhile, since
waking up would make the round trips longer, and the offset less certain.
"""

from __future__ import annotations

import hmac
import socket
import struct
import time

from nearcall_lab.hosts.clock import Reading, best_of

ROUNDS = 200
_STAMP = struct.Struct("<q")
_LIMIT_S = 5.0
_TOKEN = 32


class NoClock(Exception):
    """The other machine's clock cannot be read; the message says why."""


def listener(host: str) -> socket.socket:
    """Where `ask` connects to."""
    found = socket.create_server((host, 0), backlog=1)
    found.settimeout(_LIMIT_S)
    return found


def answer_round_trips(where: socket.socket, token: bytes, rounds: int) -> None:
    """Answer one caller that knows the token. Returns when it has gone, or after some seconds."""
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        try:
            caller, _ = where.accept()
        except OSError:
            return
        with caller:
            try:
                caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                caller.setblocking(False)
                if not hmac.compare_digest(_exactly(caller, _TOKEN, until), token):
                    continue
                for _ in range(rounds):
                    _exactly(caller, 1, until)
                    caller.send(_STAMP.pack(time.monotonic_ns()))
            except (NoClock, OSError):
                pass
            return


def ask(address: tuple[str, int], token: bytes, rounds: int = ROUNDS) -> Reading:
    """The best of so many round trips. Raises `NoClock`."""
    until = time.monotonic() + _LIMIT_S
    trips = []
    try:
        with socket.create_connection(address, timeout=_LIMIT_S) as there:
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            there.sendall(token)
            there.setblocking(False)
            for _ in range(rounds):
                sent = time.monotonic_ns()
                there.send(b"?")
                answer = _exactly(there, _STAMP.size, until)
                received = time.monotonic_ns()
                trips.append((sent, int(_STAMP.unpack(answer)[0]), received))
    except (OSError, NoClock) as error:
        if not trips:
            raise NoClock(f"its clock cannot be read at {address[0]}:{address[1]}: {error}") from None
    return best_of(trips)


def _exactly(sock: socket.socket, size: int, until: float) -> bytes:
    """So many bytes, looked for without sleeping. Raises `NoClock`."""
    data = b""
    while len(data) < size:
        try:
            more = sock.recv(size - len(data))
        except BlockingIOError:
            if time.monotonic() > until:
                raise NoClock(f"no answer within {_LIMIT_S:g} s") from None
            continue
        if not more:
            raise NoClock("it closed the connection")
        data += more
    return data
