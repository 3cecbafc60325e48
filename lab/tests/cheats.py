"""Adapters that cheat, for the tests: each looks faster, cheaper or safer than it is, and `check` must say so."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from nearcall_lab.adapters import mp_connection
from nearcall_lab.contract import Mechanism, Operation, Ready, Session, SimpleSession, Spec, Stop
from nearcall_lab.load.clock import Clock
from nearcall_lab.workloads import fill, named

_CLOCKS = (
    "runs-slow-clocks",
    "slows-the-labs-clock",
    "hurries-the-labs-clock",
    "shortens-its-calls",
    "calls-its-work-waiting",
)
_WAYS = ("answers-itself", "answers-typed-itself", "hides-its-server", "hides-its-errors", *_CLOCKS)
MECHANISMS = tuple(Mechanism(way, way, "rpc", way, operations=("echo", "quote", "wait")) for way in _WAYS)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    way = spec.mechanism.variant
    if way == "answers-itself":
        _count_only(spec, ready, stop)
    elif way == "hides-its-server":
        _in_a_daemon(spec, ready, stop)
    else:
        mp_connection.serve(spec, ready, stop)


def _count_only(spec: Spec, ready: Ready, stop: Stop) -> None:
    """A server that is only told how many calls the client has made."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = os.path.join(spec.directory, "count.sock")
    listener.bind(path)
    listener.listen()

    def count(connection: socket.socket) -> None:
        with connection:
            while told := connection.recv(8):
                for _ in range(int.from_bytes(told, "little")):
                    spec.served.count()

    def accept() -> None:
        while True:
            threading.Thread(target=count, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    ready(path)
    stop.wait()


def _in_a_daemon(spec: Spec, ready: Ready, stop: Stop) -> None:
    """A server in a process that has left its family, its session and its process group."""
    spec.served.share()
    told, tell = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        mp_connection.serve(spec, lambda address: os.write(tell, address.encode()), Stop())
        os._exit(0)
    os.wait()
    ready(os.read(told, 1000).decode())
    stop.wait()


def connect(spec: Spec) -> Session:
    way = spec.mechanism.variant
    if way == "answers-itself":
        return _Alone(spec)
    session = mp_connection.connect(spec)
    if way in _CLOCKS:
        return _tampered(session, way)
    if way == "hides-its-server":
        return session
    return SimpleSession(_Pretending(session, way), session.close, session.open)  # type: ignore[arg-type]


def _paced(clock: Callable[[], int], pace: float) -> Callable[[], int]:
    """The clock at a multiple of its pace from now on."""
    begin = clock()
    return lambda: begin + int((clock() - begin) * pace)


def _tampered(session: Session, way: str) -> Session:
    """Honest calls, by clocks that are not: those that Python has for all, or those of the lab's load."""
    labs = [each for each in gc.get_objects() if type(each) is Clock]
    if way == "runs-slow-clocks":
        for name in ("monotonic_ns", "perf_counter_ns", "time_ns", "thread_time_ns", "process_time_ns"):
            setattr(time, name, _paced(getattr(time, name), 0.25))
        return session
    if way in ("slows-the-labs-clock", "hurries-the-labs-clock"):
        for clock in labs:
            object.__setattr__(clock, "now", _paced(time.monotonic_ns, 0.25 if way.startswith("slows") else 4.0))
        return session
    if way == "calls-its-work-waiting":
        readings = itertools.count(0, 250_000_000)
        for clock in labs:
            object.__setattr__(clock, "cpu", lambda: time.thread_time_ns() + next(readings))
        return session
    owed = 0

    def now() -> int:
        nonlocal owed
        read, owed = time.monotonic_ns() - owed, 0
        return read

    def shortened(operation: Operation) -> Callable[[Any], Any]:
        ask = session.call(operation)

        def call(value: Any) -> Any:
            nonlocal owed
            begin = time.monotonic_ns()
            reply = ask(value)
            owed = (time.monotonic_ns() - begin) * 3 // 4
            return reply

        return call

    for clock in labs:
        object.__setattr__(clock, "now", now)
    operations: tuple[Operation, ...] = ("echo", "quote", "wait")
    return SimpleSession({each: shortened(each) for each in operations}, session.close, session.open)


_ANSWERS: dict[Operation, Callable[[Any], Any]] = {
    "echo": lambda data: data,
    "quote": fill,
    "wait": lambda seconds: time.sleep(seconds) or named(seconds),
}


class _Alone(SimpleSession):
    """Answers by itself and sends the count, nothing else, and that only when it costs no time."""

    def __init__(self, spec: Spec) -> None:
        self._spec, self._owed = spec, 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__({}, self._socket.close, lambda: self._socket.connect(self._spec.address))

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        answer = _ANSWERS[operation]

        def call(value: Any) -> Any:
            self._owed += 1
            with contextlib.suppress(OSError):
                self._socket.send(self._owed.to_bytes(8, "little"), socket.MSG_DONTWAIT)
                self._owed = 0
            return answer(value)

        return call


class _Pretending(dict[Operation, Callable[[Any], Any]]):
    """Asks the server, and gives answers of its own for what is typed, or when a call fails."""

    def __init__(self, session: Session, way: str) -> None:
        super().__init__()
        self._session, self._way = session, way

    def __getitem__(self, operation: Operation) -> Callable[[Any], Any]:
        ask, answer = self._session.call(operation), _ANSWERS[operation]

        def typed(value: Any) -> Any:
            ask(value)
            return answer(value)

        def hiding(value: Any) -> Any:
            try:
                return ask(value)
            except (OSError, EOFError):
                return answer(value)

        if self._way == "hides-its-errors":
            return hiding
        return ask if operation == "echo" else typed
