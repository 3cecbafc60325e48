"""Models of pydantic travel as their fields, with which of them were set.

A model arrives with what it held: its validators run on a further one, which is thrown away. pydantic is not imported:
there is a model, so it was.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from .carried import CarriedType

__all__ = ["model_type"]


def model_type(cls: Any) -> CarriedType:
    """How objects of a model travel.

    Raises:
        TypeError: the model names a type that does not exist yet.
    """
    if not cls.__pydantic_complete__ and not cls.model_rebuild(raise_errors=False):
        raise TypeError(
            f"{cls.__name__} names a type that does not exist yet: define it, or call model_rebuild() after it"
        )
    fields: dict[str, Any] = dict(cls.model_fields)
    wire = "unset"  # a name that no field has
    while wire in fields:
        wire += "_"
    declared: list[Any] = [(name, field.annotation, _default(field)) for name, field in fields.items()]
    declared.append(("_unset", list[str], msgspec.field(name=wire, default_factory=list)))
    data: Any = msgspec.defstruct(re.sub(r"\W+", "_", cls.__name__), declared, kw_only=True, module=cls.__module__)

    def give(model: Any) -> Any:
        _refuse_more(model, fields)
        values = {name: model.__dict__[name] for name in fields if name in model.__dict__}
        held: set[str] = model.__pydantic_fields_set__
        return data(**values, _unset=[name for name in fields if name not in held])

    def make(sent: Any) -> Any:
        unset = set(sent._unset)
        if not fields.keys() >= unset:
            raise ValueError("what was not set is no field")
        values = {name: getattr(sent, name) for name in fields}
        _validate(cls, values)
        return _with(cls, values, fields.keys() - unset)

    return CarriedType(cls, to=data, give=give, make=make)


def _default(field: Any) -> Any:
    """The default of a field, for a peer that leaves it out."""
    if field.is_required() or getattr(field, "default_factory_takes_validated_data", False):
        return msgspec.field()
    return msgspec.field(default_factory=functools.partial(field.get_default, call_default_factory=True))


def _refuse_more(model: Any, fields: dict[str, Any]) -> None:
    """Makes sure that a model holds nothing but its fields.

    Raises:
        TypeError: it holds more.
    """
    kind = cast(Any, type(model))
    more: list[str] = list(model.__pydantic_extra__ or ())
    more += [
        name
        for name in model.__dict__
        if name not in fields and not isinstance(getattr(kind, name, None), functools.cached_property)
    ]
    private: dict[str, Any] = model.__pydantic_private__ or {}
    more += [name for name, value in private.items() if not _is_default(kind.__private_attributes__[name], value)]
    if more:
        raise TypeError(
            f"it holds '{more[0]}', which is no field and would be lost: make it one, or compute it when it is asked "
            "for, in a property or functools.cached_property"
        )


def _is_default(attribute: Any, value: Any) -> bool:
    try:
        return bool(attribute.get_default() == value)
    except Exception:  # of any class: the user's factory, or a comparison
        return False


def _validate(cls: Any, values: dict[str, Any]) -> None:
    """Lets the class look at copies of the values.

    Raises:
        ValueError: it refuses them.
    """
    given: dict[str, Any] = {}
    for name, value in values.items():
        alias = cls.model_fields[name].validation_alias
        given[alias if isinstance(alias, str) else name] = copy.deepcopy(value)
    try:
        cls.model_validate(given)
    except ValueError as problem:
        errors: Callable[..., list[Any]] | None = getattr(problem, "errors", None)
        if errors is None:
            raise
        told = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in errors(include_url=False)
        ]
        raise ValueError("; ".join(told)) from None


def _with(cls: Any, values: dict[str, Any], held: set[str]) -> Any:
    """A model with these values, made without any code of the class."""
    made = cls.__new__(cls)
    private = {
        name: attribute.get_default()
        for name, attribute in cls.__private_attributes__.items()
        if _has_default(attribute)
    }
    parts = {
        "__dict__": values,
        "__pydantic_fields_set__": held,
        "__pydantic_extra__": {} if cls.model_config.get("extra") == "allow" else None,
        "__pydantic_private__": private if cls.__private_attributes__ else None,
    }
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _has_default(attribute: Any) -> bool:
    return attribute.default_factory is not None or type(attribute.default).__name__ != "PydanticUndefinedType"
