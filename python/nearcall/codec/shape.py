"""msgspec's description of a type, with the services of functions in place of ``Callable``, of which it leaves out
the types.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..types.declared import service_class
from ..types.functions import CALLABLE
from ..types.hints import UNION_ORIGINS, unwrap

__all__ = ["shape_of", "walk"]


def shape_of(annotation: Any) -> shapes.Type:
    """msgspec's description of a type.

    Raises:
        TypeError: msgspec does not support the type.
        NameError: the type refers to a name that does not exist (yet).
    """
    shape = shapes.type_info(annotation)
    if any(map(_is_callable, walk(shape))):
        # The description was made for this call, so it may be changed.
        shape = _filled_in(shape, annotation, {})
    return shape


def walk(shape: shapes.Type) -> Iterator[shapes.Type]:
    """Every type within a type, itself first, each once."""
    seen: set[int] = set()
    waiting: list[Any] = [shape]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, shapes.Type):
            yield node
        # Types and their fields are Structs that hold each other directly or in tuples.
        if isinstance(node, (shapes.Type, shapes.Field)):
            names = set(node.__struct_fields__) - {"default", "default_factory", "cls", "values"}
            waiting.extend(getattr(node, name) for name in names)
        elif isinstance(node, tuple):
            waiting.extend(cast(Any, node))


def _is_callable(shape: shapes.Type) -> bool:
    return isinstance(shape, shapes.CustomType) and cast(Any, shape.cls) is CALLABLE


def _filled_in(shape: Any, hint: Any, seen: dict[int, Any]) -> Any:
    """The description with the services of functions; ``hint`` is what it describes."""
    if isinstance(shape, shapes.Metadata):
        _set(shape, "type", _filled_in(shape.type, hint, seen))
        return shape
    hint = unwrap(hint)
    if _is_callable(shape):
        service = service_class(hint)
        return shape if service is None else shapes.CustomType(service)
    if id(shape) in seen:
        return shape
    seen[id(shape)] = shape
    args = [each for each in get_args(hint) if each is not Ellipsis]
    kind: Any = type(cast(object, shape))
    if kind is shapes.UnionType:
        functions = [each for each in args if get_origin(unwrap(each)) is CALLABLE]
        members = [_filled_in(each, _member(each, args, functions), seen) for each in shape.types]
        _set(shape, "types", tuple(members))
    elif kind is shapes.DictType and len(args) == 2:
        _set(shape, "value_type", _filled_in(shape.value_type, args[1], seen))
    elif kind is shapes.TupleType and len(args) == len(shape.item_types):
        items = [_filled_in(item, each, seen) for item, each in zip(shape.item_types, args, strict=True)]
        _set(shape, "item_types", tuple(items))
    elif hasattr(shape, "item_type") and len(args) == 1:
        _set(shape, "item_type", _filled_in(shape.item_type, args[0], seen))
    elif hasattr(shape, "fields"):
        hints = typing.get_type_hints(get_origin(shape.cls) or shape.cls, include_extras=True)
        for field in shape.fields:
            _set(field, "type", _filled_in(field.type, hints.get(field.name), seen))
    return shape


def _member(shape: Any, args: list[Any], functions: list[Any]) -> Any:
    """What a member of a union describes."""
    if _is_callable(shape):
        return functions[0] if len(functions) == 1 else None
    # Of the others those matter that may hold functions; beside None there is one, or classes with fields.
    cls = getattr(shape, "cls", None)
    for each in args:
        bare = unwrap(each)
        if bare is cls or (cls is None and get_origin(bare) is not None and get_origin(bare) not in UNION_ORIGINS):
            return each
    return cls


def _set(struct: msgspec.Struct, name: str, value: Any) -> None:
    msgspec.structs.force_setattr(struct, name, value)
