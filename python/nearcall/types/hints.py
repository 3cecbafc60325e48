"""Reads type hints: resolves them, looks through aliases, tells streams from values, and names types."""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from .streams import AsyncStream, Stream

__all__ = [
    "UNION_ORIGINS",
    "StreamHint",
    "applied",
    "describe_value",
    "field_hints",
    "namesake",
    "opened",
    "plain_name",
    "resolve",
    "stream_of",
    "type_name",
    "unwrap",
]

UNION_ORIGINS = (Union, types.UnionType)

_ASYNC_STREAMS: tuple[Any, ...] = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
    AsyncStream,
)
_STREAMS: tuple[Any, ...] = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    Stream,
    *_ASYNC_STREAMS,
)
_AWAITABLES: tuple[Any, ...] = (collections.abc.Awaitable, collections.abc.Coroutine)
_LONG_VALUE = 60


class StreamHint(typing.NamedTuple):
    """An annotation such as ``Iterator[int]``: the item's annotation, and whether it is an asynchronous one."""

    item: Any
    is_async: bool


def resolve(function: Any, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a function with strings evaluated and ``Annotated`` kept.

    Raises:
        NameError: an annotation names something that does not exist (yet).
    """
    return typing.get_type_hints(function, localns=dict(namespace), include_extras=True)


def unwrap(annotation: Any) -> Any:
    """The annotation that ``Annotated``, ``Final``, ``NewType``, a type alias or a type variable stands for."""
    while True:
        if get_origin(annotation) in (typing.Annotated, typing.Final, typing.ClassVar):
            meant = get_args(annotation)[0]
        else:
            meant = opened(annotation)
        if meant is annotation:
            return annotation
        annotation = meant


def opened(annotation: Any) -> Any:
    """What a ``NewType``, a type alias or a type variable stands for, which may be another one; the annotation itself
    if it is none of them.
    """
    origin = get_origin(annotation)
    if isinstance(annotation, TypeVar):
        bound = annotation.__bound__
        return Any if bound is None or isinstance(bound, (str, typing.ForwardRef)) else bound
    if hasattr(origin, "__value__"):  # type Pair[T] = ...; Pair[int]
        return origin.__value__[get_args(annotation)]
    if hasattr(annotation, "__value__") and hasattr(annotation, "__type_params__"):  # type Name = ...
        return annotation.__value__
    if hasattr(annotation, "__supertype__"):  # NewType
        return annotation.__supertype__
    return annotation


def stream_of(annotation: Any) -> StreamHint | None:
    """The items that the annotation streams; ``None`` if it is an ordinary value."""
    annotation = unwrap(annotation)
    origin = get_origin(annotation) or annotation
    if origin in UNION_ORIGINS:
        return _of_either([stream_of(each) for each in get_args(annotation)])
    if origin not in _STREAMS:
        return None
    args = get_args(annotation)
    return StreamHint(args[0] if args else Any, origin in _ASYNC_STREAMS)


def _of_either(streams: list[StreamHint | None]) -> StreamHint | None:
    """The stream of ``AsyncIterable[T] | Iterable[T]``, which a client in an event loop may be given."""
    kinds = {stream.is_async for stream in streams if stream is not None}
    items = [stream.item for stream in streams if stream is not None]
    if len(items) == len(streams) == 2 and kinds == {True, False} and items[0] == items[1]:
        return StreamHint(items[0], True)
    return None


def awaited(annotation: Any) -> Any | None:
    """``int`` for ``Awaitable[int]`` or ``Coroutine[..., ..., int]``, ``NoneType`` for one of ``None``; ``None`` for
    anything else.
    """
    annotation = unwrap(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in _AWAITABLES and args:
        return types.NoneType if args[-1] is None else args[-1]
    return None


def type_name(annotation: Any) -> str:
    """The annotation as one would write it, without module names: ``dict[str, Point] | None``."""
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, (list, tuple)):  # the parameters of a Callable, the shape of an array
        return "[" + ", ".join(type_name(item) for item in cast("list[Any]", annotation)) + "]"
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None:
        return plain_name(annotation)
    if origin is typing.Annotated:
        return type_name(args[0])
    if origin in UNION_ORIGINS:
        return " | ".join(type_name(arg) for arg in args)
    if origin is Literal:
        return "Literal[" + ", ".join(repr(arg) for arg in args) + "]"
    if _is_ndarray(origin):
        return _array_name(args)
    if not args and origin is not tuple:  # typing.Iterator without its item
        return plain_name(origin)
    inner = ", ".join(type_name(arg) for arg in args) or "()"
    return f"{plain_name(origin)}[{inner}]"


def describe_value(value: Any) -> str:
    """The type of a value, for ``expected ..., got ...``."""
    kind = cast(Any, type(value))
    if value is None:
        return "None"
    if _is_ndarray(kind):
        return f"ndarray of {value.dtype}"
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module.split('.')[0]}.{kind.__name__}"


def namesake(value: Any, cls: type) -> str:
    """The end of an error message if a value's class is another one of the name of the class that is wanted: which is
    which, and what to do.
    """
    kind = cast(Any, type(value))
    if kind is cls or kind.__name__ != cls.__name__:
        return ""
    if (kind.__module__, kind.__qualname__) != (cls.__module__, cls.__qualname__):
        return (
            f", and these are two classes: {cls.__module__}.{cls.__qualname__} is declared, and "
            f"{kind.__module__}.{kind.__qualname__} was given"
        )
    present = _present(kind)
    if present is kind:
        advice = f"declare the service again, for it still means the earlier {cls.__name__}"
    elif present is cls:
        advice = "make the value again, for it is of the earlier class"
    else:
        advice = "declare the service, and make the value, with the same one"
    return f", and the class {cls.__name__} of {cls.__module__} was defined again in between: {advice}"


def _present(kind: type) -> object:
    """What the name of a class stands for in its module now; ``None`` if it is not there."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def short_repr(value: Any) -> str:
    """``repr`` in one line of bounded length."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= _LONG_VALUE else text[: _LONG_VALUE - 3] + "..."


def plain_name(annotation: Any) -> str:
    """The name of an annotation, or of a class, without its type arguments and its module."""
    name = getattr(annotation, "__name__", None) or getattr(annotation, "_name", None)
    # Some classes in compiled modules have these in their names.
    return str(name).rpartition(".")[2] if name else repr(annotation).replace("typing.", "")


def _is_ndarray(cls: Any) -> bool:
    return isinstance(cls, type) and cls.__name__ == "ndarray" and cls.__module__ == "numpy"


def _array_name(args: tuple[Any, ...]) -> str:
    # NDArray[float64] is ndarray[tuple[Any, ...], dtype[float64]].
    scalar = get_args(args[-1]) if args else ()
    if not scalar or scalar[0] is Any:
        return "ndarray"
    return f"NDArray[{type_name(scalar[0])}]"


def field_hints(annotation: Any) -> dict[str, Any]:
    """The types of a class's fields, with the arguments of a generic class in the place of its type variables."""
    cls: Any = get_origin(annotation) or annotation
    bound: dict[type, dict[Any, Any]] = {}
    _bind(annotation, {}, bound)
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints: dict[str, Any] = typing.get_type_hints(base, include_extras=True) if base is not object else {}
        for name in getattr(base, "__annotations__", ()):  # the class's own
            if name in hints:
                found[name] = applied(hints[name], bound.get(base, {}))
    return found


def _bind(annotation: Any, scope: dict[Any, Any], bound: dict[type, dict[Any, Any]]) -> None:
    cls: Any = get_origin(annotation) or annotation
    if not isinstance(cls, type) or cls in bound or cls is object:
        return
    args = [applied(arg, scope) for arg in get_args(annotation)]
    bound[cls] = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    for base in getattr(cls, "__orig_bases__", cls.__bases__):
        if get_origin(base) is not typing.Generic:
            _bind(base, bound[cls], bound)


def applied(hint: Any, scope: Mapping[Any, Any]) -> Any:
    """A type with others in the place of its type variables."""
    if isinstance(hint, TypeVar):
        return scope.get(hint, hint)
    open_ = getattr(hint, "__parameters__", ())
    # In Python 3.10 list[T] is a type, too.
    if not scope or not open_ or (isinstance(hint, type) and get_origin(hint) is None):
        return hint
    generic: Any = hint
    return generic[tuple([scope.get(each, each) for each in open_])]
