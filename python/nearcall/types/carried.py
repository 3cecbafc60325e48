"""Classes whose objects travel as values of another type.

The annotation decides. Where it names such a class, a value is given as a value of the other type, and the receiver
makes an object of the class of it. Both sides must know the class; what they tell each other of a service names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from .hints import applied, type_name

__all__ = ["NO_TYPES", "CarriedShape", "CarriedType", "CarriedTypes"]

T = TypeVar("T")
_NOT_TYPES = (str, bytes, bool, int, float, list, tuple, dict, set)
"""Classes whose objects cannot be meant as types."""


class CarriedType:
    """How objects of a class travel: as values of another type.

    Arguments and errors are those of :func:`nearcall.register_type`.
    """

    __slots__ = (
        *("cls", "form", "give", "is_named", "kinds", "library_class", "make", "name", "parameters", "shows_sent"),
        "to",
    )

    def __init__(
        self,
        cls: type[T],
        to: Any,
        *,
        give: Callable[[T], Any] | None = None,
        make: Callable[[Any], T] | None = None,
        name: str | None = None,
    ) -> None:
        target: Any = cls
        if isinstance(bare := get_origin(target), type):
            raise TypeError(f"{type_name(target)}: register {bare.__name__}, whatever its type arguments are")
        if not isinstance(target, type):
            raise TypeError(f"{type_name(target)} is not a class: objects of a class can be registered")
        if not isinstance(shapes.type_info(target), shapes.CustomType):
            raise TypeError(f"{type_name(target)} travels by itself, as it is: it cannot be registered")
        if give is None and not callable(to):
            raise TypeError(f"{type_name(target)}: give=... is missing, which makes {type_name(to)} of an object")
        if isinstance(to, _NOT_TYPES):
            raise TypeError(f"{type_name(target)}: to takes a type, such as str or list[int], not {to!r}")
        for what, function in (("give", give), ("make", make)):
            if function is not None and not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
                raise TypeError(f"{type_name(target)}: {what} takes a function, not {function!r}")
            if iscoroutinefunction(function):
                raise TypeError(f"{type_name(target)}: {what} takes an ordinary function, and this is 'async def'")
        if name is not None and not isinstance(cast(object, name), str):
            raise TypeError(f"{type_name(target)}: name takes a str, not {name!r}")
        if name is not None and not (name and name.isprintable()):
            raise ValueError(f"{type_name(target)}: the name of a type is a text, not {name!r}")
        self.cls: Any = target
        self.to = to
        self.give: Callable[[Any], Any] = to if give is None else give
        self.make: Callable[[Any], Any] = target if make is None else make
        self.name: str = name or target.__name__
        self.parameters: tuple[Any, ...] = getattr(target, "__parameters__", ())
        self.is_named = True
        """Whether the description of a service names it: both sides must know the class."""
        self.shows_sent = True
        """Whether errors show values of the type that travels: not of one that users do not know."""
        self.form: str | None = None
        """How a value of the type that travels is written in plain data, if errors shall say so."""
        self.library_class: str | None = None
        """``"torch.Tensor"``, if it is a class of a library: a description says so to those who write code from it."""
        self.kinds: tuple[type, ...] = (target,)
        """The exact classes of its values."""

    def __repr__(self) -> str:
        return f"nearcall.CarriedType({type_name(self.cls)}, {type_name(self.to)})"

    def check_variables(self) -> None:
        """Makes sure that each type variable of the type that travels stands for one of the class's type arguments.

        Raises:
            TypeError: one does not.
        """
        to = self.to
        is_bare = isinstance(to, type) and get_origin(to) is None
        variables: tuple[Any, ...] = (to,) if isinstance(to, TypeVar) else getattr(to, "__parameters__", ())
        for each in () if is_bare else variables:
            if each not in self.parameters:
                raise TypeError(
                    f"{type_name(self.cls)} travels as {type_name(to)}, and its class has no type variable "
                    f"{each.__name__}: write a type in its place, or declare class {self.cls.__name__}"
                    f"(Generic[{', '.join(part.__name__ for part in (*self.parameters, each))}])"
                )

    def fits(self, value: Any) -> bool:
        """Whether a value is of the class, and not of a subclass, which would arrive without what is its own."""
        if type(value) in self.kinds:
            return True
        if not isinstance(value, self.cls):
            return False
        # Some classes make objects of a subclass, which nobody else knows: those of pathlib.Path do.
        try:
            made = self.make(self.give(value))
            same = type(made) is type(value) and bool(made == value)
        except Exception:  # of any class: the user's functions
            return False
        if same:
            self.kinds = (*self.kinds, type(value))
        return same

    def carried_as(self, args: Sequence[Any]) -> Any:
        """The type that travels, of a class with type arguments."""
        if not self.parameters:
            return self.to
        given = args if len(args) == len(self.parameters) else [Any] * len(self.parameters)
        return applied(self.to, dict(zip(self.parameters, given, strict=True)))


CarriedTypes = Mapping[type, CarriedType]
NO_TYPES: Final[CarriedTypes] = {}


class CarriedShape(shapes.Type):
    """The description of a class that travels as another type, in the place of msgspec's."""

    cls: Any
    """The annotation: the class, or a generic one with its arguments."""
    carried: CarriedType
    to: Any
    """The type that travels."""
    inner: shapes.Type = msgspec.field(default_factory=shapes.AnyType)
    """The description of the type that travels."""

    @classmethod
    def of(cls, annotation: Any, carried: CarriedType) -> CarriedShape:
        """The description of a class with its arguments, without that of the type that travels."""
        return cls(annotation, carried, carried.carried_as(get_args(annotation)))

    @property
    def bare(self) -> type:
        """The class without its arguments."""
        found: type = get_origin(self.cls) or self.cls
        return found
