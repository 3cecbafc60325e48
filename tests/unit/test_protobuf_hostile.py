"""Messages that mean harm, and values that do not fit: refused in one line, in time, whatever they are."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from nearcall import field
from nearcall.codec.protobuf.errors import CodingError
from nearcall.codec.protobuf.service import ServiceMessages

from .echo import echo_types
from .protobuf_bytes import varint


def peak() -> int:
    """The most memory that this process has had since that was forgotten, bytes."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10


class Node(msgspec.Struct):
    a: Annotated[int, field(type="int32")] = 0
    kids: list[Node] = []
    one: Node | None = None
    anything: Any = None
    table: dict[int, int] = {}
    ints: set[int] = set()
    floats: set[float] = set()


def codec_of(annotation: Any) -> Any:
    return ServiceMessages("test.Echo", [echo_types(annotation)]).codings()["echo"].reply.encode


NODE = codec_of(Node)


def nested(number: int, body: bytes, times: int = 1) -> bytes:
    for _ in range(times):
        body = varint(number << 3 | 2) + varint(len(body)) + body
    return body


def lists(times: int) -> bytes:
    """A value of lists within lists."""
    body = b""
    for _ in range(times):
        body = nested(6, nested(1, body))
    return body


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (nested(3, b"", 100), "more than 100 messages"),
        (nested(3, b"", 20_000), "more than 100 messages"),
        (nested(4, lists(60)), "more than 100 messages"),
        (b"\x08" + varint(1 << 40), "a: the number is not one of 32 bits"),
        (nested(4, nested(3, b"\xff")), "anything: a str is not valid UTF-8"),
        (nested(2, b"\x08"), r"kids\[0\]: the Protobuf message is cut off"),
        (nested(2, b"\x0b"), r"kids\[0\]: the Protobuf message is cut off"),
        (nested(3, b"\x12\x05a") + nested(3, b"\x12\x01"), "one: the Protobuf message is cut off"),
    ],
)
def test_malformed_messages_name_the_field(body: bytes, says: str) -> None:
    with pytest.raises(CodingError, match=says) as caught:
        NODE.decode(body, 1_000_000)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "body",
    [
        nested(2, b"") * 300,  # each has four containers of its own
        nested(6, b"\1" * 1001),
        nested(4, nested(6, nested(1, b"") * 1001)),
        nested(5, b"") * 1001,
    ],
)
def test_a_message_holds_no_more_values_than_it_may(body: bytes) -> None:
    with pytest.raises(CodingError, match="more values than it may"):
        NODE.decode(body, 1000)


@pytest.mark.parametrize(
    "body",
    [
        lambda: nested(6, b"".join(varint(i << 43) for i in range(400_000))),
        lambda: nested(7, b"".join(struct.pack("<d", i * 2.0**80) for i in range(60_000))),
    ],
    ids=["integers", "floats"],
)
def test_keys_that_collide_are_refused_or_do_not_take_long(body: Callable[[], bytes]) -> None:
    try:
        NODE.decode(body(), 10_000_000)
    except CodingError as error:
        if "collide" not in str(error):
            raise


def test_a_message_that_is_sent_in_pieces_costs_what_its_bytes_do() -> None:
    assert NODE.decode(nested(3, b"\x08\x01") * 200_000, 1_000_000).one.a == 1


def twice(number: int, body: bytes, times: int) -> bytes:
    """Each of the messages within each other is sent in two parts, the second of which says nothing new."""
    for _ in range(times):
        body = nested(number, body) + nested(number, b"\xf8\x01\x00")
    return body


def dicts(body: bytes, times: int) -> bytes:
    """A value of dicts within dicts, with a text in the innermost."""
    body = nested(3, body)
    for _ in range(times):
        body = nested(5, nested(1, nested(2, body)))
    return body


@pytest.mark.parametrize(
    "make",
    [lambda: twice(3, nested(9, bytes(4 << 20)), 90), lambda: nested(4, dicts(b"x" * (4 << 20), 30))],
    ids=["in two parts", "dicts"],
)
def test_messages_within_each_other_are_not_copied_at_each_level(make: Callable[[], bytes]) -> None:
    body = make()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    NODE.decode(body, 1_000_000)
    assert peak() - before < 4 * len(body)


def test_parts_of_messages_are_counted() -> None:
    with pytest.raises(CodingError, match="more values than it may"):
        NODE.decode(nested(3, b"\x08\x01") * 1001, 1000)
    with pytest.raises(CodingError, match="more values than it may"):
        NODE.decode(nested(4, nested(6, b"\x08\x01") * 1002), 1000)


def test_a_thread_that_decodes_much_lets_others_work() -> None:
    turns: list[None] = []
    # No step of these runs Python, where threads have their turns anyway.
    steps = [partial(len, turns), partial(NODE.decode, nested(2, b"") * 500_000, 10_000_000), partial(len, turns)]
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(map(partial.__call__, steps)))
    thread.start()
    while thread.is_alive():
        turns.append(None)
        time.sleep(0)
    thread.join()
    before, _, after = results
    assert after > before


def test_groups_and_unknown_fields_are_skipped() -> None:
    body = b"\xf3\x01\x0b\x08\x05\x0c\xf4\x01" + b"\xf8\x01\x07" + b"\x08\x02"
    assert NODE.decode(body, 10).a == 2


def _loop() -> Any:
    node = Node()
    node.one = node
    return node


def _list() -> Any:
    found: list[Any] = []
    found.append(found)
    return Node(anything=found)


class Sub(Node):
    extra: int = 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_loop, "more than 100 messages are within each other, or a value holds itself"),
        (_list, "more than 100 messages are within each other, or a value holds itself"),
        (lambda: Node(kids=[Node(kids=[Node(a="x")])]), r"kids\[0\]\.kids\[0\]\.a: expected int, got str"),  # type: ignore[arg-type]
        (lambda: Node(a=2**31), "a: an int that is not within -2147483648 to 2147483647"),
        (lambda: Node(a=True), "a: expected int, got bool"),
        (lambda: Node(anything=(1,)), "anything: tuple has no counterpart in JSON"),
        (lambda: Node(anything={"x": [2**53 + 1]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(anything={"x": [2**53 + 2]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(anything={"x": [2**70]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(anything={"x": [-(2**63)]}), r"anything\['x'\]\[0\]: an int of more than 53 bits"),
        (lambda: Node(table={"a": 1}), r"table\['a'\]: expected int, got str"),  # type: ignore[dict-item]
        (lambda: Node(kids=None), "kids: expected list, got None"),  # type: ignore[arg-type]
        (Sub, "expected Node, got"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_place(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(CodingError, match=says):
        NODE.encode(make())
