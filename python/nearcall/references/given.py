"""Objects that are given away as references: which objects may be given, the functions that run their methods, and the
functions that end them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from ..call.answering import method_of
from ..call.failures import Failures
from ..call.proxy import Around, HasService, Proxy
from ..codec.senders import MisfitError
from ..errors import Unavailable
from ..service.implementing import Handler
from ..service.plan import MethodPlan, ServicePlan
from ..service.service import plan_of
from ..types.declared import is_described, is_function, is_service, name_of
from ..types.functions import show_function
from ..types.hints import describe_value, namesake
from ..types.special import attribute, handler_of
from .reference import is_reference

__all__ = [
    "Forwarded",
    "Function",
    "GivenFunction",
    "Own",
    "check_given",
    "end_of_given",
    "finish",
    "finish_given",
    "how_given",
]


def check_given(value: Any, cls: type) -> Any:
    """The object to give for a value where a service class is declared.

    Raises:
        MisfitError: the value is not of that service; the message says what it lacks.
    """
    if is_function(cls):
        return _check_function(value, name_of(cls))
    if isinstance(value, HasService):
        value = value.service
    name, given = name_of(cls), ""
    kind = cast(Any, type(value))
    if is_reference(value):
        if value._nearcall_handle.released:
            raise MisfitError(f"expected an object of the service {name}, got {value!r}")
        given = name_of(value._nearcall_cls)
    elif issubclass(kind, Proxy):
        given = value._nearcall_name
    elif isinstance(value, type):
        raise MisfitError(f"expected an object of the service {name}, got a class: write {value.__name__}()")
    elif is_described(cls):
        return _with_methods(value, cls)
    elif cls in kind.__mro__:  # a Protocol takes classes for its own that have its methods by chance
        try:
            plan_of(kind)
        except TypeError as problem:
            raise MisfitError(str(problem)) from None
        return value
    elif is_service(kind):
        given = name_of(kind)
    if given != name:
        raise MisfitError(f"expected an object of the service {name}, got {_described(value, given, cls)}")
    if not is_reference(value) and not issubclass(kind, Proxy):
        which = namesake(value, cls) or f", another class of the service {name}"
        raise MisfitError(f"expected {cls.__qualname__}, got {kind.__qualname__}{which}")
    return value


def _check_function(value: Any, name: str) -> Any:
    if is_reference(value):
        if value._nearcall_handle.released or name_of(value._nearcall_cls) != name:
            raise MisfitError(f"expected a function, {show_function(name)}, got {value!r}")
    elif not callable(value):
        raise MisfitError(f"expected a function, {show_function(name)}, got {describe_value(value)}")
    return value


def _with_methods(value: object, cls: type) -> object:
    """The value, if it has all methods of a service of which only the description is known."""
    for method in plan_of(cls).methods:
        if not callable(getattr(type(value), attribute(value, method.name), None)):
            lacks = f"{describe_value(value)}, which has no method '{method.name}'"
            raise MisfitError(f"expected an object of the service {name_of(cls)}, got {lacks}")
    return value


def _described(value: object, given: str, cls: type) -> str:
    if given:
        return f"one of the service {given}"
    missing = [
        method.name
        for method in plan_of(cls).methods
        if not callable(getattr(type(value), attribute(value, method.name), None))
    ]
    if len(missing) == len(plan_of(cls).methods):
        return describe_value(value)
    lacks = f"it has no method '{missing[0]}'" if missing else f"derive its class from {cls.__name__}"
    return f"{describe_value(value)}: {lacks}"


class Own(NamedTuple):
    """This process's own objects of one class, where a service class is declared."""

    cls: type
    kind: type

    @property
    def key(self) -> tuple[type, Hashable]:
        """Tells these objects from others."""
        return self

    def plan(self) -> ServicePlan:
        """The plan of calls on them: only the methods of the declared class, even if they have more."""
        plan = plan_of(self.cls)
        if not is_described(self.cls):
            promised, own = {method.name for method in plan.methods}, plan_of(self.kind)
            return msgspec.structs.replace(own, methods=tuple(each for each in own.methods if each.name in promised))
        methods = [_for(method, _is_async(handler_of(self.kind, method.name))) for method in plan.methods]
        return msgspec.structs.replace(plan, methods=tuple(methods))

    def handler(self, plan: MethodPlan) -> Handler:
        """The function that runs a method: their class's own."""
        return handler_of(self.kind, plan.name)


class Forwarded(NamedTuple):
    """Objects at the other end of other connections, which are called through this process."""

    cls: type
    for_loop: bool

    @property
    def key(self) -> tuple[type, Hashable]:
        """Tells these objects from others."""
        return self

    def plan(self) -> ServicePlan:
        """The plan of calls on them."""
        return _plan_for(self.cls, self.for_loop)

    def handler(self, plan: MethodPlan) -> Handler:
        """The function that passes a call on."""
        name = plan.name

        def forward(target: Any, *args: Any, **kwargs: Any) -> Any:
            return method_of(target, name)(*args, **kwargs)

        def forward_home(target: Any, *args: Any, **kwargs: Any) -> Any:
            return _home_of(target)(plan, method_of(target, name))(*args, **kwargs)

        # A reference for event loops must be awaited in its own loop.
        return forward_home if self.for_loop else forward


class GivenFunction:
    """Stands for a function that was given away. It has no attributes of the function's: no ``close`` that would be
    called at the end.
    """

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Function(NamedTuple):
    """Functions of this process, where a ``Callable`` is declared."""

    cls: type
    is_async: bool

    @property
    def key(self) -> tuple[type, Hashable]:
        """Tells these functions from others."""
        return self

    def plan(self) -> ServicePlan:
        """The plan of calls on them."""
        return _plan_for(self.cls, self.is_async)

    def handler(self, plan: MethodPlan) -> Handler:
        """The function that runs a method: it calls the one that was given."""

        def run(given: GivenFunction, *args: Any) -> Any:
            return given.function(*args)

        def run_now(given: GivenFunction, *args: Any) -> Any:
            result = given.function(*args)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError(f"{given.function!r} returned an awaitable: give a function that is 'async def' itself")
            return result

        return run if self.is_async else run_now


def how_given(value: Any, cls: type) -> Own | Forwarded | Function:
    """How to pass a value that was checked."""
    if is_reference(value):
        return Forwarded(cls, value._nearcall_for_loop)
    if is_function(cls):
        return Function(cls, _is_async(value) or _is_async(cast(Any, type(value)).__call__))
    if issubclass(type(value), Proxy):
        return Forwarded(cls, value._nearcall_home is not None)
    return Own(cls, type(value))


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _home_of(target: Any) -> Around:
    home: Around | None = (
        target._nearcall_handle.passage.catalogue.home if is_reference(target) else target._nearcall_home
    )
    if home is None:
        raise Unavailable("the event loop that the reference belongs to has ended")
    return home


def _plan_for(cls: type, for_loop: bool) -> ServicePlan:
    """The plan of a service whose handlers are all for an event loop, or none of them."""
    plan = plan_of(cls)
    return msgspec.structs.replace(plan, methods=tuple(_for(method, for_loop) for method in plan.methods))


def _for(plan: MethodPlan, for_loop: bool) -> MethodPlan:
    arguments, item = plan.arguments, plan.request_item
    coding = arguments.coding
    if plan.handler_is_async != for_loop and coding.remake is not None:
        arguments = msgspec.structs.replace(arguments, coding=coding.remake(coding.names, for_loop))
    if item is not None:
        item = msgspec.structs.replace(item, coding=item.coding.in_loop(for_loop))
    # The object's own server fills in dependencies, so a process that only passes calls on ignores them.
    return msgspec.structs.replace(
        plan, arguments=arguments, request_item=item, handler_is_async=for_loop, dependencies=()
    )


def end_of_given(given: object) -> Callable[[], Any] | None:
    """The function to call when the last reference to an object is gone: its ``aclose`` or ``close``, unless that is a
    method of its service.
    """
    if is_reference(given) or issubclass(type(given), Proxy):
        return None  # its own process ends it
    if type(given) is GivenFunction:
        return None
    served = {method.name for method in plan_of(type(given)).methods} if is_service(type(given)) else set[str]()
    for name in ("aclose", "close"):
        end: Any = getattr(given, name, None)
        if end is not None and name not in served and inspect.isroutine(end):
            return end
    return None


Await: TypeAlias = "Callable[[Awaitable[object]], object]"
"""Awaits something in an event loop, and lets the calling thread wait for it."""


def finish_given(given: object, wait_for: Await | None, failures: Failures, peer: dict[str, Any]) -> None:
    """Ends an object whose last reference is gone.

    Args:
        given: The object.
        wait_for: Waits for the result of an ``aclose``; ``None`` if there is no event loop.
        failures: Reports what the function raises.
        peer: The peer that had the reference.
    """
    finish(given, end_of_given(given), wait_for, failures, peer)


def finish(
    ended: object, end: Callable[[], Any] | None, wait_for: Await | None, failures: Failures, peer: dict[str, Any]
) -> None:
    """Calls the function that ends an object, if there is one; see :func:`finish_given`."""
    if end is None:
        return
    try:
        result = end()
        if inspect.isawaitable(result):
            if wait_for is None:
                raise RuntimeError("there is no event loop to await it in")
            wait_for(result)
    except BaseException as error:
        failures.tell(f"{type(ended).__name__}.{end.__name__}", error, peer)
