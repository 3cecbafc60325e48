"""Single values of a field that are numbers, texts, bytes or members of an enum: what Protobuf calls them, and their
limits.
"""

from __future__ import annotations

import enum
from typing import Any, Final, cast

from msgspec import inspect as shapes

from ..inspection import UnsupportedTypeError
from . import hooks
from .messages import Element, EnumType
from .names import VALUE_NAMES, check_name, title, upper_snake, value_name

__all__ = ["buffer", "doc_of", "enum_type", "is_open", "lengths", "limited", "literal"]

_INT32: Final = range(-(1 << 31), 1 << 31)


def lengths(shape: Any) -> dict[str, int]:
    """The limits of how much a container or a buffer holds, as :class:`msgspec.Meta` calls them."""
    names = ("min_length", "max_length")
    return {name: limit for name in names if (limit := getattr(shape, name, None)) is not None}


def limited(element: Element, shape: Any, cls: type) -> Element:
    """The element, whose values are of the class, with the limits of its type."""
    names = ("gt", "ge", "lt", "le", "multiple_of", "pattern")
    limits = {name: limit for name in names if (limit := getattr(shape, name, None)) is not None} | lengths(shape)
    if limits:
        element.check, element.limits = hooks.bounded(cls, limits), limits
    return element


def buffer(shape: Any) -> Element:
    """The element for bytes of any kind."""
    accepts = (bytes, bytearray, memoryview)
    if isinstance(shape, shapes.BytesType):
        return limited(Element("bytes", "bytes", "bytes", accepts), shape, bytes)
    made: Any = bytearray if isinstance(shape, shapes.ByteArrayType) else memoryview
    found = Element("bytes", made.__name__, "bytes", (made, *accepts), from_=made, limits=lengths(shape))
    if found.limits:
        found.check = hooks.within(**found.limits)
    return found


def literal(shape: Any) -> Element:
    """The element for a ``Literal``."""
    kinds: Any = cast(Any, {type(value) for value in shape.values})
    if kinds == {str}:
        kind, cls = "string", cast(type, str)
    elif kinds == {int}:
        kind, cls = "int64", cast(type, int)
    else:
        raise UnsupportedTypeError("a Literal of texts and of numbers is two types in Protobuf: take one of them")
    values = tuple(sorted(shape.values))
    shown = ", ".join(map(repr, values))
    return Element(
        kind, f"Literal[{shown}]", kind, (cls,), check=hooks.allowed(values), note=f"one of {shown}", values=values
    )


def is_open(cls: type[enum.Enum]) -> bool:
    """Whether the enum itself makes members for values that it does not declare."""
    return cls._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]


def enum_type(cls: type[enum.Enum]) -> EnumType:
    """The enum of a class."""
    name = check_name(title(cls.__name__), "an enum")
    if issubclass(cls, enum.Flag):
        raise UnsupportedTypeError(f"{name} is a Flag, and Protobuf's enums cannot be combined: send its value as int")
    members = list(cls)
    numbers = [member.value for member in members]
    if not all(isinstance(number, int) and number in _INT32 for number in numbers):
        if any(isinstance(number, int) for number in numbers):
            raise UnsupportedTypeError(f"the values of {name} are not all ints of 32 bits: make them texts, or smaller")
        # Texts have no numbers: members are numbered by their places, and 0 stands for a value that is not set.
        numbers = list(range(1, len(members) + 1))
    prefix = upper_snake(name)
    own: dict[int, str] = vars(cls).get(VALUE_NAMES, {})
    values = [
        (check_name(own.get(number, value_name(name, member.name)), f"a member of {name}"), number)
        for member, number in zip(members, numbers, strict=True)
    ]
    names = [each for each, _ in values]
    if len(set(names)) < len(names):
        raise UnsupportedTypeError(f"two members of {name} differ in upper and lower case only")
    if 0 in numbers:
        values.sort(key=lambda value: value[1] != 0)  # Protobuf wants the zero first
    else:
        values.insert(0, (f"{prefix}_UNSPECIFIED", 0))
        if f"{prefix}_UNSPECIFIED" in names:
            raise UnsupportedTypeError(f"{name}.UNSPECIFIED must be 0, which stands for it in Protobuf")
    return EnumType(name, values, dict(zip(numbers, members, strict=True)), doc_of(cls))


def doc_of(cls: Any) -> str | None:
    """The docstring that a class has itself."""
    doc = cls.__dict__.get("__doc__")
    # Without a docstring, a dataclass gets its signature as docstring, and an enum a general sentence.
    if not doc or doc.startswith(f"{cls.__name__}(") or doc == "An enumeration.":
        return None
    import inspect

    return inspect.cleandoc(doc)
