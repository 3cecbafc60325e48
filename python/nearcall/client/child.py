"""``nearcall.spawn``: a service in a process that this one starts, and that ends with it."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar, overload

from ..errors import DeadlineExceeded, InvalidArgument, RpcError, Unavailable
from ..options.checked import check_seconds
from .channel import Channel, check_service
from .client import Client

__all__ = ["Child", "spawn"]

T = TypeVar("T")

if TYPE_CHECKING:
    Output = int | IO[Any] | None
    """Where a child's output goes, as :class:`subprocess.Popen` takes it."""


class Child(Client[T]):
    """A client of a process that :func:`spawn` started. Closing it ends the process."""

    process: subprocess.Popen[bytes]
    """The process: its ``pid``, its ``returncode``."""

    def __init__(self, channel: Channel, cls: type | None, process: subprocess.Popen[bytes], grace: float) -> None:
        super().__init__(channel, cls, owns_channel=True)
        self.process = process
        self._grace = grace

    def close(self) -> None:
        """Ends the connection, and by that the process. Harmless when repeated.

        One that has not ended by itself within ``grace`` seconds is sent ``SIGTERM``, and killed after as long again.
        """
        super().close()
        end(self.process, self._grace)


@overload
def spawn(
    command: Sequence[str | os.PathLike[str]],
    service: Callable[..., T],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Output = None,
    stderr: Output = None,
    pipes: bool = False,
    grace: float = 5.0,
    handshake_timeout: float = 30.0,
    **options: Any,
) -> Child[T]: ...
@overload
def spawn(
    command: Sequence[str | os.PathLike[str]],
    service: None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Output = None,
    stderr: Output = None,
    pipes: bool = False,
    grace: float = 5.0,
    handshake_timeout: float = 30.0,
    **options: Any,
) -> Child[Any]: ...
def spawn(  # noqa: PLR0913 - options have names
    command: Sequence[str | os.PathLike[str]],
    service: Callable[..., Any] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Output = None,
    stderr: Output = None,
    pipes: bool = False,
    grace: float = 5.0,
    handshake_timeout: float = 30.0,
    **options: Any,
) -> Child[Any]:
    """Starts a process that serves at ``stdio:``, and connects to it.

    The child's standard input is one end of a socket pair; no other process can connect there, and nothing has to be
    named or cleaned up. What it prints goes where this process prints, and never touches the protocol. Long messages go
    through shared memory. When this process ends, however it ends, the connection does, and ``nearcall.serve`` returns
    in the child.

    Args:
        command: The program and its arguments, as for :class:`subprocess.Popen`; there is no shell.
        service: The service's class or interface; without one the client is dynamic.
        cwd: Where the child runs.
        env: Its environment; ``None`` for this process's own.
        stdout: Where its standard output goes, as for :class:`subprocess.Popen`.
        stderr: Its standard error, likewise.
        pipes: The program passes its standard input and output on to the one that serves, as ``ssh`` and
            ``docker exec -i`` do: both carry the protocol. ``stdout`` cannot be given then.
        grace: Seconds that the child has to end by itself when the client is closed.
        handshake_timeout: Seconds until it must serve.
        options: As for :func:`connect`.

    A child that has ended is not started again: calls are :class:`~nearcall.Unavailable` from then on.

    Raises:
        OSError: there is no such program, or it cannot be started.
        Unavailable: it ended before it served; says how.
        DeadlineExceeded: it did not serve at ``stdio:`` in time.
        FailedPrecondition, InvalidArgument: as for :func:`connect`.
    """
    grace, cls = check_seconds("grace", grace), check_service(service)
    process, url = start(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, pipes=pipes)
    try:
        channel = Channel(url, handshake_timeout=handshake_timeout, **options)
        try:
            return Child(channel, cls, process, grace)
        except BaseException:
            channel.close()
            raise
    except BaseException as error:
        failure = give_up(command, process, url, error)
        if failure is None:
            raise
        raise failure from error


def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdout: Output,
    stderr: Output,
    pipes: bool,
) -> tuple[subprocess.Popen[bytes], str]:
    """The process, and where it serves; the URL's descriptor belongs to whoever connects.

    Raises:
        OSError: it cannot be started.
        TypeError, ValueError: the arguments do not fit.
    """
    if isinstance(command, (str, bytes, os.PathLike)):
        raise TypeError(f"spawn takes a list: write [{command!r}], with each argument by itself")
    if pipes and stdout is not None:
        raise ValueError("with pipes=True the child's standard output carries the protocol; leave out stdout")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        end = theirs.fileno()
        output = end if pipes else stdout
        process = subprocess.Popen(list(command), stdin=end, stdout=output, stderr=stderr, cwd=cwd, env=env)
        return process, f"fd://{ours.detach()}"


def give_up(
    command: Sequence[str | os.PathLike[str]], process: subprocess.Popen[bytes], url: str, error: BaseException
) -> RpcError | None:
    """Ends a process that nobody could connect to. What to raise in place of that error, where more is known."""
    if isinstance(error, (InvalidArgument, TypeError, ValueError)):
        # Refused before anybody took the descriptor.
        with contextlib.suppress(OSError):
            os.close(int(url.removeprefix("fd://")))
    status = None
    if isinstance(error, Unavailable):
        # It is ending, and how is what the user wants to know.
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(1.0)
    if status is None:
        process.kill()
        process.wait()
    name = shlex.join(os.fspath(part) for part in command)
    if status is not None:
        how = f"with status {status}" if status >= 0 else f"by signal {-status}"
        return Unavailable(f"{name} ended {how} before it served; what it printed says why")
    if isinstance(error, DeadlineExceeded):
        return DeadlineExceeded(f"{name} did not serve in time; does it call nearcall.serve(..., 'stdio:')?")
    return None


def end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Waits until a process has ended that nobody talks to any more, and sees to it that it does."""
    for insist in (process.terminate, process.kill):
        try:
            process.wait(grace)
            return
        except subprocess.TimeoutExpired:
            insist()
    process.wait()
