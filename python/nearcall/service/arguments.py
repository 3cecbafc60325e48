"""The plan of a method's arguments: what may be passed, in any codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..codec.protocol import ArgumentsCoding, ParameterType, Parts
from ..errors import InvalidArgument
from .binding import Binder
from .plan import ArgumentsPlan, Parameter
from .values import ProblemFinder, problem_finder

__all__ = ["arguments_plan"]


def arguments_plan(
    method: str, parameters: Sequence[ParameterType], coding: ArgumentsCoding, binder: Binder, positional: int
) -> ArgumentsPlan:
    """The plan of all parameters but the streaming one.

    Args:
        method: The method's full name.
        parameters: The parameters in order.
        coding: Encodes and decodes them.
        binder: Binds calls of the method.
        positional: How many of them may be given by position.
    """
    finders = {parameter.name: problem_finder(parameter.type) for parameter in parameters}
    check = _checker(method, finders)
    names = tuple(finders)
    return ArgumentsPlan(
        coding=coding,
        names=names,
        positional=positional,
        accepts=tuple(parameter.type.outer.accepts for parameter in parameters),
        check_at=lambda index, value: check(names[index], value),
        bind=binder.bind,
        encode_named=_named_encoder(names, check, coding.encode_named),
        parameters=tuple(
            Parameter(parameter.name, parameter.type.name, parameter.required, parameter.type.schema)
            for parameter in parameters
        ),
    )


def _checker(method: str, finders: dict[str, ProblemFinder | None]) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        find_problem = finders[name]
        if find_problem is not None and (problem := find_problem(value)):
            raise InvalidArgument(f"{method}(): argument '{name}' {problem}")

    return check


def _named_encoder(
    names: Sequence[str], check: Callable[[str, Any], None], encode: Callable[[dict[str, Any]], Parts] | None
) -> Callable[[tuple[Any, ...] | dict[str, Any]], Parts] | None:
    if encode is None:
        return None

    # It checks the values as well: the core cannot, because only here it is known which parameter a value is for.
    def encode_named(bound: tuple[Any, ...] | dict[str, Any]) -> Parts:
        values = bound if isinstance(bound, dict) else dict(zip(names, bound, strict=True))
        for name, value in values.items():
            check(name, value)
        return encode(values)

    return encode_named
