"""Type hints as text: as they are written in a module that imports the modules of all types."""

from __future__ import annotations

import enum
import math
import sys
import types
import typing
from collections.abc import Callable
from itertools import product
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from ..types.declared import service_class
from ..types.functions import parts_of
from ..types.hints import UNION_ORIGINS, opened, plain_name, stream_of
from ..types.numbers import FieldOptions
from .module_text import CannotBeWritten

__all__ = ["Annotations"]


class Annotations:
    """Writes annotations, and collects the modules that they need.

    Args:
        service: Gives the name that a service's class has in the module.
        for_loop: Whether the module is for event loops, where functions that are passed are awaited.
    """

    def __init__(self, service: Callable[[type], str], *, for_loop: bool) -> None:
        self._for_loop = for_loop
        self.modules: set[str] = set()
        self.hidden: set[str] = set()
        """Names of methods of the class that is written: a method called list hides the type."""
        self._service = service

    def text(self, annotation: Any) -> str:
        """The annotation as text.

        Raises:
            CannotBeWritten: it names what no module can import.
        """
        if annotation is None or annotation is types.NoneType:
            return "None"
        if annotation is Ellipsis:
            return "..."
        if annotation is Any:
            return "typing.Any"
        if (function := parts_of(annotation)) is not None:
            return self._function(*function)
        if (service := service_class(annotation)) is not None:
            return self._service(service)
        if isinstance(annotation, TypeVar):
            return self.text(opened(annotation))
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is None:
            return self.name(annotation)
        if origin is typing.Annotated:
            known = [repr(extra) for extra in args[1:] if isinstance(extra, (msgspec.Meta, FieldOptions))]
            if any(isinstance(extra, msgspec.Meta) for extra in args[1:]):
                self.modules.add("msgspec")
            return f"typing.Annotated[{', '.join([self.text(args[0]), *known])}]" if known else self.text(args[0])
        if origin in UNION_ORIGINS:
            return " | ".join(self.text(each) for each in args)
        if origin is Literal:
            return f"typing.Literal[{', '.join(self._choice(each) for each in args)}]"
        if (scalar := _scalar_of_array(origin, args)) is not None:
            self.modules.add("numpy.typing")
            return f"numpy.typing.NDArray[{self.text(scalar)}]"
        inner = ", ".join(self.text(each) for each in args) or ("()" if origin is tuple else "")
        return f"{self.name(origin)}[{inner}]" if inner else self.name(origin)

    def _function(self, parameters: tuple[Any, ...], result: Any) -> str:
        self.modules.add("collections.abc")
        returned, streamed = self.text(result), stream_of(result)
        if streamed is not None:
            returned = (
                f"collections.abc.{'AsyncIterator' if self._for_loop else 'Iterator'}[{self.text(streamed.item)}]"
            )
        elif self._for_loop:
            returned = f"collections.abc.Awaitable[{returned}]"
        return f"collections.abc.Callable[[{', '.join(map(self.text, parameters))}], {returned}]"

    def name(self, found: Any) -> str:
        """A class, a ``NewType`` or a type alias, by its module and its name.

        Raises:
            CannotBeWritten: no module has it under that name.
        """
        module: str = getattr(found, "__module__", "")
        name = str(getattr(found, "__qualname__", None) or getattr(found, "__name__", ""))
        if module == "builtins":
            return f"builtins.{name}" if name in self.hidden else name
        # A module that begins with an underscore is not for others to import, if one above it has the same.
        parts = module.split(".")
        places = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        public = [place for place in places if not any(part.startswith("_") for part in place.split("."))]
        outwards = [module] if module in public else [*reversed(public), module]
        for place, known in product(outwards, dict.fromkeys([name, plain_name(found)])):
            if module != "__main__" and _reached(place, known) is found:
                self.modules.add(place)
                return f"{place}.{known}"
        raise CannotBeWritten(
            f"no module can import '{name or found!r}': define it in a module other than __main__, in no function, "
            "under its own name"
        )

    def default(self, value: object) -> str:
        """A default as text; ``...`` where only the service knows it."""
        if isinstance(value, enum.Enum):
            return f"{self.name(type(value))}.{value.name}"
        if value is None or type(value) in (bool, int, str, bytes) or (type(value) is float and math.isfinite(value)):
            return repr(value)
        return "..."

    def _choice(self, value: object) -> str:
        return f"{self.name(type(value))}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


def _reached(module: str, name: str) -> object:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _scalar_of_array(origin: Any, args: tuple[Any, ...]) -> Any:
    """``uint8`` of ``NDArray[uint8]``, which is ``ndarray[tuple[Any, ...], dtype[uint8]]``."""
    if getattr(origin, "__name__", "") != "ndarray" or getattr(origin, "__module__", "") != "numpy" or len(args) != 2:
        return None
    shape = args[0]
    whole = shape is Any or (get_origin(shape) is tuple and get_args(shape) == (Any, ...))
    scalar = get_args(args[1])
    return scalar[0] if whole and scalar else None
