"""Which classes are services, and the arguments that ``@nearcall.service`` was given for them.

These are kept beside the classes rather than on them: an attribute would be inherited, and would count as a member of a
Protocol. They are on this floor because codecs need them, too: an object of a service travels as a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_origin
from weakref import WeakKeyDictionary

from . import functions
from .carried import NO_TYPES, CarriedTypes
from .hints import unwrap

__all__ = [
    "DESCRIBED_PLAN",
    "Declared",
    "Instance",
    "declared",
    "is_described",
    "is_function",
    "is_service",
    "name_of",
    "root_of",
    "service_class",
]

Instance: TypeAlias = Literal["server", "session"]


class Declared:
    """The arguments that the decorator was given for a class."""

    __slots__ = ("errors", "instance", "name", "namespace", "types")

    def __init__(
        self,
        name: str | None,
        errors: tuple[type[Exception], ...],
        instance: Instance | None,
        namespace: Mapping[str, Any],
        types: CarriedTypes = NO_TYPES,
    ) -> None:
        self.name = name
        self.errors = errors
        self.instance: Instance | None = instance
        self.namespace = namespace
        self.types = types


DESCRIBED_PLAN = "__nearcall_described__"
"""The attribute of a class that stands for a described service; calling it gives the plan."""

declared: WeakKeyDictionary[type, Declared] = WeakKeyDictionary()
"""The classes that were decorated."""


def is_service(cls: type) -> bool:
    """Whether a class is a service or implements one."""
    return any(base in declared for base in cls.__mro__)


def is_described(cls: type) -> bool:
    """Whether a class stands for a described service: one of which only the description is known."""
    return DESCRIBED_PLAN in cls.__dict__


def service_class(annotation: Any) -> type | None:
    """The service class that an annotation names, ``Listener`` or ``Box[int]``, or that of functions for
    ``Callable[[int], None]``; ``None`` if it names something else.
    """
    annotation = unwrap(annotation)
    cls: Any = get_origin(annotation) or annotation
    if cls is functions.CALLABLE:
        return _of_functions(annotation)
    return cls if isinstance(cls, type) and is_service(cls) else None


def is_function(cls: type) -> bool:
    """Whether objects of a service are functions."""
    return hasattr(cls, functions.MARK)  # asked for each object that is passed, so not by the name


_functions: dict[Any, type] = {}
"""The classes of the services of functions, by the types of parameters and result."""


def _of_functions(annotation: Any) -> type | None:
    parts = functions.parts_of(annotation)
    if parts is None:
        return None
    if (found := _functions.get(parts)) is None:
        with functions.making:
            if (found := _functions.get(parts)) is None:
                name = functions.service_name(*parts)
                found = type("Callable", (), {functions.CALL: functions.method_of(*parts), functions.MARK: True})
                declared[found] = Declared(name, (), None, {})
                _functions[parts] = found
    return found


def root_of(cls: type) -> type:
    """The class that gives a service its name: its one declared service that derives from no other.

    Raises:
        TypeError: the class is no service, or implements several.
    """
    above = [base for base in reversed(cls.__mro__) if base in declared]
    if not above:
        raise TypeError(f"{cls.__name__} is not a service: decorate the class with @nearcall.service")
    roots = [base for base in above if not any(other is not base and other in base.__mro__ for other in above)]
    if len(roots) > 1:
        names = " and ".join(base.__name__ for base in roots)
        raise TypeError(f"{cls.__name__} implements {names}: write one class for each service")
    return roots[0]


def name_of(cls: type) -> str:
    """The name under which a class is served.

    Raises:
        TypeError: the class is no service, or implements several.
    """
    root = root_of(cls)
    return next((entry.name for base in cls.__mro__ if (entry := declared.get(base)) and entry.name), None) or (
        root.__name__
    )
