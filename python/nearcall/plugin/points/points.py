"""Extension points: the questions that a host asks its plugins, and what each kind means.

The five kinds are those of NVDA's ``extensionPoints``, across processes: an action tells all, a filter passes a value
through all in order, a decider stops at the first veto, an accumulating decider asks all, and a chain collects items.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from ...options.checked import check_seconds
from ...service.plan import UNARY
from ...service.service import plan_of, service
from ..inside.registry import Registered, registry

__all__ = ["ExtensionPoint", "Kind", "accumulating_decider", "action", "chain", "decider", "filter"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["action", "filter", "decider", "accumulating decider", "chain"]

PREFIX = "nearcall.extension."
"""Comes before an extension point's name in the name of the service that a plugin with a handler serves."""


class ExtensionPoint(Generic[P, R]):
    """A question that a host asks its plugins, declared in a module that both import, by :func:`filter` and others.

    Args:
        kind: Says what is made of the answers.
        function: Declares the parameters and the result.
        name: Its name, the same on both sides; the function's own if not given.
        budget: Seconds that one plugin may take for a call; ``None``: as the host's option ``budget`` says.
        default: The result of an accumulating decider if no plugin answers otherwise.

    Raises:
        TypeError: the function's parameters or its result do not fit the kind, or cannot be sent.
        ValueError: ``name`` or ``budget`` is malformed.
    """

    def __init__(
        self, kind: Kind, function: Callable[P, R], name: str | None, budget: float | None, *, default: bool = True
    ) -> None:
        self.kind: Kind = kind
        self.name = name or function.__name__
        self.default = default
        self.budget = None if budget is None else check_seconds("budget", budget)
        self.signature, hints = _read(function, sys._getframe(2).f_locals)  # pyright: ignore[reportPrivateUsage]
        self.parameters = tuple(self.signature.parameters)
        first = next(iter(self.signature.parameters.values()), None)
        self.first_by_name = first is not None and first.kind is inspect.Parameter.KEYWORD_ONLY
        """Whether the first parameter can only be given by name."""
        self._check(hints)
        declared = _class(self.name, function, self.signature)
        self.service = cast("type[Any]", cast("Any", service(name=PREFIX + self.name))(declared))
        self.plan = plan_of(self.service).methods[0]
        if self.plan.kind != UNARY:
            raise TypeError(
                f"{self._where()} cannot have streams: each plugin would get a part of them; pass a service"
            )
        functools.update_wrapper(cast("Any", self), function)

    def _check(self, hints: dict[str, Any]) -> None:
        returns = hints.get("return", inspect.Parameter.empty)
        where = self._where()
        if self.kind == "action" and returns not in (None, type(None)):
            raise TypeError(f"{where} must return None: an action tells, and asks nothing")
        if self.kind in ("decider", "accumulating decider") and returns is not bool:
            raise TypeError(f"{where} must return bool")
        if self.kind == "chain" and typing.get_origin(returns) is not list:
            raise TypeError(f"{where} must return list[...]: the items of one plugin")
        if self.kind == "filter":
            if not self.parameters:
                raise TypeError(f"{where} needs a parameter: the value that is passed through")
            if hints.get(self.parameters[0], inspect.Parameter.empty) != returns:
                raise TypeError(f"{where} must return what its first parameter, '{self.parameters[0]}', is")

    def _where(self) -> str:
        return f"the {self.kind} {self.name}()"

    def __call__(self, *_args: P.args, **_kwargs: P.kwargs) -> R:
        """Raises: only a host calls an extension point."""
        raise TypeError(f"{self.name} is an extension point: a host asks it with host.extension({self.name})(...)")

    @overload
    def handler(self, function: F) -> F: ...
    @overload
    def handler(self, *, priority: int = 0) -> Callable[[F], F]: ...
    def handler(self, function: F | None = None, *, priority: int = 0) -> F | Callable[[F], F]:
        """Makes a function this plugin's handler. It may leave out parameters, and may be ``async def``.

        Args:
            function: The handler, when the decorator is written without parentheses. For a chain it may be a generator.
            priority: The higher, the earlier among the handlers of all plugins; equal priorities are ordered by the
                plugins' ids.

        Raises:
            TypeError: the function takes a parameter that the extension point does not have.
            RuntimeError: the plugin is imported already.
            ValueError: there is a handler already: a plugin has one for each extension point.
        """

        def declare(handler: F) -> F:
            if self.name in registry.handlers:
                raise ValueError(f"there is a handler of {self.name} already: call this function from that one")
            registry.check_open(f"a handler of {self.name}")
            served = _handler_class(self, handler)()
            registry.handlers[self.name] = Registered(served, priority)
            return handler

        return declare if function is None else declare(function)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class Declare(Protocol):
    """Makes an extension point of a function that declares its parameters."""

    def __call__(self, function: Callable[P, R], /) -> ExtensionPoint[P, R]: ...


@overload
def action(function: Callable[P, None], /) -> ExtensionPoint[P, None]: ...
@overload
def action(*, name: str | None = None, budget: float | None = None) -> Declare: ...
def action(function: Any = None, /, *, name: str | None = None, budget: float | None = None) -> Any:
    """An extension point that notifies all plugins, several at once. It has no result.

    Args:
        function: A function that declares the parameters; its body is never run.
        name: The extension point's name; the function's own if not given.
        budget: Seconds that one plugin may take; ``None``: as the host's option ``budget`` says.
    """
    return _declared("action", function, name, budget)


@overload
def filter(function: Callable[P, R], /) -> ExtensionPoint[P, R]: ...
@overload
def filter(*, name: str | None = None, budget: float | None = None) -> Declare: ...
def filter(function: Any = None, /, *, name: str | None = None, budget: float | None = None) -> Any:
    """An extension point that passes a value through all plugins, one after the other: each gets what the one before it
    returned. The value is the first parameter; the result has its type. A plugin that fails leaves the value as it was.

    Arguments are those of :func:`action`.
    """
    return _declared("filter", function, name, budget)


@overload
def decider(function: Callable[P, bool], /) -> ExtensionPoint[P, bool]: ...
@overload
def decider(*, name: str | None = None, budget: float | None = None) -> Declare: ...
def decider(function: Any = None, /, *, name: str | None = None, budget: float | None = None) -> Any:
    """An extension point that any plugin may veto, by ``False``. The plugins after it are not asked then. A plugin that
    fails has no veto.

    Arguments are those of :func:`action`.
    """
    return _declared("decider", function, name, budget)


@overload
def accumulating_decider(function: Callable[P, bool], /) -> ExtensionPoint[P, bool]: ...
@overload
def accumulating_decider(*, default: bool = True, name: str | None = None, budget: float | None = None) -> Declare: ...
def accumulating_decider(
    function: Any = None, /, *, default: bool = True, name: str | None = None, budget: float | None = None
) -> Any:
    """An extension point that asks all plugins, several at once, whatever the others answer. The result is ``default``
    unless a plugin answers otherwise.

    Arguments are those of :func:`action`, and the default.
    """
    return _declared("accumulating decider", function, name, budget, default=default)


@overload
def chain(function: Callable[P, R], /) -> ExtensionPoint[P, R]: ...
@overload
def chain(*, name: str | None = None, budget: float | None = None) -> Declare: ...
def chain(function: Any = None, /, *, name: str | None = None, budget: float | None = None) -> Any:
    """An extension point that collects items from all plugins, several at once, and joins them in the order of the
    plugins.

    Arguments are those of :func:`action`; the result is a list.
    """
    return _declared("chain", function, name, budget)


def _declared(kind: Kind, function: Any, name: str | None, budget: float | None, *, default: bool = True) -> Any:
    def declare(written: Callable[..., Any]) -> ExtensionPoint[..., Any]:
        return ExtensionPoint(kind, written, name, budget, default=default)

    return declare if function is None else declare(function)


def _read(function: Any, scope: dict[str, Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """A function's signature with its annotations resolved, and the annotations by name."""
    hints = typing.get_type_hints(function, localns=scope, include_extras=True)
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    returns = hints.get("return", inspect.Signature.empty)
    return signature.replace(parameters=parameters, return_annotation=returns), hints


def _method(function: Any, run: Any, signature: inspect.Signature) -> Any:
    """A method ``handle`` with the signature of a function."""
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    run.__name__ = run.__qualname__ = "handle"
    run.__doc__ = function.__doc__
    run.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])
    hints = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    run.__annotations__ = {**hints, "return": signature.return_annotation}
    return run


def _class(name: str, function: Any, signature: inspect.Signature) -> type:
    def handle(_this: object) -> None: ...

    return type(name, (), {"handle": _method(function, handle, signature), "__module__": function.__module__})


def _handler_class(point: ExtensionPoint[..., Any], function: Callable[..., Any]) -> type:
    """The class of a service with one method, which calls the plugin's function."""
    takes = _fitting(point, function)
    call: Callable[..., Any] = function if takes == list(point.parameters) else _only(takes, point, function)
    collects = point.kind == "chain"
    running = registry.running
    if inspect.iscoroutinefunction(function):

        async def run_async(_this: object, *args: Any, **kwargs: Any) -> Any:
            running.append(None)
            try:
                return await call(*args, **kwargs)
            finally:
                running.pop()

        run: Any = run_async
    else:

        def run_in_thread(_this: object, *args: Any, **kwargs: Any) -> Any:
            running.append(None)
            try:
                result = call(*args, **kwargs)
                return list(result) if collects else result
            finally:
                running.pop()

        run = run_in_thread
    return type(point.name, (point.service,), {"handle": _method(function, run, point.signature)})


def _only(takes: list[str], point: ExtensionPoint[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that calls a handler with only those arguments that it takes."""
    names = point.parameters
    chosen = frozenset(takes)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        return function(**{name: value for name, value in given.items() if name in chosen})

    return call


def _fitting(point: ExtensionPoint[..., Any], function: Callable[..., Any]) -> list[str]:
    """The parameters of an extension point that a handler takes, by name."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return list(point.parameters)
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY or (
            parameter.name not in point.parameters and parameter.default is parameter.empty
        ):
            there = ", ".join(point.parameters) or "none"
            raise TypeError(f"a handler of {point.name} cannot take '{parameter.name}'; its parameters are: {there}")
    return [parameter.name for parameter in parameters if parameter.name in point.parameters]
