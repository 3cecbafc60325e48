"""``nearcall.aio.spawn``: a service in a process that this one starts, called from an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..client.child import ChildBase, ChildProcess
from ..service.for_loops import Interface
from .channel import Channel
from .client import AsyncClient, T
from .closing import Closing

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ..client.child import SpawnOptions
    from ..client.options import ChannelOptions

__all__ = ["AsyncChild", "spawn"]

S = TypeVar("S", bound=Interface)


class AsyncChild(ChildBase, AsyncClient[T]):
    """A client, for coroutines, of a process that :func:`spawn` started. Closing it ends the process.

    The connection is made by ``async with`` or ``await``.
    """

    def __init__(self, channel: Channel, cls: type | None, child: ChildProcess, grace: float) -> None:
        super().__init__(channel, cls, child, grace)
        self._ending: threading.Thread | None = None

    async def _open(self) -> Self:
        try:
            await super()._open()
        except BaseException as error:
            if self._closed:
                raise  # close() ends the process
            self._channel.close()
            # In a thread, which goes on to its end even if the task is cancelled.
            failure = await asyncio.shield(asyncio.to_thread(self._child.give_up, error))
            if failure is None:
                raise
            raise failure from error
        finally:
            self._child.ours.close()
        return self

    def close(self) -> Awaitable[None]:
        """Ends the connection at once, and by that the process; awaiting the result waits for the process's end.
        Harmless when repeated.

        A process that has not ended by itself within ``grace`` seconds is sent ``SIGTERM``, and killed after ``grace``
        more seconds.
        """
        self._end()
        self._child.ours.close()
        if self._ending is None:
            self._ending = threading.Thread(target=self._child.end, args=(self._grace,), name="nearcall-child")
            self._ending.start()
        return Closing(partial(asyncio.to_thread, self._ending.join))


class _ChildChannel(Channel):
    """A channel to a spawned process, which no other server can replace."""

    def __init__(self, child: ChildProcess, **options: Unpack[ChannelOptions]) -> None:
        self._explain = lambda _, closed: None if closed else child.explain()
        self._shown = child.shown
        super().__init__(child.url, **options)


@overload
def spawn(
    command: Sequence[str | os.PathLike[str]], service: Callable[..., S], **options: Unpack[SpawnOptions]
) -> AsyncChild[S]: ...
@overload
def spawn(
    command: Sequence[str | os.PathLike[str]],
    service: Callable[..., object] | None = None,
    **options: Unpack[SpawnOptions],
) -> AsyncChild[Any]: ...
def spawn(
    command: Sequence[str | os.PathLike[str]],
    service: Callable[..., Any] | None = None,
    **options: Unpack[SpawnOptions],
) -> AsyncChild[Any]:
    """Starts a process that serves at ``stdio:``, for an event loop. Arguments and errors are those of
    :func:`nearcall.spawn`, and types as for :func:`connect`::

        async with nearcall.aio.spawn([sys.executable, "counting.py"], Counting) as counting:
            await counting.see("one")

    The process is started at once, and the connection made by ``async with`` or ``await``. Leaving the block ends the
    process and waits for its end, without holding up the loop.
    """
    return AsyncChild._spawn(_ChildChannel, command, service, **options)
