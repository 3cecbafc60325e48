"""Nodes for threads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from .. import _core
from ..call.wrong_with import for_threads, wrong_with
from ..options.checked import check_seconds, check_whole
from .base import HOW_NODES_ARE_USED, LOOK, REPLY_TIMEOUT, NodeBase, shown
from .failures import reply_or_raise
from .message import AnyBuffer, Message, reply_of
from .options import About, DirectAbout, NodeOptions
from .sending import DEFAULT_QUEUE, WhenFull

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Direct", "Node"]

M = TypeVar("M")
R = TypeVar("R")
H = TypeVar("H", bound=Callable[[Message[Any]], object])


class Node(NodeBase):
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
            ``nats://server/subject``, ``rmr://host:port`` for programs of RMR, and ``jetstream://server/subject`` for
            messages that a NATS server keeps. The first that is not of the last kind is where replies go.
        table: A file with the table, in RMR's text or in TOML (``.toml``). It is read again when it changes; a wrong
            one is logged, and the table before stays in force. ``None``: :meth:`install` and :meth:`load` say what
            counts.
        manager: Where a :func:`manager` is: it gets to know which types have handlers here, and sends tables. While it
            cannot be reached, the last table stays in force. ``rmr://host:port`` is a route manager of RMR.
        group: For the manager, and for what a NATS server keeps: nodes of one group take turns, and each group gets a
            copy of a message; the node's name if it is not given.
        name: The node's name, which receivers see; the first URL without its scheme if it is not given.
        when_full: What becomes of a message when ``queue`` bytes wait for its receiver: its sender waits (``"block"``),
            gets :class:`~nearcall.ResourceExhausted` (``"error"``), or the oldest or the new one is dropped and counted
            (``"drop_oldest"``, ``"drop_newest"``).
        queue: Bytes that may wait for each receiver; 1 MiB.
        threads: How many threads run handlers.
        options: ``tls``, ``nats``, ``allow_plaintext``, ``allow_users``, ``allow_groups``, ``max_message_size`` and
            ``spin``, as for :class:`~nearcall.Server` and :class:`~nearcall.Channel`; ``handshake_timeout``,
            ``max_memory``, ``max_pending``, ``on_connect`` and ``on_disconnect``, as for :class:`~nearcall.Server`.

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
        **options: Unpack[NodeOptions],
    ) -> None:
        super().__init__(urls, table, manager, group, name, when_full, queue, options)
        self._threads_of_handlers = check_whole("threads", threads)
        if self.__class__.send is Node.send:
            # Python calls the core without a function of Python between them.
            vars(self)["send"] = self._core.send

    # --- sending ---

    def send(
        self,
        type: int | object,
        payload: AnyBuffer = b"",
        *,
        subscription: int = -1,
        transaction: bytes | None = None,
        entity: str = "",
        trace: bytes | None = None,
        to: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sends a message to whom the table says.

        It returns when the message is queued, at ``jetstream://`` URLs too. If a receiver, or the NATS server on the
        way, cannot be reached, :meth:`status` says why, as the ``failure`` of that endpoint.

        Args:
            type: The message's type; or an object whose class has one, and which is the payload.
            payload: Bytes, a buffer such as an array, or such an object.
            subscription: Which subscription the message belongs to; -1: none.
            transaction: A number that the reply will have, too; at most 32 bytes.
            entity: The managed entity that the message concerns; at most 31 bytes.
            trace: Data that travels along; at most 65,535 bytes.
            to: A node's URL, if the message goes straight to that, whatever the table says.
            timeout: Seconds to wait for room in a full queue, if the node's policy is to wait; ``None``: as long as it
                takes.

        Raises:
            NotFound: no table is in force, or it has no entry for the message.
            ResourceExhausted: a queue is full. Other groups of the table's entry may have got the message.
            InvalidArgument: a part of the message is too long, or the URL is none.
            FailedPrecondition: the node is closed.
        """
        self._core.send(
            type,
            payload,
            subscription=subscription,
            transaction=transaction,
            entity=entity,
            trace=trace,
            to=to,
            timeout=timeout,
        )

    def call(
        self,
        type: int | object,
        payload: AnyBuffer = b"",
        *,
        timeout: float | None = None,
        transaction: bytes | None = None,
        **about: Unpack[About],
    ) -> Message[Any]:
        """Sends a message, and waits for the message with the same transaction number. Any number of threads may call
        at once.

        Args:
            type: As for :meth:`send`.
            payload: As for :meth:`send`.
            timeout: Seconds to wait, for room and for the reply; ``None``: as long as it takes.
            transaction: The number; a new one if it is not given.
            about: ``subscription``, ``entity``, ``trace`` and ``to``, as for :meth:`send`.

        Raises:
            TimeoutError: no reply has come within ``timeout`` seconds.
            RpcError: the handler has failed, as for a call of a service: what it has raised, if that is a status, and
                else :class:`~nearcall.Unknown`; :class:`~nearcall.Unimplemented`: there is no handler. If several nodes
                have got the message, all have failed, and this is the first.
            Unavailable: all nodes that have got the message have stopped or died, or their connections were lost.
            AlreadyExists: a call with that number is under way.
            NotFound: no table is in force, or it has no entry for the message.
            ResourceExhausted: a queue is full.
            FailedPrecondition: the node is closed; or this is a handler of it, and no thread would be left that takes
                the reply: ``threads`` must be larger than the number of handlers that wait for replies at once.
            RuntimeError: this thread runs coroutine handlers, which would all wait.
        """
        _core.refuse_in_handler_loop("node.call()")
        end = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
        waiter = self._core.expect(transaction)
        self._core.send(type, payload, transaction=waiter.transaction, timeout=timeout, **about)
        received = waiter.wait(None if end is None else max(0.0, end - time.monotonic()))
        if received is None:
            raise TimeoutError(f"no reply to a message of type {shown(type)} within {timeout} s")
        return cast("Message[Any]", reply_or_raise(received))

    def direct(self, url: str) -> Direct:
        """A way straight to one node, whatever the table says: what RMR calls a wormhole. It connects from now on.

        Raises:
            InvalidArgument: the URL is none.
            FailedPrecondition: this node is closed.
        """
        return Direct(self, self._core.open(url))

    def _reply(
        self, message: _core.RouteMessage[Any], payload: AnyBuffer, type: int | None, timeout: float | None
    ) -> None:
        timeout = REPLY_TIMEOUT if timeout is None else check_seconds("timeout", timeout, endless=True)
        self._core.reply(message, *reply_of(message, payload, type), timeout=timeout)

    # --- receiving ---

    @overload
    def on(self, cls: type[M], /) -> Callable[[Callable[[Message[M]], R]], Callable[[Message[M]], R]]: ...

    @overload
    def on(self, number: int, /, *types: int | type) -> Callable[[H], H]: ...

    @overload
    def on(self, cls: type, other: int | type, /, *types: int | type) -> Callable[[H], H]: ...

    def on(self, *types: int | type) -> Callable[[Any], Any]:
        """Has a function called with each :class:`Message` of these types. A type may also be a class with a message
        type: then ``message.value`` is an object of it.

        Raises:
            TypeError: a class has no message type, a type has a handler already, or it is a coroutine function.
        """
        return self._handlers.adding(types)

    def receive(self, timeout: float | None = None) -> Message[Any] | None:
        """The next message that no handler takes; ``None`` if none comes within ``timeout`` seconds, or the node is
        closed.

        Raises:
            RuntimeError: the node has handlers, which get all messages.
        """
        self._check_asked()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            found = self._core.receive(1, left)
            if not found:
                return None
            found[0]._settle(True)
            if not self._answers_probe(found[0]):
                return cast("Message[Any]", found[0])

    def __iter__(self) -> Iterator[Message[Any]]:
        """The messages, until the node is closed."""
        while (message := self.receive()) is not None:
            yield message

    def _dispatch(self) -> tuple[_core.RouteDispatch | None, int]:
        if not self._handlers:
            return None, 1
        threads = self._threads_of_handlers
        # Where handlers run in threads of their own, replies need none of these.
        taking = sys.maxsize if self._takes_from_inbox else threads
        return self._core.dispatch(self._note_unhandled, self._note_failure, taking), threads

    # --- begin and end ---

    def start(self) -> Node:
        """Takes messages from now on, in threads that end with the program.

        Raises:
            AlreadyExists: a URL is served already.
            InvalidArgument: the table is wrong; the message names file and line.
            OSError: the table's file cannot be read.
        """
        self._begin()
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
            self._ended.wait(LOOK)

    def close(self, grace: float = 5.0) -> None:
        """Ends: handles the messages that have come, and sends those that are queued, for at most ``grace`` seconds,
        or a day. Harmless when repeated.

        Raises:
            InvalidArgument: ``grace`` is no number, or negative.
        """
        self._finish(grace)

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself
        __aenter__ = __aexit__ = wrong_with(for_threads(*HOW_NODES_ARE_USED))


class Direct:
    """A way straight to one node, whatever the table says: what :meth:`Node.direct` returns."""

    def __init__(self, node: Node, endpoint: _core.RouteEndpoint) -> None:
        self._node = node
        self._endpoint = endpoint

    @property
    def url(self) -> str:
        """Where it leads."""
        return self._endpoint.name

    def is_connected(self) -> bool:
        """Whether there is a connection now. What is sent without one waits for it."""
        return self._endpoint.is_connected()

    def send(self, type: int | object, payload: AnyBuffer = b"", **about: Unpack[DirectAbout]) -> None:
        """Sends a message, as :meth:`Node.send` does."""
        self._node.send(type, payload, to=self.url, **about)

    def call(self, type: int | object, payload: AnyBuffer = b"", **about: Unpack[DirectAbout]) -> Message[Any]:
        """Sends a message and waits for its reply, as :meth:`Node.call` does."""
        return self._node.call(type, payload, to=self.url, **about)
