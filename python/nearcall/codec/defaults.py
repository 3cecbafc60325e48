"""Defaults of fields that their fields could not hold, such as ``tags: list[str] = None``.

Python does not mind them. But an object that has one arrives nowhere, and where a peer leaves the field out, its value
would be of no declared type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ..types.carried import NO_TYPES, CarriedTypes
from ..types.hints import field_hints, type_name
from .checks import outer_type, problem_with
from .construction import construction_of
from .shape import walk

__all__ = ["wrong_default"]


def wrong_default(shape: shapes.Type, types: CarriedTypes = NO_TYPES) -> str | None:
    """What is wrong with the first such default in a type, and what to do; ``None`` if there is none.

    Args:
        shape: The description of the type.
        types: The classes that travel as another type, besides those that do in the whole process.
    """
    nodes: Iterator[Any] = walk(shape)
    for node in nodes:
        plain = [field for field in getattr(node, "fields", ()) if field.default is not msgspec.NODEFAULT]
        if not plain or _has_code(node.cls):
            continue
        try:
            hints = field_hints(node.cls)
        except Exception:  # of any class: evaluating annotations runs code. msgspec has accepted them
            continue
        for field in plain:
            hint = hints.get(field.name, Any)
            fits = outer_type(hint, types).fits
            if fits is not None and not fits(field.default):
                name = f"{type_name(node.cls)}.{field.name}"
                given = type_name(type(field.default))
                problem = problem_with(field.default, hint)
                return f"the default of {name} {problem}: give it another, or declare '{type_name(hint)} | {given}'"
    return None


def _has_code(cls: Any) -> bool:
    """Whether code of the class runs when its objects are made: it may put something else in the place of a default."""
    construction = construction_of(cls)
    converts = any(each.converter is not None for each in getattr(cls, "__attrs_attrs__", ()))
    return construction.runs or construction.holds_more or converts
