"""Values that go through Google's JSON and come back, and texts that both of us read."""

from __future__ import annotations

import datetime
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from nearcall.codec.protobuf.errors import CodingError

from ..turns import examples
from .everything import Everything, Plain, Tree, everything, plain, same
from .protoc import Peer

json_format: Any = pytest.importorskip("google.protobuf.json_format")

PEER = Peer(Everything)
PLAIN = Peer(Plain)
MANY = 1_000_000
LEAST_NORMAL = 2.0**-126
"""The least number that a `float` has all its digits for."""


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(everything)
def test_values_are_the_same_json_as_googles(value: Everything) -> None:
    text = PEER.json.encode(value)
    theirs = PEER.message.FromString(PEER.encode(value))
    expected = json_format.MessageToJson(theirs, always_print_fields_with_no_presence=True)
    ours, others = json.loads(text), json.loads(expected)
    for each in (ours, others):
        each["names"].sort()  # two equal sets may have two orders
        if isinstance(each["single"], float) and abs(each["single"]) < LEAST_NORMAL:
            # Of these Google's printer writes more digits than tell them apart.
            each["single"] = struct.unpack("f", struct.pack("f", each["single"]))
    assert ours == others
    assert PEER.json.decode(text, MANY) == value
    assert PEER.strict.decode(text, MANY) == value


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(everything)
def test_values_come_back_from_google_as_they_left(value: Everything) -> None:
    # Google's parser refuses what its printer writes for the greatest float: the shortest text is a little greater.
    assume(not math.isfinite(value.single) or abs(value.single) < 3.4028234e38)
    theirs = json_format.Parse(PEER.json.encode(value), PEER.message())
    assert PEER.decode(theirs.SerializeToString()) == value
    for options in ({}, {"preserving_proto_field_name": True}, {"use_integers_for_enums": True}):
        assert PEER.json.decode(json_format.MessageToJson(theirs, **options).encode(), MANY) == value


numbers = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400]),
    # An int that is written as 5.74793133693903e+16 is that here, and the nearest double there.
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda each: not 2**53 < abs(each) < 2**64),
    st.sampled_from([1.0, -0.0, 2.0**31, 2.0**53, 1e300]),
)
words = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "12", " 1", "1 ", "1\n", "+1", "0x1", "NaN", "nan", "Infinity", "-Infinity", "inf"]
    ),
    st.sampled_from(["YQ==", "YQ", "_-8=", "true", "false", "9223372036854775808", "é", "\ud800", "\x00"]),
    st.text(max_size=3),
)
names = st.sampled_from(["i", "s", "f", "d", "b", "flag", "opt", "ints", "blobs", "table", "inner", "other", "Ints"])
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | words, inner, max_size=4),
    max_leaves=10,
)
messages = st.dictionaries(names, values, max_size=6)


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(messages)
def test_whatever_is_read_google_reads_alike(message: dict[str, Any]) -> None:
    text = json.dumps(message)
    try:
        ours = PLAIN.json.decode(text.encode(), MANY)
    except CodingError:
        return
    theirs = json_format.Parse(text, PLAIN.message(), ignore_unknown_fields=True)
    assert same(ours, plain(theirs))


fitting = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**63), 2**63 - 1).flatmap(lambda each: st.sampled_from([each, str(each)])),
        "s": st.integers(-(2**50), 2**50).map(float) | st.none(),
        "f": st.integers(0, 2**32 - 1).flatmap(lambda each: st.sampled_from([each, str(each), float(each)])),
        "d": numbers.filter(lambda each: abs(each) < 1e308) | st.sampled_from(["NaN", "-Infinity", "1e3", "-0"]),
        "b": st.sampled_from(["YQ==", "YQ", "-_8=", "+/8=", None]),
        "flag": st.booleans() | st.none(),
        "opt": st.none() | st.integers(-9, 9),
        "ints": st.none() | st.lists(st.integers(-9, 9) | st.just("7"), max_size=3),
        "table": st.dictionaries(st.integers(-9, 9).map(str), st.just("YQ=="), max_size=3),
        "unknown": values,
    },
)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(fitting, st.none() | fitting)
def test_what_the_mapping_allows_is_read(message: dict[str, Any], inner: dict[str, Any] | None) -> None:
    text = json.dumps({**message, "inner": inner})
    theirs = json_format.Parse(text, PLAIN.message(), ignore_unknown_fields=True)
    assert same(PLAIN.json.decode(text.encode(), MANY), plain(theirs))


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,0123456789.eE+-\\untflsi ', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        value = PLAIN.json.decode(body, MANY)
    except CodingError:
        return
    assert same(PLAIN.json.decode(PLAIN.json.encode(value), MANY), value)


def test_arrays_go_through_google() -> None:
    peer = Peer(np.ndarray)
    for array in (np.arange(6.0).reshape(2, 3), np.array(3), np.zeros((0, 4), "<i2"), np.asfortranarray(np.eye(3))):
        theirs = json_format.Parse(peer.json.encode(array), peer.message())
        back = peer.json.decode(json_format.MessageToJson(theirs).encode(), MANY)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert (back == array).all()


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, 0, '{"value":"0"}'),
        (float, -0.0, '{"value":-0.0}'),
        (float, float("inf"), '{"value":"Infinity"}'),
        (bytes, b"\xfb\xff", '{"value":"+/8="}'),
        (str, 'é"\\\x00\u2028', '{"value":"é\\"\\\\\\u0000\u2028"}'),
        (list[int], [], '{"value":[]}'),
        (int | None, None, "{}"),
        (int | str, "", '{"value":{"string":""}}'),
        (list[Any], [None, 1, "x", 1.5], '{"value":[null,1,"x",1.5]}'),
        (Any, {"a": [1, None]}, '{"value":{"a":[1,null]}}'),
        (dict[bool, dict[int, int]], {True: {-1: 2}}, '{"value":{"true":{"value":{"-1":"2"}}}}'),
        (tuple[int, str], (1, "a"), '{"value":{"item1":"1","item2":"a"}}'),
        (list[None], [None, None], '{"value":[{},{}]}'),
        (datetime.timedelta, datetime.timedelta(milliseconds=-1), '{"value":"-0.001s"}'),
        (Tree, Tree("a", [Tree("b")]), '{"name":"a","children":[{"name":"b","children":[]}]}'),
    ],
)
def test_single_results(annotation: Any, value: Any, text: str) -> None:
    peer = Peer(annotation)
    assert peer.json.encode(value).decode() == text
    for codec in (peer.json, peer.strict):
        back = codec.decode(text.encode(), MANY)
        assert back == value
        assert type(back) is type(value)
    theirs = json_format.Parse(text, peer.message())
    assert peer.decode(theirs.SerializeToString()) == value
