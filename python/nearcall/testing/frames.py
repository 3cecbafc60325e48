"""Finds the messages in the bytes of a connection, as docs/protocol.md describes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import msgspec

__all__ = ["FRAME_KINDS", "HANDSHAKE_KINDS", "Frame", "Kind", "Message", "Side", "Splitter", "method_names"]

Kind = Literal[
    "hello",
    "welcome",
    "reject",
    "call",
    "item",
    "end",
    "reply",
    "error",
    "cancel",
    "credit",
    "ping",
    "pong",
    "goaway",
    "head",
]
"""The kind of a message: the three of the handshake, then the frames."""

Side = Literal["client", "server"]

HANDSHAKE_KINDS: tuple[Kind, ...] = get_args(Kind)[:3]
FRAME_KINDS: tuple[Kind, ...] = get_args(Kind)[3:]

_MAGIC = b"NCAL"
_DEADLINE, _METADATA, _PARTS = 1, 2, 4
_LONGEST = 1 << 30
_ONEWAY = 0xFFFFFFFF


@dataclass(frozen=True)
class Frame:
    """A message that passed through a proxy."""

    kind: Kind
    to: Side
    """The side that it was sent to."""
    method: str | None
    """``Service.method`` of the call it belongs to; ``None`` if it belongs to none, or to one that has ended."""
    call: int
    """Number of the call on its connection; 0 in the handshake."""
    connection: int
    """Number of the connection, counted by the proxy from 1."""
    wire: bytes
    """All its bytes, as they were sent; a frame begins with its length in 4 bytes."""

    @property
    def payload(self) -> bytes:
        """Its content: encoded arguments, a result, an item; JSON in the handshake."""
        if self.kind in HANDSHAKE_KINDS:
            return self.wire[12:]
        flags, at = self.wire[5], 12
        if flags & _DEADLINE:
            at += 8
        if flags & _METADATA:
            at += 4 + int.from_bytes(self.wire[at : at + 4], "little")
        if flags & _PARTS:
            at += 4 + 8 * int.from_bytes(self.wire[at : at + 4], "little")
        return self.wire[at:]


class Message(NamedTuple):
    """A whole message, or, without a kind, bytes that could not be read as one."""

    wire: bytes
    kind: Kind | None = None
    call: int = 0
    method: int | None = None


class Splitter:
    """Cuts one direction of a connection into messages."""

    def __init__(self, *, handshake: bool, frames: bool) -> None:
        self._buffer = bytearray()
        self._handshake = handshake
        self._frames = frames

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that ``data`` completes."""
        self._buffer += data
        while (message := self._next()) is not None:
            yield message

    def rest(self) -> bytes:
        """The bytes of an incomplete message."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _next(self) -> Message | None:
        buffer = self._buffer
        if self._handshake:
            if len(buffer) < 12:
                return None
            kind, length = buffer[5], int.from_bytes(buffer[8:12], "little")
            if buffer.startswith(_MAGIC) and 1 <= kind <= len(HANDSHAKE_KINDS) and length <= _LONGEST:
                if len(buffer) < 12 + length:
                    return None
                self._handshake = False
                return Message(self._take(12 + length), HANDSHAKE_KINDS[kind - 1])
            self._handshake = self._frames = False
        if self._frames:
            if len(buffer) < 12:
                return None
            length, kind, _, method, call = struct.unpack_from("<IBBHI", buffer)
            if 8 <= length <= _LONGEST and 1 <= kind <= len(FRAME_KINDS):
                if len(buffer) < 4 + length:
                    return None
                name = FRAME_KINDS[kind - 1]
                return Message(self._take(4 + length), name, call, method if name == "call" else None)
            # The bytes are no frame. They are passed on as they are: the receiver is to see what was sent.
            self._frames = False
        return Message(self._take(len(buffer))) if buffer else None

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken


class Calls:
    """Finds the methods of the calls on one connection."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._running: dict[int, str] = {}

    def method_of(self, message: Message, to: Side) -> str | None:
        """``Service.method``. To be called once for each message, in order."""
        if message.kind == "welcome":
            self._names = method_names(message.wire[12:])
        if message.kind is None or message.kind in HANDSHAKE_KINDS:
            return None
        if message.method is not None:
            name = self._names[message.method] if message.method < len(self._names) else None
            if name is not None and message.call != _ONEWAY:
                self._running[message.call] = name
            return name
        if to == "client" and message.kind in ("reply", "error", "end"):
            return self._running.pop(message.call, None)
        return self._running.get(message.call)


class _Described(msgspec.Struct):
    name: str


class _Service(_Described):
    methods: list[_Described]


class _Description(msgspec.Struct):
    services: list[_Service]


class _Welcome(msgspec.Struct):
    description: str


def method_names(welcome: bytes) -> list[str]:
    """The methods of a server's welcome, by number; none if it cannot be read."""
    try:
        text = msgspec.json.decode(welcome, type=_Welcome).description
        services = msgspec.json.decode(text, type=_Description).services
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [f"{service.name}.{method.name}" for service in services for method in service.methods]
