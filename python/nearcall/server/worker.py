"""One worker process of ``nearcall.serve(..., workers=N)``: as its parent sees it, and from inside."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core
from .board import ParentsBoard, Question, WorkersBoard, new_board
from .colleagues import Colleagues, meet, part
from .kept import Kept
from .server import Server
from .signals import Terminated, raise_when_told

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, ForkProcess

__all__ = ["SLACK", "Task", "Worker", "start_worker"]

SETTLED = 5.0
"""Seconds of serving after which a worker counts as settled: it works."""
SLACK = 2.0
"""Seconds beyond ``grace`` that a worker has to end."""
READY = b"ready\n"


@dataclass
class Task:
    """The task of every worker."""

    makers: list[Callable[[], object]]
    urls: list[str]
    listeners: _core.Listeners
    options: dict[str, Any]
    late_options: Callable[[], dict[str, Any]]
    """Makes the options that belong to the process that serves."""
    grace: float
    count: int
    """How many workers there are."""
    kept: Kept
    """What they keep together."""


@dataclass
class Worker:
    """A worker, as its parent sees it."""

    number: int
    process: ForkProcess
    pidfd: int
    lifeline: socket.socket
    channels: list[socket.socket]
    returned: int
    board: ParentsBoard
    grace: float
    ready_since: float | None = None
    leaving: bool = False
    clients: int = 0
    turn: int = 0
    heard: bytes = b""

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.ready_since is not None

    @property
    def takes_clients(self) -> bool:
        """Whether it serves, and is not about to end with only its calls to finish."""
        return self.ready and not self.leaving

    def load(self) -> tuple[int, int]:
        """How many clients it has, and the turn in which it got its last. The worker with the least load gets the next
        client.
        """
        with contextlib.suppress(BlockingIOError):
            self.clients -= os.eventfd_read(self.returned)
        return self.clients, self.turn

    def settled(self) -> bool:
        """Whether it has served for long enough to be trusted."""
        return self.ready_since is not None and time.monotonic() - self.ready_since >= SETTLED

    def has_taken_all(self) -> bool:
        """Whether it has taken all clients that were handed to it."""
        return self.process.exitcode is not None or not any(map(_unread, self.channels))

    def let_go(self) -> None:
        """Closes the parent's ends: the worker finishes its calls and ends."""
        self.lifeline.close()
        self.board.close()
        for channel in self.channels:
            channel.close()

    def forget(self) -> None:
        """Closes everything the parent has of it."""
        self.let_go()
        os.close(self.pidfd)
        os.close(self.returned)

    def listen(self) -> None:
        """Reads from the lifeline whether the worker serves, or why it cannot."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while more := self.lifeline.recv(65536):
                self.heard += more
        if self.heard == READY and self.ready_since is None:
            self.ready_since = time.monotonic()

    def failure(self) -> tuple[str, str] | None:
        """Why the worker cannot serve, as it said itself: a line and a traceback. ``None`` if it has said nothing of
        the kind.
        """
        if not self.heard or self.heard == READY:
            return None
        try:
            line, trace = json.loads(self.heard)
        except ValueError:  # it died in the middle of the message
            return None
        return str(line), str(trace)

    def how_it_ended(self) -> str:
        """Its exit status or signal, for a sentence."""
        exitcode = self.process.exitcode
        who = f"worker {self.number} (process {self.process.pid})"
        if exitcode is None or exitcode >= 0:
            return f"{who} ended with status {exitcode}"
        try:
            return f"{who} ended by {signal.Signals(-exitcode).name}"
        except ValueError:
            return f"{who} ended by signal {-exitcode}"


def start_worker(
    context: ForkContext, number: int, task: Task, inherited: Callable[[], Iterable[Callable[[], object]]]
) -> Worker:
    """Forks a worker. The functions that ``inherited`` returns close the parent's descriptors that the worker must not
    keep.
    """
    lifeline, its_lifeline = socket.socketpair()
    pairs = [socket.socketpair() for _ in task.urls]
    returned = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    board, its_board = new_board()
    ours = [lifeline, *(own for own, _ in pairs)]
    for own in ours:
        own.setblocking(False)
    inside = _Inside(number, task, its_lifeline, its_board, [theirs for _, theirs in pairs], returned)
    process = context.Process(
        target=lambda: inside.run([board.close, *(own.close for own in ours), *inherited()]),
        name=f"nearcall-worker-{number}",
    )
    process.start()
    for end in inside.ends():
        end.close()
    assert process.pid is not None
    return Worker(number, process, os.pidfd_open(process.pid), lifeline, ours[1:], returned, board, task.grace)


@dataclass
class _Inside:
    """A worker, as it sees itself."""

    number: int
    task: Task
    lifeline: socket.socket
    board: WorkersBoard
    channels: list[socket.socket]
    returned: int

    def ends(self) -> list[socket.socket | WorkersBoard]:
        """Its ends of the sockets that connect it with its parent."""
        return [self.lifeline, self.board, *self.channels]

    def run(self, inherited: Iterable[Callable[[], object]]) -> NoReturn:
        """Runs the worker process, from its first moment to its last."""
        server, awake, failed = None, None, False
        try:
            raise_when_told()
            # The terminal tells parent and workers alike of Ctrl-C, and that it hangs up; the parent decides what
            # happens then.
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, frame: None)
            awake = _woken_by_signals()
            try:
                for close in inherited:
                    close()
                os.environ["NEARCALL_WORKER"] = str(self.number)
                importlib.invalidate_caches()  # the code may be newer than what the parent has seen
                # If the parent dies, nobody is left to kill this process should a handler keep it from ending.
                _core.end_with(os.dup(self.lifeline.fileno()), self.task.grace + 2 * SLACK)
                self.task.listeners.use_channels([channel.detach() for channel in self.channels], self.returned)
                server = self._make()
                colleagues = Colleagues(self.number, self.task.count, self.board, self.task.kept)
                listeners, urls = self.task.listeners, self.task.urls
                states = server.serve_as_worker(listeners, urls, self.board.tell, _end_this, colleagues)
                # If the parent is gone, the message does not matter: `end_with` ends this process.
                with contextlib.suppress(OSError):
                    self.lifeline.sendall(READY)
                meet(colleagues)
                self._listen(awake, states, colleagues)
            except Exception as error:
                failed = True
                self._fail(error)
            # A further SIGTERM must not interrupt the end.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        except Terminated:
            pass
        if server is not None:
            failed |= not server.stop(self.task.grace) or server.failure is not None
        part()
        if awake is not None:
            _sleep_on(awake)
        for end in self.ends():
            end.close()
        sys.exit(1 if failed else 0)

    def _make(self) -> Server:
        task = self.task
        made = [make() for make in task.makers]
        if kind := next((type(one).__name__ for one in made if type(one) in (list, tuple)), None):
            raise TypeError(f"a function that is served returns one object, not a {kind}: give one for each")
        return Server(*made, *task.urls, **task.options, **task.late_options())

    def _listen(self, awake: socket.socket, states: _core.Health, colleagues: Colleagues) -> None:
        """Hears what other workers say of the server's health, and ask, until a signal interrupts it."""
        poll = select.poll()
        poll.register(awake, select.POLLIN)
        poll.register(self.board.end, select.POLLIN)
        while True:
            for fileno, _ in poll.poll():
                if fileno == awake.fileno():
                    awake.recv(4096)
                    continue
                for message in self.board.heard():
                    if isinstance(message, Question):
                        colleagues.hear(message)
                    else:
                        states.set(message.service, message.serving)
                if not self.board.open:  # the parent is gone, or ends this process
                    poll.unregister(self.board.end)

    def _fail(self, error: Exception) -> None:
        """Tells the parent why this worker cannot serve."""
        said = str(error) or type(error).__name__
        if not type(error).__module__.startswith("nearcall"):
            said = f"{type(error).__name__}: {error}"
        told = json.dumps([said, "".join(traceback.format_exception(error))])
        with contextlib.suppress(OSError):
            self.lifeline.sendall(told.encode())


def _unread(channel: socket.socket) -> int:
    """Bytes that the other end has not read; 0 if it is closed."""
    try:
        (unread,) = struct.unpack("i", fcntl.ioctl(channel, termios.TIOCOUTQ, bytes(4)))
    except (OSError, ValueError):
        return 0
    return int(unread)


def _end_this() -> None:
    """Ends this worker; the parent starts another one."""
    os.kill(os.getpid(), signal.SIGTERM)


def _woken_by_signals() -> socket.socket:
    """A socket that can be read after a signal, whichever thread it interrupts.

    If two signals come at the same time, the system may give one of them to another thread. A main thread that does not
    wait for this socket would then sleep on, and the signal's handler, which only it can run, would not run.
    """
    awake, told = socket.socketpair()
    told.setblocking(False)
    signal.set_wakeup_fd(told.detach(), warn_on_full_buffer=False)
    return awake


def _sleep_on(awake: socket.socket) -> None:
    """Closes what :func:`_woken_by_signals` has made."""
    if (told := signal.set_wakeup_fd(-1)) >= 0:
        os.close(told)
    awake.close()
