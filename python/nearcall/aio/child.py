"""``nearcall.aio.spawn``: a service in a process that this one starts, called from an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..client.channel import check_service
from ..client.child import ChildProcess, start
from ..options.checked import check_seconds
from .channel import Channel
from .client import AsyncClient

if TYPE_CHECKING:
    from ..client.child import Output

__all__ = ["AsyncChild", "spawn"]


class AsyncChild(AsyncClient):
    """A client, for coroutines, of a process that :func:`spawn` started. Closing it ends the process.

    The connection is made by ``async with`` or ``await``.
    """

    _for_threads = "with nearcall.spawn(...)"
    _for_loops = "async with nearcall.aio.spawn(...)"

    process: subprocess.Popen[bytes]
    """The process: its ``pid``, its ``returncode``."""

    def __init__(self, channel: Channel, cls: type | None, child: ChildProcess, grace: float) -> None:
        super().__init__(channel, cls, owns_channel=True)
        self.process = child.process
        self._child = child
        self._grace = grace
        self._ending: threading.Thread | None = None

    async def _open(self) -> AsyncChild:
        try:
            await super()._open()
        except BaseException as error:
            if self._closed:
                raise  # whoever has closed it ends the process
            self._channel.close()
            # In a thread, and to its end if the task is cancelled.
            failure = await asyncio.shield(asyncio.to_thread(self._child.give_up, error))
            if failure is None:
                raise
            raise failure from error
        finally:
            self._child.ours.close()
        return self

    def __await__(self) -> Generator[Any, None, AsyncChild]:
        return self._open().__await__()

    def close(self) -> None:
        """Ends the connection, and by that the process, for which it does not wait: see :meth:`wait_closed`. Harmless
        when repeated.
        """
        super().close()
        self._child.ours.close()
        if self._ending is None:
            self._ending = threading.Thread(target=self._child.end, args=(self._grace,), name="nearcall-child")
            self._ending.start()

    async def wait_closed(self) -> None:
        """Waits, after :meth:`close`, until the process has ended.

        One that has not ended by itself within ``grace`` seconds is sent ``SIGTERM``, and killed after as long again.
        """
        if self._ending is not None:
            await asyncio.to_thread(self._ending.join)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()


class _ChildChannel(Channel):
    """A channel to a process that was spawned: there is no server after it."""

    def __init__(self, child: ChildProcess, **options: Any) -> None:
        self._explain = lambda _: child.explain()
        super().__init__(child.url, **options)


def spawn(  # noqa: PLR0913 - options have names
    command: Sequence[str | os.PathLike[str]],
    service: type | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Output = None,
    stderr: Output = None,
    pipes: bool = False,
    grace: float = 5.0,
    handshake_timeout: float = 30.0,
    **options: Any,
) -> AsyncChild:
    """Starts a process that serves at ``stdio:``, for an event loop. Arguments and errors are those of
    :func:`nearcall.spawn`::

        async with nearcall.aio.spawn([sys.executable, "counting.py"], Counting) as counting:
            await counting.see("one")

    The process is started at once, and the connection made by ``async with`` or ``await``. Leaving the block ends the
    process and waits for its end, without holding up the loop.
    """
    grace, cls = check_seconds("grace", grace), check_service(service)
    child = start(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, pipes=pipes)
    try:
        channel = _ChildChannel(child, handshake_timeout=handshake_timeout, **options)
        return AsyncChild(channel, cls, child, grace)
    except BaseException as error:
        child.ours.close()
        child.give_up(error)
        raise
