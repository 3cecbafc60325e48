"""Extension points with ``register``, like those that programs have for code in their own process."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from ..points import points
from ..points.points import ExtensionPoint
from .turns import turn

__all__ = ["Declare", "Registered", "accumulating_decider", "action", "chain", "decider", "filter"]

P = ParamSpec("P")
R = TypeVar("R")
Call = Callable[[dict[str, Any]], Any]


class Registered(Generic[P, R]):
    """An extension point of the host, with which a plugin registers any number of functions at any time.

    For the host all these functions are one handler, which this object declares, so make it while the plugin is
    imported. Within the plugin they behave as in one process: they are called in the order of registration; a function
    that raises is left out, and its traceback printed.

    Args:
        point: The extension point.
        priority: The plugin's priority among the others; the higher, the earlier.

    Raises:
        ValueError: the plugin has a handler of this extension point already.
    """

    def __init__(self, point: ExtensionPoint[P, R], priority: int = 0) -> None:
        self.point = point
        """The extension point itself."""
        self._calls: dict[Callable[..., Any], Call] = {}
        self._means = getattr(self, "_" + point.kind.replace(" ", "_"))

        def handle(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(point.parameters, args, strict=False)) | kwargs
            if not self._calls:  # with no functions there is no need to wait for the turn
                return self._means([], given)
            with turn:
                return self._means(list(self._calls.values()), given)

        point.handler(priority=priority)(handle)

    def register(self, function: Callable[..., Any]) -> None:
        """Registers a function, which is called from now on. It gets those arguments that it names; a filter's function
        gets the value first, under any name. Registering it again changes nothing.

        Raises:
            TypeError: the function needs a parameter that the extension point does not have.
        """
        self._calls.setdefault(function, _adapted(self.point, function))

    def unregister(self, function: Callable[..., Any]) -> bool:
        """Removes a function. ``False`` if it was not registered."""
        return self._calls.pop(function, None) is not None

    def __repr__(self) -> str:
        return f"<{len(self._calls)} functions for the {self.point.kind} {self.point.name}>"

    # How the results of several functions are joined, by the extension point's kind.

    @staticmethod
    def _action(calls: list[Call], given: dict[str, Any]) -> None:
        for call in calls:
            _attempt(call, given, None)

    def _filter(self, calls: list[Call], given: dict[str, Any]) -> Any:
        name = self.point.parameters[0]
        for call in calls:
            given = {**given, name: _attempt(call, given, given[name])}
        return given[name]

    @staticmethod
    def _decider(calls: list[Call], given: dict[str, Any]) -> bool:
        return all(_attempt(call, given, True) for call in calls)

    def _accumulating_decider(self, calls: list[Call], given: dict[str, Any]) -> bool:
        default = self.point.default
        answers = [_attempt(call, given, default) for call in calls]
        return not default if (not default) in answers else default

    @staticmethod
    def _chain(calls: list[Call], given: dict[str, Any]) -> list[Any]:
        return [item for call in calls for item in _attempt(_collected(call), given, [])]


def _collected(call: Call) -> Call:
    """A call that returns a function's items as a whole list, because a generator may raise on the way."""
    return lambda given: list(call(given))


def _attempt(call: Call, given: dict[str, Any], otherwise: Any) -> Any:
    try:
        return call(given)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return otherwise


def _adapted(point: ExtensionPoint[..., Any], function: Callable[..., Any]) -> Call:
    """Makes a call of a function with only those arguments that it takes."""
    parameters = list(inspect.signature(function).parameters.values())
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    taken = [
        parameter for parameter in parameters if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    value = None
    if point.kind == "filter":
        if not taken:
            raise TypeError(f"a filter of {point.name} needs a parameter: the value")
        value = point.parameters[0]
        taken = taken[1:]
    there = [name for name in point.parameters if name != value]
    for parameter in taken:
        missing = parameter.name not in there and parameter.default is parameter.empty
        if missing or parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(
                f"{point.name} has no '{parameter.name}' for a function; there is {', '.join(there) or 'none'}"
            )
    names = there if every else [parameter.name for parameter in taken if parameter.name in there]

    def call(given: dict[str, Any]) -> Any:
        by_name = {name: given[name] for name in names if name in given}
        return function(given[value], **by_name) if value is not None else function(**by_name)

    return call


class Declare(Protocol):
    """Makes an extension point with ``register`` of a function that declares its parameters."""

    @overload
    def __call__(self, function: Callable[P, R], /) -> Registered[P, R]: ...
    @overload
    def __call__(
        self, *, name: str | None = None, budget: float | None = None, default: bool = True
    ) -> Callable[[Callable[P, R]], Registered[P, R]]: ...


def _with_register(declare: Callable[..., Any]) -> Declare:
    def decorate(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        def with_options(written: Callable[..., Any]) -> Registered[..., Any]:
            return Registered(declare(**options)(written))

        return with_options if function is None else Registered(declare(function))

    return cast("Declare", decorate)


# For stubs, which use these to declare the extension points that old code sees. Options are those of the functions of
# the same names in :mod:`nearcall.plugin`.
action = _with_register(points.action)
filter = _with_register(points.filter)
decider = _with_register(points.decider)
accumulating_decider = _with_register(points.accumulating_decider)
chain = _with_register(points.chain)
