"""Values that go through Google's Protobuf and come back, and bytes that both of us read."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import nearcall
from nearcall.codec.protobuf.errors import CodingError

from .everything import Everything, Pair, Plain, Tree, everything, plain, same
from .protobuf_bytes import varint
from .protoc import Peer

PEER = Peer(Everything)


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(everything)
def test_values_come_back_from_google_as_they_left(value: Everything) -> None:
    back = PEER.through(value)
    assert back == value
    assert type(back.fixed) is tuple
    assert type(back.pair) is Pair
    assert type(back.names) is set
    # What they read is what they would have written: the same again, whatever the order of maps.
    theirs = PEER.message.FromString(PEER.encode(value))
    again = PEER.message.FromString(PEER.encode(PEER.decode(theirs.SerializeToString())))
    for message in (theirs, again):
        message.ClearField("names")  # two equal sets may have two orders
    assert again == theirs


PLAIN = Peer(Plain)


def _tag(number: int, wire: int) -> bytes:
    return bytes([number << 3 | wire])


def _len(number: int, body: bytes) -> bytes:
    return _tag(number, 2) + varint(len(body)) + body


varints = st.integers(0, 2**64 - 1).map(varint)
entries = st.one_of(varints.map(lambda key: _tag(1, 0) + key), st.binary(max_size=6).map(lambda value: _len(2, value)))
fields = st.recursive(
    st.one_of(
        st.tuples(st.integers(1, 15), varints).map(lambda pair: _tag(pair[0], 0) + pair[1]),
        st.tuples(st.integers(1, 15), st.binary(min_size=8, max_size=8)).map(lambda pair: _tag(pair[0], 1) + pair[1]),
        st.tuples(st.integers(1, 15), st.binary(min_size=4, max_size=4)).map(lambda pair: _tag(pair[0], 5) + pair[1]),
        st.tuples(st.sampled_from([*range(1, 10), *range(11, 16)]), st.binary(max_size=12)).map(
            lambda pair: _len(*pair)
        ),
        st.lists(varints, max_size=4).map(lambda each: _len(8, b"".join(each))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda each: _len(11, b"".join(each))),
        # Google's own libraries do not agree on entries of maps that hold unknown fields.
        st.lists(entries, max_size=4).map(lambda each: _len(10, b"".join(each))),
        st.lists(inner, max_size=3).map(lambda each: _tag(3, 3) + b"".join(each) + _tag(3, 4)),
        st.lists(inner, max_size=5).map(b"".join),
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.one_of(fields, st.binary(max_size=40)))
def test_any_bytes_are_read_as_google_reads_them(body: bytes) -> None:
    try:
        theirs = PLAIN.message.FromString(body)
    except Exception:
        with pytest.raises(CodingError):
            PLAIN.decode(body)
        return
    try:
        ours = PLAIN.decode(body)
    except CodingError as error:
        # Google drops what is beyond 64 bits of a number. What would change a value is refused here.
        if "more than 64 bits" not in str(error):
            raise
        return
    assert same(ours, plain(theirs))


def test_arrays_go_through_google() -> None:
    peer = Peer(np.ndarray)
    for array in (np.arange(6.0).reshape(2, 3), np.array(3), np.zeros((0, 4), "<i2"), np.asfortranarray(np.eye(3))):
        back = peer.through(array)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert (back == array).all()


def test_an_array_of_records_is_refused() -> None:
    with pytest.raises(CodingError, match="cannot be sent in Protobuf: send plain arrays"):
        Peer(np.ndarray).encode(np.zeros(2, [("a", "<i4"), ("b", "<f8")]))


class Percent:
    def __init__(self, number: int) -> None:
        self.number = number


nearcall.register_type(Percent, to=Annotated[int, msgspec.Meta(ge=0, le=100)], give=lambda percent: percent.number)


def test_limits_of_what_travels_hold_for_what_is_made_of_it() -> None:
    peer = Peer(Percent)
    assert peer.through(Percent(7)).number == 7
    with pytest.raises(CodingError, match="expected int <= 100"):
        peer.encode(Percent(101))
    with pytest.raises(CodingError, match="expected int >= 0"):
        peer.strict.decode(b'{"value": -1}', 100)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 0),
        (list[int], []),
        (Any, {"a": [1, None]}),
        (int | None, None),
        (int | None, 0),
        (int | str, ""),
        (list[Any], [None, 1, "x"]),
        (dict[str, dict[str, int]], {"": {"x": 0}}),
        (bytearray, bytearray(b"x")),
        (bytearray, bytearray()),
        (memoryview, memoryview(b"")),
        (tuple[bytearray, memoryview], (bytearray(), memoryview(b""))),
        (Any, 2**53),
        (Any, -0.0),
        (tuple[()], ()),
        (list[None], [None, None]),
        (datetime.time, datetime.time(1, 2, 3, 4)),
        (frozenset[bytes], frozenset({b"", b"x"})),
        (Tree, Tree("a", [Tree("b")])),
    ],
)
def test_single_results_go_through_google(annotation: Any, value: Any) -> None:
    back = Peer(annotation).through(value)
    assert back == value
    assert type(back) is type(value)


@dataclasses.dataclass
class Film:
    frames: list[bytes]
    poster: bytes
    next: Film | None = None
    note: str = ""
    raw: bytearray = dataclasses.field(default_factory=bytearray)


def test_long_bytes_go_between_what_is_written() -> None:
    """They are lent, not copied, where they lie in the message itself; within another one they are copied."""
    long = bytes(range(256)) * 100
    inner = Film([long, b"", long[:4095], long[:4096]], long, note="inner", raw=bytearray(long))
    film = Film([long, b"short", long, b"", long[1:]], b"", inner, "x" * 5000, bytearray(long[2:]))
    peer = Peer(Film)
    for value in (inner, film, Film([], long), Film([long] * 50, b"x")):
        assert peer.through(value) == value
