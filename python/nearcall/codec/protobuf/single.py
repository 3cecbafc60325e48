"""Single values of a field that are numbers, texts or bytes: what Protobuf calls them, and their limits."""

from __future__ import annotations

from typing import Any, cast

from msgspec import inspect as shapes

from ..inspection import UnsupportedTypeError
from . import hooks
from .messages import Element

__all__ = ["buffer", "lengths", "limited", "literal"]


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
