"""What surrounds a call: its deadline, its metadata, and what its handler can ask about it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeAlias, cast

from . import _core
from .checked import check_seconds
from .instances import Served
from .session import ServerConnection, Session

__all__ = ["Context", "Metadata", "MetadataPairs", "context", "metadata", "surrounding_metadata", "timeout"]

MetadataItems: TypeAlias = "Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]"
"""Metadata as given: a mapping, or pairs if a key comes more than once."""

MetadataPairs: TypeAlias = "list[tuple[str, bytes]]"
"""Metadata in the form in which it travels."""

_KEY = re.compile(r"[0-9a-z_.\-]+")

_deadline: ContextVar[float | None] = ContextVar("nearcall.deadline", default=None)
_metadata: ContextVar[metadata | None] = ContextVar("nearcall.metadata", default=None)
_core.set_call_variables(_deadline, _metadata)

current_request: ContextVar[_core.LoopRequest | None] = ContextVar("nearcall.request", default=None)
"""The request that a task of the server's event loop serves; threads keep theirs in the core."""


class timeout:  # noqa: N801 - reads as a word: with nearcall.timeout(0.5)
    """Gives every call inside the block a deadline, counted from the block's beginning.

    Blocks nest; the nearest deadline counts. A call that is not answered in time raises
    :class:`~nearcall.DeadlineExceeded` and is given up at the server, too. A handler's own calls inherit its deadline
    without any block. Works in threads and in tasks alike::

        with nearcall.timeout(0.5):
            calc.add(1, 2)

    Args:
        seconds: Seconds from now, zero or more.

    Raises:
        InvalidArgument: it is no such number.
    """

    __slots__ = ("_seconds", "_token")

    def __init__(self, seconds: float) -> None:
        self._seconds = check_seconds("timeout", seconds, endless=True)
        self._token: Token[float | None] | None = None

    def __enter__(self) -> timeout:
        if self._token is not None:
            raise RuntimeError("this timeout is in use already; make a new one with nearcall.timeout(...)")
        deadline = time.monotonic() + self._seconds
        outer = _deadline.get()
        self._token = _deadline.set(deadline if outer is None else min(deadline, outer))
        _core.count_blocks(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _deadline.reset(self._token)
            self._token = None
            _core.count_blocks(False)


class Metadata(Mapping[str, "str | bytes"]):
    """Keys and values that travel beside a call, in order. A key may come more than once.

    As in gRPC, keys are lower case, and values are text unless the key ends in ``-bin``: then they are bytes.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: MetadataPairs = []) -> None:  # noqa: B006 - never changed
        self._pairs = pairs

    def __getitem__(self, key: str) -> str | bytes:
        for name, value in self._pairs:
            if name == key:
                return _decoded(name, value)
        raise KeyError(key)

    def getall(self, key: str) -> list[str | bytes]:
        """Every value of a key, in order."""
        return [_decoded(name, value) for name, value in self._pairs if name == key]

    def pairs(self) -> list[tuple[str, str | bytes]]:
        """Every key and value, in order."""
        return [(name, _decoded(name, value)) for name, value in self._pairs]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self._pairs))

    def __len__(self) -> int:
        return len({name for name, _ in self._pairs})

    def __repr__(self) -> str:
        return f"Metadata({self.pairs()!r})"


class metadata:  # noqa: N801 - reads as a word: with nearcall.metadata(...)
    """Sends metadata with every call inside the block, and keeps what the server sent with the last one.

    Blocks nest: the inner one's pairs come after the outer one's. ::

        with nearcall.metadata({"trace-id": "7"}) as meta:
            calc.add(1, 2)
        meta.trailing.get("cost")

    Args:
        items: A mapping, or pairs. Keys are lower-case letters, digits, ``-``, ``_`` and ``.``; values are ``str``, or
            ``bytes`` for a key that ends in ``-bin``.

    Raises:
        ValueError: a key or a value is malformed.
    """

    def __init__(self, items: MetadataItems = ()) -> None:
        self._own = encode_metadata(items)
        self._token: Token[metadata | None] | None = None
        self.pairs: MetadataPairs = self._own
        """What is sent, in the form in which it travels."""
        self.initial = Metadata()
        """What the server sent ahead of the last call's result."""
        self.trailing = Metadata()
        """What the server sent with the end of the last call."""

    def received(self, initial: bool, pairs: MetadataPairs) -> None:
        """Called by the core with what came back."""
        if initial:
            self.initial = Metadata(pairs)
        else:
            self.trailing = Metadata(pairs)

    def __enter__(self) -> metadata:
        if self._token is not None:
            raise RuntimeError("this metadata block is in use already; make a new one with nearcall.metadata(...)")
        outer = _metadata.get()
        self.pairs = self._own if outer is None else outer.pairs + self._own
        self._token = _metadata.set(self)
        _core.count_blocks(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _metadata.reset(self._token)
            self._token = None
            _core.count_blocks(False)


class Context:
    """The call that a handler serves; from :func:`context`."""

    __slots__ = ("_call",)

    def __init__(self, call: _core.Call) -> None:
        self._call = call

    @property
    def method(self) -> str:
        """``"Service.method"``."""
        return self._call.method

    @property
    def peer(self) -> dict[str, Any]:
        """Who called, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. A client with
        a certificate also has ``subject`` and ``names``, which that is for.
        """
        return self._call.peer

    @property
    def session(self) -> Session:
        """A place for what belongs to this client, the same in all calls of one connection: set any attribute.

        It begins empty, and goes when the connection is gone and its last call is through.

        Raises:
            RuntimeError: the call is over, and the connection gone.
        """
        connection: ServerConnection = self._call.belongings(ServerConnection)
        return connection.session

    @property
    def metadata(self) -> Metadata:
        """What the caller sent beside the arguments."""
        return Metadata(self._call.metadata)

    @property
    def time_left(self) -> float | None:
        """Seconds until the caller stops waiting; ``None`` if it waits for ever."""
        return self._call.time_left

    @property
    def cancelled(self) -> bool:
        """Whether the caller gave the call up, or is gone: a long computation can stop early."""
        return self._call.cancelled

    def _on_end(self, observer: Callable[[int], object]) -> bool:
        """Calls ``observer`` with the number of the status code with which the call ends, once that is sent.

        Returns:
            Whether it will: not in a thread to which an interceptor has passed the call.
        """
        request = current_request.get()
        if request is not None:
            request.on_end(observer)
            return True
        if _core.current_call() is None:
            return False
        _core.on_end(observer)
        return True

    def send_metadata(self, items: MetadataItems) -> None:
        """Sends metadata at once, ahead of the result or the first item."""
        self._call.send_initial(encode_metadata(items))

    def add_trailing_metadata(self, items: MetadataItems) -> None:
        """Adds metadata that goes back with the end of the call, well or not."""
        self._call.add_trailing(encode_metadata(items))

    def __repr__(self) -> str:
        return f"<call of {self.method}>"


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


def handler_of(served: Served, method: str) -> Callable[..., Any]:
    """What runs a method of something that is served: the object's own, or that of the calling client's object."""
    make = served.make
    if make is None:
        handler: Callable[..., Any] = getattr(served.instance, method)
        return handler

    def call(*args: Any, **kwargs: Any) -> Any:
        connection: ServerConnection = context()._call.belongings(ServerConnection)
        return getattr(connection._instance(make), method)(*args, **kwargs)

    return call


def surrounding_metadata() -> metadata | None:
    """The innermost ``nearcall.metadata`` block."""
    return _metadata.get()


def encode_metadata(items: MetadataItems) -> MetadataPairs:
    """Metadata in the form in which it travels.

    Raises:
        ValueError: a key or a value is malformed.
    """
    pairs = cast("Mapping[str, str | bytes]", items).items() if isinstance(items, Mapping) else items
    return [(key, _encoded(key, value)) for key, value in pairs]


def _encoded(key: str, value: str | bytes) -> bytes:
    if not _KEY.fullmatch(key):
        raise ValueError(f"'{key}' is no metadata key: write lower-case letters, digits, '-', '_' and '.'")
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise ValueError(f"the value of metadata '{key}' must be bytes, because the key ends in -bin")
        return value
    if not isinstance(value, str):
        raise ValueError(f"the value of metadata '{key}' must be str; for bytes, let the key end in -bin")
    return value.encode()


def _decoded(key: str, value: bytes) -> str | bytes:
    return value if key.endswith("-bin") else value.decode("utf-8", "replace")
