"""Hashes that the compiled core computes are those of the Python that runs."""

from __future__ import annotations

import struct
import uuid
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcall._core import key_hash
from nearcall.codec.hashed import hashed_keys
from nearcall.codec.msgpack import functions as msgpack

INTS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False)
NUMBERS = st.one_of(INTS, FLOATS, st.booleans(), st.sampled_from([-1, -2, 2**61 - 1, 1 - 2**61, 2**61]))


class Pair(NamedTuple):
    x: int
    y: float


def computed(kind: Any, key: Any) -> int | None:
    """The hash of an encoded key of a type."""
    found = hashed_keys(msgspec.inspect.type_info(dict[kind, None]))  # type: ignore[valid-type]
    assert found is not None
    return key_hash(key if type(key) is bytes else msgpack.encode(key), found)


@given(NUMBERS)
def test_numbers(number: Any) -> None:
    assert computed(Any, number) == hash(number)
    assert computed(float, number) == hash(float(number))
    if type(number) is int:
        assert computed(int, number) == hash(number)


@given(st.floats(allow_nan=False, width=32))
def test_short_floats(number: float) -> None:
    assert computed(Any, b"\xca" + struct.pack(">f", number)) == hash(number)


@given(st.uuids())
def test_uuids(number: uuid.UUID) -> None:
    for encoded in (str(number), str(number).upper(), number.hex):
        assert computed(uuid.UUID, encoded) == hash(number)
    assert computed(uuid.UUID, b"\xc4\x10" + number.bytes) == hash(number)


@given(st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=6).map(tuple), max_leaves=30))
def test_tuples(key: Any) -> None:
    assert computed(Any, key) in (hash(key), None)
    assert computed(tuple[Any, ...], (key, 1)) in (hash((key, 1)), None)


@given(st.lists(NUMBERS).map(tuple))
def test_flat_tuples(key: tuple[Any, ...]) -> None:
    assert computed(Any, key) == hash(key)
    assert computed(Any, msgspec.msgpack.encode(msgspec.msgpack.Ext(4, msgpack.encode(key)))) == hash(key)


@given(INTS, INTS)
def test_tuples_with_types(one: int, other: int) -> None:
    assert computed(tuple[int, int], (one, other)) == hash((one, other))
    assert computed(tuple[int, float], (one, other)) == hash((one, float(other)))
    assert computed(Pair, (one, other)) == hash((one, float(other)))
    assert computed(tuple[float, ...], (one, other)) == hash((float(one), float(other)))


@pytest.mark.parametrize("key", ["text", "", b"\xc4\x01x", (1, float("nan")), float("nan")])
def test_secrets_are_not_known(key: Any) -> None:
    assert computed(Any, key) is None
