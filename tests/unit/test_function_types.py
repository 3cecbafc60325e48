"""How the types of a function become the name of its service."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, NewType

import pytest

from nearcall.codec.shape import shape_of, walk
from nearcall.types.declared import is_function, name_of, service_class
from nearcall.types.functions import show_function

Frame = NewType("Frame", int)


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (Callable[[], None], "callable.to.None"),
        (Callable[[int, str], bool], "callable.int.str.to.bool"),
        (Callable[[dict[str, list[int]]], None], "callable.dict_of_str_and_list_of_int__.to.None"),
        (Callable[[list[int] | None], int], "callable.list_of_int__or_None.to.int"),
        (Callable[[list[int | None]], int], "callable.list_of_int_or_None_.to.int"),
        (Callable[[int], Awaitable[None]], "callable.int.to.None"),
        (Callable[[int], Coroutine[Any, Any, str]], "callable.int.to.str"),
        (Callable[[int], AsyncIterator[str]], "callable.int.to.Iterator_of_str_"),
        (Callable[[int], Iterator[str]], "callable.int.to.Iterator_of_str_"),
    ],
)
def test_names(annotation: Any, name: str) -> None:
    cls = service_class(annotation)
    assert cls is not None
    assert name_of(cls) == name
    assert is_function(cls)


def test_one_class_for_what_means_the_same() -> None:
    one = service_class(Callable[[int], None])
    assert one is service_class(typing.Callable[[int], None])
    assert one is service_class(Callable[[int], Awaitable[None]])
    assert one is not service_class(Callable[[int], int])


@pytest.mark.parametrize("annotation", [Callable, Callable[..., int], int, "Callable[[int], int]", None])
def test_no_function(annotation: Any) -> None:
    assert service_class(annotation) is None


def test_shown() -> None:
    assert show_function("callable.int.str.to.None") == "Callable[[int, str], None]"
    assert show_function("callable.to.None") == "Callable[[], None]"
    assert show_function("callable.") == "Callable"  # a hostile peer's


def test_too_long() -> None:
    with pytest.raises(TypeError, match="too long for a name: take an object of a service"):
        service_class(Callable[[tuple[(dict[str, int],) * 60]], None])


class Node(typing.TypedDict):
    call: Callable[[int], None]
    next: Node | None
    others: dict[str, list[tuple[Callable[[], str], int]]]


def test_found_in_types_that_hold_themselves() -> None:
    found = {cls for node in walk(shape_of(list[Node])) if (cls := getattr(node, "cls", None)) is not None}
    assert {service_class(Callable[[int], None]), service_class(Callable[[], str])} <= found
