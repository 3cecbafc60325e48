"""Runs the calls that servers make of this process's objects: one server without a URL, for all clients.

The server is made for the first client whose service takes objects, and ends with the process. Its threads receive on
the connections of those clients and run the objects' methods, as the threads of any server do.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Awaitable
from contextvars import Context
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core
from ..call.departures import end_departures
from ..call.failures import Failures
from ..call.session import ServerConnection
from ..log import ERROR, INFO, WARNING, log
from ..options.common import DEFAULT_MAX_MESSAGE_SIZE, DEFAULT_MAX_REFERENCES
from ..references.given import finish_given

if TYPE_CHECKING:
    from ..loops.handlers import LoopThread

__all__ = ["callback_server", "need_loop"]

_MAX_CONCURRENCY = 256
"""Calls of objects that run at once in threads."""
_MAX_PENDING = 65_536
"""Calls of objects that may be under way or waiting at once."""
_MAX_STREAMS = 1_000
"""Calls with a stream that one server may have under way at once."""
_MAX_MEMORY = 1 << 30
"""Bytes kept for all servers together."""


class _Callbacks:
    """The server of this process, with its threads."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.failures = Failures()
        self._loop: LoopThread | None = None
        self._starting = threading.Lock()
        self._numbers = itertools.count(1)
        self._threads: set[threading.Thread] = set()
        self.core = _core.Server(
            [],
            "",
            measured=[],
            spin="auto",
            ring_size=1 << 18,
            max_message_size=DEFAULT_MAX_MESSAGE_SIZE,
            handshake_timeout=5.0,
            compression=None,
            max_concurrency=_MAX_CONCURRENCY,
            max_pending=_MAX_PENDING,
            max_streams=_MAX_STREAMS,
            max_memory=_MAX_MEMORY,
            max_references=DEFAULT_MAX_REFERENCES,
            make_client=ServerConnection,
            on_arrival=None,
            on_departure=_nothing,
            departures=False,
            make_passage=_has_one,
            on_release=self._released,
        )
        self._spawn()

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._work, name=f"nearcall-callbacks-{next(self._numbers)}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        try:
            self.core.work(self._spawn, _tell, _nothing)
        except BaseException as error:
            log(ERROR, "a thread that runs callbacks ended", error=error)
        finally:
            self._threads.discard(threading.current_thread())

    def need_loop(self) -> None:
        """Starts the event loop that runs asynchronous methods, if it does not run yet."""
        with self._starting:
            if self._loop is None:
                from ..loops.handlers import LoopThread  # asyncio only where it is needed

                loop = LoopThread(self.core, [], None, Context())
                loop.start()
                self._loop = loop

    def _released(self, given: object) -> None:
        finish_given(given, self._finish, self.failures, {})

    def _finish(self, work: Awaitable[object]) -> None:
        self.need_loop()
        assert self._loop is not None
        self._loop.finish(work)

    def stop(self) -> None:
        """Stops before the process ends: none of these threads may run while the interpreter is taken down."""
        self.core.stop(0.0, in_hook=False)
        if self._loop is not None:
            self._loop.cut_off()
        self.core.close()
        if not end_departures(self.core, Context()):
            log(WARNING, "the process ends without waiting longer for the end of objects that servers had")
        if self._loop is not None:
            self._loop.stop()
        for thread in list(self._threads):
            # A thread that is only being started cannot be joined yet; it will find nothing left to do.
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(0.05)
        self.failures.flush()


class _Process:
    """The callbacks of this process, made when they are first needed: anew in a forked child, which has no threads."""

    def __init__(self) -> None:
        self._callbacks: _Callbacks | None = None
        self._making = threading.Lock()

    def callbacks(self) -> _Callbacks:
        """The callbacks of this process."""
        with self._making:
            if self._callbacks is None or self._callbacks.process != os.getpid():
                self._callbacks = _Callbacks()
            return self._callbacks

    def forked(self) -> None:
        """Called in a forked child: another thread of the parent may have held the lock."""
        self._making = threading.Lock()

    def stop(self) -> None:
        """Called when the process ends."""
        if self._callbacks is not None and self._callbacks.process == os.getpid():
            self._callbacks.stop()


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)
atexit.register(_process.stop)


def callback_server() -> _core.Server:
    """The server that receives on the connections of clients that pass objects, and runs the calls of these objects."""
    return _process.callbacks().core


def need_loop() -> None:
    """Makes sure that asynchronous methods of objects can run."""
    _process.callbacks().need_loop()


def _nothing(*_args: Any) -> None:
    pass


def _has_one(_references: _core.References) -> NoReturn:
    raise RuntimeError("the client's channel makes the passage of its connection")


def _tell(serious: bool, text: str) -> None:
    log(WARNING if serious else INFO, "%s", text)
