"""``nearcall.spawn``: a service in a process that this one starts, and that ends with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast, overload

from .. import _core
from ..errors import DeadlineExceeded, RpcError, Unavailable
from ..options.checked import check_seconds
from ..service.for_loops import Interface
from .channel import Channel, ChannelBase, check_service
from .client import Client, ClientBase, OnlyAny, OnlyForEventLoops
from .connected import ForLoops
from .options import ChannelOptions

__all__ = ["Child", "ChildBase", "ChildProcess", "SpawnOptions", "numbered", "spawn"]

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    Output = int | IO[Any] | None
    """Where a child's output goes, as :class:`subprocess.Popen` takes it."""

_LAST_WORDS = 0.2
"""Seconds to wait for the end of a child that has hung up, so that a message can say how it ended."""


_LONGEST = 80
"""Characters of a command in a message."""


class SpawnOptions(ChannelOptions, total=False):
    """The options of :func:`spawn` by name, for type checkers; see there for what each means."""

    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    stdout: Output
    stderr: Output
    pipes: bool
    grace: float


class ChildBase(ClientBase):
    """The base of clients of spawned processes, for threads and for event loops."""

    _for_threads = "with nearcall.spawn(...)"
    _for_loops = "async with nearcall.aio.spawn(...)"

    def __init__(self, channel: ChannelBase, cls: type | None, child: ChildProcess, grace: float) -> None:
        super().__init__(channel, cls, owns_channel=True)
        self._child = child
        self._grace = grace

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process: its ``pid``, its ``returncode``."""
        return self._child.process

    @classmethod
    def _spawn(  # noqa: PLR0913 - options have names
        cls,
        make_channel: Callable[..., ChannelBase],
        command: Sequence[str | os.PathLike[str]],
        service: Callable[..., Any] | None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdout: Output = None,
        stderr: Output = None,
        pipes: bool = False,
        grace: float = 5.0,
        handshake_timeout: float = 30.0,
        **options: Any,
    ) -> Self:
        """Starts a process and makes its client; ends the process again if there can be no client."""
        grace = check_seconds("grace", grace)
        checked = check_service(service, for_loop=issubclass(cls, ForLoops))
        child = _start(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, pipes=pipes)
        try:
            channel = make_channel(child, handshake_timeout=handshake_timeout, **options)
            try:
                return cls(channel, checked, child, grace)
            except BaseException:
                channel.close()
                raise
        except BaseException as error:
            failure = child.give_up(error)
            if failure is None:
                raise
            raise failure from error


class Child(ChildBase, Client[T]):
    """A client of a process that :func:`spawn` started. Closing it ends the process."""

    def __init__(self, channel: Channel, cls: type | None, child: ChildProcess, grace: float) -> None:
        super().__init__(channel, cls, child, grace)
        child.ours.close()  # the connection has a copy

    def close(self) -> None:
        """Ends the connection, and by that the process. Harmless when repeated.

        A process that has not ended by itself within ``grace`` seconds is sent ``SIGTERM``, and killed after ``grace``
        more seconds.
        """
        super().close()
        self._child.end(self._grace)


@overload
def spawn(
    command: Sequence[str | os.PathLike[str]], service: Callable[..., OnlyAny], **options: Unpack[SpawnOptions]
) -> Child[Any]: ...
@overload
def spawn(  # type: ignore[overload-overlap]
    command: Sequence[str | os.PathLike[str]], service: Callable[..., Interface], **options: Unpack[SpawnOptions]
) -> OnlyForEventLoops: ...
@overload
def spawn(
    command: Sequence[str | os.PathLike[str]], service: Callable[..., T], **options: Unpack[SpawnOptions]
) -> Child[T]: ...
@overload
def spawn(
    command: Sequence[str | os.PathLike[str]], service: None = None, **options: Unpack[SpawnOptions]
) -> Child[Any]: ...
def spawn(
    command: Sequence[str | os.PathLike[str]],
    service: Callable[..., Any] | None = None,
    **options: Unpack[SpawnOptions],
) -> Child[Any] | OnlyForEventLoops:
    """Starts a process that serves at ``stdio:``, and connects to it.

    The child's standard input is one end of a socket pair; no other process can connect there, and nothing has to be
    named or cleaned up. What it prints goes where this process prints, and never touches the protocol. Long messages go
    through shared memory. When this process ends, however it ends, the connection does, and ``nearcall.serve`` returns
    in the child.

    Args:
        command: The program and its arguments, as for :class:`subprocess.Popen`; there is no shell.
        service: The service's class or interface; without one the client is dynamic.
        options: The options below, and those of :func:`connect`.
        cwd: Where the child runs.
        env: Its environment; ``None`` for this process's own.
        stdout: Where its standard output goes, as for :class:`subprocess.Popen`.
        stderr: Its standard error, likewise.
        pipes: The program passes its standard input and output on to the one that serves, as ``ssh`` and
            ``docker exec -i`` do: both carry the protocol. ``stdout`` cannot be given then.
        grace: Seconds that the child has to end by itself when the client is closed; 5.
        handshake_timeout: Seconds until it must serve; 30. A surrounding :class:`~nearcall.timeout` may end that
            sooner.

    A child that has ended is not started again: calls are :class:`~nearcall.Unavailable` from then on, and say how it
    ended.

    Raises:
        OSError: there is no such program, or it cannot be started.
        Unavailable: the process ended before it served; the message says how.
        DeadlineExceeded: the process did not serve at ``stdio:`` in time.
        FailedPrecondition, InvalidArgument: as for :func:`connect`.
        TypeError, ValueError: the command is no list of texts, or an argument does not fit.
    """
    _core.refuse_in_handler_loop("nearcall.spawn")
    return cast("type[Child[Any]]", Child)._spawn(_ChildChannel, command, service, **options)


class _ChildChannel(Channel):
    """A channel to a spawned process, which no other server can replace."""

    def __init__(self, child: ChildProcess, **options: Unpack[ChannelOptions]) -> None:
        self._explain = lambda _, closed: None if closed else child.explain(_LAST_WORDS)
        self._shown = child.shown
        super().__init__(child.url, **options)


class ChildProcess:
    """A process that was started to serve, and how it ends: for clients in threads and in event loops alike.

    Args:
        command: The program and its arguments.
        process: The process.
        ours: This process's end of the connection. A connected client has a copy, so this one can be closed then.
    """

    def __init__(
        self, command: Sequence[str | os.PathLike[str]], process: subprocess.Popen[bytes], ours: socket.socket
    ) -> None:
        self.process = process
        self.ours = ours
        self.url = f"fd://{ours.fileno()}"
        name = " ".join(shlex.join(os.fspath(part) for part in command).split())
        self._name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        self.shown = f"{self._name} (process {process.pid})"
        """For errors: users know nothing of the descriptor."""
        self._owner, self._begun = os.getpid(), time.monotonic()

    def explain(self, patience: float = 0.0) -> str:
        """Why the process cannot be called.

        Args:
            patience: Seconds to wait for the end of a process that hung up.
        """
        if os.getpid() != self._owner:
            return f"{self._name} belongs to process {self._owner}, which spawned it: a fork of that cannot call it"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        if self.process.returncode is None:
            return f"{self.shown} has hung up, and runs on: spawn another one"
        return f"{self._name} ended {_how(self.process.returncode)}: spawn another one"

    def give_up(self, error: BaseException) -> RpcError | None:
        """Ends a process after connecting to it has failed. Returns what to raise in place of ``error``, if more is
        known.
        """
        status = None
        if isinstance(error, Unavailable):
            # The process is ending. Users want to know how it ended.
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(1.0)
        if status is None:
            self.process.kill()
            self.process.wait()
        self.ours.close()
        if status is not None:
            return Unavailable(f"{self._name} ended {_how(status)} before it served; what it printed says why")
        if isinstance(error, DeadlineExceeded):
            return DeadlineExceeded(
                f"{self._name} did not serve within {time.monotonic() - self._begun:.1f} s; does it call "
                "nearcall.serve(..., 'stdio:')? The option handshake_timeout and a surrounding nearcall.timeout say "
                "how long that may take"
            )
        return None

    def end(self, grace: float) -> None:
        """Waits for the end of a process whose connection is closed; terminates it if that takes too long, then kills
        it.
        """
        for insist in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(grace)
                return
            except subprocess.TimeoutExpired:
                insist()
        self.process.wait()


def _how(status: int) -> str:
    return f"with status {status}" if status >= 0 else f"by signal {-status}"


def _start(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdout: Output,
    stderr: Output,
    pipes: bool,
) -> ChildProcess:
    """Starts a process that is to serve.

    Raises:
        OSError: it cannot be started.
        TypeError, ValueError: the arguments do not fit.
    """
    parts = _check_command(command)
    for name, output in (("stdout", stdout), ("stderr", stderr)):
        if output is not None and not isinstance(output, int) and not hasattr(output, "fileno"):
            raise TypeError(f"{name} must be an open file or a number as for subprocess.Popen, not {output!r}")
    if pipes and stdout is not None:
        raise ValueError("with pipes=True the child's standard output carries the protocol; leave out stdout")
    ours, theirs = socket.socketpair()
    ours, theirs = numbered(ours), numbered(theirs)
    with theirs:
        try:
            end = theirs.fileno()
            output = end if pipes else stdout
            process = subprocess.Popen(parts, stdin=end, stdout=output, stderr=stderr, cwd=cwd, env=env)
        except BaseException:
            ours.close()
            raise
    return ChildProcess(parts, process, ours)


def _check_command(command: object) -> list[str | os.PathLike[str]]:
    """The program and its arguments.

    Raises:
        TypeError, ValueError: these are no such list; the message says what to write.
    """
    if isinstance(command, (str, bytes, os.PathLike)):
        written: list[object] = [*shlex.split(command)] if isinstance(command, str) else [cast("object", command)]
        raise TypeError(f"spawn takes a list, with each argument by itself: write {written!r}")
    parts = list(cast("Sequence[object]", command))
    if not parts:
        raise ValueError("spawn takes a list of the program and its arguments; this one is empty")
    for part in parts:
        if not isinstance(part, (str, os.PathLike)):
            raise TypeError(f"the program and its arguments must be str or paths, not {part!r}")
    return cast("list[str | os.PathLike[str]]", parts)


def numbered(end: socket.socket) -> socket.socket:
    """The same socket with a descriptor above 2: where a process has closed 0 to 2, new sockets get these numbers,
    which programs take for the standard streams.
    """
    if end.fileno() > 2:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))
