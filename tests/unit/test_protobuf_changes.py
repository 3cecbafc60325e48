"""What a new version breaks for peers that have the old one's .proto."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any

import pytest

import nearcall
from nearcall.codec.protobuf.changes import changes

from .test_protobuf_rules import messages


def found(old: Any, new: Any) -> list[str]:
    """What changes if one annotation of a parameter becomes another."""
    versions: list[Any] = []
    for annotation in (old, new):

        class Service:
            def take(self, value: int, more: int = 0) -> None: ...

        Service.take.__annotations__["value"] = annotation
        versions.append(messages(nearcall.service(Service)))
    return [change.text for change in changes(*versions)]


def point(*fields: tuple[str, Any]) -> Any:
    return dataclasses.make_dataclass("Point", fields)


def color(*names: str) -> Any:
    return enum.Enum("Color", [(name, name) for name in names])


One, Two, Three = (dataclasses.make_dataclass(name, [("x", int)]) for name in ("One", "Two", "Three"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (int, str, "the request: 'value' was int64 and is string"),
        (list[int], int, "'value' was 'repeated int64 value = 1;' and is 'int64 value = 1;'"),
        (int, Annotated[int, nearcall.field(type="sint64")], "'value' was int64 and is sint64"),
        (
            point(("x", int), ("y", int)),
            point(("z", int), ("x", int), ("y", int)),
            "'value', a Point: 'x' had the number 1 and has 2: pin it with nearcall.field(1)",
        ),
        (point(("x", int), ("y", int)), point(("x", int)), "'y' is gone"),
        (point(("x", int)), point(("a", int)), "the number 1 was that of 'x' and is that of 'a'"),
        (point(("x", int)), point(("x", int), ("to", list[int] | None)), None),
        (color("RED", "BLUE"), color("BLUE", "RED"), "the number 1 was that of RED and is that of BLUE"),
        (color("RED", "BLUE"), color("RED"), "BLUE, number 2, is gone"),
        (int, Annotated[int, nearcall.field(type="int32")], None),
        (int | str, int | str | list[int], None),
        (One | Two, One | Two | Three, None),
        (One | Two, Two | One, "'one' had the number 1 and has 2"),
        (
            point(("x", int), ("y", str)),
            point(("y", Annotated[str, nearcall.field(2)]), ("x", Annotated[int, nearcall.field(1)])),
            None,
        ),
    ],
)
def test_what_breaks(old: Any, new: Any, says: str | None) -> None:
    texts = found(old, new)
    assert (not texts) if says is None else any(says in text for text in texts), texts


def test_methods_that_go_or_stream_otherwise() -> None:
    from collections.abc import Iterator

    @nearcall.service(name="S")
    class Old:
        def gone(self) -> int: ...
        def streams(self) -> int: ...
        def same(self) -> int: ...

    @nearcall.service(name="S")
    class New:
        def streams(self) -> Iterator[int]: ...
        def same(self) -> int: ...
        def added(self) -> int: ...

    texts = [change.text for change in changes(messages(Old), messages(New))]
    assert texts == ["/S/Gone is gone", "streams(): streams are not where they were"]


def test_a_new_field_that_must_be_there() -> None:
    assert (
        "'p' is new and must be there"
        in found(point(("x", int)), point(("x", int), ("p", dataclasses.make_dataclass("Inner", [("a", int)]))))[0]
    )
