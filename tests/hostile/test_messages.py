"""Protobuf messages that mean harm, in calls over gRPC: each is answered, and nobody else waits for it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache

from ..e2e.h2_raw import RawClient, data, headers, message, request, window
from ..unit.protobuf_bytes import varint
from .colliding import ints
from .target import GRPC, Attack, Scene, Table, every

TABLE = Table(GRPC)
MIB = 1 << 20
OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 0, 3, 8
HIGHEST = (1 << 64) - 1
UNKNOWN = b"\xf8\x01\x00"
"""A field that no message has."""


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def integer(number: int, value: int) -> bytes:
    return tag(number, 0) + varint(value)


def double(number: int, value: float) -> bytes:
    return tag(number, 1) + struct.pack("<d", value)


def within(number: int, body: bytes, times: int = 1) -> bytes:
    for _ in range(times):
        body = tag(number, 2) + varint(len(body)) + body
    return body


def twice(number: int, body: bytes, times: int) -> bytes:
    for _ in range(times):
        body = within(number, body) + within(number, UNKNOWN)
    return body


class Caller:
    """Calls one method after the other, and says what each is answered."""

    def __init__(self, scene: Scene) -> None:
        # Whatever they are answered is taken.
        self._client: RawClient = scene.grpc(window=1 << 30)
        self._client.send(window(1 << 30))
        self._stream = 1

    def answer(self, method: str, body: bytes) -> int:
        stream, self._stream = self._stream, self._stream + 2
        self._client.send(headers(request(f"/hostile.Messages/{method}".encode()), stream))
        if len(body) > 60_000:
            self._client.push(message(body), stream, 20.0, ends=True)
        else:
            self._client.send(data(message(body), stream, ends=True))
        return self._client.status(stream)

    def expect(self, status: int, method: str, *bodies: bytes) -> None:
        for body in bodies:
            answer = self.answer(method, body)
            assert answer == status, f"{method} of {len(body)} bytes, {body[:40]!r}: {answer}"


@TABLE.add()
def many_values_in_few_bytes(scene: Scene) -> None:
    caller, count = Caller(scene), scene.amount(3, 20) * MIB
    empty = b"\x0a\x00" * count
    for _ in range(scene.amount(1, 5)):
        caller.expect(RESOURCE_EXHAUSTED, "Nodes", empty)
        caller.expect(RESOURCE_EXHAUSTED, "Numbered", empty)
        caller.expect(RESOURCE_EXHAUSTED, "Numbers", within(1, b"\1" * count), integer(1, 1) * count)
        caller.expect(RESOURCE_EXHAUSTED, "Truths", within(1, b"\1" * count))
        caller.expect(RESOURCE_EXHAUSTED, "Named", (b"\x0a\x05" + within(1, b"k") + integer(2, 1)) * count)
        caller.expect(RESOURCE_EXHAUSTED, "Anything", within(1, within(6, empty)), within(1, within(5, empty)))
        caller.expect(RESOURCE_EXHAUSTED, "Anything", within(1, within(6, within(1, integer(1, 0)))) * count)
        caller.expect(RESOURCE_EXHAUSTED, "Echo", empty)
        caller.expect(RESOURCE_EXHAUSTED, "When", within(1, integer(1, 5)) * count)
        fruit = within(1, integer(1, 5)) + within(2, within(1, b"x"))
        caller.expect(RESOURCE_EXHAUSTED, "Fruit", within(1, fruit) * count, within(1, fruit * count))


@TABLE.add()
def as_many_values_as_may_be(scene: Scene) -> None:
    """They are made: who makes them lets others have their turns."""
    caller = Caller(scene)
    for _ in range(scene.amount(1, 5)):
        caller.expect(OK, "Nodes", b"\x0a\x00" * 40_000)
        caller.expect(OK, "Numbered", b"\x0a\x00" * 30_000)
        caller.expect(OK, "Numbers", within(1, b"\1" * 390_000))
        # These would take more than a client's quarter of the server's memory.
        caller.expect(RESOURCE_EXHAUSTED, "Nodes", b"\x0a\x00" * 900_000)
        caller.expect(RESOURCE_EXHAUSTED, "Numbers", within(1, b"\1" * 1_900_000))


@TABLE.add()
def messages_within_each_other(scene: Scene) -> None:
    caller = Caller(scene)
    caller.expect(INVALID_ARGUMENT, "Tree", within(3, b"", 101), within(3, b"", 20_000), within(4, b"", 20_000))
    lists = b""
    for _ in range(60):
        lists = within(6, within(1, lists))
    caller.expect(INVALID_ARGUMENT, "Anything", within(1, lists))
    groups = tag(50, 3) * 100_000
    caller.expect(INVALID_ARGUMENT, "Echo", groups, groups + tag(50, 4) * 100_000, tag(1, 3), tag(1, 4))
    size = scene.amount(8, 50) * MIB
    for _ in range(scene.amount(1, 5)):
        # A copy at each level would be gigabytes.
        caller.expect(OK, "Tree", twice(4, within(50, bytes(size)), 90))
        dicts = within(3, b"x" * size)
        for _ in range(30):
            dicts = within(5, within(1, within(2, dicts)))
        assert caller.answer("Anything", within(1, dicts)) in (OK, RESOURCE_EXHAUSTED)


@TABLE.add()
def values_that_are_none(scene: Scene) -> None:
    caller = Caller(scene)
    wrong: dict[str, list[bytes]] = {
        "Echo": [b"\x0a", b"\x0a\x05ab", b"\x02\x00", b"\x0e", b"\x0f", b"\xff" * 9 + b"\1", b"\x0a" + varint(HIGHEST)],
        "Text": [within(1, one) for one in (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80")],
        "Named": [within(1, within(1, b"\xff"))],
        "Colour": [integer(1, 77), integer(1, HIGHEST), integer(1, 1 << 40), tag(1, 0) + b"\xff" * 10 + b"\1"],
        "Numbers": [tag(1, 0) + b"\xff" * 9 + b"\x7f", within(1, b"\xff"), within(1, b"\x80" * 100_000)],
        "Fruit": [b"", within(1, b""), within(1, integer(1, 5)), within(1, within(3, b"x"))],
        "When": [
            within(1, integer(1, 1 << 62)),
            within(1, integer(1, HIGHEST) + integer(2, HIGHEST)),
            within(1, integer(1, 1) + integer(2, 4_000_000_000)),
            within(1, b"") + within(2, integer(1, 315_576_000_001)),
            within(1, b"") + within(2, integer(1, 1 << 63)),
            within(1, b"") + within(2, integer(1, 1) + integer(2, HIGHEST)),
        ],
        "Price": [within(1, one) for one in (b"", b"one", b"1" * 10 + b"x", b"--1")],
        "Array": [
            within(1, within(1, dtype) + within(2, shape) + within(3, bytes(16)))
            for dtype, shape in (
                (b"<f8", varint(1 << 40)),
                (b"<f8", varint(HIGHEST)),
                (b"<f8", b"\1" * 100_000),
                (b"<f8", b"\0" + varint(1 << 62)),
                (b"S0", b"\1"),
                (b"|O", b"\2"),
                (b"f8," * 100_000, b"\1"),
                (b"\xff", b"\2"),
                (b"", b"\2"),
            )
        ],
    }
    for method, bodies in wrong.items():
        caller.expect(INVALID_ARGUMENT, method, *bodies)
    # What is odd, and yet a value.
    caller.expect(OK, "Echo", integer(1, 1), UNKNOWN * 1_000_000, tag(9, 3) + tag(9, 4))
    caller.expect(OK, "Price", within(1, b"1e999999999"), within(1, b"sNaN"))
    caller.expect(OK, "Count", integer(1, HIGHEST))
    for number in (float("nan"), float("inf"), -1.0, 1e300):
        assert caller.answer("Nap", double(1, number)) not in (OK, -1)
        assert caller.answer("Anything", within(1, double(2, number))) >= 0
    for number in (HIGHEST, 1 << 62):
        assert caller.answer("Make", integer(1, number)) not in (OK, -1)


@cache
def colliding() -> list[int]:
    return ints(14)


@TABLE.add()
def keys_that_collide_in_protobuf(scene: Scene) -> None:
    caller = Caller(scene)
    entries = b"".join(within(1, integer(1, key)) for key in colliding())
    for _ in range(scene.amount(1, 10)):
        caller.expect(INVALID_ARGUMENT, "Numbered", entries)
        # A set goes other ways than a dict.
        assert caller.answer("Members", within(1, b"".join(map(varint, colliding())))) in (OK, INVALID_ARGUMENT)


@every(TABLE)
def test_nobody_waits_for_a_message(attack: Attack, transport: str, attempt: Callable[[Attack, str], None]) -> None:
    attempt(attack, transport)
