"""Both ends of a shared memory connection in plain Python, from docs/protocol-shm.md.

They keep its rules only if asked to. Nothing here goes through the compiled core: what these write is what the other
side finds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType

from ..words import Word, load, store

PATIENCE = 20.0
PAGE = 4096
RING = 1 << 16
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
SHOWN_SEALS = SEALS | 0x10
"""With F_SEAL_FUTURE_WRITE, which Python has no name for: what buffers have."""
NOTE = 1 << 31
NAMES, REST_IN_RING = 2, 4
OURS, THEIRS, THEIR_REGION = range(3)
"""Whose memory a reference names."""
LOANS = {True: 1024, False: 1152}
"""Where the loans are counted that have been given back: of a client's buffers, of a server's."""

CLIENT_SIDE, SERVER_SIDE = 0, 128
TO_SERVER, TO_CLIENT = 256, 640
TAIL, STARVED = 128, 256

CALL, ITEM, END, REPLY, ERROR = range(1, 6)
PING, PONG = 8, 9


def place_of(url: str) -> str:
    """The socket of a ``shm://`` server."""
    return f"{os.environ['XDG_RUNTIME_DIR']}/nearcall/{url.removeprefix('shm://')}.sock"


def memfd(size: int, seals: int = SEALS) -> int:
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def message(kind: int, body: bytes) -> bytes:
    """One of the handshake."""
    return b"NCAL" + struct.pack("<BBHI", 1, kind, 0, len(body)) + body


def hello(ring: int = RING, buffers: int = 0) -> bytes:
    said = {"version": "hostile", "limits": {"max_message": 1 << 26}, "ring": ring, "buffers": buffers}
    return message(1, json.dumps(said).encode())


def frame(kind: int, method: int = 0, call: int = 1, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("<BBHI", kind, flags, method, call) + payload


def reference(at: int, length: int, *, number: int = 0, offset: int = 0, whose: int = OURS) -> bytes:
    """Part of a payload that lies in a buffer, as a note names it."""
    return struct.pack("<QBIQQ", at, whose, number, offset, length)


def read_exactly(connection: socket.socket, length: int) -> bytes:
    """Fewer bytes if the other side hangs up."""
    received = b""
    while len(received) < length and (got := connection.recv(length - len(received))):
        received += got
    return received


class End:
    """One end of a connection. Without rules: every word of the shared memory can be written."""

    def __init__(self, connection: socket.socket, fd: int, ring: int, *, is_server: bool) -> None:
        self.socket = connection
        self.ring = ring
        self.memory = mmap.mmap(fd, PAGE + 2 * ring)
        own, other = (TO_CLIENT, TO_SERVER) if is_server else (TO_SERVER, TO_CLIENT)
        self.out, self.into = own, other
        self.out_at, self.into_at = (PAGE + ring, PAGE) if is_server else (PAGE, PAGE + ring)
        self.side = SERVER_SIDE if is_server else CLIENT_SIDE
        self.head = self.tail = 0
        connection.settimeout(PATIENCE)

    def put(self, at: int, value: int, form: Word = "Q") -> None:
        store(self.memory, at, value & (2 ** (64 if form == "Q" else 32) - 1), form)

    def get(self, at: int) -> int:
        return load(self.memory, at)

    def record(self, data: bytes, *, prefix: int | None = None) -> None:
        """Lays a record down behind the last one, without telling anybody."""
        bytes_ = struct.pack("<I", len(data) if prefix is None else prefix) + data
        for offset, byte in enumerate(bytes_):
            self.memory[self.out_at + (self.head + offset) % self.ring] = byte
        self.head += (len(bytes_) + 7) & ~7

    def publish(self, head: int | None = None) -> None:
        self.put(self.out, self.head if head is None else head)
        self.bell()

    def bell(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.send(b"B")

    def send(self, data: bytes) -> None:
        """As one should."""
        self.record(data)
        self.publish()

    def announce(self, region: int, size: int, *fds: int) -> None:
        socket.send_fds(self.socket, [struct.pack("<BIQ", ord("R"), region, size)], list(fds))

    def note(self, region: int, length: int, last_use: bool = False, head: bytes = frame(CALL)) -> None:
        self.record(struct.pack("<IQB", region, length, last_use) + head, prefix=NOTE | 13 + len(head))
        self.publish()

    def show(self, number: int, size: int, *fds: int) -> None:
        socket.send_fds(self.socket, [struct.pack("<BIQ", ord("S"), number, size)], list(fds))

    def hand_over(self, *references: bytes, head: bytes = frame(CALL), rest: bytes = b"") -> None:
        """A frame whose payload is in buffers and in the ring."""
        note = struct.pack("<IQBB", 0, 0, NAMES | REST_IN_RING, len(references)) + b"".join(references) + head + rest
        self.record(note, prefix=NOTE | len(note))
        self.publish()

    def give_back(self, number: int, loans: int = 1) -> None:
        """Loans of the other side's buffer."""
        at = LOANS[self.side == SERVER_SIDE] + 4 * (number % 32)
        self.put(at, (self.get(at) & 0xFFFFFFFF) + loans, "I")

    def receive(self, *, give_back: bool = True) -> bytes:
        """The next record, as one should; waits for it."""
        end = time.monotonic() + PATIENCE
        while self.get(self.into) == self.tail:
            # It never says that it sleeps, so nobody rings.
            assert time.monotonic() < end, "nothing comes"
            assert not self.hung_up() or self.get(self.into) != self.tail, "the other side hung up"
            time.sleep(0.0005)
        at = self.into_at + self.tail % self.ring
        length = int(struct.unpack_from("<I", self.memory, at)[0]) & ~NOTE
        start = self.tail + 4
        data = bytes(self.memory[self.into_at + (start + i) % self.ring] for i in range(length))
        self.tail += (4 + length + 7) & ~7
        if give_back:
            self.put(self.into + TAIL, self.tail)
            if self.get(self.into + STARVED) & 0xFFFFFFFF:
                self.put(self.into + STARVED, 0, "I")
                self.bell()
        return data

    def hung_up(self) -> bool:
        """Whether the other side has; reads what it has rung."""
        while select.select([self.socket], [], [], 0)[0]:
            try:
                if not self.socket.recv(4096):
                    return True
            except ConnectionResetError:
                return True
        return False

    def wait_for_the_end(self) -> None:
        """Until the other side hangs up."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(4096):
                pass

    def close(self) -> None:
        self.socket.close()
        self.memory.close()

    def __enter__(self) -> End:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def dial(url: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    connection.connect(place_of(url))
    return connection


def attack(url: str, ring: int = RING, buffers: int = 0) -> End:
    """A client whose handshake is as it should be."""
    connection = dial(url)
    fd = memfd(PAGE + 2 * ring)
    socket.send_fds(connection, [hello(ring, buffers)], [fd])
    end = End(connection, fd, ring, is_server=False)
    os.close(fd)
    preamble = read_exactly(connection, 12)
    assert preamble[:6] == b"NCAL\x01\x02", preamble
    read_exactly(connection, struct.unpack("<I", preamble[8:])[0])
    return end


def introduce(url: str, data: bytes, fds: Sequence[int] = ()) -> str:
    """Sends what is no proper hello; the sentence with which the server turns us away, empty if it only hangs up."""
    with dial(url) as connection:
        if fds:
            socket.send_fds(connection, [data], list(fds))
        else:
            connection.sendall(data)
        try:
            answer = read_exactly(connection, 12)
            if not answer:
                return ""
            assert answer[:6] == b"NCAL\x01\x03", answer
            return read_exactly(connection, struct.unpack("<I", answer[8:])[0]).decode()
        except ConnectionResetError:
            return ""


def be_served(listener: socket.socket, description: str) -> End:
    """A server whose handshake with the next client is as it should be."""
    connection, _ = listener.accept()
    connection.settimeout(PATIENCE)
    data, fds, _, _ = socket.recv_fds(connection, 12, 4)
    while len(data) < 12:
        data += connection.recv(12 - len(data))
    asked = json.loads(read_exactly(connection, struct.unpack("<I", data[8:])[0]))
    end = End(connection, fds[0], asked["ring"], is_server=True)
    os.close(fds[0])
    body = {"version": "hostile", "limits": {"max_message": 1 << 26}, "description": description}
    connection.sendall(message(2, json.dumps(body).encode()))
    return end
