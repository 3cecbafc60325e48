"""The cheap check of a value against its annotation, made before it is sent.

Only the outer type is checked, so that the cost does not grow with the value. The receiver's decoder checks what is
inside a container, as it must in any case.
"""

from __future__ import annotations

import collections.abc
import datetime
import inspect
import math
import numbers
from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from ..types.arrays import dtype_of_annotation, is_array_type
from ..types.carried import NO_TYPES, CarriedTypes
from ..types.declared import is_service
from ..types.hints import UNION_ORIGINS, describe_value, namesake, short_repr, type_name, unwrap
from ..types.registered import carried_type
from .arrays import wrong_dtype
from .remedies import conversion_to
from .senders import is_record, loss

__all__ = ["BUFFERS", "OuterType", "outer_type", "problem_with", "problem_with_buffer"]

BUFFERS: tuple[type, ...] = (bytes, bytearray, memoryview)
_STRINGS = (str, *BUFFERS)


class OuterType(NamedTuple):
    """The values that may be passed for an annotation."""

    accepts: tuple[type, ...]
    """Exact types that always fit."""
    fits: Callable[[Any], bool] | None
    """The slower test for a value of another type; ``None`` if anything fits."""


def outer_type(annotation: Any, types: CarriedTypes = NO_TYPES) -> OuterType:
    """The test for one annotation, which must be one that can be encoded.

    Args:
        annotation: The annotation.
        types: The classes that travel as another type, besides those that do in the whole process.
    """
    annotation = unwrap(annotation)
    if annotation is Any:
        return OuterType((), None)
    if annotation is None or annotation is NoneType:
        return OuterType((NoneType,), _is_none)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in UNION_ORIGINS:
        return _union([outer_type(arg, types) for arg in args])
    if origin is Literal:
        return OuterType((), _literal(args))
    cls: Any = origin or annotation
    if hasattr(cls, "__total__") and dict in getattr(cls, "__mro__", ()):  # a TypedDict, typing_extensions' too
        return OuterType((dict,), _instance(dict))
    if is_array_type(cls):
        scalar = dtype_of_annotation(annotation)
        return OuterType((cls,) if scalar is None else (), _array(cls, scalar))
    if not isinstance(cls, type) or is_service(cls):  # the sender of references checks the value itself
        return OuterType((), None)
    if (carried := carried_type(cls, types)) is not None:
        return OuterType(carried.kinds, carried.fits)
    return _of_class(cls)


def problem_with(value: Any, annotation: Any) -> str:
    """``must be int, got str``."""
    got = describe_value(value)
    if inspect.iscoroutine(value):
        got += ": write 'await' in front of it"
    bare = unwrap(annotation)
    if get_origin(bare) is Literal:
        got = short_repr(value)
    for member in get_args(bare) if get_origin(bare) in UNION_ORIGINS else (bare,):
        cls: Any = get_origin(member) or member
        if isinstance(cls, type):
            got += loss(value, cls) if _has_fields(cls) else namesake(value, cls)
    if bare is datetime.date and isinstance(value, datetime.datetime):
        got += ": write value.date()"
    elif bare is float and not isinstance(value, bool) and isinstance(value, numbers.Real):
        got += f" {short_repr(value)}, which no float equals"
    elif instead := conversion_to(getattr(get_origin(bare) or bare, "__name__", ""), type(value)):
        got += f": {instead}"
    return f"must be {type_name(annotation)}, got {got}"


def problem_with_buffer(value: Any, annotation: Any) -> str | None:
    """Why the value is not a buffer that can be sent as it is; ``None`` if it is one."""
    try:
        with memoryview(value) as view:
            if view.c_contiguous:
                return None
    except TypeError:
        return problem_with(value, annotation)
    except (ValueError, BufferError) as problem:  # a view that was released, a map that was closed
        return f"must be {type_name(annotation)}, got a {describe_value(value)} that gives no buffer: {problem}"
    return f"must be {type_name(annotation)}, got a {describe_value(value)} that is not C-contiguous: copy it first"


def _of_class(cls: type) -> OuterType:
    if cls is bool:
        return OuterType((bool,), _is_bool)
    if cls is int:
        return OuterType((int,), _is_int)
    if cls is float:
        return OuterType((float,), _is_real)
    if cls in BUFFERS:
        return OuterType(BUFFERS, _instance(BUFFERS))
    if cls is datetime.date:
        return OuterType((datetime.date,), _is_date)
    if cls in (collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection):
        return OuterType((list, tuple), _collection(cls))
    if cls.__module__ == "collections.abc":  # Mapping, Set and their like
        return OuterType((), _instance(cls))
    if _has_fields(cls):
        return OuterType((cls,), _exactly(cls))
    if cls is tuple:
        return OuterType((tuple,), _is_plain_tuple)
    return OuterType((cls,), _instance(cls))


def _has_fields(cls: Any) -> bool:
    """Whether a class declares fields, so that a subclass may hold more than these."""
    return any(
        hasattr(cls, mark) for mark in ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "_fields")
    )


def _union(members: list[OuterType]) -> OuterType:
    tests: list[Callable[[Any], bool]] = []
    for member in members:
        if member.fits is None:
            return OuterType((), None)
        tests.append(member.fits)
    accepts = tuple(dict.fromkeys(cls for member in members for cls in member.accepts))

    def fits(value: Any) -> bool:
        return any(test(value) for test in tests)

    return OuterType(accepts, fits)


def _literal(values: tuple[Any, ...]) -> Callable[[Any], bool]:
    # Literal members may themselves be Literals, and 1 == True must not pass.
    flat: list[tuple[type, Any]] = []
    for value in values:
        nested = get_args(value) if get_origin(value) is Literal else (value,)
        flat.extend((type(cast(object, each)), each) for each in nested)
    return lambda value: any(kind is type(value) and value == each for kind, each in flat)


def _array(cls: type, scalar: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, cls) and not wrong_dtype(value, scalar)


def _exactly(cls: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is cls


def _is_plain_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and not is_record(cast(Any, value))


def _instance(cls: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, cls)


def _collection(cls: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, cls) and not isinstance(value, _STRINGS)


def _is_none(value: Any) -> bool:
    return value is None


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or _is_numpy_bool(value)


def _is_int(value: Any) -> bool:
    # numbers.Integral so that numpy's integers pass; bool is an Integral, too, and cannot be subclassed.
    return type(value) is not bool and isinstance(value, numbers.Integral)


def _is_real(value: Any) -> bool:
    if type(value) is bool or not isinstance(value, numbers.Real):
        return False
    try:
        return float(value) == value or math.isnan(value)
    except OverflowError:
        return False


def _is_numpy_bool(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")


def _is_date(value: Any) -> bool:
    # A datetime is a date to Python, but not to the receiver's decoder.
    return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
