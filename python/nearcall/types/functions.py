"""Functions as values: where ``Callable[[int], str]`` is declared, the function stays in its process and is called from
the other one, as objects of services are.

A function is passed as an object of a service with one method. That service has no class in any module: it is made of
the annotation here, and its name says the types, so that both sides find the same one.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, cast, get_args, get_origin

from .guards import is_list
from .hints import awaited, stream_of, type_name, unwrap

__all__ = [
    "CALL",
    "CALLABLE",
    "MARK",
    "full_name",
    "is_function_name",
    "making",
    "method_of",
    "parts_of",
    "service_name",
    "show_function",
]

CALLABLE: Final[Any] = collections.abc.Callable
"""What ``Callable[[int], str]`` is made of."""
PREFIX: Final = "callable."
"""How the names of the services of functions begin. No other service may be called so."""
CALL: Final = "call"
"""The name of their one method."""
MARK: Final = "__nearcall_function__"
"""The attribute of the classes that stand for these services."""
_LONGEST = 500
"""Characters of a name that is made of types."""
_WORDS: Final = {"[": "_of_", "]": "_", ", ": "_and_", " | ": "_or_"}
_PART = re.compile(r"\[|\]|, | \| |[^\w\[\],| ]+|\W")


def is_function_name(service: str) -> bool:
    """Whether a service of that name stands for functions."""
    return service.startswith(PREFIX)


def parts_of(annotation: Any) -> tuple[tuple[Any, ...], Any] | None:
    """The types of parameters and of the result of a ``Callable``, whose result may also be an awaitable of that type.
    ``None`` if the annotation is no ``Callable``, or does not list its parameters.
    """
    annotation = unwrap(annotation)
    if get_origin(annotation) is not CALLABLE:
        return None
    parameters, result = get_args(annotation)
    if not is_list(parameters):
        return None  # ``...`` or a ParamSpec
    return tuple(parameters), in_any_colour(result)


def in_any_colour(result: Any) -> Any:
    """The result's type for functions of both colours: who calls from an event loop awaits it."""
    inner = awaited(result)
    streamed = stream_of(result)
    if streamed is not None:
        return cast(Any, Iterator)[streamed.item]
    return types.NoneType if result is None else result if inner is None else inner


def service_name(parameters: tuple[Any, ...], result: Any) -> str:
    """The name of the service of such functions: ``callable.int.list_of_Frame_.to.None``.

    Raises:
        TypeError: the types have names too long to make one of them.
    """
    parts = [re.sub(_PART, _word, type_name(each)) for each in (*parameters, result)]
    name = PREFIX + ".".join([*parts[:-1], "to", parts[-1]])
    if len(name) > _LONGEST:
        shown = show_function(name)[:80]
        raise TypeError(f"{shown}...: the types of this function are too long for a name: take an object of a service")
    return name


def _word(found: re.Match[str]) -> str:
    return _WORDS.get(found[0], "_")


def show_function(service: str) -> str:
    """The service of functions for people: ``Callable[[int, str], None]``. Parts of types are as in the name."""
    parts = service.removeprefix(PREFIX).split(".")
    if len(parts) < 2:
        return "Callable"  # a hostile peer's
    return f"Callable[[{', '.join(parts[:-2])}], {parts[-1]}]"


def full_name(service: str, method: str) -> str:
    """A method for people, ``Calculator.add``, or ``Callable[[int], None]`` for the one that is a function."""
    return show_function(service) if is_function_name(service) else f"{service}.{method}"


def method_of(parameters: tuple[Any, ...], result: Any) -> Callable[..., Any]:
    """The method that stands for such functions."""

    def call(self: Any, *arguments: Any) -> Any:
        raise NotImplementedError  # only its signature is used

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = [f"argument_{number}" for number in range(1, len(parameters) + 1)]
    written = [inspect.Parameter(name, kind, annotation=each) for name, each in zip(names, parameters, strict=True)]
    signature = inspect.Signature([inspect.Parameter("self", kind), *written], return_annotation=result)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {**dict(zip(names, parameters, strict=True)), "return": result}
    return call


making = threading.Lock()
"""Held while the class of a service of functions is made, so that there is one for each."""
