"""What nodes for threads and nodes for event loops have in common: everything but how they wait."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument, RpcError, Unimplemented
from ..log import ERROR, INFO, WARNING, log
from ..options.checked import check_seconds
from .attached import Attachment
from .failures import FAILURE, encoded, hears_of_failures
from .handlers import Handlers
from .manager import NodeInfo
from .message import number_of
from .rmr import PushedTables, is_rmr
from .sending import Sending, WhenFull, options_for
from .service import RouteTable

__all__ = ["HOW_NODES_ARE_USED", "LOOK", "REPLY_TIMEOUT", "NodeBase", "checked_grace", "shown"]

LOOK = 0.02
"""Seconds after which ``ready()`` looks again."""
REPLY_TIMEOUT = 1.0
"""Seconds for which a reply waits for room, unless the user says otherwise."""
_LOOK_AT_FILE = 1.0
"""Seconds after which the table's file is looked at again."""
_STABLE = 0.3
"""Seconds for which it must not have changed before it is read."""
_LONGEST_GRACE = 86_400.0
"""Seconds."""
HOW_NODES_ARE_USED = ("node", "with nearcall.route.Node(...)", "async with nearcall.route.aio.Node(...)")
"""What they are, and how in threads and in event loops, for messages."""
HEALTH_REQUEST, HEALTH_REPLY = 100, 101
"""The types of health messages, which a node answers by itself."""


class NodeBase(Sending):
    """A node. Subclasses say how it waits.

    Args:
        urls: As for a node.
        table: As for a node.
        manager: As for a node.
        group: As for a node.
        name: As for a node.
        when_full: As for a node.
        queue: As for a node.
        options: As for a node.
    """

    _coroutines = False
    """Whether handlers may be coroutine functions."""

    def __init__(
        self,
        urls: tuple[str, ...],
        table: str | Path | None,
        manager: str | None,
        group: str | None,
        name: str | None,
        when_full: WhenFull,
        queue: int,
        options: Mapping[str, Any],
    ) -> None:
        managed = manager is not None and is_rmr(manager)
        super().__init__(urls, name, when_full, queue, options, managed=managed)
        if managed and not self._rmr_places:
            raise ValueError("a route manager of RMR sends tables to an rmr:// URL, and this node has none")
        if manager is not None and len(self._kept_places) == len(urls):
            raise ValueError(
                "a route manager sends messages to nodes' own URLs, and jetstream:// is nobody's own: give another one"
            )
        self._handlers = Handlers(self._core, self._coroutines)
        self._running: list[threading.Thread] = []
        self._table_file = None if table is None else Path(table)
        self._manager = manager
        self._group = group
        self._attachment: Attachment | PushedTables | None = None
        self._ended = threading.Event()
        self._started = False

    def fileno(self) -> int:
        """A descriptor that is readable while messages wait, for ``select`` and event loops."""
        return self._core.fileno()

    @abstractmethod
    def _dispatch(self) -> tuple[_core.RouteDispatch | None, int]:
        """What has handlers called, and in how many threads; ``None`` if messages are asked for."""

    def _begin(self) -> None:
        """Takes messages from now on. If something is wrong, the node is closed."""
        if self._started:
            raise RuntimeError("this node was started already: write either start() or 'with node:'")
        if self._ended.is_set():
            raise RuntimeError("this node was closed before it was started: make another one")
        self._started = True
        dispatch = self._dispatch()
        self._bind(*dispatch)
        try:
            if self._table_file is not None:
                seen = _stamp(self._table_file)
                self.load(self._table_file)  # before a handler wants to send by it
                self._run(partial(self._watch, seen), "table")
            self._serve(*dispatch)
            for url in self._kept_places:
                self._core.take_durable(url, self._group or self.name)
            if self._manager is not None:
                self._attachment, work = self._attached_to(self._manager)
                self._run(work, "manager")
        except BaseException:
            self._finish(0.0)
            raise

    def _attached_to(self, manager: str) -> tuple[Attachment | PushedTables, Callable[[], object]]:
        """What gets tables from a manager, and the work of a thread of its own for that."""
        if is_rmr(manager):
            pushed = PushedTables(self._core, manager, self.name, self.install)
            return pushed, partial(pushed.run, self._rmr_sender[0])
        node = NodeInfo(self.name, self._address, self._handlers.types(), self._group or self.name)
        attachment = Attachment(manager, node, self._take_table, options_for(manager, self._options))
        return attachment, attachment.run

    def _begin_end(self, grace: float) -> None:
        """Takes no more messages and tables. What has come is still handled. Harmless when repeated."""
        self._ended.set()
        if self._attachment is not None:
            self._attachment.end()
        self._take_no_more(checked_grace(grace))

    def _finish(self, grace: float) -> None:
        self._begin_end(grace)
        self._close(checked_grace(grace))
        for thread in self._running:
            thread.join(1.0)

    def _take_table(self, table: RouteTable) -> None:
        self.install(table.text)

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

    def _check_asked(self) -> None:
        """Raises ``RuntimeError`` if messages go to handlers, and cannot be asked for."""
        if self._handlers:
            raise RuntimeError("this node has handlers, which get all messages: add one for the type, or have none")

    def _note_unhandled(self, message: _core.RouteMessage[Any]) -> bool:
        """A message has come that no handler takes. Whether the node has answered it by itself."""
        if self._answers_probe(message):
            return True
        self._unhandled += 1
        self._tell_caller(
            message, Unimplemented(f"the node {self.name} has no handler for messages of type {message.type}")
        )
        return False

    def _note_failure(self, handler: str, message: _core.RouteMessage[Any], error: BaseException) -> None:
        """A handler has raised, or a payload does not fit its type."""
        self._failed += 1
        tell_failure(handler, message, error)
        self._tell_caller(message, error)

    def _tell_caller(self, message: _core.RouteMessage[Any], error: BaseException) -> None:
        """Tells who may wait for a reply to a message that none will come. A sender that has no room for it is not
        waited for.
        """
        if hears_of_failures(message):
            with contextlib.suppress(RpcError):
                self._core.reply(message, FAILURE, encoded(error), timeout=0.0)

    def _answers_probe(self, message: _core.RouteMessage[Any]) -> bool:
        """Answers a health message, unless the node has a handler of its own for those."""
        if message.type != HEALTH_REQUEST or self._handlers.of(HEALTH_REQUEST) is not None:
            return False
        if message.address:
            try:
                self._core.reply(message, HEALTH_REPLY, b"OK\n", timeout=0.0)
            except Exception as error:
                log(WARNING, "cannot answer the health message of %s: %s", message.source, str(error))
        return True

    def _watch(self, seen: tuple[int, int, int] | None) -> None:
        """Reads the table's file again when it has changed since ``seen``, which it had before it was read."""
        assert self._table_file is not None
        while not self._ended.wait(_LOOK_AT_FILE):
            now = _stamp(self._table_file)
            if now is None or now == seen:
                continue
            # Who writes into the file itself may not be done.
            if self._ended.wait(_STABLE) or _stamp(self._table_file) != now:
                continue
            seen = now
            try:
                self.load(self._table_file)
                log(INFO, "node %s: the table was read again from %s", self.name, str(self._table_file))
            except (InvalidArgument, OSError) as error:
                log(ERROR, "node %s: the table before stays in force: %s", self.name, str(error))


def checked_grace(grace: object) -> float:
    """Seconds that a node may take to end: without end, as many as threads can wait for.

    Raises:
        InvalidArgument: it is no number, or negative.
    """
    return min(check_seconds("grace", grace, endless=True), _LONGEST_GRACE)


def tell_failure(handler: str, message: _core.RouteMessage[Any], error: BaseException) -> None:
    """Logs what a handler has raised."""
    log(ERROR, "the handler of messages of type %d, %s, has failed", message.type, handler, error=error)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def shown(type: int | object) -> str:
    """A message's type as users read it."""
    return str(type if isinstance(type, int) else number_of(type.__class__))
