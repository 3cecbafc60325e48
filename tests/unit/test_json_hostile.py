"""Texts that mean harm, and texts that do not fit: refused in one line, in time, whatever they are."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from nearcall import field
from nearcall.codec.protobuf.errors import CodingError
from nearcall.codec.protobuf.service import ServiceMessages

from .echo import echo_types


class Color(enum.Enum):
    RED = "red"


class Node(msgspec.Struct):
    a: Annotated[int, field(type="int32")] = 0
    kids: list[Node] = []
    one: Node | None = None
    anything: Any = None
    table: dict[int, int] = {}
    ints: set[int] = set()
    floats: set[float] = set()
    wide: int = 0
    unsigned: Annotated[int, field(type="uint64")] = 0
    ratio: float = 0.0
    single: Annotated[float, field(type="float")] = 0.0
    text: str = ""
    data: bytes = b""
    flag: bool = False
    color: Color | None = None
    when: datetime.datetime | None = None
    took: datetime.timedelta | None = None
    price: decimal.Decimal = decimal.Decimal(0)
    either: int | str | None = None
    long_name: int = 0


def codec_of(annotation: Any, *, strict: bool = False) -> Any:
    codings = ServiceMessages("test.Echo", [echo_types(annotation)]).codings("strict json" if strict else "json")
    return codings["echo"].reply.encode


NODE = codec_of(Node)
STRICT = codec_of(Node, strict=True)
MANY = 1_000_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"one":' * 100 + "{}" + "}" * 100, "more than 100 messages"),
        ('{"one":' * 200_000, "more than 100 messages"),
        ('{"kids":[' * 200_000, "more than 100 messages"),
        ('{"anything":' + "[" * 60 + "]" * 60 + "}", "more than 100 messages"),
        ('{"anything":' + "[" * 500_000, "more than 100 messages"),
        ('{"anything":' + '{"a":' * 500_000, "more than 100 messages"),
        ("", None),
        (" ", "the JSON is malformed: EOF"),
        ("[]", "expected an object, got a list"),
        ("null", "expected an object, got null"),
        ("1", "expected an object, got a number"),
        ("{} {}", "the JSON is malformed: trailing characters"),
        ('{"a":1', "the JSON is malformed: EOF"),
        ('{"a":1,}', "the JSON is malformed: key must be a string"),
        ("{a:1}", "the JSON is malformed: key must be a string"),
        ("{'a':1}", "the JSON is malformed: key must be a string"),
        ('{"a":01}', "a: the JSON is malformed: invalid number"),
        ('{"ratio":NaN}', "ratio: the JSON is malformed: expected value"),
        ('{"ratio":1e400}', "ratio: a number that is out of range"),
        ('{"ratio":"1e400"}', "ratio: expected float, got '1e400'"),
        ('{"single":1e39}', "single: a number that is too large for a 32-bit float"),
        ('{"a":2147483648}', "a: an int that is not within -2147483648 to 2147483647"),
        ('{"a":1e300}', "a: an int that is not within -2147483648 to 2147483647"),
        ('{"a":1.5}', "a: expected int, got '1.5'"),
        ('{"a":true}', "a: expected int, got a bool"),
        ('{"a":""}', "a: expected int, got ''"),
        ('{"a":" 1"}', "a: expected int, got ' 1'"),
        ('{"wide":9223372036854775808}', "wide: an int that is not within -9223372036854775808"),
        ('{"wide":1.00000000000000000001}', "wide: expected int, got '1.00000000000000000001'"),
        ('{"wide":"1.00000000000000000001"}', "wide: expected int, got '1.00000000000000000001'"),
        ('{"wide":1e-400}', "wide: expected int, got '1e-400'"),
        ('{"wide":9223372036854775808.0}', "wide: an int that is not within -9223372036854775808"),
        ('{"wide":1e999999999}', "wide: an int that is not within -9223372036854775808"),
        ('{"unsigned":1844674407370955161.6e1}', "unsigned: an int that is not within 0 to 18446744073709551615"),
        ('{"table":{"1.5":1}}', r"table\['1.5'\]: expected int, got '1.5'"),
        ('{"anything":18446744073709551616}', "anything: an int beyond 64 bits where Any is declared"),
        ('{"anything":[{"a":-9223372036854775809}]}', r"anything\[0\]\['a'\]: an int beyond 64 bits"),
        ('{"anything":1e400}', "anything: a number that is out of range"),
        ('{"unsigned":-1}', "unsigned: an int that is not within 0 to 18446744073709551615"),
        ('{"unsigned":"18446744073709551616"}', "unsigned: an int that is not within 0 to 18446744073709551615"),
        ('{"text":1}', "text: expected str, got a number"),
        ('{"text":"\\ud800"}', "text: the JSON is malformed: "),
        ('{"text":"\\udc00\\ud800"}', "text: the JSON is malformed: "),
        ('{"text":"a\nb"}', "text: the JSON is malformed: control character"),
        ('{"data":"a"}', "data: the text is not base64"),
        ('{"data":"+_=="}', "data: the text is not base64"),
        ('{"flag":1}', "flag: expected bool, got a number"),
        ('{"flag":"true"}', "flag: expected bool, got a text"),
        ('{"color":"BLUE"}', "color: Color has no member 'BLUE'"),
        ('{"color":7}', "color: Color has no member 7"),
        ('{"color":0}', "color: Color has no member 0"),
        ('{"price":1.5}', "price: expected Decimal, got a number: send a text"),
        ('{"price":"x"}', "price: 'x' is no decimal number"),
        ('{"price":"1_0"}', "price: '1_0' is no decimal number"),
        ('{"color":99999999999}', "color: an int that is not within"),
        ('{"when":"yesterday"}', "when: the text is no point in time"),
        ('{"when":0}', "when: expected datetime, got a number"),
        ('{"took":"1"}', "took: the text is no duration"),
        ('{"took":"86400000000000s"}', "took: the duration is longer than 10,000 years"),
        ('{"kids":{}}', "kids: expected a list, got an object"),
        ('{"kids":[{},null]}', r"kids\[1\]: expected Node, got null"),
        ('{"kids":[{"a":"x"}]}', r"kids\[0\]\.a: expected int, got 'x'"),
        ('{"table":[]}', "table: expected an object, got a list"),
        ('{"table":{"x":1}}', r"table\['x'\]: expected int, got 'x'"),
        ('{"table":{"1":null}}', r"table\[1\]: expected int, got null"),
        ('{"table":{"1":1,"1.0":2}}', "table: a key is there twice"),
        ('{"a":1,"a":1}', "a: is there twice"),
        ('{"long_name":1,"longName":1}', "long_name: is there twice"),
        ('{"anything":{"a":{"b":1,"b":1}}}', r"anything\['a'\]\['b'\]: is there twice"),
        ('{"either":{"int64":1,"string":"x"}}', r"either: two members of int \| str are there"),
        ('{"either":{}}', r"either: no member of int \| str is there"),
        ('{"either":1}', r"either: expected int \| str, got a number"),
        ('{"one":[]}', "one: expected Node, got a list"),
        ('{"\\ud800":1}', "the JSON is malformed: "),
    ],
)
def test_texts_that_do_not_fit_name_the_field(text: str, says: str | None) -> None:
    if says is None:
        assert NODE.decode(text.encode(), MANY) == Node()
        return
    with pytest.raises(CodingError, match=says) as caught:
        NODE.decode(text.encode(), MANY)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "body", [b"\xff{}", b'{"text":"\xff"}', b'{"\xc3":1}', b'{"unknown":"\xff"}', b"\xef\xbb\xbf{}"]
)
def test_bytes_that_are_no_text_are_refused(body: bytes) -> None:
    with pytest.raises(CodingError, match=r"UTF-8|expected value"):
        NODE.decode(body, MANY)


def test_what_is_not_known_is_skipped_however_deep_and_long() -> None:
    deep = "[" * 1_000_000 + "]" * 1_000_000
    keys = ",".join(f'"k{index}":{{}}' for index in range(10_000))
    assert NODE.decode(f'{{"x":{deep},{keys},"a":1,"y":{{"a":[1,"\\n"]}}}}'.encode(), 10).a == 1


@pytest.mark.parametrize("text", ['{"unknown":[}', '{"unknown":{"a"}}', '{"unknown":nul}', '{"unknown":1.}'])
def test_what_is_skipped_is_json_all_the_same(text: str) -> None:
    with pytest.raises(CodingError, match="the JSON is malformed"):
        NODE.decode(text.encode(), MANY)


@pytest.mark.parametrize(
    "text",
    [
        '{"kids":[' + ",".join(["{}"] * 300) + "]}",  # each has containers of its own
        '{"ints":[' + ",".join(["1"] * 1001) + "]}",
        '{"anything":[' + ",".join(["[]"] * 1001) + "]}",
        '{"anything":[' + ",".join(["null"] * 1001) + "]}",
        '{"anything":{' + ",".join(f'"{index}":{{}}' for index in range(1001)) + "}}",
        '{"table":{' + ",".join(f'"{index}":0' for index in range(501)) + "}}",
    ],
)
def test_a_text_holds_no_more_values_than_it_may(text: str) -> None:
    with pytest.raises(CodingError, match="more values than it may"):
        NODE.decode(text.encode(), 1000)


@pytest.mark.parametrize(
    "value",
    [
        lambda: {
            "table": {str(index * (2**61 - 1)): 0 for index in range(-4, 5)}
            | {str(index << 43): 0 for index in range(200_000)}
        },
        lambda: {"ints": [str(index << 43) for index in range(400_000)]},
        lambda: {"floats": [index * 2.0**80 for index in range(60_000)]},
    ],
    ids=["keys of a dict", "integers", "floats"],
)
def test_keys_that_collide_are_refused_or_do_not_take_long(value: Callable[[], dict[str, Any]]) -> None:
    try:
        NODE.decode(json.dumps(value()).encode(), 10_000_000)
    except CodingError as error:
        if "collide" not in str(error):
            raise


@pytest.mark.parametrize("digits", ["0." + "1" * 1_000_000, "1" * 300 + "." + "1" * 500_000 + "e-300"])
def test_numbers_cost_what_their_digits_do(digits: str) -> None:
    for text in (f'{{"ratio":{digits}}}', f'{{"ratio":"{digits}"}}', f'{{"ratio":1,"anything":{digits}}}'):
        assert NODE.decode(text.encode(), MANY).ratio in (float(digits), 1)
    huge = "1" * 1_000_000
    for text in (f'{{"ratio":{huge}}}', f'{{"ratio":"{huge}"}}', f'{{"anything":{huge}}}'):
        with pytest.raises(CodingError, match=r"out of range|expected float|beyond 64 bits"):
            NODE.decode(text.encode(), MANY)


def test_the_deepest_text_fits_a_small_stack() -> None:
    text = '{"one":{"kids":[' * 49 + '{"anything":' + "[" * 0 + "1" + "}" + "]}}" * 49
    found: list[Any] = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: found.append(NODE.decode(text.encode(), MANY)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    (value,) = found
    assert NODE.decode(NODE.encode(value), MANY) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":null,"kids":null,"one":null,"table":null,"either":null,"color":null}', Node()),
        ('{"anything":null}', Node()),
        ('{"a":1.0,"wide":-1e2,"unsigned":"2.0"}', Node(a=1, wide=-100, unsigned=2)),
        ('{"wide":9007199254740993.0}', Node(wide=2**53 + 1)),
        ('{"wide":"-900719925474099.3e1"}', Node(wide=-(2**53) - 1)),
        ('{"wide":1e18,"unsigned":1.8446744073709551615E+19}', Node(wide=10**18, unsigned=2**64 - 1)),
        ('{"ints":[9007199254740993.0,9007199254740992]}', Node(ints={2**53, 2**53 + 1})),
        ('{"table":{"9007199254740993.0":9007199254740993e0}}', Node(table={2**53 + 1: 2**53 + 1})),
        ('{"anything":[18446744073709551615,-9223372036854775808]}', Node(anything=[2**64 - 1, -(2**63)])),
        ('{"ratio":1,"single":0.1}', Node(ratio=1.0, single=float(np.float32(0.1)))),
        ('{"ratio":"-Infinity"}', Node(ratio=float("-inf"))),
        ('{"color":"RED"}', Node(color=Color.RED)),
        ('{"color":"COLOR_RED"}', Node(color=Color.RED)),
        ('{"color":1}', Node(color=Color.RED)),
        ('{"either":{"string":"","int64":null}}', Node(either="")),
        ('{"longName":1}', Node(long_name=1)),
        ('{"long_name":"1"}', Node(long_name=1)),
        (
            '{"when":"2030-01-01T00:00:00.000001+00:00"}',
            Node(when=datetime.datetime(2030, 1, 1, microsecond=1, tzinfo=datetime.timezone.utc)),
        ),
        ('{"anything":{"a":[1152921504606846977,0.5,"\\u0000"]}}', Node(anything={"a": [2**60 + 1, 0.5, "\0"]})),
        (' { "text" : "\\u00e9\\ud83d\\ude00" } ', Node(text="é😀")),
    ],
)
def test_what_is_read(text: str, value: Node) -> None:
    assert NODE.decode(text.encode(), MANY) == value
    assert STRICT.decode(text.encode(), MANY) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e2", 100),
        ("-0", -0.0),
        ("0.0", 0),
        ("1e300", 1e300),
        ("1e18", 1e18),
        ("1.2345678901234567e+17", 1.2345678901234567e17),
        ("9007199254740993.0", 9007199254740992.0),
        ("1.00000000000000000001", 1.0),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_number_where_anything_may_be_is_an_int_only_if_it_is_that_int(text: str, value: float) -> None:
    found = NODE.decode(f'{{"anything":{text}}}'.encode(), MANY).anything
    assert repr(found) == repr(value)


class Order(msgspec.Struct):
    count: int
    tags: list[str]
    note: str | None
    name: str = "x"
    more: list[int] = []


ORDER = codec_of(Order)
STRICT_ORDER = codec_of(Order, strict=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"count":1}', "tags: is missing"),
        ('{"tags":[]}', "count: is missing"),
        ('{"tags":[],"count":null}', "count: is missing"),
        ('{"count":1,"tags":[],"nmae":"y"}', r"no field is called 'nmae' \(known: count, tags, note, name, more\)"),
        ('{"count":1,"tags":[],"' + "x" * 1000 + '":1}', r"no field is called 'x{40}\.\.\.' \(known: count"),
    ],
)
def test_what_is_written_by_hand_is_complete_and_known(text: str, says: str) -> None:
    with pytest.raises(CodingError, match=says):
        STRICT_ORDER.decode(text.encode(), MANY)
    assert type(ORDER.decode(text.encode(), MANY)) is Order


def test_what_has_a_default_may_be_left_out_by_hand() -> None:
    assert STRICT_ORDER.decode(b'{"count":0,"tags":[]}', MANY) == Order(0, [], None)


def _loop() -> Any:
    node = Node()
    node.one = node
    return node


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_loop, "more than 100 messages are within each other, or a value holds itself"),
        (lambda: Node(a=2**31), "a: an int that is not within -2147483648 to 2147483647"),
        (lambda: Node(text="\ud800"), "text: a str holds a lone surrogate"),
        (lambda: Node(anything={"x": [2**53 + 1]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(anything={"x": [2**53 + 2]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(anything={"x": [2**70]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(anything={"x": [-(2**63)]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(ratio=2**53 + 1), "ratio: an int that no float equals: send float"),
        (lambda: Node(ratio=2**70 + 1), "ratio: an int that no float equals: send float"),
        (lambda: Node(ratio=10**400), "ratio: an int that no float equals: send float"),
        (lambda: Node(anything=[float("nan")]), r"anything\[0\]: NaN is no number in JSON"),
        (lambda: Node(anything={1: 2}), "anything: a dict where Any is declared has keys of type str"),
        (lambda: Node(table={"a": 1}), r"table\['a'\]: expected int, got str"),  # type: ignore[dict-item]
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_place(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(CodingError, match=says):
        NODE.encode(make())


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (np.ndarray, "[[1,2],[3,4]]", np.array([[1, 2], [3, 4]])),
        (np.ndarray, "[]", np.zeros(0)),
        (np.ndarray, "[true,false]", np.array([True, False])),
        (NDArray[np.float32], "[1,0.1]", np.array([1, 0.1], np.float32)),
        (NDArray[np.uint8], "[1,255]", np.array([1, 255], np.uint8)),
        (NDArray[np.int64], "[1.0,2e1]", np.array([1, 20])),
        (NDArray[np.int64], "[]", np.zeros(0, np.int64)),
        (np.ndarray, '{"dtype":"<f8","shape":[1],"data":"AAAAAAAA8D8="}', np.array([1.0])),
    ],
)
def test_arrays_may_be_lists_of_numbers(annotation: Any, text: str, expected: Any) -> None:
    found = codec_of(annotation).decode(f'{{"value":{text}}}'.encode(), MANY)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("annotation", "text", "says"),
    [
        (NDArray[np.uint8], "[256]", "expected an array of uint8"),
        (NDArray[np.int64], "[0.5]", "expected an array of int64, got one of float64"),
        (NDArray[np.int64], "[9007199254740993.0]", "expected an array of int64, got one of float64"),
        (NDArray[np.int64], "[1,1.00000000000000000001]", "expected an array of int64, got one of float64"),
        (np.ndarray, "[-1,18446744073709551615]", "expected an ndarray"),
        (np.ndarray, '["a"]', "expected an ndarray: numbers in lists of one length"),
        (np.ndarray, "[null]", "expected an ndarray: numbers in lists of one length"),
        (np.ndarray, "[[1],[1,2]]", "expected an ndarray: numbers in lists of one length"),
        (np.ndarray, "[{}]", "expected an ndarray: numbers in lists of one length"),
        (np.ndarray, "[1e300,18446744073709551615]", None),
        (np.ndarray, "[" * 70 + "]" * 70, "more than 100 messages"),
        (np.ndarray, '{"dtype":"O","shape":[1],"data":""}', "no dtype that nearcall carries"),
        (np.ndarray, '{"dtype":"<f8","shape":[99999999999],"data":""}', "refers to a buffer of 0 bytes"),
        (np.ndarray, "1", "expected ndarray, got a number"),
    ],
)
def test_other_lists_are_no_arrays(annotation: Any, text: str, says: str | None) -> None:
    codec, body = codec_of(annotation), f'{{"value":{text}}}'.encode()
    if says is None:
        assert codec.decode(body, MANY).dtype == float
        return
    with pytest.raises(CodingError, match=says) as caught:
        codec.decode(body, MANY)
    assert "\n" not in str(caught.value)


def test_names_that_are_skipped_let_other_threads_work() -> None:
    turns: list[None] = []
    # No step of these runs Python, where threads have their turns anyway.
    text = b"{" + b",".join([b'"nobody":0'] * MANY) + b"}"
    steps = [partial(len, turns), partial(NODE.decode, text, 10), partial(len, turns)]
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(map(partial.__call__, steps)))
    thread.start()
    while thread.is_alive():
        turns.append(None)
        time.sleep(0)
    thread.join()
    before, _, after = results
    assert after > before


@pytest.mark.parametrize("value", [3, -(2**53), 2**63, -(2**63), 2**64, 2**100, -(2**1000)])
def test_an_int_is_given_for_a_float(value: int) -> None:
    for codec in (NODE, STRICT):
        found = codec.decode(codec.encode(Node(ratio=value)), MANY).ratio
        assert (found, type(found)) == (value, float)


@dataclass
class Point:
    x: int = 0


class Defaults(msgspec.Struct):
    big: int | None = 2**40
    table: dict[str, int] | None = msgspec.field(default_factory=lambda: {"a": 1})
    small: int = 3
    none: int | None = None
    point: Point = msgspec.field(default_factory=Point)


def test_null_is_none_where_people_write() -> None:
    strict, lenient = codec_of(Defaults, strict=True), codec_of(Defaults)
    text = b'{"big":null,"table":null,"small":null,"none":null,"point":null}'
    assert strict.decode(text, MANY) == Defaults(None, None)
    assert strict.decode(b'{"big":{},"table":{}}', MANY) == Defaults(None, None)
    assert strict.decode(b'{"big":{"value":"5"},"table":{"value":{"value":{"b":2}}}}', MANY) == Defaults(5, {"b": 2})
    # Elsewhere it is Protobuf's, for which the fields are absent.
    assert lenient.decode(text, MANY) == Defaults()


def test_times_finer_than_pythons_are_refused_where_people_write() -> None:
    for text in ('{"when":"2024-02-29T12:00:00.123456789Z"}', '{"took":"-0.000000001s"}'):
        with pytest.raises(CodingError, match="more than six digits of a second, which Python does not hold: round"):
            STRICT.decode(text.encode(), MANY)
        NODE.decode(text.encode(), MANY)
    when = STRICT.decode(b'{"when":"2024-02-29T12:00:00.123456000Z"}', MANY).when
    assert when.microsecond == 123456
