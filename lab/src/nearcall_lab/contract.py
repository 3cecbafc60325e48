"""What the lab and an adapter promise each other.

An adapter is one module with three names:

* ``MECHANISMS``: a tuple of `Mechanism`, one per row of the table;
* ``serve(spec, ready, stop)``: runs in the server process until it is told to stop;
* ``connect(spec) -> Session``: runs in the client process and makes the client's object; `Session.open` connects it.

A mechanism for asyncio has a ``connect`` that returns an `AsyncSession`; the lab owns the event loop of its client.

The lab owns processes, pinning, scheduling, timing, threads, payloads, verification and teardown, so that adapters
cannot differ in method. An adapter adds no thread, no executor and no queue that its mechanism's own documentation
does not ask for.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, get_args

Family = Literal["nearcall", "rpc", "http", "messaging", "shared memory", "socket", "floor"]
"""The kind of a mechanism; it decides the colour in the charts."""

Operation = Literal["echo", "quote", "wait", "count", "send"]
"""``echo``: bytes in, the same bytes out. ``quote``: an `Order` in, its `Fill` out. ``wait``: seconds in; the handler
waits that long, without keeping others from running, and answers with a `Named`. ``count``: a number in, that many
integers from 0 out, one by one as the mechanism's own kind of stream. ``send``: bytes in, nothing out. Handlers make a
`Fill` with `nearcall_lab.workloads.fill` and a `Named` with `nearcall_lab.workloads.named`: these add a number that
only the server's process knows, so that a client cannot make up the answer.
"""

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
"""All operations, for a mechanism that can do everything."""

Style = Literal["threads", "asyncio"]
"""How a program calls the mechanism."""


Transport = Literal["TCP", "UDS", "shared memory", "pipe", "none"]
"""What carries a mechanism's bytes; ``none`` for calls inside one process. UDS is a Unix domain socket."""


@dataclass(frozen=True)
class Mechanism:
    """One row of the table: a mechanism together with the settings it is run with."""

    name: str
    """Unique key, for example ``grpcio-tcp``."""
    label: str
    """The name that readers see, for example ``grpcio, TCP``."""
    family: Family
    variant: str = ""
    """Distinguishes the rows of one adapter; only the adapter reads it."""
    requires: tuple[str, ...] = ()
    """Import names that must be present."""
    distribution: str = ""
    """Distribution whose version is reported; empty for the standard library."""
    settings: str = "defaults"
    """Every setting that matters and is not the mechanism's default."""
    typed: str = ""
    """How the dataclass is transmitted."""
    transport: Transport | Literal[""] = ""
    """What carries the bytes; empty where the adapter does not state it."""
    same_process: bool = False
    """The client process is also the server; `serve` is never called."""
    in_caller: bool = False
    """The handler runs in the calling thread, so that no other thread needs a CPU while the client waits to call."""
    busy_polls: bool = False
    """Burns a whole CPU while waiting, on at least one side."""
    operations: tuple[Operation, ...] = ("echo", "quote")
    style: Style = "threads"
    loop: Literal["asyncio", "uvloop"] = "asyncio"
    """Event loop that the lab runs the client of an asyncio mechanism in; `requires` names ``uvloop`` then. The
    server's loop is the adapter's own, and should be the same."""
    tuned: bool = False
    """Run with settings that its documentation or its users recommend; another row has it without them."""
    why: str = ""
    """Who recommends the settings of a tuned row, and what they are for, in one sentence."""
    concurrent_calls: bool = False
    """One session may be used by several threads, or tasks, with calls truly under way at once."""
    empty_messages: bool = True
    """Can carry a message of no bytes."""
    protocol: str = ""
    """What goes over its connections, where others speak it as well: a client may then call another mechanism's server
    by the typed operations. Its address is ``host:port``.
    """
    environment: str = ""
    """Name of an environment of its own that ``nearcall-lab install`` makes, for what conflicts with the others."""


class Served:
    """Counts requests a server has handled; the lab compares it with the calls the client made.

    A handler calls `count` once for each request, in whatever thread it runs. A server that forks calls `share` before
    it does, so that its children count into the same place.
    """

    def __init__(self) -> None:
        # One step of an iterator written in C is atomic and costs 30 ns; a lock would cost a fast mechanism 10 %.
        self._counter = itertools.count()
        self._looks = 0
        self._shared: Any = None
        self.count: Callable[[], object] = self._counter.__next__

    def share(self) -> None:
        """Lets processes forked from now on count, too."""
        self._shared = multiprocessing.Value("q", 0)
        self.count = self._count_shared

    def _count_shared(self) -> None:
        with self._shared.get_lock():
            self._shared.value += 1

    @property
    def calls(self) -> int:
        """Requests handled so far."""
        if self._shared is not None:
            return int(self._shared.value)
        seen = next(self._counter) - self._looks
        self._looks += 1
        return seen


DEFAULT_MAX_MESSAGE = 2_000_000
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Spec:
    """What a worker process is given about its cell."""

    mechanism: Mechanism
    directory: str
    """A private temporary directory; sockets have to be in it."""
    token: str
    """Unique in this run; names outside the directory must contain it so that left-overs can be found."""
    address: str = ""
    """Empty in the server; in the client, what the server passed to `ready`."""
    served: Served = field(default_factory=Served)
    receive: Callable[[bytes], object] = field(default=lambda data: None)
    """Server side of ``send``: the handler gives it each message that arrives, in any thread. It keeps the time and
    the message's first 16 bytes. A server of several processes must handle ``send`` in the one that runs `serve`."""
    max_message: int = DEFAULT_MAX_MESSAGE
    """Largest message in bytes that will be sent, with room for framing."""
    host: str = LOOPBACK
    """IPv4 address of the server's machine, for both sides: a server over TCP listens at it, and at no other. The
    clients may be on another machine.
    """


Ready = Callable[[str], None]
"""Called once by `serve`, with the address a client connects to, when requests can be accepted."""


class Stop:
    """Makes a running `serve` return. Callbacks run on the worker's control thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._callbacks: list[Callable[[], object]] = []

    def on(self, callback: Callable[[], object]) -> None:
        """Register a callback that ends this server's loop. A `serve` that registers none ends when its process
        exits.
        """
        self._callbacks.append(callback)

    def is_set(self) -> bool:
        """Whether the server has been asked to stop; cheap enough for a polling loop."""
        return self._event.is_set()

    def wait(self) -> None:
        """Block until the server is asked to stop."""
        self._event.wait()

    def set(self) -> None:
        """Request the stop. An exception in one callback does not keep the others from running."""
        self._event.set()
        for callback in self._callbacks:
            try:
                callback()
            except Exception as error:  # the process is about to end; say it in the worker's log
                print(f"stop callback: {error!r}", flush=True)


class Session(Protocol):
    """One client connection."""

    def open(self) -> None:
        """Connect. When it returns the server's side of the connection exists."""
        ...

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        """The callable for one operation, looked up outside the timed region.

        For ``echo`` it takes `bytes` and returns a bytes-like object; for ``quote`` it takes an
        `nearcall_lab.workloads.Order` and returns an object with the attributes of a `nearcall_lab.workloads.Fill`; for
        ``wait`` it takes seconds and returns an object with those of a `nearcall_lab.workloads.Named`; for ``send`` it
        takes `bytes`, and what it returns is not looked at.
        """
        ...

    def stream(self, items: int) -> Iterator[int]:
        """The integers of ``count``, as they come."""
        ...

    def flush(self) -> None:
        """After the last ``send``: returns when what was sent is out of this process."""
        ...

    def dropped(self) -> int:
        """Messages of ``send`` that the mechanism itself says it dropped on this side."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class AsyncSession(Protocol):
    """One client connection of a mechanism for asyncio: the same as `Session`, with coroutines."""

    async def open(self) -> None: ...

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]: ...

    def stream(self, items: int) -> AsyncIterator[int]: ...

    async def flush(self) -> None: ...

    def dropped(self) -> int: ...

    async def close(self) -> None: ...


def _nothing() -> None:
    return None


def _no_stream(items: int) -> Iterator[int]:
    raise NotImplementedError("this mechanism has no stream")


@dataclass
class SimpleSession:
    """A `Session` made of one callable per operation; most adapters need no more."""

    operations: dict[Operation, Callable[[Any], Any]]
    on_close: Callable[[], object] = _nothing
    on_open: Callable[[], object] = _nothing
    on_stream: Callable[[int], Iterator[int]] = _no_stream
    on_flush: Callable[[], object] = _nothing
    count_dropped: Callable[[], int] = lambda: 0

    def provide(self, **operations: Callable[[Any], Any]) -> None:
        """Adds callables by operation, for what exists only once connected."""
        self.operations.update(cast("dict[Operation, Callable[[Any], Any]]", operations))

    def open(self) -> None:
        self.on_open()

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        return self.operations[operation]

    def stream(self, items: int) -> Iterator[int]:
        return self.on_stream(items)

    def flush(self) -> None:
        self.on_flush()

    def dropped(self) -> int:
        return self.count_dropped()

    def close(self) -> None:
        self.on_close()


class Adapter(Protocol):
    """The shape of an adapter module."""

    MECHANISMS: tuple[Mechanism, ...]

    def serve(self, spec: Spec, ready: Ready, stop: Stop) -> None: ...

    def connect(self, spec: Spec) -> Session | AsyncSession: ...
