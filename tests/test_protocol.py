"""A second, small implementation of the client, written from docs/protocol.md: the page is right if it works."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import nearcall

CALL, ITEM, END, REPLY, ERROR, CANCEL, CREDIT, PING, PONG = range(1, 10)
RELEASE = 12
PARTS, NAMED, UNREAD, BACK, TARGET = 4, 8, 16, 32, 64
RING = 4096
encode, decode, Ext = msgspec.msgpack.encode, msgspec.msgpack.decode, msgspec.msgpack.Ext


class Empty(Exception):
    pass


@nearcall.service
class Listener:
    def said(self, text: str) -> int:
        raise NotImplementedError


@nearcall.service
class Sum:
    def __init__(self) -> None:
        self._sum = 0

    def put(self, n: int) -> int:
        self._sum += n
        return self._sum


@nearcall.service(errors=[Empty])
class Served:
    def add(self, a: int, b: int = 5) -> int:
        return a + b

    def echo(self, data: bytes) -> bytes:
        return data

    def mixed(self, data: bytes, number: int, array: NDArray[np.float64], view: memoryview) -> list[float]:
        return [len(data), number, float(array.sum()), len(view)]

    def array(self) -> NDArray[np.float64]:
        return np.arange(3.0)

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    def same_view(self, view: memoryview) -> memoryview:
        return view

    def lent(self, length: int) -> memoryview:
        data = nearcall.buffer(length)
        data[:] = bytes(range(250)) * (length // 250)
        return data

    def nothing(self) -> None: ...

    def sum(self) -> Sum:
        return Sum()

    def tell(self, listener: Listener, text: str) -> int:
        return listener.said(text) + 1

    def same(self, listener: Listener) -> Listener:
        return listener

    def kinds(self, value: Any, at: datetime) -> Any:
        return [type(value).__name__, value, (1, {2}), frozenset({3}), at, UUID(int=5), timedelta(1, 2, 3)]

    def empty(self) -> None:
        error = Empty("shelf", 7)
        error.__dict__["since"] = [1.5]
        raise error


class Reference(NamedTuple):
    at: int
    whose: int
    number: int
    offset: int
    length: int


class Frame(NamedTuple):
    kind: int
    flags: int
    call: int
    rest: bytes


def shake_hands(
    connection: socket.socket, ring: int = 0, fds: tuple[int, ...] = (), more: dict[str, int] | None = None
) -> dict[str, int]:
    """Says hello; the numbers of the methods by name."""
    said = {"version": "another", "limits": {"max_message": 1 << 20}, "ring": ring, **(more or {})}
    hello = json.dumps(said).encode()
    socket.send_fds(connection, [b"NCAL" + struct.pack("<BBHI", 1, 1, 0, len(hello)) + hello], list(fds))
    preamble = connection.recv(12, socket.MSG_WAITALL)
    protocol, kind, _, length = struct.unpack("<BBHI", preamble[4:])
    assert (preamble[:4], protocol, kind) == (b"NCAL", 1, 2)
    welcome = json.loads(connection.recv(length, socket.MSG_WAITALL))
    description = json.loads(welcome["description"])
    services = [*description["services"], *description.get("references", [])]
    names = [method["name"] for service in services for method in service["methods"]]
    return {name: number for number, name in enumerate(names)}


class OverSocket:
    def __init__(self, url: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(url.removeprefix("unix://"))
        self.numbers = shake_hands(self._socket)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack("<I", len(frame)) + frame)

    def receive(self) -> bytes:
        (length,) = struct.unpack("<I", self._socket.recv(4, socket.MSG_WAITALL))
        return self._socket.recv(length, socket.MSG_WAITALL)

    def close(self) -> None:
        self._socket.close()


class OverSharedMemory:
    """Never spins, and rings the bell after every record; offsets as the page lists them."""

    def __init__(self, url: str, more: dict[str, int] | None = None) -> None:
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4096 + 2 * RING)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._memory = mmap.mmap(fd, 4096 + 2 * RING)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"{os.environ['XDG_RUNTIME_DIR']}/nearcall/{url.removeprefix('shm://')}.sock")
        self.numbers = shake_hands(self._socket, RING, (fd,), more)
        os.close(fd)
        self._head = self._tail = 0
        self._regions: dict[int, mmap.mmap] = {}
        self._buffers: dict[int, mmap.mmap] = {}
        self.references: list[Reference] = []

    def _ring(self, base: int, at: int, length: int) -> Iterator[int]:
        return (base + (at + i) % RING for i in range(length))

    def show(self, number: int, content: bytes) -> None:
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, len(content))
        memory = mmap.mmap(fd, len(content))
        future_write = 0x10
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | future_write)
        memory[:] = content  # what was mapped before can still be written to
        self._own = memory
        socket.send_fds(self._socket, [b"S" + struct.pack("<IQ", number, len(content))], [fd])
        os.close(fd)

    def hand_over(self, head: bytes, *references: Reference, rest: bytes = b"") -> None:
        note = struct.pack("<IQBB", 0, 0, 2 | 4, len(references))
        named = b"".join(struct.pack("<QBIQQ", *reference) for reference in references)
        self.send(note + named + head + rest, is_note=True)

    def buffer(self, reference: Reference) -> bytes:
        memory = self._own if reference.whose == 1 else self._buffers[reference.number]
        return memory[reference.offset : reference.offset + reference.length]

    def give_back(self, reference: Reference) -> None:
        at = 1152 + 4 * (reference.number % 32)
        loans = struct.unpack("<I", self._memory[at : at + 4])[0]
        self._memory[at : at + 4] = struct.pack("<I", loans + 1)

    def given_back(self, number: int) -> int:
        at = 1024 + 4 * (number % 32)
        return int(struct.unpack("<I", self._memory[at : at + 4])[0])

    def send(self, frame: bytes, *, is_note: bool = False) -> None:
        record = struct.pack("<I", len(frame) | is_note << 31) + frame
        for offset, byte in zip(self._ring(4096, self._head, len(record)), record, strict=True):
            self._memory[offset] = byte
        self._head += (len(record) + 7) & ~7
        self._memory[256:264] = struct.pack("<Q", self._head)
        self._memory[4:8] = struct.pack("<I", 1)  # parked: a reply must ring the bell
        self._socket.send(b"B")

    def receive(self) -> bytes:
        while not self._has_record():
            self._memory[4:8] = struct.pack("<I", 1)
            os.sched_yield()  # a system call, in place of the fence
            if not self._has_record():
                self._read_socket()
        prefix = bytes(self._memory[offset] for offset in self._ring(4096 + RING, self._tail, 4))
        length = struct.unpack("<I", prefix)[0] & 0x7FFFFFFF
        record = bytes(self._memory[offset] for offset in self._ring(4096 + RING, self._tail + 4, length))
        self._tail += (4 + length + 7) & ~7
        self._memory[768:776] = struct.pack("<Q", self._tail)
        if struct.unpack("<I", prefix)[0] >> 31 == 0:
            return record
        region, size, flags = struct.unpack("<IQB", record[:13])
        if flags & 2:
            assert flags & 4, "these tests send no long rest beside a buffer"
            end = 14 + 29 * record[13]
            self.references = [Reference(*one) for one in struct.iter_unpack("<QBIQQ", record[14:end])]
            while any(one.whose == 0 and one.number not in self._buffers for one in self.references):
                self._read_socket()
            return record[end:]
        while region not in self._regions:
            self._read_socket()
        payload = self._regions[region][64 : 64 + size]
        self._regions[region][0:4] = struct.pack("<I", 0)
        return record[13:] + payload

    def _has_record(self) -> bool:
        return struct.unpack("<Q", self._memory[640:648]) != (self._tail,)

    def _read_socket(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._socket, 1024, 4)
        assert data, "the server hung up"
        while data:
            if data[:1] in (b"R", b"S"):
                region, size = struct.unpack("<IQ", data[1:13])
                fd = fds.pop(0)
                if data[:1] == b"R":
                    self._regions[region] = mmap.mmap(fd, size)
                else:
                    self._buffers[region] = mmap.mmap(fd, size, prot=mmap.PROT_READ)
                os.close(fd)
                data = data[13:]
            else:
                assert data[:1] == b"B"
                data = data[1:]

    def close(self) -> None:
        self._socket.close()
        self._memory.close()
        for region in self._regions.values():
            region.close()


class Client:
    def __init__(self, link: Any) -> None:
        self._link = link
        self._call = 0

    def send(self, kind: int, payload: bytes = b"", flags: int = 0, method: str = "", head: bytes = b"") -> None:
        if kind in (CALL, PING):
            self._call += 1
        number = self._link.numbers.get(method, 0)
        self._link.send(struct.pack("<BBHI", kind, flags, number, self._call) + head + payload)

    def number(self, method: str) -> int:
        return int(self._link.numbers[method])

    def release(self, number: bytes) -> None:
        self.answer(struct.pack("<BBHI", RELEASE, 0, 0, 0) + number + struct.pack("<I", 1))

    def answer(self, frame: bytes) -> None:
        self._link.send(frame)

    def receive_any(self) -> tuple[int, int, int, int, bytes]:
        frame = self._link.receive()
        kind, flags, method, call = struct.unpack("<BBHI", frame[:8])
        return kind, flags, method, call, frame[8:]

    def receive(self) -> Frame:
        frame = self._link.receive()
        kind, flags, _, call = struct.unpack("<BBHI", frame[:8])
        assert call == self._call
        return Frame(kind, flags, call, frame[8:])


@pytest.fixture(params=["unix", "shm"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        url = f"unix://{Path(folder) / 's.sock'}" if request.param == "unix" else "shm://second"
        with nearcall.Server(Served(), url):
            link: Any = OverSocket(url) if request.param == "unix" else OverSharedMemory(url)
            yield Client(link)
            link.close()


def test_unary_calls(client: Client) -> None:
    for _ in range(300):  # around a small ring several times
        client.send(CALL, encode([1, 2]), method="add")
        assert client.receive()[::3] == (REPLY, encode(3))
    client.send(CALL, b"hello", method="echo")
    assert client.receive()[::3] == (REPLY, b"hello")
    client.send(CALL, method="nothing")
    assert client.receive()[::3] == (REPLY, b"")
    client.send(CALL, encode({"a": 1}), PARTS | NAMED, "add", struct.pack("<I", 0))
    assert client.receive()[::3] == (REPLY, encode(6))
    client.send(PING, b"anybody?")
    assert client.receive()[::3] == (PONG, b"anybody?")


def test_buffers_and_arrays(client: Client) -> None:
    body = encode([4, Ext(2, encode(["<f8", [2], "C", 0]))])
    buffers = [b"abc", b"zz", struct.pack("<2d", 1, 2)]
    table = struct.pack("<I3Q", 3, *map(len, buffers))
    client.send(CALL, body + b"".join(buffers), PARTS, "mixed", table)
    assert decode(client.receive().rest) == [3, 4, 3, 2]
    client.send(CALL, method="array")
    reply = client.receive()
    assert (reply.flags, reply.rest[:12]) == (PARTS, struct.pack("<IQ", 1, 24))
    header = decode(reply.rest[12:-24])
    assert (header.code, decode(header.data)) == (2, ["<f8", [3], "C", 0])
    assert reply.rest[-24:] == struct.pack("<3d", 0, 1, 2)


def test_values_of_any_type(client: Client) -> None:
    value = Ext(7, encode(["datetime", ["2024-02-29T12:00:00", 0, "Europe/Berlin"]]))
    table = struct.pack("<I", 0)
    client.send(CALL, encode([Ext(4, encode([value])), "2024-02-29T12:00:00+02:00"]), PARTS, "kinds", table)
    reply = client.receive()
    assert (reply.kind, reply.flags, reply.rest[:4]) == (REPLY, PARTS, table)
    kind, same, pair, frozen, at, uuid, delta = decode(reply.rest[4:])
    assert (kind, same.code, decode(same.data)[0].data) == ("tuple", 4, value.data)
    first, second = decode(pair.data)
    assert (pair.code, first, second.code, second.data) == (4, 1, 5, encode([2]))
    assert (frozen.code, frozen.data) == (6, encode([3]))
    assert decode(at.data) == ["datetime", ["2024-02-29T12:00:00+02:00", 0, None]]
    assert decode(uuid.data) == ["uuid", bytes(15) + b"\5"]
    assert (delta.code, decode(delta.data)) == (7, ["timedelta", [1, 2, 3]])


def test_streams(client: Client) -> None:
    client.send(CALL, encode([3]), method="count")
    assert [client.receive()[::3] for _ in range(4)] == [*((ITEM, encode(i)) for i in range(3)), (END, b"")]
    client.send(CALL, method="total")
    for item in (5, 6):
        client.send(ITEM, encode(item))
    client.send(END)
    assert client.receive()[::3] == (REPLY, encode(11))


def test_long_replies(client: Client) -> None:
    for length in (400, 600, 900):
        client.send(CALL, bytes(length), method="echo")
        assert client.receive()[::3] == (REPLY, bytes(length))


def test_failures(client: Client) -> None:
    client.send(CALL, encode(["one", 2]), method="add")
    failed = client.receive()
    code, length = struct.unpack("<BI", failed.rest[:5])
    assert (failed.kind, code) == (ERROR, nearcall.StatusCode.INVALID_ARGUMENT)
    assert failed.rest[5 : 5 + length].decode() == "Served.add(): argument 'a': expected int, got str"


def test_declared_exceptions(client: Client) -> None:
    client.send(CALL, method="empty")
    failed = client.receive()
    code, length = struct.unpack("<BI", failed.rest[:5])
    assert (failed.kind, code) == (ERROR, nearcall.StatusCode.UNKNOWN)
    assert failed.rest[5 : 5 + length].decode() == "Empty: ('shelf', 7)"
    details = decode(failed.rest[5 + length :])
    assert details.code == 3
    assert decode(details.data) == {"error": {"name": "Empty", "args": ["shelf", 7], "attributes": {"since": [1.5]}}}


def test_an_object_of_the_server(client: Client) -> None:
    client.send(CALL, method="sum")
    found = decode(client.receive().rest)
    assert (found.code, found.data[:1], len(found.data)) == (8, b"\0", 9)
    number = found.data[1:]
    for n, total in ((2, 2), (3, 5)):
        client.send(CALL, encode([n]), TARGET, "put", number)
        assert client.receive()[::3] == (REPLY, encode(total))
    client.release(number)
    client.send(CALL, encode([1]), TARGET, "put", number)
    gone = client.receive()
    assert (gone.kind, gone.flags, gone.rest[0]) == (ERROR, UNREAD, 5)


def test_an_object_of_the_client(client: Client) -> None:
    number = struct.pack("<Q", 7)
    client.send(CALL, encode([Ext(8, b"\0" + number), "hello"]), method="tell")
    kind, flags, method, call, rest = client.receive_any()
    assert (kind, flags, method) == (CALL, BACK | TARGET, client.number("said"))
    assert (rest[:8], decode(rest[8:])) == (number, ["hello"])
    client.answer(struct.pack("<BBHI", REPLY, BACK, 0, call) + encode(5))
    # The server lets go of the object before or behind its answer.
    answers = {client.receive_any() for _ in range(2)}
    released = (RELEASE, 0, 0, 0, number + struct.pack("<I", 1))
    assert released in answers
    assert [(kind, rest) for kind, _, _, _, rest in answers - {released}] == [(REPLY, encode(6))]


def test_an_object_that_comes_home(client: Client) -> None:
    number = struct.pack("<Q", 1 << 63)
    client.send(CALL, encode([Ext(8, b"\0" + number)]), method="same")
    home = decode(client.receive().rest)
    assert (home.code, home.data) == (8, b"\1" + number)
    assert client.receive_any() == (RELEASE, 0, 0, 0, number + struct.pack("<I", 1))


def test_a_client_that_knows_no_buffers_gets_copies(client: Client) -> None:
    client.send(CALL, encode([100_000]), method="lent")
    assert client.receive()[::3] == (REPLY, bytes(range(250)) * 400)


def test_buffers_that_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        with nearcall.Server(Served(), "shm://second"):
            link = OverSharedMemory("shm://second", {"buffers": 32})
            client = Client(link)
            places = set()
            for _ in range(5):
                client.send(CALL, encode([100_000]), method="lent")
                assert client.receive()[::3] == (REPLY, b"")
                (lent,) = link.references
                assert (lent.at, lent.whose, lent.length) == (0, 0, 100_000)
                assert link.buffer(lent) == bytes(range(250)) * 400
                link.give_back(lent)
                places.add(lent.number)
            assert len(places) <= 2, "what was given back is used again"
            content = os.urandom(50_000)
            link.show(7, content)
            head = struct.pack("<BBHI", CALL, 0, link.numbers["same_view"], 100)
            link.hand_over(head, Reference(0, 0, 7, 100, 20_000))
            assert link.receive() == struct.pack("<BBHI", REPLY, 0, 0, 100)
            assert link.references == [Reference(0, 1, 7, 100, 20_000)]
            assert link.buffer(link.references[0]) == content[100:20_100]
            head = struct.pack("<BBHI", CALL, PARTS, link.numbers["mixed"], 101)
            body = encode([4, Ext(2, encode(["<f8", [2], "C", 0]))])
            table = struct.pack("<I3Q", 3, 3, 9000, 16)
            rest = body + b"abc" + struct.pack("<2d", 1, 2)
            link.hand_over(head + table, Reference(len(body) + 3, 0, 7, 5, 9000), rest=rest)
            assert decode(link.receive()[8:]) == [3, 4, 3, 9000]
            # The first loan goes back when the server has seen that its answer was read: when it sends the next one.
            while link.given_back(7) != 2:
                link.send(struct.pack("<BBHI", PING, 0, 0, 102))
                link.receive()
            link.close()
