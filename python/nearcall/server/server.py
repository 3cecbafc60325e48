"""``nearcall.serve`` and ``nearcall.Server``: objects that other processes call."""

from __future__ import annotations

import atexit
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, cast

from .. import _core
from ..call.departures import end_departures
from ..call.error_handlers import ErrorHandlers, check_error_handlers
from ..call.failures import Failures
from ..call.interceptors import Chain, ServerInterceptor, check_interceptors, is_awaited
from ..call.variables import outside
from ..call.wrong_with import wrong_with
from ..client.greenlets import need_threads
from ..codec.table import CodecName
from ..codec.values import ValueCodec
from ..log import ERROR, INFO, WARNING, log
from ..options.checked import check_seconds, check_whole, with_option
from ..options.common import (
    DEFAULT_MAX_MESSAGE_SIZE,
    DEFAULT_MAX_REFERENCES,
    DEFAULT_MAX_VALUES,
    DEFAULT_RING_SIZE,
    Compression,
    check_compression,
    check_spin,
)
from ..options.names import checks_names
from ..options.nats import NATS
from ..options.origins import check_origins
from ..options.tls import TLS
from ..service.depends import Provider
from ..service.injecting import Injector, check_overrides
from .ending import end_loop, join_workers
from .fallback import Fallback
from .health import ServerHealth
from .latch import Latch
from .limits import DEFAULT_MAX_CONCURRENCY, DEFAULT_MAX_PENDING, DEFAULT_MAX_STREAMS, check_age, check_memory
from .listening import listen, make_listeners
from .methods import Surroundings
from .offered import Offered, introspection_beside, look_at_all
from .references import ServerCatalogue
from .registration import Register, Registrations
from .sessions import Hook, Sessions
from .watching import Watched

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ..loops.crossing import Crossings
    from ..loops.handlers import LoopThread
    from .colleagues import Colleagues
    from .lifespan import Lifespan, LifespanFunction

__all__ = ["Server"]


class Server:
    """Serves objects at URLs, in threads of its own.

    Use it in a ``with`` statement, or call :meth:`start` and :meth:`stop`::

        with nearcall.Server(Calculator(), "shm://calc", "tcp://127.0.0.1:0") as server:
            print(server.urls)

    Args:
        services_and_urls: Objects whose classes are services, and the URLs to serve them all at, in any order. For a
            service with ``instance="session"`` give the class in place of an object, or something that makes one
            without arguments: a ``functools.partial`` of the class, or a function whose result is annotated.
        max_concurrency: Handlers that may run at once in threads; further calls wait. Coroutine handlers are not
            counted. Streams may take three quarters of them, and one client half of those, so that some are left for
            other calls and other clients.
        max_pending: Calls that may be under way or waiting at once; further ones fail with ``RESOURCE_EXHAUSTED``.
            One-way calls wait at their client instead: the server stops reading from that client.
        max_streams: Calls with a stream that one connection may have under way at once; further ones fail with
            ``RESOURCE_EXHAUSTED``.
        max_memory: Bytes kept for all clients together: calls and items that have arrived and are not handled yet, and
            what waits for clients to read it. One client may use a quarter, or as much as the longest message in and
            the longest one out take together: twice ``max_message_size`` and 2 MiB, and no less is accepted. Beyond it
            nothing more is read from it, and a reply that finds no room fails with ``RESOURCE_EXHAUSTED``. The values
            in calls under way count what they take in Python, and are limited likewise: beyond it the call fails.
            ``None`` stands for 1 GiB, or four times ``max_message_size`` if that is more.
        max_references: Objects that one client may hold references to at once; a call that would pass one more fails
            with ``RESOURCE_EXHAUSTED``.
        spin: How long to spin for a request before sleeping: ``"auto"`` measures and adapts, ``0`` sleeps at once,
            seconds set a fixed bound.
        max_message_size: Longest message received, bytes.
        max_values: Values that a received message may hold, those in lists, dicts and objects included; not elements of
            arrays.
        handshake_timeout: Seconds a client may take to shake hands.
        max_connection_age: Seconds after which a connection ends: its client makes another one, maybe to another server
            behind the same address, and no call fails by that. Ages differ by up to a tenth. Sessions and references
            end with their connection. ``None``: never.
        max_connection_age_grace: Seconds that calls and streams under way may go on after that. What then still goes on
            fails with ``UNAVAILABLE``.
        interceptors: Functions around every call, each ``f(call, proceed)`` with a :class:`~nearcall.ServerCall`; the
            first is the outermost. What is ``async def`` runs in the event loop, around ordinary handlers as well.
        tracebacks: Whether clients see the traceback of an exception. It shows paths and code to every client.
        allow_plaintext: Whether ``tcp://`` may be served where other machines can reach it: anybody there can call
            every method, and anybody on the way can read along.
        introspection: Whether clients that may call methods may also watch the server's calls, with ``nearcall top``.
        reflection: Whether clients that may call methods over gRPC may also ask which methods there are, with
            ``grpcurl`` and the like. At nearcall's own URLs every client gets that description.
        codecs: Codecs that clients may ask for at nearcall's own URLs, besides msgpack: ``"json"``, or a
            :class:`~nearcall.ValueCodec` of yours.
        fallback: For ``grpc://`` and ``http://``: a function that answers gRPC's calls for which there is no method. It
            takes the path that was called and an iterator of the messages, as bytes, and gives an iterator of those of
            the answer: a generator function, or an asynchronous one.
        compression: For ``grpc://`` and ``http://``: compress what is sent to clients that can read it, from 1 KiB,
            with ``"gzip"`` or ``"zstd"``.
        tls: For ``tls://``: the server's certificate and key, and whether clients must have one, too.
        nats: For ``nats://``: who this server is to the NATS server.
        allow_users: Users, by name or id, that may connect to ``unix://`` besides the server's own.
        allow_groups: Groups, by name or id, whose members may connect to ``unix://``.
        register: Names under which clients find the server, in directories of services: URLs as clients write them,
            ``directory+tcp://host:port/name?key=value``, or a :class:`Registration`, or a list of these.
        sockets: Descriptors of listening sockets that this process was given. A URL with the address of one of them is
            served by it, and no other socket is made there.
        allow_origins: Web pages that may call at ``http://`` URLs, by where they are from, such as
            ``https://app.example.org``; ``"*"`` stands for all pages that there are. Without it, none may.
        on_connect: Called with each client's :class:`~nearcall.ServerConnection` before its first call, in a thread of
            the server. Nothing is read from that client meanwhile; others are served.
        on_disconnect: Called with the same object after the client's last call: when the client has closed its
            connection or died, or when the server stops; then :meth:`stop` calls it. Exactly once for each client that
            ``on_connect`` was called with.
        loop_factory: Makes the event loop that coroutine handlers run on, such as ``uvloop.new_event_loop``; by default
            ``asyncio.new_event_loop``, which asks the policy.
        blocked_loop_after: Seconds that this loop may be held up, by a handler that waits without ``await`` or
            computes, before the log names it and shows its stack, within twice that time. ``None`` or 0: never.
        lifespan: Called with the server when it starts: a generator function that yields once, or one that gives a
            context manager. It is entered before the first call, when the server listens already, and left after the
            last one, within 5 seconds. If it is asynchronous, it runs in the event loop of the coroutine handlers,
            otherwise in a thread of its own. What it yields is for :func:`nearcall.depends`. If it ends earlier,
            :meth:`wait` returns.
        error_handlers: Functions by exception class, which take a handler's exception and return or raise the one to
            send in its place, such as :class:`nearcall.NotFound`. The nearest class counts.
        overrides: For tests: what to call in the place of functions that handlers name in :func:`nearcall.depends`.

    Raises:
        TypeError: an object is no service, two serve under one name, ``on_connect`` is no ordinary function, what a
            handler depends on cannot be had, or an option is of the wrong kind.
        ValueError: an option is for other URLs than these.
        InvalidArgument: an option is malformed.
    """

    _news = INFO  # how it logs that it serves

    @checks_names
    def __init__(  # noqa: PLR0913 - the options are keywords
        self,
        *services_and_urls: object,
        max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
        max_pending: int = DEFAULT_MAX_PENDING,
        max_streams: int = DEFAULT_MAX_STREAMS,
        max_memory: int | None = None,
        max_references: int = DEFAULT_MAX_REFERENCES,
        spin: float | Literal["auto"] = "auto",
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
        max_values: int = DEFAULT_MAX_VALUES,
        handshake_timeout: float = 5.0,
        max_connection_age: float | None = None,
        max_connection_age_grace: float = 30.0,
        interceptors: Sequence[ServerInterceptor] = (),
        tracebacks: bool = False,
        allow_plaintext: bool = False,
        introspection: bool = True,
        reflection: bool = True,
        codecs: Sequence[CodecName | ValueCodec] = (),
        fallback: Fallback | None = None,
        compression: Compression | None = None,
        tls: TLS | None = None,
        nats: NATS | None = None,
        allow_users: Sequence[str | int] = (),
        allow_groups: Sequence[str | int] = (),
        register: Register = (),
        sockets: Sequence[int] = (),
        allow_origins: Sequence[str] = (),
        on_connect: Hook | None = None,
        on_disconnect: Hook | None = None,
        loop_factory: Callable[[], AbstractEventLoop] | None = None,
        blocked_loop_after: float | None = 1.0,
        lifespan: LifespanFunction | None = None,
        error_handlers: ErrorHandlers | None = None,
        overrides: Mapping[Provider, Provider] | None = None,
    ) -> None:
        self._asked = [item for item in services_and_urls if isinstance(item, str)]
        served = look_at_all((item for item in services_and_urls if not isinstance(item, str)), fallback)
        if loop_factory is not None and not callable(cast(object, loop_factory)):
            raise with_option(
                TypeError(f"loop_factory must be a function that makes an event loop, not {loop_factory!r}"),
                "loop_factory",
            )
        self._crossings, chain = _around(interceptors)
        self.colleagues: Colleagues | None = None
        """The other workers, in a worker of :func:`serve`; not for users."""
        watched = introspection_beside(served, chain, weakref.WeakMethod(self._others)) if introspection else None
        self._failures = Failures(check_error_handlers(error_handlers or {}))
        self._lifespan = _lifespan_of(lifespan)
        value = None if self._lifespan is None else self._lifespan.value
        injector = Injector(check_overrides(overrides), lifespan, value)
        self._sessions = Sessions(on_connect, on_disconnect, self._failures)
        values = check_whole("max_values", max_values)
        surroundings = Surroundings(chain, self._failures, injector, values, tracebacks)
        offered = Offered(
            served, watched, self._asked, surroundings, codecs=codecs, fallback=fallback, reflection=reflection
        )
        table = offered.table
        self._handlers = table.handlers
        self._states = offered.states
        self._health = ServerHealth(self._states.set)
        self._catalogue = ServerCatalogue(table.numbers, surroundings, weakref.WeakMethod(self._start_loop))
        self._listeners = make_listeners(
            self._asked,
            allow_plaintext=allow_plaintext,
            tls=tls,
            nats=nats,
            allow_users=allow_users,
            allow_groups=allow_groups,
            sockets=sockets,
        )
        # The process that serves makes the core, whose descriptors must not be shared with other processes.
        self._make_core = partial(
            _core.Server,
            table.methods,
            offered.description,
            measured=table.measured,
            spin=check_spin(spin),
            ring_size=DEFAULT_RING_SIZE,
            max_message_size=check_whole("max_message_size", max_message_size, "bytes"),
            handshake_timeout=check_seconds("handshake_timeout", handshake_timeout),
            compression=check_compression(self._asked, compression),
            max_concurrency=check_whole("max_concurrency", max_concurrency),
            max_pending=check_whole("max_pending", max_pending),
            max_streams=check_whole("max_streams", max_streams),
            max_memory=check_memory(max_memory, max_message_size),
            max_references=check_whole("max_references", max_references),
            make_passage=self._catalogue.passage,
            on_release=self._sessions.released,
            **self._sessions.for_core(),
            paths=table.paths,
            origins=check_origins(allow_origins, self._asked),
            max_connection_age=check_age(max_connection_age),
            max_connection_age_grace=check_seconds("max_connection_age_grace", max_connection_age_grace),
        )
        self._registrations = Registrations(register, self._asked, allow_plaintext)
        self._core: _core.Server | None = None
        self._context = Context()
        """That of who has started the server. Those of its calls are copies of it."""
        self._process = os.getpid()
        self._ends_in_loop = any(each.ends_in_loop for each in served)
        self._loop_factory = loop_factory
        self._blocked_loop_after = (
            check_seconds("blocked_loop_after", blocked_loop_after or 0.0, otherwise="None") or None
        )
        self._host_loop: AbstractEventLoop | None = None
        """An event loop that is already running, for :mod:`nearcall.grpcio.aio`: set before the start, in that loop."""
        self._urls: list[str] = []
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._numbers = itertools.count(1)
        self._loop: LoopThread | None = None
        self._state: Literal["new", "bound", "running", "stopping", "stopped"] = "new"
        self._change = threading.Lock()
        self._stopped = Latch()
        self._over = Latch()
        """Set when no client can come any more, or when the server was stopped."""
        self._finished = True

    @property
    def urls(self) -> list[str]:
        """Where the server listens. A TCP port of 0 is replaced by the port that the system chose."""
        return list(self._urls)

    @property
    def health(self) -> ServerHealth:
        """What the server tells gRPC's health checks: ``server.health.set("shop.v1.Shop", False)``. If you serve a
        service named ``grpc.health.v1.Health``, it answers instead, and this has no effect.
        """
        return self._health

    def bind(self) -> Server:
        """Listens at every URL without serving yet: clients wait. :meth:`start` does it, too.

        For programs that fork: bind in the parent, then start the same server in each child. The children share the
        sockets, and a client is served by the child that accepts it first.

        Raises:
            AlreadyExists: a URL is served already; the message says by whom.
            InvalidArgument: a URL is malformed, or an option does not allow it.
            OSError: the system refuses, for another reason.
        """
        if self._state == "bound":
            return self
        if self._state == "running":
            raise RuntimeError(
                "this server was started already: write either start() or 'with server:', which starts it"
            )
        if self._state != "new":
            raise RuntimeError(f"this server is {self._state}; make a new one to serve again")
        if not self._asked:
            raise ValueError("there is nowhere to serve: give a URL such as shm://name or tcp://127.0.0.1:7000")
        try:
            listen(self._listeners, self._asked, self._urls)
        except BaseException:
            self._listeners.close()
            raise
        self._state = "bound"
        _open.add(self)
        return self

    def start(self) -> Server:
        """Listens at every URL, and serves from now on, in threads that end with the program: a script whose last line
        this is ends at once. Call :meth:`wait` after it, or :func:`nearcall.serve` in its place.

        Raises:
            AlreadyExists: a URL is served already; for ``shm://`` and ``unix://`` the message names the process.
            InvalidArgument: a URL is malformed, or an option does not allow it.
            OSError: the system refuses, for another reason.
        """
        self.bind()
        return self._begin(self._listeners, self._over.set)

    def _begin(self, listeners: _core.Listeners, ended: Callable[[], object]) -> Server:
        try:
            need_threads("a server")
            self._core = self._make_core()
            self._context = outside()
            if self.colleagues is not None:
                self._core.set_place(self.colleagues.number, self.colleagues.count)
                _answer(self.colleagues, self._core)
            if self._lifespan is not None:
                self._lifespan.begin(self, self._running_loop, ended)
            self._core.listen(listeners)
            in_loop = any(handler and plan.handler_is_async for plan, handler in self._handlers)
            if self._host_loop is not None or self._ends_in_loop or in_loop or self._crossings is not None:
                self._start_loop()
        except BaseException:
            self._undo(listeners)
            raise
        self._process = os.getpid()
        self._state = "running"
        _open.add(self)
        self._spawn()
        log(self._news, "serving at %s", self._where())
        self._registrations.begin(self._urls)
        return self

    def _undo(self, listeners: _core.Listeners) -> None:
        """Takes back what a start has done that failed."""
        if self._lifespan is not None:
            self._lifespan.end()
        with self._change:
            core, self._core, loop, self._loop = self._core, None, self._loop, None
        if core is not None:
            core.close()
        if loop is not None:
            loop.stop()
        listeners.close()
        self._state = "stopped"
        _open.discard(self)

    def _running_loop(self) -> AbstractEventLoop:
        self._start_loop()
        assert self._loop is not None
        return self._loop.loop

    def _start_loop(self) -> None:
        """Starts the event loop that runs coroutine handlers, if it does not run yet."""
        with self._change:
            if self._loop is None and self._core is not None:
                from ..loops.guest import GuestLoop  # asyncio only where it is needed
                from ..loops.handlers import LoopThread
                from ..loops.home import HomeLoop

                core, handlers = self._core, self._handlers
                context, blocked = self._context.copy(), self._blocked_loop_after
                if self._host_loop is not None:
                    loop: LoopThread = GuestLoop(core, handlers, self._host_loop, context, blocked)
                else:
                    loop = LoopThread(core, handlers, self._loop_factory, context, blocked)
                loop.start()
                self._sessions.finish = loop.finish
                self._catalogue.home = HomeLoop(loop.loop).around
                if self._crossings is not None:
                    self._crossings.loop = loop
                self._loop = loop

    def serve_at(self, listeners: _core.Listeners, urls: list[str]) -> None:
        """Serves the clients of these listeners, which the caller has made, and not at its own URLs."""
        self._urls = urls
        self._begin(listeners, self._over.set)

    def serve_as_worker(
        self,
        listeners: _core.Listeners,
        urls: list[str],
        tell_health: Callable[[str, bool], object],
        ended: Callable[[], object],
        colleagues: Colleagues,
    ) -> _core.Health:
        """Serves the clients of these listeners, not at its own URLs. Only for :func:`serve` with workers.

        Args:
            listeners: Where clients come from.
            urls: The URLs to show.
            tell_health: Called with each change of this process's health, to tell the other workers.
            ended: Called if the lifespan ends before the server is stopped.
            colleagues: The other workers.

        Returns:
            The server's health, to be changed when another worker's health is set.
        """
        states = self._states

        def change(service: str, serving: bool) -> None:
            states.set(service, serving)
            tell_health(service, serving)

        self._health = ServerHealth(change)
        self._urls = urls
        self.colleagues = colleagues
        self._begin(listeners, ended)
        return states

    def _others(self, topic: str, argument: float) -> Iterable[bytes]:
        """What the other workers answer."""
        return () if self.colleagues is None else self.colleagues.ask(topic, argument).values()

    def _spawn(self) -> None:
        run, name = self._context.copy().run, f"nearcall-worker-{next(self._numbers)}"
        thread = threading.Thread(target=run, args=(self._work,), name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        core = self._core
        if core is None:
            return  # it has stopped meanwhile
        try:
            core.work(self._spawn, _tell, self._over.set)
        except BaseException as error:
            log(ERROR, "a worker thread of the server at %s ended", self._where(), error=error)

    def stop(self, grace: float = 5.0) -> bool:
        """Stops: takes no new calls, finishes those under way for at most ``grace`` seconds, then closes.

        For the remaining clients, ``on_disconnect`` and the ends of clients' objects then have 5 more seconds; the log
        names functions that take longer, and they are not waited for. Neither is such a function that itself calls
        ``stop``. A client of which a handler was cut off keeps its objects until that handler returns.

        If a signal's handler raises meanwhile, as it does for Ctrl-C, the grace is over; this raises the same in the
        end.

        Returns:
            Whether every call was finished. Harmless when repeated.
        """
        grace = check_seconds("grace", grace, endless=True)
        with self._change:
            before, self._state = self._state, "stopped" if self._state in ("new", "bound", "stopped") else "stopping"
        core = self._core
        if before == "stopping":
            # Another thread stops the server already, perhaps with a longer grace.
            return self._stopped.wait(None if math.isinf(grace) else grace) and self._finished
        try:
            if before == "running" and core is not None and self._process == os.getpid():
                self._stop_serving(core, grace)
        finally:
            # A forked child only closes the sockets' descriptors of a server that it has inherited.
            self._listeners.close()
            self._state = "stopped"
            _open.discard(self)
            self._stopped.set()
            self._over.set()
        return self._finished

    def _stop_serving(self, core: _core.Server, grace: float) -> None:
        self._registrations.end()
        if self.colleagues is not None:
            self.colleagues.leave()
        self._finished, cut_off = False, f"calls of more than {grace:g} s were cut off"
        try:
            self._finished = core.stop(grace, self._sessions.is_in_hook())
        except BaseException:
            cut_off = "told again to end, it has cut off the calls under way"
            log(WARNING, "told again to end, the server at %s waits no longer for calls under way", self._where())
            raise
        finally:
            self._end_serving(core)
            what = "every call was finished" if self._finished else cut_off
            log(self._news, "stopped serving at %s; %s", self._where(), what)

    def _end_serving(self, core: _core.Server) -> None:
        if self._loop is not None:
            self._loop.cut_off()
        core.close()
        if not end_departures(core, self._context):
            what = self._sessions.at_work()
            log(WARNING, "the server at %s stops without waiting longer for %s", self._where(), what)
        if self._lifespan is not None:
            self._lifespan.end()
        with self._change:
            # Dropping the core closes its descriptors, and `_start_loop` starts no loop without a core.
            self._core, loop, self._loop = None, self._loop, None
        cut_off = join_workers(self._threads, 0.5 if self._finished else 0.05)
        if loop is not None:
            end_loop(loop, cut_off, self._forget_loop)
        self._failures.flush()

    def _forget_loop(self) -> None:
        """Both keep the loop, which keeps the core, which keeps them."""
        self._sessions.finish = None
        if self._crossings is not None:
            self._crossings.loop = None

    @property
    def failure(self) -> BaseException | None:
        """What the lifespan has raised since it was entered, if anything."""
        return None if self._lifespan is None else self._lifespan.failure

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until :meth:`stop` was called, for at most ``timeout`` seconds. Returns whether the server has ended.

        A server at ``fd://`` or ``stdio:`` only ends as well when its client is gone, because no other can come.

        Raises:
            RuntimeError: it was not started, so it serves nobody, and the wait would have no end.
        """
        if self._state == "new":
            raise RuntimeError("this server was not started: call start() first, or write 'with server:'")
        return _core.rest(self._over.wait, timeout)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    if not TYPE_CHECKING:  # a type checker refuses it by itself
        __aenter__ = __aexit__ = wrong_with(
            "a server is used with an ordinary 'with', in an event loop too: its coroutine handlers have a loop of "
            "their own"
        )

    def _where(self) -> str:
        return ", ".join(self._urls)

    def __repr__(self) -> str:
        return f"<{self._state} nearcall server at {', '.join(self._urls or self._asked) or 'no URL'}>"


def _answer(colleagues: Colleagues, core: _core.Server) -> None:
    """From now on the other workers can ask what this server does."""
    from ..introspection import CONNECTIONS, STATISTICS

    colleagues.answers[STATISTICS] = Watched(core).read
    colleagues.answers[CONNECTIONS] = lambda after: core.connections(int(after))


def _lifespan_of(function: LifespanFunction | None) -> Lifespan | None:
    if function is None:
        return None
    from .lifespan import Lifespan  # asyncio only where it is needed

    return Lifespan(function)


def _around(interceptors: Sequence[ServerInterceptor]) -> tuple[Crossings | None, Chain]:
    chain = Chain(check_interceptors(interceptors), None)
    if not any(map(is_awaited, chain.interceptors)):
        return None, chain
    from ..loops.crossing import Crossings  # asyncio only where it is needed

    crossings = Crossings()
    return crossings, chain._replace(across=crossings.across)


def _tell(serious: bool, text: str) -> None:
    log(WARNING if serious else INFO, "%s", text)


_open: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # Worker threads must not run while the interpreter is taken down.
    for server in list(_open):
        server.stop(grace=0)
