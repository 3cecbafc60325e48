"""Messages whose keys collide are refused before they are decoded; honest ones never are."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import itertools
import random
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from nearcall._core import check_keys
from nearcall.codec import anything
from nearcall.codec.hashed import ANYTHING, hashed_keys, together
from nearcall.codec.msgpack import functions as msgpack

from ..hostile.colliding import extension, ints, packed_list, packed_map, tuples

UTC = datetime.timezone.utc


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


class Pair(NamedTuple):
    x: int
    y: int


class Cell(msgspec.Struct, frozen=True, array_like=True):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Careless:
    """A class of a user's whose hash is a bad one."""

    x: int

    def __hash__(self) -> int:
        return self.x % 4


def look(body: bytes, *types: Any) -> None:
    found = together(hashed_keys(msgspec.inspect.type_info(each)) for each in types)
    assert found is not None
    check_keys(body, found)


def spread(count: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(count)]


N = 10_000
CHANCE = random.Random(5)
HONEST: dict[str, list[Any]] = {
    "in a row": list(range(N)),
    "backwards": list(range(N, 0, -1)),
    "below zero": list(range(-N, 0)),
    **{f"multiples of 2**{bits}": [number << bits for number in range(N)] for bits in range(1, 48, 3)},
    **{
        f"multiples of {step}": [number * step for number in range(N)] for step in (3, 10, 1000, 4096 * 3, 10**6, 10**9)
    },
    "seconds": [1_700_000_000 + number for number in range(N)],
    "nanoseconds": [1_700_000_000_000_000_000 + 1_000_000_000 * number for number in range(N)],
    "at random": [CHANCE.getrandbits(63) for _ in range(N)],
    "of 64 bits": [CHANCE.getrandbits(64) | 1 << 63 for _ in range(N)],
    "identifiers with a machine in the low bits": [number << 22 | 5 for number in range(N)],
    "identifiers with a machine in the high bits": [7 << 56 | number for number in range(N)],
    "squares": [number * number for number in range(N)],
    "packed coordinates": [x << 32 | y for x in range(100) for y in range(100)],
}
HONEST_FLOATS: dict[str, list[Any]] = {
    **{
        f"floats by {step}": [step * number for number in range(N)]
        for step in (1.0, 0.5, 0.25, 0.1, 2.0**-20, 1e-9, 1e20)
    },
    "floats in a row": [float(number) for number in range(N)],
    "floats at random": [CHANCE.random() for _ in range(N)],
    "large floats": [1e300 + number * 1e290 for number in range(N)],
}
HONEST_TUPLES: dict[str, list[Any]] = {
    "coordinates": [(x, y) for x in range(-50, 50) for y in range(-50, 50)],
    "coordinates in space": list(itertools.product(range(-13, 13), repeat=3)),
    "a small lattice": list(itertools.product((-2, -1, 0, 1, 2), repeat=6)),
    "edges": [(number, number + 1) for number in range(N)],
    "powers": [(1 << number % 60, number) for number in range(N)],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_ints_are_never_refused(name: str) -> None:
    keys = HONEST[name]
    as_map, as_list = msgpack.encode(dict.fromkeys(keys)), msgpack.encode(keys)
    look(as_map, dict[int, None])
    look(as_map, Any)
    look(as_list, set[int])
    look(as_list, frozenset[int])
    floats = [key for key in keys if float(key) == key]  # others are not sent as floats
    look(msgpack.encode(dict.fromkeys(floats)), dict[float, None])
    look(msgpack.encode(floats), set[float])
    look(msgpack.encode(anything.pack(set(keys))), Any)


@pytest.mark.parametrize("name", HONEST_FLOATS)
def test_honest_floats_are_never_refused(name: str) -> None:
    keys = HONEST_FLOATS[name]
    look(msgpack.encode(dict.fromkeys(keys)), dict[float, None])
    look(msgpack.encode(dict.fromkeys(keys)), Any)
    look(msgpack.encode(keys), set[float])


@pytest.mark.parametrize("name", HONEST_TUPLES)
def test_honest_tuples_are_never_refused(name: str) -> None:
    keys = HONEST_TUPLES[name]
    body = packed_map([msgpack.encode(key) for key in keys])
    look(body, dict[tuple[int, ...], None])
    look(body, Any)
    look(msgpack.encode(keys), set[tuple[int, ...]])
    look(msgpack.encode(anything.pack(set(keys))), Any)


def honest_objects() -> dict[str, tuple[Any, list[Any]]]:
    day = datetime.datetime(2020, 1, 1, tzinfo=UTC)
    count = 3000
    return {
        "decimals": (decimal.Decimal, spread(count, lambda n: decimal.Decimal(n) / 100)),
        "uuids": (uuid.UUID, spread(count, lambda n: uuid.UUID(int=n))),
        "random uuids": (uuid.UUID, spread(count, lambda n: uuid.UUID(int=CHANCE.getrandbits(128)))),
        "minutes": (datetime.timedelta, spread(count, lambda n: datetime.timedelta(minutes=n))),
        "datetimes": (datetime.datetime, spread(count, lambda n: day + datetime.timedelta(minutes=n))),
        "points": (Point, spread(count, lambda n: Point(n % 50, n // 50))),
        "pairs": (Pair, spread(count, lambda n: Pair(n % 50 - 25, n // 50 - 25))),
        "cells": (Cell, spread(count, lambda n: Cell(n % 50, n // 50))),
        "numbers": (int | float, spread(count, lambda n: n / 2)),
        "sets": (frozenset[int], spread(count, lambda n: frozenset((n, n + 1)))),
    }


@pytest.mark.parametrize("name", honest_objects())
def test_honest_objects_are_never_refused(name: str) -> None:
    kind, keys = honest_objects()[name]
    encoded = [msgpack.encode(key) for key in keys]
    look(packed_map(encoded), dict[kind, None])
    look(packed_list(encoded), set[kind])


def test_one_key_many_times_is_one_key() -> None:
    look(msgpack.encode([7] * 100_000), set[int])
    look(packed_map([b"\x07"] * 100_000), dict[int, None])
    look(packed_list([msgpack.encode((1, 2))] * 50_000), set[tuple[int, int]])


@pytest.mark.parametrize("name", ["text", "bytes", "dates", "pairs of text", "bools", "lists"])
def test_types_that_a_peer_cannot_harm_are_not_looked_at(name: str) -> None:
    kinds: dict[str, Any] = {
        "text": dict[str, dict[str, list[int]]],
        "bytes": set[bytes],
        "dates": dict[datetime.date, int],
        "pairs of text": dict[tuple[str, str], set[tuple[bytes, ...]]],
        "bools": dict[bool | None, int],
        "lists": list[tuple[int, float, Point]],
    }
    assert hashed_keys(msgspec.inspect.type_info(kinds[name])) is None


def refused(body: bytes, *types: Any) -> None:
    with pytest.raises(ValueError, match="collide"):
        look(body, *types)


BITS = 14


def encoded(keys: list[Any]) -> list[bytes]:
    return [msgpack.encode(key) for key in keys]


def test_ints_that_collide_are_refused() -> None:
    body = packed_map(encoded(ints(BITS)))
    refused(body, dict[int, None])
    refused(body, Any)
    refused(body, dict[int, Any])
    refused(msgpack.encode([["x" * 10], {"y": msgspec.Raw(body)}]), Any)
    refused(body, dict[int, None] | list[int])
    refused(body, dict[float, None])
    refused(packed_map(encoded([float(key) for key in ints(BITS)])), dict[float, None])
    refused(packed_map(encoded([float(key) for key in ints(BITS)])), Any)
    refused(packed_map(encoded([str(key) for key in ints(BITS)])), dict[decimal.Decimal, None])
    refused(packed_map(encoded([uuid.UUID(int=key) for key in ints(BITS)])), dict[uuid.UUID, None])


def test_tuples_that_collide_are_refused() -> None:
    keys = encoded(tuples(12))
    for body in (packed_map(keys), packed_map(keys)[:-3], packed_map([*keys, b"\xc1"]), packed_map([*keys, b"\x80"])):
        refused(body, dict[tuple[int, ...], None])
        refused(body, Any)
    refused(packed_list(keys), set[tuple[int, ...]])
    refused(packed_list(keys), frozenset[tuple[Any, ...]])
    in_tuples = [extension(4, key) for key in keys]
    for code in (5, 6):
        refused(extension(code, packed_list(in_tuples)), Any)
        refused(packed_map([extension(6, packed_list([key])) for key in in_tuples]), Any)
    refused(packed_map(keys), dict[str, int], list[Any])


@pytest.mark.parametrize("kind", [Pair, Cell, Careless, datetime.timedelta])
def test_hashes_that_only_python_knows_are_found(kind: Any) -> None:
    if kind is Careless:
        keys = encoded([Careless(number) for number in range(4000)])
    elif kind is datetime.timedelta:
        # The hash of a timedelta is that of its days, seconds and microseconds: none is found that collides in a test's
        # time, so it is one that is looked at.
        assert hashed_keys(msgspec.inspect.type_info(dict[kind, int])) is not None
        return
    else:
        keys = encoded([(-x, -y) for x in (1, 2) for y in (1, 2)]) * 1000
        look(packed_map(keys), dict[kind, None])
        return
    refused(packed_map(keys), dict[kind, None])
    refused(packed_list(keys), set[kind])


def test_keys_that_are_there_twice_hide_nothing() -> None:
    """A key in two encodings is one key: the table is not a larger one, in which the others do not collide."""
    both = [each for key in ints(BITS) for each in (msgpack.encode(key), b"\xcf" + key.to_bytes(8, "big"))]
    refused(packed_map(both), dict[int, None])
    refused(packed_map(both), Any)
    for text in ([b"\xa1a"] * 100_000, [b"\xc0"] * 100_000):
        refused(packed_map([*encoded(ints(BITS)), *text]), dict[int | str | None, None])
        refused(packed_map([*text, *encoded(ints(BITS))]), Any)
    digits = [text for key in ints(BITS) for text in (f"{key}", f"{key}.0")]
    refused(packed_map(encoded(digits)), dict[decimal.Decimal, None])


def test_many_small_dicts_count_together() -> None:
    small = packed_map(encoded(tuples(8)))
    refused(packed_list([small] * 60), Any)
    refused(packed_list([small] * 60), list[dict[tuple[int, ...], None]])


def test_keys_in_keys_are_not_decoded_again_and_again() -> None:
    key = extension(4, msgpack.encode(list(range(300_000))))
    for _ in range(20):
        key = extension(6, packed_list([bytes([number]) for number in range(40)] + [key]))
    with pytest.raises(RecursionError):
        check_keys(packed_map([key, *encoded(list(range(40)))]), ANYTHING)


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(RecursionError):
        check_keys(b"\x91" * 20_000 + b"\x01", ANYTHING)
    check_keys(b"\x91" * 5_000 + b"\x01", ANYTHING)
