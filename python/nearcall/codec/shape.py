"""msgspec's description of a type, with what it leaves out: the services of functions in place of ``Callable``, the
dtypes of arrays, and what is known of classes that travel as another type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..types.arrays import is_array_type
from ..types.carried import NO_TYPES, CarriedShape, CarriedTypes
from ..types.declared import service_class
from ..types.functions import CALLABLE
from ..types.hints import UNION_ORIGINS, field_hints, unwrap
from ..types.registered import carried_type

__all__ = ["shape_of", "walk"]


def shape_of(annotation: Any, types: CarriedTypes = NO_TYPES) -> shapes.Type:
    """msgspec's description of a type.

    Args:
        annotation: The type.
        types: The classes that travel as another type, besides those that do in the whole process.

    Raises:
        TypeError: msgspec does not support the type.
        NameError: the type refers to a name that does not exist (yet).
    """
    return _Filler(types).shape(annotation)


_NO_SHAPES = {"default", "default_factory", "cls", "values", "carried", "to"}
"""The attributes of descriptions that hold none."""


def walk(shape: shapes.Type, *, within_fields: bool = True) -> Iterator[shapes.Type]:
    """Every type within a type, itself first, each once.

    Args:
        shape: The type.
        within_fields: Also those in the fields of classes.
    """
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
        if isinstance(node, shapes.Type) or (within_fields and isinstance(node, shapes.Field)):
            names = set(node.__struct_fields__) - _NO_SHAPES
            waiting.extend(getattr(node, name) for name in names)
        elif isinstance(node, tuple):
            waiting.extend(cast(Any, node))


class _Filler:
    """Fills in what a description leaves out. It was made for this, so it may be changed."""

    def __init__(self, types: CarriedTypes) -> None:
        self._types = types
        self._carried: dict[Any, CarriedShape] = {}
        self._seen: dict[int, Any] = {}

    def shape(self, annotation: Any) -> shapes.Type:
        shape = shapes.type_info(annotation)
        if any(map(self._is_replaced, walk(shape))):
            shape = self._filled_in(shape, annotation)
        return shape

    def _is_replaced(self, shape: shapes.Type) -> bool:
        if not isinstance(shape, shapes.CustomType):
            return isinstance(shape, shapes.Metadata)
        cls: Any = get_origin(shape.cls) or shape.cls
        return _is_callable(shape) or is_array_type(cls) or carried_type(cls, self._types) is not None

    def _filled_in(self, shape: Any, hint: Any) -> Any:
        """The description, filled in; ``hint`` is what it describes."""
        shape = _undescribed(shape)
        hint = unwrap(hint)
        kind: Any = type(cast(object, shape))
        if get_origin(hint) in UNION_ORIGINS and kind is not shapes.UnionType:
            # Of `X | UnsetType` it describes X alone.
            hint = unwrap(_member(shape, list(get_args(hint))))
        if isinstance(shape, shapes.CustomType):
            return self._custom(shape, hint)
        if id(shape) in self._seen:
            return shape
        self._seen[id(shape)] = shape
        args = [each for each in get_args(hint) if each is not Ellipsis]
        if kind is shapes.UnionType:
            members = [self._filled_in(each, _member(each, args)) for each in map(_undescribed, shape.types)]
            _set(shape, "types", tuple(members))
        elif kind is shapes.DictType:
            key, value = args if len(args) == 2 else (None, None)
            _set(shape, "key_type", self._filled_in(shape.key_type, key))
            _set(shape, "value_type", self._filled_in(shape.value_type, value))
        elif kind is shapes.TupleType:
            parts = args if len(args) == len(shape.item_types) else [None] * len(shape.item_types)
            items = [self._filled_in(item, each) for item, each in zip(shape.item_types, parts, strict=True)]
            _set(shape, "item_types", tuple(items))
        elif hasattr(shape, "item_type"):
            _set(shape, "item_type", self._filled_in(shape.item_type, args[0] if len(args) == 1 else None))
        elif hasattr(shape, "fields"):
            hints = field_hints(shape.cls)
            for field in shape.fields:
                _set(field, "type", self._filled_in(field.type, hints.get(field.name)))
        return shape

    def _custom(self, shape: shapes.CustomType, hint: Any) -> shapes.Type:
        if _is_callable(shape):
            service = service_class(hint)
            return shape if service is None else shapes.CustomType(service)
        cls: Any = get_origin(shape.cls) or shape.cls
        if is_array_type(cls):
            return shapes.CustomType(hint) if get_origin(hint) is cls else shape
        carried = carried_type(cls, self._types)
        if carried is None:
            return shape
        annotation = hint if get_origin(hint) is cls else shape.cls
        if (known := self._carried.get(annotation)) is None:
            known = self._carried[annotation] = CarriedShape.of(annotation, carried)
            # Set afterwards: what travels may hold objects of the class itself.
            _set(known, "inner", self.shape(known.to))
        return known


def _undescribed(shape: Any) -> Any:
    """A type without the title, the description and the like that :class:`msgspec.Meta` may give it: they change no
    value.
    """
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    return shape


def _is_callable(shape: shapes.Type) -> bool:
    return isinstance(shape, shapes.CustomType) and cast(Any, shape.cls) is CALLABLE


def _member(shape: Any, args: list[Any]) -> Any:
    """What a member of a union describes."""
    if _is_callable(shape):
        functions = [each for each in args if get_origin(unwrap(each)) is CALLABLE]
        return functions[0] if len(functions) == 1 else None
    # Of the others those matter that may hold functions; beside None there is one, or classes with fields.
    cls = getattr(shape, "cls", None)
    for each in args:
        bare = unwrap(each)
        origin = get_origin(bare)
        if bare is cls or (cls is not None and origin is cls):
            return each
        if cls is None and origin is not None and origin not in UNION_ORIGINS:
            return each
    return cls


def _set(struct: msgspec.Struct, name: str, value: Any) -> None:
    msgspec.structs.force_setattr(struct, name, value)
