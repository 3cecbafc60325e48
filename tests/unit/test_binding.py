"""Arguments are bound by Python's rules, and mistakes are named."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcall.errors import InvalidArgument
from nearcall.service.plan import ArgumentsPlan
from nearcall.service.service import plan_of, service


@service
class Shapes:
    def plain(self, a: int, b: int) -> int: ...
    def defaults(self, a: int, b: int = 2, c: int = 3) -> int: ...
    def only(self, a: int, /, b: int, *, c: int, d: int = 4) -> int: ...
    def nothing(self) -> None: ...


PLANS = {method.name: method for method in plan_of(Shapes).methods}


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "message"),
    [
        ("plain", (1,), {}, "Shapes.plain(): argument 'b' is missing; it is plain(a: int, b: int) -> int"),
        ("plain", (), {}, "Shapes.plain(): arguments 'a', 'b' are missing; it is plain(a: int, b: int) -> int"),
        (
            "plain",
            (1, 2, 3),
            {},
            "Shapes.plain(): takes 2 positional arguments, got 3; it is plain(a: int, b: int) -> int",
        ),
        ("plain", (1, 2), {"b": 3}, "Shapes.plain(): argument 'b' is given twice, by position and by name"),
        (
            "plain",
            (1,),
            {"x": 3},
            "Shapes.plain(): unexpected argument 'x'; it is plain(a: int, b: int) -> int",
        ),
        (
            "only",
            (),
            {"a": 1, "b": 2, "c": 3},
            "Shapes.only(): argument 'a' must be given by position; "
            "it is only(a: int, /, b: int, *, c: int, d: int = ...) -> int",
        ),
        ("nothing", (1,), {}, "Shapes.nothing(): takes 0 positional arguments, got 1; it is nothing() -> None"),
    ],
)
def test_mistakes_are_named(method: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        PLANS[method].arguments.bind(args, kwargs)
    assert caught.value.message == message


def test_a_near_miss_is_suggested() -> None:
    @service
    class Printer:
        def print(self, text: str, copies: int = 1) -> None: ...

    with pytest.raises(InvalidArgument, match=r"unexpected argument 'copy' \(did you mean 'copies'\?\)"):
        plan_of(Printer).methods[0].arguments.bind(("x",), {"copy": 2})


@given(
    name=st.sampled_from(["plain", "defaults", "only", "nothing"]),
    args=st.lists(st.integers(), max_size=4).map(tuple),
    kwargs=st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.integers(), max_size=4),
)
def test_binding_agrees_with_python(name: str, args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    arguments: ArgumentsPlan = PLANS[name].arguments
    signature = inspect.signature(getattr(Shapes(), name))
    try:
        expected = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:
        with pytest.raises(InvalidArgument):
            arguments.bind(args, kwargs)
        return
    bound = arguments.bind(args, kwargs)
    if isinstance(bound, tuple):
        bound = dict(zip(arguments.names, bound, strict=True))
        assert len(bound) == len(arguments.names)
    assert bound == expected


def test_positional_counts_only_what_may_be_given_by_position() -> None:
    assert PLANS["only"].arguments.names == ("a", "b", "c", "d")
    assert PLANS["only"].arguments.positional == 2


def test_adapt_passes_keyword_only_parameters_by_name() -> None:
    def handler(a: int, /, b: int, *, c: int, d: int = 4) -> tuple[int, ...]:
        return a, b, c, d

    assert PLANS["only"].adapt(handler)(1, 2, 3, 4) == (1, 2, 3, 4)
    assert PLANS["plain"].adapt(handler) is handler
