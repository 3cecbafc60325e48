"""What channels and clients tell of their connection, for threads and for event loops alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from .. import _core
from ..call.wrong_with import for_loops, for_threads
from ..options.checked import check_seconds

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Connected", "ForLoops", "ForThreads"]


class Connected(ABC):
    """A channel or a client: it has a connection to a server, which it may share."""

    _kind: str
    """``"client"`` or ``"channel"``, for messages."""
    _for_threads: str
    """How it is used in threads, for messages."""
    _for_loops: str
    """How it is used in an event loop, for messages."""

    @abstractmethod
    def _opened(self) -> _core.Connection:
        """The connection.

        Raises:
            RuntimeError: there has been no connection yet.
        """

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it has a connection; pass the URL, and connect where it is needed"
        )

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the server is."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it was closed."""

    @abstractmethod
    def close(self) -> Awaitable[None] | None:
        """Ends it."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, as far as is known. A lost one is renewed by the next call."""
        return self._opened().connected

    @property
    def dropped(self) -> dict[str, int]:
        """Numbers of one-way calls that were dropped because there was no room to send them, by ``"Service.method"``:
        with the option ``oneway="drop"``. A warning in the log names them, every few seconds at most.
        """
        return self._opened().dropped

    @property
    def peer(self) -> dict[str, Any]:
        """The server, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. Over
        ``tls://`` also ``subject`` and ``names``, which its certificate is for.

        There is no ``pid`` where the kernel does not know it: over ``fd://``, of a process in a container, and of a
        child that was spawned, whose ``process`` has it. With ``serve(..., workers=)`` the process is the one that
        listens, the workers' parent, and not the worker that answers.
        """
        return self._opened().peer

    @property
    def peers(self) -> list[dict[str, Any]]:
        """The servers that are connected now, each as :attr:`peer`: with ``balancing="round_robin"`` all that are
        called in turn, otherwise at most one. Then ``peer`` is one of them.
        """
        return self._opened().peers

    @property
    def description(self) -> dict[str, Any]:
        """What the server serves, as it describes itself: services, methods, parameters, types."""
        return cast("dict[str, Any]", msgspec.json.decode(self._opened().description))


class ForThreads(Connected):
    """A channel or client that is used in a ``with`` statement."""

    def ping(self, timeout: float | None = None) -> float:
        """Seconds that a round trip to the server takes without any handler.

        Raises:
            DeadlineExceeded: no answer within ``timeout`` seconds.
            Unavailable: the server is gone.
        """
        return self._opened().ping(None if timeout is None else check_seconds("timeout", timeout, otherwise="None"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __aenter__(self) -> Any:
            self.close()
            raise TypeError(for_threads(self._kind, self._for_threads, self._for_loops))

        __aexit__ = __aenter__


class ForLoops(Connected):
    """A channel or client that is used in an ``async with`` statement, or awaited."""

    @abstractmethod
    def close(self) -> Awaitable[None]:  # noqa: D102 - inherited
        ...

    @abstractmethod
    async def _open(self) -> Self:
        """Makes sure that there is a connection."""

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __enter__(self) -> Any:
            raise TypeError(for_loops(self._kind, self._for_threads, self._for_loops))

        __exit__ = __enter__
