"""Where ``nearcall.field`` has a meaning: around a field or a parameter, and with ``type`` around every number."""

from __future__ import annotations

from typing import Any, Final

from ...types.hints import type_name
from ...types.numbers import FLOATS, FieldOptions, field_options
from ..inspection import UnsupportedTypeError

__all__ = ["NOT_IMPLICIT", "inner_options", "no_number", "whole_options"]

NOT_IMPLICIT: Final = "implicit=True is for fields of a single value whose default is zero"
_NONE: Final = FieldOptions()


def inner_options(hint: Any, *, numbered: bool = False) -> FieldOptions:
    """The options of a type within another one.

    Args:
        hint: Its annotation.
        numbered: Whether it has a number there, as a member of a union has.

    Raises:
        UnsupportedTypeError: they are for a field.
    """
    options = field_options(hint)
    if (options.number is not None and not numbered) or options.implicit or options.json_name is not None:
        raise UnsupportedTypeError(
            f"{options!r} is for a field, and {type_name(hint)} is only a part of one: write it around the whole "
            "annotation, and here type= at most"
        )
    return options


def whole_options(hint: Any) -> FieldOptions:
    """The options of a type that is a message by itself: none.

    Raises:
        UnsupportedTypeError: there are some.
    """
    options = field_options(hint)
    if options != _NONE:
        raise UnsupportedTypeError(f"{options!r} is for a field, and {type_name(hint)} is a message: leave it out")
    return options


def no_number(options: FieldOptions, hint: Any) -> UnsupportedTypeError:
    """The error for ``type=`` around something that is no number."""
    number = "float" if options.type in FLOATS else "int"
    return UnsupportedTypeError(
        f"type={options.type!r} is for an int or a float, not for {type_name(hint)}: write it around the number, as "
        f"Annotated[{number}, nearcall.field(type={options.type!r})]"
    )
