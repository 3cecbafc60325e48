"""Nodes for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from .. import _core
from ..errors import InvalidArgument
from ..log import ERROR, INFO, WARNING, log
from ..options.checked import check_seconds, check_whole
from .attached import Attachment
from .handlers import Handler, Handlers, numbers_of
from .manager import NodeInfo
from .message import AnyBuffer, Message, number_of
from .rmr import PushedTables, is_rmr
from .sending import DEFAULT_QUEUE, Sending, WhenFull, options_for
from .service import RouteTable

__all__ = ["Node"]

H = TypeVar("H", bound=Callable[[Message[Any]], object])

_LOOK = 0.02
"""Seconds after which :meth:`Node.ready` looks again."""
_LOOK_AT_FILE = 1.0
"""Seconds after which the table's file is looked at again."""
HEALTH_REQUEST, HEALTH_REPLY = 100, 101
"""The types of health messages, which a node answers by itself."""


class Node(Sending):
    """Sends messages by their type, to whom a table says, and takes those that other nodes send::

        node = route.Node("shm://filter", table="routes.toml")

        @node.on(1000)
        def measured(message: route.Message) -> None:
            node.send(2000, message.payload, subscription=7)

        with node:
            node.ready(timeout=5)
            ...

    Messages of one sender are handled in the order in which they were sent, if ``threads`` is 1. Whoever sends faster
    than they are handled is slowed down: nothing is lost at the receiver.

    Args:
        urls: Where the node takes messages: ``shm://name``, ``unix:///path``, ``tcp://host:port``, ``tls://host:port``,
            and ``rmr://host:port`` for programs of RMR. The first is where replies go, if their sender can go there.
        table: A file with the table, in RMR's text or in TOML (``.toml``). It is read again when it changes; a wrong
            one is logged, and the table before stays in force. ``None``: :meth:`install` and :meth:`load` say what
            counts.
        manager: Where a :func:`manager` is: it gets to know which types have handlers here, and sends tables. While it
            cannot be reached, the last table stays in force. ``rmr://host:port`` is a route manager of RMR.
        group: For the manager: nodes of one group take turns, and each group gets a copy of a message; the node's name
            if it is not given.
        name: The node's name, which receivers see; the first URL without its scheme if it is not given.
        when_full: What becomes of a message when ``queue`` bytes wait for its receiver: its sender waits (``"block"``),
            gets :class:`~nearcall.ResourceExhausted` (``"error"``), or the oldest or the new one is dropped and counted
            (``"drop_oldest"``, ``"drop_newest"``).
        queue: Bytes that may wait for each receiver; 1 MiB.
        threads: How many threads run handlers.
        options: ``tls``, ``allow_plaintext``, ``allow_users``, ``allow_groups``, ``max_message_size`` and ``spin``, as
            for :class:`~nearcall.Server` and :class:`~nearcall.Channel`; ``handshake_timeout``, ``max_memory``,
            ``max_pending``, ``on_connect`` and ``on_disconnect``, as for :class:`~nearcall.Server`.

    Raises:
        InvalidArgument: an option is malformed.
        TypeError: there is no such option.
        ValueError: there is no URL.
    """

    def __init__(
        self,
        *urls: str,
        table: str | Path | None = None,
        manager: str | None = None,
        group: str | None = None,
        name: str | None = None,
        when_full: WhenFull = "block",
        queue: int = DEFAULT_QUEUE,
        threads: int = 1,
        **options: Any,
    ) -> None:
        managed = manager is not None and is_rmr(manager)
        super().__init__(urls, name, when_full, queue, options, managed=managed)
        self._handlers = Handlers()
        self._consumers = check_whole("threads", threads)
        self._running: list[threading.Thread] = []
        self._table_file = None if table is None else Path(table)
        self._manager = manager
        self._group = group or self.name
        if managed and not self._rmr_places:
            raise ValueError("a route manager of RMR sends tables to an rmr:// URL, and this node has none")
        self._attachment: Attachment | PushedTables | None = None
        self._ended = threading.Event()
        self._started = False

    # --- handlers ---

    def on(self, *types: int | type) -> Callable[[H], H]:
        """Has a function called with each :class:`Message` of these types. A type may also be a class with a message
        type: then ``message.value`` is an object of it.

        Raises:
            TypeError: a class has no message type, a type has a handler already, or it is a coroutine function.
        """
        numbers = numbers_of(types)

        def add(function: H) -> H:
            self._handlers.add(numbers, function)
            return function

        return add

    def receive(self, timeout: float | None = None) -> Message[Any] | None:
        """The next message that no handler takes; ``None`` if none comes within ``timeout`` seconds, or the node is
        closed.

        Raises:
            RuntimeError: the node has handlers, which get all messages.
        """
        if self._handlers:
            raise RuntimeError("this node has handlers, which get all messages: add one for the type, or have none")
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            found = self._core.receive(1, left)
            if not found:
                return None
            if not self._answers_probe(found[0]):
                return Message(found[0], self)

    def __iter__(self) -> Iterator[Message[Any]]:
        """The messages, until the node is closed."""
        while (message := self.receive()) is not None:
            yield message

    def fileno(self) -> int:
        """A descriptor that is readable while messages wait, for ``select`` and event loops."""
        return self._core.fileno()

    def call(
        self,
        type: int | object,
        payload: AnyBuffer = b"",
        *,
        timeout: float | None = None,
        transaction: bytes | None = None,
        to: str | None = None,
        **about: Any,
    ) -> Message[Any]:
        """Sends a message, and waits for the message with the same transaction number. Any number of threads may call
        at once.

        Args:
            type: As for :meth:`send`.
            payload: As for :meth:`send`.
            timeout: Seconds to wait, for room and for the reply; ``None``: as long as it takes.
            transaction: The number; a new one if it is not given.
            to: A node's URL, if the message goes to that, whatever the table says.
            about: ``subscription``, ``entity`` and ``trace``, as for :meth:`send`.

        Raises:
            TimeoutError: no reply has come within ``timeout`` seconds.
            AlreadyExists: a call with that number is under way.
            NotFound: no table is in force, or it has no entry for the message.
            ResourceExhausted: a queue is full.
            RuntimeError: this thread runs coroutine handlers, which would all wait.
        """
        _core.refuse_in_handler_loop("node.call()")
        end = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
        waiter = self._core.expect(transaction)
        about |= {"transaction": waiter.transaction, "timeout": timeout}
        if to is None:
            self.send(type, payload, **about)
        else:
            self.send_to(to, type, payload, **about)
        received = waiter.wait(None if end is None else max(0.0, end - time.monotonic()))
        if received is None:
            raise TimeoutError(f"no reply to a message of type {_shown(type)} within {timeout} s")
        return Message(received, self, self._handlers.type_of(received.type))

    # --- begin and end ---

    def start(self) -> Node:
        """Takes messages from now on, in threads that end with the program.

        Raises:
            AlreadyExists: a URL is served already.
            InvalidArgument: the table is wrong; the message names file and line.
            OSError: the table's file cannot be read.
        """
        if self._started:
            raise RuntimeError("this node was started already: write either start() or 'with node:'")
        self._started = True
        self._open(self._handling() if self._handlers else None, self._consumers)
        try:
            if self._table_file is not None:
                seen = _stamp(self._table_file)
                self.load(self._table_file)
                self._run(partial(self._watch, seen), "table")
            if self._manager is not None and is_rmr(self._manager):
                self._attachment = pushed = PushedTables(self._core, self._manager, self.name, self.install)
                self._run(partial(pushed.run, self._rmr_sender[0]), "manager")
            elif self._manager is not None:
                node = NodeInfo(self.name, self.urls[0], self._handlers.types(), self._group)
                self._attachment = attached = Attachment(
                    self._manager, node, self._take_table, options_for(self._manager, self._options)
                )
                self._run(attached.run, "manager")
        except BaseException:
            self.close(0.0)
            raise
        return self

    def ready(self, timeout: float | None = None) -> None:
        """Waits until a table is in force, and all the nodes that it names are connected.

        Raises:
            TimeoutError: that is not so within ``timeout`` seconds; the message says what is missing.
        """
        end = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
        while not self.is_ready():
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(self._what_is_missing())
            self._ended.wait(_LOOK)

    def close(self, grace: float = 5.0) -> None:
        """Ends: handles the messages that have come, and sends those that are queued, for at most ``grace`` seconds.
        Harmless when repeated.
        """
        self._ended.set()
        if self._attachment is not None:
            self._attachment.end()
        self._close(grace)
        for thread in self._running:
            thread.join(1.0)

    def _take_table(self, table: RouteTable) -> None:
        self.install(table.text)

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<node {self.name} at {', '.join(self.urls) or 'no URL yet'}>"

    def _run(self, work: Callable[[], object], name: str) -> None:
        thread = threading.Thread(target=work, name=f"nearcall-route-{name}", daemon=True)
        self._running.append(thread)
        thread.start()

    def _what_is_missing(self) -> str:
        status = self.status()
        if status.table is None:
            return f"node {self.name} is not ready: no table is in force"
        missing = [
            f"{each.name} ({each.failure or 'no connection yet'})" for each in status.endpoints if not each.connected
        ]
        return f"node {self.name} is not ready: it is not connected to {', '.join(missing)}"

    def _handling(self) -> Callable[[_core.RouteMessage], None]:
        """The function that is called with each message."""
        handler_of = self._handlers.by_type.get

        def handle(received: _core.RouteMessage) -> None:
            handler = handler_of(received.type)
            if handler is None:
                if not self._answers_probe(received):
                    self._unhandled += 1
                return
            message: Message[Any] = Message(received, self, handler.value_type)
            try:
                if handler.value_type is not None:
                    _ = message.value  # a payload that does not fit never reaches the handler
                handler.function(message)
            except BaseException as error:
                self._failed += 1
                tell_failure(handler, message, error)

        return handle

    def _answers_probe(self, received: _core.RouteMessage) -> bool:
        """Answers a health message, unless the node has a handler of its own for those."""
        if received.type != HEALTH_REQUEST or self._handlers.of(HEALTH_REQUEST) is not None:
            return False
        if received.address:
            try:
                self.reply_to(received, b"OK\n", HEALTH_REPLY, 0.0)
            except Exception as error:
                log(WARNING, "cannot answer the health message of %s: %s", received.source, str(error))
        return True

    def _watch(self, seen: tuple[int, int, int] | None) -> None:
        """Reads the table's file again when it has changed since ``seen``, which it had before it was read."""
        assert self._table_file is not None
        while not self._ended.wait(_LOOK_AT_FILE):
            now = _stamp(self._table_file)
            if now is None or now == seen:
                continue
            seen = now
            try:
                self.load(self._table_file)
                log(INFO, "node %s: the table was read again from %s", self.name, str(self._table_file))
            except (InvalidArgument, OSError) as error:
                log(ERROR, "node %s: the table before stays in force: %s", self.name, str(error))


def tell_failure(handler: Handler, message: Message[Any], error: BaseException) -> None:
    """Logs what a handler has raised."""
    log(ERROR, "the handler of messages of type %d, %s, has failed", message.type, handler.name, error=error)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _shown(type: int | object) -> str:
    return str(type if isinstance(type, int) else number_of(type.__class__))
