"""Random classes with random values: what arrives holds, field by field, what was sent; over each codec."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcall.codec.protobuf.json import Json
from nearcall.codec.protobuf.service import Protobuf
from nearcall.codec.statuses import describe_error, make_error
from nearcall.service.making import in_codec
from nearcall.service.plan import ServicePlan
from nearcall.service.service import plan_of, service

from .loopback import carry_arguments, receive_value, send_value

NUMBERS = st.integers(-(2**40), 2**40)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, NUMBERS),
    (float, st.floats(allow_nan=False)),
    (str, TEXTS),
    (list[int], st.lists(NUMBERS, max_size=3)),
    (dict[str, int], st.dictionaries(TEXTS, NUMBERS, max_size=2)),
    (int | None, st.none() | NUMBERS),
]
KINDS = ("dataclass", "slots", "frozen", "kw_only", "struct", "frozen struct", "array", "tagged")


def alter(value: Any) -> Any:
    """What a constructor may do to a value; done twice it is not the same as done once."""
    if isinstance(value, (int, float)):
        return value * 2 + 1
    if isinstance(value, str):
        return value + "!"
    if isinstance(value, list):
        value.extend(value[:1])  # in the very list
        return value[::-1]
    if isinstance(value, dict):
        value[f"k{len(value)}"] = len(value)
    return value


def put(made: Any, name: str, value: Any) -> None:
    if isinstance(made, msgspec.Struct):
        msgspec.structs.force_setattr(made, name, value)
    else:
        object.__setattr__(made, name, value)


def names_of(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__struct_fields__", ()))


def held(value: Any) -> Any:
    if names := names_of(value):
        return type(value), [(name, held(getattr(value, name))) for name in names]
    if isinstance(value, list):
        return [held(each) for each in value]
    return type(value), value


@st.composite
def class_with_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A class, and values of it."""
    fields: list[tuple[str, Any, st.SearchStrategy[Any]]] = []
    for number in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            inner, values = draw(class_with_values(depth - 1))
            wrapped = draw(st.sampled_from(["one", "list", "optional"]))
            if wrapped == "list":
                inner, values = list[inner], st.lists(values, max_size=2)
            elif wrapped == "optional":
                inner, values = inner | None, st.none() | values
        else:
            inner, values = draw(st.sampled_from(PLAIN))
        fields.append((f"f{number}", inner, values))
    altered = draw(st.lists(st.sampled_from([name for name, *_ in fields]), unique=True))
    cls = make_class(draw(st.sampled_from(KINDS)), [(name, kind) for name, kind, _ in fields], altered)
    return cls, instances(cls, {name: values for name, _, values in fields})


_count = iter(range(1, sys.maxsize))


def make_class(kind: str, fields: list[tuple[str, Any]], altered: list[str]) -> Any:
    def post_init(self: Any) -> None:
        for name in altered:
            put(self, name, alter(getattr(self, name)))

    name, space = f"Class{next(_count)}", {"__post_init__": post_init} if altered else {}
    if kind in ("struct", "frozen struct", "array", "tagged"):
        options = {"frozen": kind == "frozen struct", "array_like": kind == "array", "tag": kind == "tagged" or None}
        return msgspec.defstruct(name, fields, namespace=space, **options)  # type: ignore[arg-type]
    options = {"slots": kind == "slots", "frozen": kind == "frozen", "kw_only": kind == "kw_only"}
    return dataclasses.make_dataclass(name, fields, namespace=space, **options)  # type: ignore[arg-type]


@st.composite
def instances(draw: st.DrawFn, cls: Any, values: dict[str, st.SearchStrategy[Any]]) -> Any:
    made = cls(**{name: draw(each) for name, each in values.items()})
    for name, each in values.items():
        if draw(st.booleans()):  # the object was changed after it was made
            put(made, name, draw(each))
    return made


def echo_of(annotation: Any) -> ServicePlan:
    class Echo:
        def echo(self, value, other=7):
            return value

    Echo.echo.__annotations__ = {"value": annotation, "other": int, "return": annotation}
    return plan_of(service(Echo))


CODECS: dict[str, Callable[[ServicePlan], ServicePlan]] = {
    "msgpack": lambda plan: plan,
    "protobuf": lambda plan: in_codec(plan, Protobuf()),
    "json": lambda plan: in_codec(plan, Json()),
}


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_arrives_holds_what_was_sent(codec: str, data: st.DataObject) -> None:
    cls, values = data.draw(class_with_values())
    (method,) = CODECS[codec](echo_of(cls)).methods
    for value in data.draw(st.lists(values, min_size=1, max_size=2)):
        before = held(value)
        arguments, reply = method.arguments, method.reply
        if codec == "msgpack":
            assert held(carry_arguments(arguments, arguments, (value, 1))[0]) == before
            assert held(carry_arguments(arguments, arguments, {"value": value})[0]) == before
            assert held(receive_value(reply, *send_value(reply, value))) == before
        else:
            assert held(arguments.coding.decode.decode(arguments.coding.encode.encode((value, 1)), 10**6)[0]) == before
            assert held(reply.coding.decode.decode(reply.coding.encode.encode(value), 10**6)) == before
        assert held(value) == before


def test_a_class_whose_code_does_not_run_is_decoded_by_msgspec_itself() -> None:
    @dataclasses.dataclass
    class Plain:
        x: int
        y: list[int]

    (method,) = echo_of(Plain).methods
    assert type(method.reply.coding.decode).__name__ == "builtin_function_or_method"
    assert method.reply.coding.decode.__self__.type is Plain


@pytest.mark.parametrize(
    "args",
    [("utf-8", b"abc", -2_000_000_000, -1_999_999_999, "x"), ("utf-8", 5, 0, 1, "x"), ("utf-8",), (None,) * 5, ()],
)
def test_a_peer_cannot_make_an_exception_that_reads_other_memory(args: tuple[Any, ...]) -> None:
    class Odd(Exception): ...

    Odd.__name__ = "UnicodeDecodeError"
    error = Odd(*args)
    vars(error).update(object=5, start=-100, end=1 << 62, encoding=3, reason=b"")
    status = describe_error(error, declared=[Odd])
    arrived = make_error(*status, declared={"UnicodeDecodeError": UnicodeDecodeError})
    assert isinstance(arrived, UnicodeDecodeError)
    assert "\\x" not in str(arrived)
    assert str(arrived) == "" or args != ("utf-8", 5, 0, 1, "x")
