"""Objects are made as they left: of the fields that were sent, without what their class does when one is constructed.

msgspec calls ``__post_init__`` of each object that it decodes, which may double, normalise or derive a field once more.
So a type that holds such classes is decoded twice, from *twins* of its classes: first to find out whether its classes
accept the values, where each class's own validation runs on a further object that is thrown away; then to make the
objects, where nothing of the class runs. A type without such classes is decoded as it is.

A twin has the layout of its class and no code. The decoder calls a function of ours for each object that it has made of
a twin, and that turns the object into one of the class.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..types.hints import UNION_ORIGINS, field_hints, opened, short_repr, type_name
from .construction import Construction, construction_of, empty_object, makes_plain_tuples
from .inspection import runs_code
from .refused import refusing

__all__ = ["Twins", "become", "check_of", "checker", "maker", "twins"]

become: Callable[[Any, type], None] = object.__dict__["__class__"].__set__
"""Turns an object into one of another class of the same layout, also if its class is frozen."""


class Twins(NamedTuple):
    """What a decoder is made of in place of a type."""

    checked: Any
    """Decodes, and lets each class look at its objects."""
    bare: Any
    """Decodes to the objects as they left."""


def twins(annotation: Any) -> Twins | None:
    """The twins of a type; ``None`` if nothing of its classes would run while its values are decoded."""
    if not _holds_code(annotation):
        return None
    return Twins(_Builder(checking=True).twin(annotation), _Builder(checking=False).twin(annotation))


def _holds_code(annotation: Any) -> bool:
    try:
        return runs_code(shapes.type_info(annotation))
    except TypeError:  # one that msgspec does not know
        return False


class _Builder:
    """Makes the twins of the classes in one type, each once, because a class may refer to itself."""

    def __init__(self, *, checking: bool) -> None:
        self._checking = checking
        self._made: dict[Any, Any] = {}

    def twin(self, annotation: Any) -> Any:
        """The annotation with twins in the place of classes."""
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return Annotated[(self.twin(args[0]), *args[1:])]
        # Compared by name: in older versions of Python some come from typing_extensions.
        if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly", "Final"):
            return self.twin(args[0])
        if not _holds_code(annotation):
            return annotation
        # Not unwrap(), which would take away limits that stand in an alias.
        if (meant := opened(annotation)) is not annotation:
            return self.twin(meant)
        if origin in UNION_ORIGINS:
            return cast(Any, typing.Union)[tuple([self.twin(arg) for arg in args])]
        cls: Any = origin or annotation
        if isinstance(shape := shapes.type_info(annotation), shapes.Metadata):
            shape = shape.type
        if hasattr(shape, "fields"):
            return self._class(annotation, cls, shape)
        return cls[tuple([arg if arg is Ellipsis else self.twin(arg) for arg in args])] if args else annotation

    def _class(self, annotation: Any, cls: Any, shape: Any) -> Any:
        if annotation in self._made:
            return self._made[annotation]
        hints = field_hints(annotation)
        names = [field.name for field in shape.fields]
        if isinstance(shape, shapes.TypedDictType):
            required = frozenset(field.name for field in shape.fields if field.required)
            made: Any = type(cls.__name__, (dict,), {"__total__": True, "__required_keys__": required})
        else:
            hook = _hook(cls, construction_of(cls), names, checking=self._checking)
            made = _twin_of_struct(cls, hook) if isinstance(shape, shapes.StructType) else _twin_of_class(cls, hook)
        self._made[annotation] = made
        # Set afterwards: a field may be of the class itself.
        made.__annotations__ = {name: self.twin(hints[name]) for name in names}
        return made


def _twin_of_class(cls: Any, hook: Callable[[Any], None]) -> Any:
    """The twin of a dataclass or of a class of attrs."""
    space: dict[str, Any] = {"__module__": cls.__module__}
    if hasattr(cls, "__dataclass_fields__"):
        space.update(__dataclass_fields__=cls.__dataclass_fields__, __post_init__=hook)
    else:
        fields = tuple(_PlainField(field.name, field.default) for field in cls.__attrs_attrs__)
        space.update(__attrs_attrs__=fields, __attrs_post_init__=hook, __attrs_pre_init__=None)
    if _is_laid_out_plainly(cls):
        return type(cls.__name__, (), space)
    return cast(Any, type(cls))(cls.__name__, (cls,), {**space, "__slots__": ()})


def _twin_of_struct(cls: Any, hook: Callable[[Any], None]) -> Any:
    fields: list[Any] = []
    for field in msgspec.structs.fields(cls):
        default: dict[str, Any] = {}
        if field.default is not msgspec.NODEFAULT:
            default["default"] = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default["default_factory"] = field.default_factory
        fields.append((field.name, Any, msgspec.field(name=field.encode_name, **default)))
    config = cls.__struct_config__
    space = {"__post_init__": hook, "__module__": cls.__module__}
    # With kw_only a field without a default may follow one that has one; it does not change the order.
    return msgspec.defstruct(
        cls.__name__, fields, bases=(cls,), namespace=space, kw_only=True, tag=config.tag, tag_field=config.tag_field
    )


def _is_laid_out_plainly(cls: type) -> bool:
    """Whether objects of a class have a ``__dict__`` and nothing else, so that its twin need not derive from it."""
    while cls.__base__ is not None and cls.__base__.__dictoffset__ and cls.__basicsize__ == cls.__base__.__basicsize__:
        cls = cls.__base__
    return cls.__base__ is object and cls.__basicsize__ == _PLAIN.__basicsize__ and bool(cls.__dictoffset__)


def checker(cls: Any, names: Sequence[str]) -> Callable[[Any], object] | None:
    """Makes a function that lets a class look at an object that a decoder has made; ``None`` if the class does not."""
    check = check_of(cls)
    return check and (lambda made: check({name: getattr(made, name) for name in names}))


def check_of(cls: Any) -> Callable[[dict[str, Any]], None] | None:
    """What a class has to say of the values of its fields, by their names; ``None`` if that is nothing. The values may
    be changed by it.
    """
    validate = construction_of(cls).validate
    return validate and refusing(validate, f"the check of {type_name(cls)}")


def maker(cls: Any, names: Sequence[str]) -> Callable[..., Any] | None:
    """Makes a function from the values of a class's fields, in order, to an object of that class, without any code of
    the class; ``None`` if the class itself does that.
    """
    how = construction_of(cls)
    if hasattr(cls, "__struct_fields__"):
        if how.validate is None:
            return None
        twin = _twin_of_struct(cls, _hook(cls, how, names, checking=False))
        return lambda *values: twin(**dict(zip(names, values, strict=True)))
    if issubclass(cls, tuple):
        make_tuple = cast(Any, tuple).__new__
        return None if makes_plain_tuples(cls) else lambda *values: make_tuple(cls, values)
    if not how.descriptors and cls.__new__ is object.__new__:
        return None

    through = _setters(cls, how)

    def make(*values: Any) -> Any:
        made = empty_object(cls)
        for name, value in zip(names, values, strict=True):
            if (set_through := through.get(name)) is not None:
                set_through(made, value)
            else:
                object.__setattr__(made, name, value)
        return made

    return make


class _PLAIN:
    """A class whose objects have a ``__dict__`` and nothing else."""


class _PlainField(NamedTuple):
    """A field of attrs without its validator."""

    name: str
    default: Any
    validator: None = None


def _hook(cls: type, how: Construction, names: Sequence[str], *, checking: bool) -> Callable[[Any], None]:
    """What the decoder calls with each object of the twin."""
    through, check = _setters(cls, how), checker(cls, names) if checking else None
    if not through and check is None:
        return lambda made: become(made, cls)

    def hook(made: Any) -> None:
        become(made, cls)
        for name, set_through in through.items():
            set_through(made, made.__dict__.pop(name))
        if check is not None:
            check(made)

    return hook


def _setters(cls: type, how: Construction) -> dict[str, Callable[[Any, Any], None]]:
    """By the names of fields that descriptors hold: what gives a value to the descriptor."""
    return {name: _setter(type_name(cls), name) for name in how.descriptors}


def _setter(owner: str, name: str) -> Callable[[Any, Any], None]:
    """Makes a function that gives a value to a descriptor, and makes sure that it holds that."""
    give = refusing(setattr, f"the field '{name}' of {owner}")

    def set_through(made: Any, sent: Any) -> None:
        give(made, name, sent)
        held = getattr(made, name)
        if held is not sent and not held == sent:
            raise ValueError(
                f"field '{name}' of {owner} would be {short_repr(held)}: its descriptor changes {short_repr(sent)}"
            )

    return set_through
