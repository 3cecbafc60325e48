"""What a handler can ask about the call that it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from inspect import iscoroutinefunction
from typing import Any, cast, overload

from .. import _core
from ..metadata_pairs import Metadata
from .early_ends import watch_early_end
from .metadata import MetadataItems, MetadataPair, encode_metadata
from .session import ServerConnection, Session
from .variables import LentCall, current_request

__all__ = ["Context", "context"]


class Context:
    """The call that a handler serves; from :func:`context`.

    It may be kept after the call. Then it keeps nothing of a client that is gone, and still tells what it told.
    """

    __slots__ = ("_call",)

    def __init__(self, call: _core.Call) -> None:
        self._call = call

    @property
    def method(self) -> str:
        """``"Service.method"``."""
        return self._call.method

    @property
    def peer(self) -> dict[str, Any]:
        """The caller, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. A client with
        a certificate also has ``subject`` and ``names``, those of the certificate.
        """
        return self._call.peer

    @property
    def session(self) -> Session:
        """A place for what belongs to this client, the same in all calls of one connection: set any attribute.

        It begins empty, and is dropped when the connection is closed and its last call has ended.

        Raises:
            RuntimeError: the call has ended, and the connection is closed.
        """
        connection: ServerConnection = self._call.belongings(ServerConnection)
        return connection.session

    @property
    def metadata(self) -> Metadata:
        """The metadata that the caller sent with the arguments."""
        # Names that begin with a colon are the server's own notes: no client can send them.
        return Metadata([pair for pair in self._call.metadata if not pair[0].startswith(":")])

    @property
    def time_left(self) -> float | None:
        """Seconds until the caller stops waiting; ``None`` if it waits for ever."""
        return self._call.time_left

    @property
    def compress(self) -> bool | None:
        """Whether the result, or the items that are sent from now on, are compressed, for a caller over gRPC or HTTP
        that can decompress them. ``None``, the initial value: as the server's option ``compression`` says. ``True``:
        all, also those that become longer, with the server's compression or one that the caller reads; set it before
        the first item or any metadata is sent. Over other transports nothing is compressed.
        """
        return self._call.compress

    @compress.setter
    def compress(self, compress: bool | None) -> None:
        if compress is not None and not isinstance(cast(object, compress), bool):
            raise TypeError(
                f"compress is True, False or None, not {compress!r}: by what is the server's option compression"
            )
        self._call.compress = compress

    @property
    def received_compressed(self) -> bool:
        """Whether the caller compressed the item of its stream that was taken last, or else the arguments. Only calls
        over gRPC and HTTP can be compressed; for a call by GET this is not known.
        """
        return self._call.received_compressed

    @property
    def cancelled(self) -> bool:
        """Whether the caller gave the call up, or is gone: a long computation can stop early. See :meth:`on_cancel`."""
        return self._call.cancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Calls ``callback``, once and without arguments, when nobody waits for the call any more although its handler
        still runs: the caller gave it up or is gone, or its deadline has passed. If that has happened already, it is
        called at once.

        For a coroutine handler, ``callback`` is called in its event loop. For others, one thread calls the callbacks of
        all calls: ``callback`` should only set an event or give something else up, and not wait. What it raises goes to
        the log. After the handler has ended it is not called any more.

        The call is under way until ``callback`` has run: it counts among the server's ``max_pending``, and a server
        that stops waits for it.

        Raises:
            TypeError: ``callback`` is no function, or an ``async def``.
        """
        _check_callback(callback)
        context = copy_context()

        def call_here(done: Callable[[], None]) -> None:
            context.run(callback)
            done()

        if current_request.get() is None:
            watch_early_end(self._call, call_here)
            return
        # asyncio is imported already, because this is a task.
        import asyncio

        loop = asyncio.get_running_loop()

        def call_in_loop(done: Callable[[], None]) -> None:
            try:
                loop.call_soon_threadsafe(_call_both, callback, done, context=context)
            except RuntimeError:  # the loop is closed, and its tasks are cancelled
                done()

        watch_early_end(self._call, call_in_loop)

    def _on_end(self, observer: Callable[[int], object]) -> bool:
        """Calls ``observer`` with the number of the status code with which the call ends, once that is sent.

        Returns:
            Whether ``observer`` will be called: not where an interceptor has passed the call to another thread, nor if
            the call is over.
        """
        request = current_request.get()
        if isinstance(request, LentCall):
            return False
        if request is not None:
            return request.on_end(observer)
        if _core.current_call() is None:
            return False
        _core.on_end(observer)
        return True

    @overload
    def send_metadata(self, items: Mapping[str, str | bytes]) -> None: ...
    @overload
    def send_metadata(self, items: Iterable[MetadataPair]) -> None: ...
    def send_metadata(self, items: MetadataItems) -> None:
        """Sends metadata at once, ahead of the result or the first item."""
        self._call.send_initial(encode_metadata(items))

    @overload
    def add_trailing_metadata(self, items: Mapping[str, str | bytes]) -> None: ...
    @overload
    def add_trailing_metadata(self, items: Iterable[MetadataPair]) -> None: ...
    def add_trailing_metadata(self, items: MetadataItems) -> None:
        """Adds metadata that is sent with the end of the call, whether it succeeds or fails."""
        self._call.add_trailing(encode_metadata(items))

    def __repr__(self) -> str:
        return f"<call of {self.method}>"


def _call_both(callback: Callable[[], object], done: Callable[[], None]) -> None:
    try:
        callback()
    finally:
        done()


def _check_callback(callback: object) -> None:
    if not callable(callback):
        raise TypeError(f"on_cancel takes a function without parameters, such as event.set, not {callback!r}")
    if iscoroutinefunction(callback):
        raise TypeError("on_cancel takes an ordinary function, not an 'async def': nobody would await it")


def context() -> Context:
    """The call that the calling handler serves, in a thread or in a coroutine.

    Raises:
        RuntimeError: no handler is running here. A thread that a handler started is not the handler's own.
    """
    request = current_request.get()
    call = _core.current_call() if request is None else request.call()
    if call is None:
        raise RuntimeError("nearcall.context() is for handlers: no call is being served here")
    return Context(call)
