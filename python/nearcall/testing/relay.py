"""The thread of a proxy: passes bytes from one socket to another, and asks the plan about each message."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import Unavailable
from .faults import Fault, Plan
from .frames import Calls, Frame, Message, Side, Splitter
from .sockets import Place, Upstream

__all__ = ["Relay"]

_CHUNK = 256 * 1024
_MOST_WAITING = 4 * 1024 * 1024
"""Bytes that may wait for one side; beyond that the relay stops reading from the other side, as if a socket were
full.
"""
_MOST_DESCRIPTORS = 16


@dataclass
class _Item:
    """Bytes on their way."""

    data: memoryview
    descriptors: list[int] = field(default_factory=list[int])
    held_by: Fault | None = None
    seconds: float = 0.0
    """Seconds that it stays at the head of the queue."""
    due: float | None = None
    last: bool = False
    """The connection is cut after it."""


class _Pipe:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket, to: Side, upstream: Upstream) -> None:
        self.source = source
        self.target = target
        self.to: Side = to
        self.splitter = Splitter(handshake=upstream.handshake, frames=upstream.frames)
        self.descriptors: list[int] = []
        self.ended = False
        self._queue: deque[_Item] = deque()
        self._waiting = 0

    @property
    def hungry(self) -> bool:
        return not self.ended and self._waiting < _MOST_WAITING

    @property
    def drained(self) -> bool:
        return self.ended and not self._queue

    def put(self, item: _Item) -> None:
        item.descriptors, self.descriptors = self.descriptors, []
        self._queue.append(item)
        self._waiting += len(item.data)

    def read(self) -> bytes | None:
        """The bytes that have arrived; ``None`` if none have, and no bytes at the end of the stream."""
        try:
            if self.source.family != socket.AF_UNIX:
                return self.source.recv(_CHUNK)
            data, descriptors, _, _ = socket.recv_fds(self.source, _CHUNK, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            self.descriptors += descriptors
            return data
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def write(self) -> bool:
        """Sends what may be sent and fits. Returns whether the connection is to be cut."""
        while self._queue and self._ripe(self._queue[0]):
            item = self._queue[0]
            if item.data:
                try:
                    sent = self._send(item)
                except (BlockingIOError, InterruptedError):
                    return False
                except OSError:
                    # The target reads no more. Bytes in the other direction may still be of use; the end of that
                    # direction ends both.
                    self.discard()
                    self.ended = True
                    return False
                self._waiting -= sent
                item.data = item.data[sent:]
                if item.data:
                    return False
            self._queue.popleft()
            if item.last:
                return True
        return False

    def _send(self, item: _Item) -> int:
        if not item.descriptors:
            return self.target.send(item.data)
        sent = socket.send_fds(self.target, [item.data], item.descriptors)
        _close_all(item.descriptors)
        return sent

    def _ripe(self, item: _Item) -> bool:
        if item.held_by is not None and item.held_by.holding:
            return False
        if item.seconds and item.due is None:
            item.due = time.monotonic() + item.seconds
        return item.due is None or item.due <= time.monotonic()

    @property
    def wants_room(self) -> bool:
        return bool(self._queue) and self._ripe(self._queue[0])

    @property
    def due(self) -> float | None:
        """When the head of the queue may be sent, if it is delayed."""
        return self._queue[0].due if self._queue else None

    def discard(self) -> None:
        """Drops everything in the queue."""
        for item in self._queue:
            _close_all(item.descriptors)
        _close_all(self.descriptors)
        self._queue.clear()
        self._waiting = 0


class _Connection:
    """A client's connection, and the proxy's connection to the server."""

    def __init__(self, number: int, client: socket.socket, server: socket.socket, upstream: Upstream) -> None:
        self.number = number
        self.calls = Calls()
        self.pipes = (_Pipe(client, server, "server", upstream), _Pipe(server, client, "client", upstream))
        for end in (client, server):
            end.setblocking(False)
            if end.family != socket.AF_UNIX:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def interests(self) -> Iterator[tuple[socket.socket, int]]:
        """The events to wait for at each end."""
        outward, inward = self.pipes
        for end, reads, writes in ((outward.source, outward, inward), (outward.target, inward, outward)):
            wanted = selectors.EVENT_READ if reads.hungry else 0
            yield end, wanted | (selectors.EVENT_WRITE if writes.wants_room else 0)

    @property
    def due(self) -> float | None:
        return min((pipe.due for pipe in self.pipes if pipe.due is not None), default=None)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.discard()
        for end in (self.pipes[0].source, self.pipes[0].target):
            # Both sides notice at once, even if a forked process still has the descriptors.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Relay:
    """Accepts clients, connects each to the server, and relays until closed."""

    def __init__(self, place: Place, upstream: Upstream) -> None:
        self._place = place
        self._upstream = upstream
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._numbers = 0
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._orders: deque[Callable[[], None]] = deque()
        self._running = True
        self.plan = Plan(self._wake)
        self._selector.register(place.socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="nearcall-faulty-proxy", daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Ends all present connections; returns how many there were."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("cut() would wait for itself in a function given as where= or change=: use truncate()")
        cut: list[int] = []
        done = threading.Event()

        def order() -> None:
            cut.extend(self._connections)
            for number in cut:
                self._end(number, cut=True)
            done.set()

        self._orders.append(order)
        self._wake()
        while self._thread.is_alive() and not done.wait(0.1):
            pass
        return len(cut)

    def close(self) -> None:
        """Ends everything. Harmless when repeated."""
        self._running = False
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is awake; closed: there is nothing left to do
            self._waker.send(b"!")

    def _run(self) -> None:
        try:
            while self._running:
                for key, _ in self._selector.select(self._patience()):
                    if key.fileobj is self._place.socket:
                        self._accept()
                    elif key.fileobj is self._woken:
                        with contextlib.suppress(BlockingIOError):
                            self._woken.recv(4096)
                while self._orders:
                    self._orders.popleft()()
                for number in list(self._connections):
                    self._step(number)
        finally:
            for number in list(self._connections):
                self._end(number)
            self._selector.close()
            self._waker.close()
            self._woken.close()
            self._place.close()

    def _patience(self) -> float | None:
        due = min((c.due for c in self._connections.values() if c.due is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _accept(self) -> None:
        try:
            client, _ = self._place.socket.accept()
        except OSError:
            return
        self.plan.note("connections")
        try:
            server = self._upstream.connect()
        except Unavailable:
            # Without a server, the client is not to be connected either.
            client.close()
            return
        self._numbers += 1
        self._connections[self._numbers] = _Connection(self._numbers, client, server, self._upstream)

    def _step(self, number: int) -> None:
        """Passes on what can be passed on now, and waits for the rest."""
        connection = self._connections[number]
        try:
            for pipe in connection.pipes:
                self._read(connection, pipe)
                if pipe.write():
                    self._end(number, cut=True)
                    return
                if pipe.drained:
                    self._end(number)
                    return
        except BaseException as error:  # a user's predicate or damage
            self.plan.fail(error)
            self._end(number, cut=True)
            return
        for end, events in connection.interests():
            self._expect(end, events)

    def _read(self, connection: _Connection, pipe: _Pipe) -> None:
        if not pipe.hungry or (data := pipe.read()) is None:
            return
        for message in pipe.splitter.feed(data):
            self._decide(connection, pipe, message)
        if not data:
            # If the stream ended in the middle of a message, it does so for the other side, too.
            rest = pipe.splitter.rest()
            if rest:
                pipe.put(_Item(memoryview(rest)))
            pipe.ended = True

    def _decide(self, connection: _Connection, pipe: _Pipe, message: Message) -> None:
        item = _Item(memoryview(message.wire))
        if message.kind is not None:
            method = connection.calls.method_of(message, pipe.to)
            frame = Frame(message.kind, pipe.to, method, message.call, connection.number, message.wire)
            fault = self.plan.strike(frame)
            if fault is not None:
                _apply(fault, frame, item)
                if not item.data and not item.last:
                    _close_all(pipe.descriptors)
                    return
        pipe.put(item)

    def _expect(self, end: socket.socket, events: int) -> None:
        known = self._selector.get_map().get(end.fileno())
        if known is None:
            if events:
                self._selector.register(end, events)
        elif not events:
            self._selector.unregister(end)
        elif known.events != events:
            self._selector.modify(end, events)

    def _end(self, number: int, *, cut: bool = False) -> None:
        connection = self._connections.pop(number)
        for end, _ in connection.interests():
            self._expect(end, 0)
        if cut:
            # Counted before anybody can notice the cut.
            self.plan.note("cut")
        connection.close()


def _apply(fault: Fault, frame: Frame, item: _Item) -> None:
    if fault.effect == "drop":
        item.data = memoryview(b"")
    elif fault.effect == "delay":
        item.seconds = fault.seconds
    elif fault.effect == "hold":
        item.held_by = fault
    elif fault.effect == "corrupt":
        assert fault.damage is not None
        item.data = memoryview(bytes(fault.damage(frame)))
    elif fault.effect == "truncate":
        length = len(frame.wire)
        keep = length // 2 if fault.keep is None else fault.keep
        item.data = item.data[: keep if keep >= 0 else max(0, length + keep)]
        item.last = True


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    descriptors.clear()
