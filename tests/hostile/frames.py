"""Frames and handshakes, right and wrong, as docs/protocol.md describes them. Nothing here checks anything."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

(CALL, ITEM, END, REPLY, ERROR, CANCEL, CREDIT, PING, PONG, GOAWAY, HEAD) = range(1, 12)
DEADLINE, METADATA, PARTS, NAMED, ONEWAY = 1, 2, 4, 8, 16
NOBODY = 0xFFFFFFFF
"""The call number of one-way calls."""
HELLO, WELCOME, REJECT = 1, 2, 3
WINDOW = 1 << 20

encode, decode, Ext = msgspec.msgpack.encode, msgspec.msgpack.decode, msgspec.msgpack.Ext


class Frame(NamedTuple):
    """A frame in the two pieces that shared memory may keep apart."""

    head: bytes
    payload: bytes | bytearray | memoryview = b""


class Received(NamedTuple):
    """A frame that came. Its rest begins with metadata and parts, if it has any."""

    kind: int
    flags: int
    call: int
    rest: bytes


def frame(
    kind: int,
    payload: bytes | bytearray | memoryview = b"",
    *,
    method: int = 0,
    call: int = 1,
    flags: int = 0,
    deadline: int | None = None,
    metadata: bytes | None = None,
    parts: Sequence[int] | None = None,
) -> Frame:
    """One frame; the flags of what is given are set."""
    head = b""
    if deadline is not None:
        flags |= DEADLINE
        head += struct.pack("<Q", deadline)
    if metadata is not None:
        flags |= METADATA
        head += struct.pack("<I", len(metadata)) + metadata
    if parts is not None:
        flags |= PARTS
        head += struct.pack(f"<I{len(parts)}Q", len(parts), *parts)
    return Frame(struct.pack("<BBHI", kind, flags, method, call) + head, payload)


def credit(amount: int, call: int = 1) -> Frame:
    return frame(CREDIT, struct.pack("<Q", amount & (1 << 64) - 1), call=call)


def pairs(*items: tuple[bytes, bytes]) -> bytes:
    """Metadata."""
    return b"".join(struct.pack("<H", len(k)) + k + struct.pack("<I", len(v)) + v for k, v in items)


def failure(code: int, message: bytes, details: bytes = b"") -> bytes:
    """What an error frame carries."""
    return struct.pack("<BI", code, len(message)) + message + details


def message(kind: int, body: bytes, *, length: int | None = None, protocol: int = 1, magic: bytes = b"NCAL") -> bytes:
    """One of the handshake."""
    return magic + struct.pack("<BBHI", protocol, kind, 0, len(body) if length is None else length) + body


def hello(ring: int = 0, **more: Any) -> bytes:
    body = {"version": "hostile", "limits": {"max_message": 1 << 26}, "ring": ring, **more}
    return message(HELLO, json.dumps(body).encode())


def welcome(description: str, **more: Any) -> bytes:
    body = {"version": "hostile", "limits": {"max_message": 1 << 26}, "description": description, **more}
    return message(WELCOME, json.dumps(body).encode())


def array(dtype: Any, shape: Any, order: Any = "C", index: Any = 0) -> bytes:
    """The msgpack that stands for a numpy array."""
    return encode(Ext(2, encode([dtype, shape, order, index])))


def parse(data: bytes) -> Received:
    kind, flags, _, call = struct.unpack_from("<BBHI", data)
    return Received(kind, flags, call, data[8:])
