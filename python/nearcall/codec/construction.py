"""What a class does when one of its objects is constructed, and what its objects hold beside their fields.

Found out once for each class. ``__post_init__``, validators of attrs and pydantic: all that may refuse an object's
fields, and all that may change them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast, get_origin

__all__ = [
    "Construction",
    "base_in_c",
    "construction_of",
    "empty_object",
    "extra_names",
    "is_in_python",
    "makes_plain_tuples",
    "members_of",
]

_HEAP_TYPE = 1 << 9
"""The flag of classes that are written in Python."""


class Construction(NamedTuple):
    """How a class constructs its objects."""

    validate: Callable[[dict[str, Any]], object] | None = None
    """Makes a further object of such fields the ordinary way; raises what the class raises. ``None``: nothing runs."""
    descriptors: tuple[str, ...] = ()
    """The fields that a descriptor holds: setting one of these runs code."""
    holds_more: bool = False
    """Whether its own code may give its objects attributes that are no fields."""

    @property
    def runs(self) -> bool:
        """Whether code of the class would run while an object is decoded."""
        return self.validate is not None or bool(self.descriptors)


def construction_of(cls: Any) -> Construction:
    """How a class with fields constructs its objects; also of a generic one with its arguments."""
    return _construction(get_origin(cls) or cls)


@functools.lru_cache(maxsize=1024)
def _construction(cls: Any) -> Construction:
    if hasattr(cls, "__struct_fields__"):
        construct = _construct(cls) if hasattr(cls, "__post_init__") else None
        return Construction(construct, holds_more=bool(cls.__dictoffset__))
    if dataclasses.is_dataclass(cls):
        validate = _validation_of_dataclass(cls)
        names = [field.name for field in dataclasses.fields(cls)]
    elif hasattr(cls, "__attrs_attrs__"):
        validate = _validation_of_attrs(cls)
        names = [field.name for field in cls.__attrs_attrs__]
    else:
        return Construction()
    held = tuple(name for name in names if _is_held_by_descriptor(cls, name))
    # Where descriptors keep what they hold is their own affair.
    return Construction(validate, held, not held and (validate is not None or _has_own_constructor(cls)))


def _construct(cls: Any) -> Callable[[dict[str, Any]], object]:
    def construct(fields: dict[str, Any]) -> object:
        made: object = cls(**fields)
        return made

    return construct


def empty_object(cls: type) -> Any:
    """An object of a class, made without any code of the class."""
    return base_in_c(cls).__new__(cls)


def is_in_python(cls: type) -> bool:
    """Whether a class is written in Python."""
    return bool(cls.__flags__ & _HEAP_TYPE)


def base_in_c(cls: type) -> Any:
    """The nearest of a class and its bases that is not written in Python."""
    return next(base for base in cls.__mro__ if not is_in_python(base))


def members_of(cls: Any) -> Mapping[str, Any]:
    """What a class itself declares, by name."""
    return cast(Mapping[str, Any], cls.__dict__)


def makes_plain_tuples(cls: Any) -> bool:
    """Whether a NamedTuple is made by the function that was generated for it."""
    return "_fields" in vars(next(base for base in cls.__mro__ if "__new__" in vars(base)))


def _validation_of_dataclass(cls: Any) -> Callable[[dict[str, Any]], object] | None:
    if hasattr(cls, "__pydantic_validator__"):
        given = _names_for_pydantic(cls)
        return lambda fields: cls(**{given[name]: value for name, value in fields.items() if name in given})
    if not hasattr(cls, "__post_init__"):
        return None

    def validate(fields: dict[str, Any]) -> None:
        made = empty_object(cls)
        _fill(made, fields)
        made.__post_init__()

    return validate


def _names_for_pydantic(cls: Any) -> dict[str, str]:
    """The fields that a dataclass of pydantic takes, with the names by which it takes them."""
    infos: Mapping[str, Any] = getattr(cls, "__pydantic_fields__", {})
    given: dict[str, str] = {}
    for field in dataclasses.fields(cls):
        alias = getattr(infos.get(field.name), "validation_alias", None)
        if field.init:
            given[field.name] = alias if isinstance(alias, str) else field.name
    return given


def _validation_of_attrs(cls: Any) -> Callable[[dict[str, Any]], object] | None:
    validated = [field for field in cls.__attrs_attrs__ if field.validator is not None]
    before, after = getattr(cls, "__attrs_pre_init__", None), getattr(cls, "__attrs_post_init__", None)
    if not validated and before is None and after is None:
        return None

    def validate(fields: dict[str, Any]) -> None:
        made = empty_object(cls)
        if before is not None:
            before(made)
        _fill(made, fields)
        for field in validated:
            field.validator(made, field, fields[field.name])
        if after is not None:
            after(made)

    return validate


def _fill(made: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        object.__setattr__(made, name, value)  # also if the class is frozen


def _is_held_by_descriptor(cls: Any, name: str) -> bool:
    found = inspect.getattr_static(cls, name, None)
    return not inspect.ismemberdescriptor(found) and hasattr(cast(Any, type(found)), "__set__")


def _has_own_constructor(cls: Any) -> bool:
    """Whether ``__init__`` or ``__new__`` is the class's own, and not made from its fields."""
    if is_in_python(next(base for base in cls.__mro__ if "__new__" in base.__dict__)):
        return True
    code = getattr(cls.__init__, "__code__", None)
    # What dataclasses and attrs generate is compiled from a text.
    return code is not None and code.co_filename != "<string>" and not code.co_filename.startswith("<attrs generated")


def extra_names(cls: Any, fields: Iterable[str]) -> Callable[[Any], str | None] | None:
    """Makes a function that names an attribute of an object that is no field, and so would not travel; ``None`` if the
    class gives its objects none.

    What ``functools.cached_property`` keeps is not counted: the receiver computes it from the fields.
    """
    if not construction_of(cls).holds_more:
        return None
    members = {name: each for base in reversed(cls.__mro__) for name, each in members_of(base).items()}
    names = {*fields, *(name for name, each in members.items() if isinstance(each, functools.cached_property))}
    slots = [name for name, each in members.items() if inspect.ismemberdescriptor(each) and name not in names]
    has_dict = bool(cls.__dictoffset__)
    if not has_dict and not slots:
        return None

    def extra(value: Any) -> str | None:
        if has_dict and not names.issuperset(value.__dict__):
            # Python's own names are no part of a value: a generic class keeps its arguments in one.
            others: list[str] = [name for name in value.__dict__ if name not in names and not name.startswith("__")]
            if others:
                return others[0]
        return next((name for name in slots if hasattr(value, name)), None)

    return extra
