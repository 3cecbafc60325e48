"""What can be asked about a connection: the same of channels and clients, for threads and for event loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn, cast

import msgspec

from .. import _core

__all__ = ["Connected", "for_loops", "for_threads"]


def for_threads(what: str, threads: str, loops: str) -> TypeError:
    """For ``async with`` on something for threads: what to write for these, and for event loops."""
    return TypeError(f"this {what} is for threads: write '{threads}', or '{loops}' in an event loop")


def for_loops(what: str, threads: str, loops: str) -> TypeError:
    """For ``with`` on something for event loops."""
    return TypeError(f"this {what} is for an event loop: write '{loops}', or '{threads}' in a thread")


class Connected(ABC):
    """Something that has a connection to a server, perhaps together with others."""

    @abstractmethod
    def _opened(self) -> _core.Connection:
        """The connection.

        Raises:
            RuntimeError: there was none yet.
        """

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it has a connection; make another one where it is needed"
        )

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
        """Who the server is, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. Over
        ``tls://`` also ``subject`` and ``names``, which its certificate is for.

        There is no ``pid`` where the kernel does not know it: over ``fd://``, of a process in a container, and of a
        child that was spawned, whose ``process`` has it. With ``serve(..., workers=)`` the process is the one that
        listens, the workers' parent, and not the worker that answers.
        """
        return self._opened().peer

    @property
    def description(self) -> dict[str, Any]:
        """What the server serves, as it describes itself: services, methods, parameters, types."""
        return cast("dict[str, Any]", msgspec.json.decode(self._opened().description))
