"""From an annotation to the type of its values, and to the check of a value before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..codec import checks, inspection
from ..codec.defaults import wrong_default
from ..codec.protocol import Roles, ValueCoding, ValueType, buffer_form
from ..types.hints import type_name
from ..types.schema import SchemaBuilder
from .plan import ValuePlan

__all__ = ["ProblemFinder", "problem_finder", "value_plan", "value_type"]

ProblemFinder: TypeAlias = "Callable[[Any], str | None]"
"""The check of a value: ``must be int, got str``, or ``None`` if it fits."""


def value_type(annotation: Any, builder: SchemaBuilder) -> ValueType:
    """The type that an annotation stands for.

    Raises:
        UnsupportedTypeError: its values cannot be sent.
        NameError: the annotation refers to a name that does not exist (yet).
    """
    written = annotation
    try:
        shape = inspection.inspect_type(annotation, builder.carried)
    except inspection.UnsupportedTypeError:
        from ..codec.choices import told_apart

        annotation = told_apart(written, builder.carried)
        if annotation is written:
            raise
        shape = inspection.inspect_type(annotation, builder.carried)
    if problem := wrong_default(shape, builder.carried):
        raise inspection.UnsupportedTypeError(problem)
    services = inspection.services_in(shape)
    schema = builder.schema(shape)
    outer = checks.outer_type(written, builder.carried)
    return ValueType(annotation, shape, type_name(written), schema, outer, services, written=written)


def value_plan(type_: ValueType, coding: ValueCoding, roles: Roles) -> ValuePlan:
    """The plan of a result or of a stream's items."""
    return ValuePlan(coding, type_.outer.accepts, _checker(type_, roles), type_.name, type_.schema)


def problem_finder(type_: ValueType) -> ProblemFinder | None:
    """The check of values of a type; ``None`` if everything fits."""
    annotation, fits = type_.annotation, type_.outer.fits
    if buffer_form(type_.shape) is not None:
        return lambda value: checks.problem_with_buffer(value, annotation)
    if fits is None:
        return None
    return lambda value: None if fits(value) else checks.problem_with(value, annotation)


def _checker(type_: ValueType, roles: Roles) -> Callable[[Any], None] | None:
    find_problem = problem_finder(type_)
    if find_problem is None:
        return None

    def check(value: Any) -> None:
        if problem := find_problem(value):
            raise roles.sender_error(f"{roles.noun} {problem}")

    return check
