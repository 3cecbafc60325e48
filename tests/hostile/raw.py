"""Both ends of a connection over each transport, in plain Python. They keep the protocol's rules only if asked to.

Nothing here goes through the compiled core. No method waits for ever: what cannot be sent or does not come in time is
told to the caller.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import select
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

import pytest

from ..words import Word, load, store
from .frames import HELLO, WELCOME, Frame, Received, hello, parse

PATIENCE = 5.0
RING = 1 << 18
PAGE = 4096
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
NOTE = 1 << 31
CLIENT_SIDE, SERVER_SIDE = 0, 128
TO_SERVER, TO_CLIENT = 256, 640
PARKED, TAIL = 4, 128


NO_SOCKET = "this peer speaks over a socket; those of NATS are in test_nats.py"


class Gone(Exception):
    """The other side hung up."""


class Rejected(Gone):
    """The other side turned us away, with this sentence."""


def address(url: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    scheme, _, place = url.partition("://")
    if scheme in ("unix", "grpc+unix", "child"):
        return socket.AF_UNIX, place
    if scheme == "shm":
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        directory = f"{runtime}/nearcall" if runtime else f"{tempfile.gettempdir()}/nearcall-{os.getuid()}"
        return socket.AF_UNIX, f"{directory}/{place}.sock"
    if scheme == "nats":
        pytest.skip(NO_SOCKET)
    host, _, port = place.rpartition(":")
    return socket.AF_INET, (host, int(port))


def dial(url: str, *, plain: bool = False) -> socket.socket:
    """A connected socket, encrypted where the URL says so; the handshake of nearcall is still to come."""
    family, place = address(url)
    connection = socket.socket(family)
    connection.settimeout(PATIENCE)
    try:
        connection.connect(place)
    except OSError:
        connection.close()
        raise
    if family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if url.startswith(("tls://", "grpcs://")) and not plain:
        context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
        if url.startswith("grpcs://"):
            context.set_alpn_protocols(["h2"])
        connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
    return connection


def memfd(size: int, seals: int = SEALS) -> int:
    fd = os.memfd_create("nearcall-hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def read_exactly(connection: socket.socket, length: int) -> bytes:
    """Raises Gone if the other side hangs up before."""
    received = bytearray()
    while len(received) < length:
        try:
            got = connection.recv(length - len(received))
        except TimeoutError:
            raise
        except OSError as error:
            raise Gone(str(error)) from error
        if not got:
            raise Gone(f"{len(received)} of {length} bytes came")
        received += got
    return bytes(received)


def _as_frame(one: Frame | bytes) -> Frame:
    return Frame(one) if isinstance(one, bytes) else one


class Peer:
    """One end of a connection."""

    methods: dict[str, int]
    """The numbers of the server's methods, by name."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.methods = {}
        self.socket.setblocking(False)

    def batch(self, frames: Iterable[Frame | bytes]) -> bytes:
        """Frames as they are sent together."""
        raise NotImplementedError

    def push(self, batch: bytes | memoryview, seconds: float) -> int:
        """Sends until nothing could be sent for so long; how many bytes were. Raises Gone."""
        raise NotImplementedError

    def try_receive(self) -> Received | None:
        """The next frame, if it is here."""
        raise NotImplementedError

    def _wait(self, seconds: float) -> None:
        """Until there may be something to read."""
        raise NotImplementedError

    def wait(self, seconds: float) -> bool:
        """Until a frame begins to come; whether one does in time. Takes nothing."""
        raise NotImplementedError

    def send(self, *frames: Frame | bytes, seconds: float = PATIENCE) -> bool:
        """Whether all could be sent in time."""
        batch = self.batch(frames)
        return self.push(batch, seconds) == len(batch)

    def flood(self, frames: Iterable[Frame | bytes], seconds: float, *, most: float = float("inf")) -> int:
        """The same frames over and over, until time is up, so many bytes are sent, or nothing can be sent for a fifth
        of a second; how many bytes were sent. Being hung up on ends it, too."""
        batch = self.batch(frames)
        end, sent = time.monotonic() + seconds, 0
        with contextlib.suppress(Gone):
            while time.monotonic() < end and sent < most:
                now = self.push(batch, min(0.2, seconds))
                sent += now
                if now < len(batch):
                    break
        return sent

    def receive(self, seconds: float = PATIENCE) -> Received:
        """Raises TimeoutError or Gone."""
        end = time.monotonic() + seconds
        while True:
            found = self.try_receive()
            if found is not None:
                return found
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("nothing comes")
            self._wait(left)

    def received_all(self, quiet: float = 0.1) -> list[Received]:
        """What comes until nothing comes for so long, or the other side hangs up."""
        found = []
        with contextlib.suppress(Gone, TimeoutError):
            while True:
                found.append(self.receive(quiet))
        return found

    def hung_up(self, seconds: float = PATIENCE) -> bool:
        """Whether the other side hangs up in time; reads what comes before."""
        end = time.monotonic() + seconds
        try:
            while True:
                self.receive(max(0.0, end - time.monotonic()))
        except Gone:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SocketPeer(Peer):
    """Over unix, tcp and tls."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._buffer = bytearray()

    def batch(self, frames: Iterable[Frame | bytes]) -> bytes:
        out = bytearray()
        for one in map(_as_frame, frames):
            out += struct.pack("<I", len(one.head) + len(one.payload))
            out += one.head
            out += one.payload
        return bytes(out)

    def push(self, batch: bytes | memoryview, seconds: float) -> int:
        view, sent = memoryview(batch), 0
        while sent < len(view):
            try:
                sent += self.socket.send(view[sent : sent + (1 << 18)])
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                ready = select.select([], [self.socket], [], seconds)[1]
            except ssl.SSLWantReadError:
                ready = select.select([self.socket], [], [], seconds)[0]
            except OSError as error:
                raise Gone(str(error)) from error
            if not ready:
                break
        return sent

    def _read(self) -> bool:
        """Whether anything came."""
        try:
            data = self.socket.recv(1 << 18)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise Gone(str(error)) from error
        if not data:
            raise Gone("the end")
        self._buffer += data
        return True

    def try_receive(self) -> Received | None:
        while True:
            if len(self._buffer) >= 4:
                length = struct.unpack_from("<I", self._buffer)[0]
                if len(self._buffer) >= 4 + length:
                    data = bytes(self._buffer[4 : 4 + length])
                    del self._buffer[: 4 + length]
                    return parse(data)
            if not self._read():
                return None

    def wait(self, seconds: float) -> bool:
        return bool(self._buffer or select.select([self.socket], [], [], seconds)[0])

    def _wait(self, seconds: float) -> None:
        pending = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()
        if not pending:
            select.select([self.socket], [], [], seconds)


class MemoryPeer(Peer):
    """Over shared memory. Looks at the ring every half a millisecond, so nobody has to ring for it."""

    def __init__(self, connection: socket.socket, fd: int, ring: int, *, is_server: bool) -> None:
        super().__init__(connection)
        self.ring = ring
        self.memory = mmap.mmap(fd, PAGE + 2 * ring)
        self.out, self.into = (TO_CLIENT, TO_SERVER) if is_server else (TO_SERVER, TO_CLIENT)
        self.out_at, self.into_at = (PAGE + ring, PAGE) if is_server else (PAGE, PAGE + ring)
        self.other_side = CLIENT_SIDE if is_server else SERVER_SIDE
        self.head = self.tail = 0
        self._regions: dict[int, mmap.mmap] = {}
        self._next_region = 0
        self._gone = False

    def get(self, at: int, form: Word = "Q") -> int:
        return load(self.memory, at, form)

    def put(self, at: int, value: int, form: Word = "Q") -> None:
        store(self.memory, at, value, form)

    def record(self, data: bytes, *, is_note: bool = False) -> bytes:
        return struct.pack("<I", len(data) | (NOTE if is_note else 0)) + data + bytes(-(4 + len(data)) % 8)

    def batch(self, frames: Iterable[Frame | bytes]) -> bytes:
        """Long payloads get a region, announced here: nothing waits for one to be given back."""
        out = bytearray()
        for one in map(_as_frame, frames):
            if len(one.head) + len(one.payload) <= self.ring // 4 - 8:
                out += self.record(bytes(one.head) + bytes(one.payload))
            else:
                # A head too long for the ring is cut: the other side finds a lie, and not we an error.
                out += self.record(self.in_region(one.payload) + one.head[: self.ring // 4 - 32], is_note=True)
        return bytes(out)

    def in_region(self, payload: bytes | bytearray | memoryview) -> bytes:
        """Puts a payload into a region of its own and announces it; what the note says of it."""
        number, size = self._next_region, -(-(64 + len(payload)) // PAGE) * PAGE
        self._next_region += 1
        fd = memfd(size)
        try:
            with mmap.mmap(fd, size) as memory:
                memory[:4] = struct.pack("<I", 1)
                # Zeros are there already.
                if any(memoryview(payload)[:64]):
                    memory[64 : 64 + len(payload)] = bytes(payload)
            self.announce(number, size, fd)
        finally:
            os.close(fd)
        return struct.pack("<IQB", number, len(payload), 1)

    def announce(self, number: int, size: int, *fds: int) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.send_fds(self.socket, [struct.pack("<BIQ", ord("R"), number, size)], list(fds))
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError("the socket stays full") from None
                select.select([], [self.socket], [], 0.1)
            except OSError as error:
                if isinstance(error, BrokenPipeError | ConnectionResetError):
                    raise Gone(str(error)) from error
                raise

    def room(self) -> int:
        return self.ring - (self.head - self.get(self.out + TAIL))

    def bell(self) -> None:
        os.sched_yield()  # a system call, in place of the fence
        if self.get(self.other_side + PARKED, "I") == 1:
            self.put(self.other_side + PARKED, 0, "I")
            with contextlib.suppress(BlockingIOError):
                try:
                    self.socket.send(b"B")
                except (BrokenPipeError, ConnectionResetError) as error:
                    raise Gone(str(error)) from error

    def push(self, batch: bytes | memoryview, seconds: float) -> int:
        """Whole records only."""
        view, sent = memoryview(batch), 0
        until = time.monotonic() + seconds
        while sent < len(view):
            length = (struct.unpack_from("<I", view, sent)[0] & ~NOTE) + 4 + 7 & ~7
            room = self.room()
            if room < length:
                self._listen()
                self.bell()
                if time.monotonic() >= until:
                    break
                time.sleep(0.0005)
                continue
            # As many records as there is room for.
            end = sent + length
            while end < len(view):
                length = (struct.unpack_from("<I", view, end)[0] & ~NOTE) + 4 + 7 & ~7
                if end + length - sent > room:
                    break
                end += length
            self.lay(view[sent:end])
            sent = end
            until = time.monotonic() + seconds
        return sent

    def lay(self, records: bytes | memoryview) -> None:
        at = self.head % self.ring
        first = min(len(records), self.ring - at)
        self.memory[self.out_at + at : self.out_at + at + first] = records[:first]
        self.memory[self.out_at : self.out_at + len(records) - first] = records[first:]
        self.head += len(records)
        self.put(self.out, self.head)
        self.bell()

    def _listen(self) -> None:
        """Reads what the socket has: bells and regions."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.socket, 13, 4)
            except BlockingIOError:
                return
            except OSError as error:
                raise Gone(str(error)) from error
            if not data:
                raise Gone("the end")
            while data[:1] == b"B":
                data = data[1:]
            if data[:1] == b"R":
                while len(data) < 13:
                    select.select([self.socket], [], [], PATIENCE)
                    more, others, _, _ = socket.recv_fds(self.socket, 13 - len(data), 4)
                    data, fds = data + more, [*fds, *others]
                number, size = struct.unpack_from("<IQ", data, 1)
                self._regions[number] = mmap.mmap(fds[0], size)
            for fd in fds:
                os.close(fd)

    def _copy(self, at: int, length: int) -> bytes:
        at %= self.ring
        first = min(length, self.ring - at)
        start = self.into_at + at
        return self.memory[start : start + first] + self.memory[self.into_at : self.into_at + length - first]

    def try_receive(self) -> Received | None:
        if self.get(self.into) == self.tail:
            try:
                self._listen()
            except Gone:
                if self.get(self.into) == self.tail:
                    raise
            if self.get(self.into) == self.tail:
                return None
        prefix = struct.unpack("<I", self._copy(self.tail, 4))[0]
        length = prefix & ~NOTE
        data = self._copy(self.tail + 4, length)
        self.tail += (4 + length + 7) & ~7
        self.put(self.into + TAIL, self.tail)
        if prefix & NOTE:
            number, size, last_use = struct.unpack_from("<IQB", data)
            end = time.monotonic() + PATIENCE
            while number not in self._regions and time.monotonic() < end:
                self._listen()
            region = self._regions[number]
            data = data[13:] + region[64 : 64 + size]
            region[0:4] = struct.pack("<I", 0)
            if last_use:
                self._regions.pop(number).close()
        if self.get(self.into + 256, "I"):
            self.put(self.into + 256, 0, "I")
            with contextlib.suppress(OSError):
                self.socket.send(b"B")
        return parse(data)

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.get(self.into) == self.tail:
            if time.monotonic() > end:
                return False
            self._wait(seconds)
        return True

    def _wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.0005))

    def close(self) -> None:
        super().close()
        self.memory.close()
        for region in self._regions.values():
            region.close()


def connect(
    url: str, ring: int = RING, *, receive_buffer: int | None = None, connection: socket.socket | None = None
) -> Peer:
    """A client whose handshake is as it should be; on a connection that :func:`dial` has made."""
    connection = connection or dial(url)
    try:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        fd = None
        if url.startswith("shm://"):
            fd = memfd(PAGE + 2 * ring)
            socket.send_fds(connection, [hello(ring)], [fd])
        else:
            connection.sendall(hello())
        body = read_message(connection, WELCOME)
        peer: Peer = SocketPeer(connection) if fd is None else MemoryPeer(connection, fd, ring, is_server=False)
        if fd is not None:
            os.close(fd)
        described = json.loads(json.loads(body)["description"])
        services = [*described["services"], *described.get("references", [])]
        services += [described["introspection"]] if "introspection" in described else []
        names = [method["name"] for service in services for method in service["methods"]]
        peer.methods = {name: number for number, name in reversed(list(enumerate(names)))}
        return peer
    except BaseException:
        connection.close()
        raise


def read_message(connection: socket.socket, expected: int) -> bytes:
    preamble = read_exactly(connection, 12)
    kind, _, length = struct.unpack_from("<BHI", preamble, 5)
    body = read_exactly(connection, length)
    if kind != expected:
        raise Rejected(body.decode(errors="replace"))
    return body


class Listener:
    """Where a hostile server waits."""

    def __init__(self, transport: str, directory: Path, name: str) -> None:
        if transport == "nats":
            pytest.skip(NO_SOCKET)
        self.transport = transport
        self._path: Path | None = None
        self._context: ssl.SSLContext | None = None
        if transport in ("unix", "child", "shm"):
            self.url = f"shm://{name}" if transport == "shm" else f"{transport}://{directory}/{name}.raw"
            self._path = Path(str(address(self.url)[1]))
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(self._path))
        else:
            self._socket = socket.create_server(("127.0.0.1", 0))
            self.url = f"{transport}://127.0.0.1:{self._socket.getsockname()[1]}"
        if transport == "tls":
            certificates = Path(os.environ["SSL_CERT_FILE"]).parent
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        self._socket.listen(64)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> socket.socket:
        """The next client, before it has said anything that is nearcall's. Raises OSError once closed."""
        connection, _ = self._socket.accept()
        connection.settimeout(PATIENCE)
        if self.transport in ("tcp", "tls"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        return connection

    def serve(self, connection: socket.socket, answer: bytes | Callable[[], bytes]) -> Peer:
        """The rest of the handshake, with that welcome."""
        fds: list[int] = []
        if self.transport == "shm":
            data, fds, _, _ = socket.recv_fds(connection, 12, 4)
            data += read_exactly(connection, 12 - len(data))
            kind, _, length = struct.unpack_from("<BHI", data, 5)
            body = read_exactly(connection, length)
            assert kind == HELLO
        else:
            body = read_message(connection, HELLO)
        connection.sendall(answer if isinstance(answer, bytes) else answer())
        if self.transport != "shm":
            return SocketPeer(connection)
        peer = MemoryPeer(connection, fds[0], json.loads(body)["ring"], is_server=True)
        for fd in fds:
            os.close(fd)
        return peer

    def close(self) -> None:
        # Wakes whoever waits in accept(), which closing alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
