"""``Server(lifespan=...)``: what surrounds the time in which a server serves."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _core
from ..call.variables import outside
from ..errors import Unavailable
from ..log import ERROR, WARNING, log
from ..options.checked import with_option
from .latch import Latch

if TYPE_CHECKING:
    from .server import Server

__all__ = ["Lifespan", "LifespanFunction"]

LifespanFunction: TypeAlias = Callable[
    ["Server"],
    "AbstractContextManager[Any] | AbstractAsyncContextManager[Any] | Iterator[Any] | AsyncIterator[Any]",
]
"""A generator function that yields once, or a function that gives a context manager; asynchronous or not."""

_PATIENCE = 5.0
"""Seconds that leaving a lifespan may take."""
_LOOK = 0.5
"""Seconds after which a waiting thread wakes up to run signal handlers: a signal may not wake it."""


class Lifespan:
    """The user's block that a server enters before it serves, and leaves when it has served: both in one thread, or in
    one task of the server's event loop. What its context variables hold is what they hold where the server is started.

    Args:
        function: The option as given.

    Raises:
        TypeError: it is no such function.
    """

    def __init__(self, function: LifespanFunction) -> None:
        if not callable(function):
            raise _wrong(f"must be a function that takes the server, not {function!r}")
        if inspect.iscoroutinefunction(function):
            raise _wrong("must yield once between start and stop: write 'async def' with a 'yield' in it")
        try:
            inspect.signature(function).bind(None)
        except TypeError as error:
            raise _wrong(f"is called with one argument, the server, and does not take it: {error}") from None
        except ValueError:
            pass  # written in C: there is no signature to look at
        self.function = function
        self.failure: BaseException | None = None
        """What the lifespan has raised after it was entered."""
        self._value: object = None
        self._begun = Latch()
        """Set when it was entered, or could not be."""
        self._refusal: BaseException | None = None
        """Why it could not be entered."""
        self._is_over = Latch()
        self._leave: Callable[[], object] = _nothing
        self._leaving = False

    def value(self) -> object:
        """What the lifespan has yielded.

        Raises:
            Unavailable: the lifespan is over; the server is about to stop.
        """
        if self._is_over.is_set():
            raise Unavailable("the server is about to stop: its lifespan has ended")
        return self._value

    def begin(self, server: Server, loop: Callable[[], asyncio.AbstractEventLoop], ended: Callable[[], object]) -> None:
        """Enters the lifespan, and waits until that is done.

        Args:
            server: The server.
            loop: Starts the server's event loop, if it does not run yet.
            ended: Called if the lifespan ends before :meth:`end` is called.

        Raises:
            Exception: what the lifespan raises on entering.
        """
        manager = self._manager(server)
        try:  # from here on, as a signal may come at any time
            if hasattr(manager, "__aenter__"):
                self._begin_in_loop(manager, loop(), ended)
            else:
                leave = Latch()
                self._leave = leave.set
                arguments = (self._in_thread, manager, leave, ended)
                run, name = outside().run, "nearcall-lifespan"
                threading.Thread(target=run, args=arguments, name=name, daemon=True).start()
            while not self._begun.wait(_LOOK):
                pass
            if self._refusal is not None:
                raise self._refusal
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Leaves the lifespan, and waits some seconds for its end. Harmless when it is over, or was never begun."""
        self._leaving = True
        if self._leave is _nothing:
            return
        self._leave()
        if not self._is_over.wait(_PATIENCE):
            log(WARNING, "the server stops without waiting longer for the end of its lifespan")

    def _begin_in_loop(
        self,
        manager: AbstractAsyncContextManager[Any],
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[], object],
    ) -> None:
        leave = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        def enter() -> None:
            task = loop.create_task(self._in_loop(manager, leave, ended))
            task.add_done_callback(lambda _: self._is_over.set())  # also if it was cancelled before it ran
            tasks.append(task)

        def leave_now() -> None:
            if self._begun.is_set():
                leave.set()
            elif tasks:
                tasks[0].cancel()  # its end is waited for: what it has begun to set up, it has to give back
            else:
                self._is_over.set()  # a signal came before it was entered

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(leave_now)

        self._leave = tell  # first: a signal may come as soon as it is entered
        loop.call_soon_threadsafe(enter, context=outside())

    def _manager(self, server: Server) -> Any:
        function: Any = self.function
        if inspect.isasyncgenfunction(function):
            function = asynccontextmanager(function)
        elif inspect.isgeneratorfunction(function):
            function = contextmanager(function)
        manager: Any = function(server)
        if not hasattr(manager, "__aenter__") and not hasattr(manager, "__enter__"):
            raise _wrong(f"must be a generator function, or give a context manager, not {manager!r}")
        return manager

    def _in_thread(self, manager: AbstractContextManager[Any], leave: Latch, ended: Callable[[], object]) -> None:
        try:
            with manager as self._value:
                self._begun.set()
                _core.rest(leave.wait, None)
        except BaseException as error:
            self._failed(error)
        finally:
            self._over(ended)

    async def _in_loop(
        self, manager: AbstractAsyncContextManager[Any], leave: asyncio.Event, ended: Callable[[], object]
    ) -> None:
        try:
            async with manager as self._value:
                self._begun.set()
                await leave.wait()
        except BaseException as error:
            self._failed(error)
        finally:
            self._over(ended)

    def _failed(self, error: BaseException) -> None:
        if not self._begun.is_set():
            self._refusal = error
            self._begun.set()
            return
        self.failure = error
        log(ERROR, "the server's lifespan raised %s", type(error).__name__, error=error)

    def _over(self, ended: Callable[[], object]) -> None:
        self._value = None
        self._is_over.set()
        if not self._leaving and self._refusal is None:
            log(ERROR, "the server's lifespan has ended while it served: it stops")
            ended()


def _nothing() -> None:
    pass


def _wrong(problem: str) -> TypeError:
    return with_option(TypeError(f"lifespan {problem}"), "lifespan")
