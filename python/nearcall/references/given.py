"""Objects that are given away as references: what may be given, what runs their methods, and what ends them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from ..call.failures import Failures
from ..call.proxy import HasService, Proxy
from ..codec.senders import MisfitError
from ..service.implementing import Handler
from ..service.plan import MethodPlan, ServicePlan
from ..service.service import plan_of
from ..types.declared import is_service, name_of
from ..types.hints import describe_value
from .reference import Reference

__all__ = [
    "check_given",
    "end_of_given",
    "forwarding_handler",
    "forwarding_plan",
    "is_remote",
    "own_handler",
    "own_plan",
]


def check_given(value: object, cls: type) -> object:
    """What to give for a value where a service class is declared.

    Raises:
        MisfitError: it is not of that service; says what it lacks.
    """
    if isinstance(value, HasService):
        value = value.service
    name, kind = name_of(cls), type(value)
    if kind is Reference:
        if value._nearcall_handle.released:  # type: ignore[attr-defined]
            raise MisfitError(f"expected an object of the service {name}, got {value!r}")
        given = name_of(value._nearcall_cls)  # type: ignore[attr-defined]
    elif kind is Proxy:
        given = value._nearcall_name  # type: ignore[attr-defined]
    elif isinstance(value, type):
        raise MisfitError(f"expected an object of the service {name}, got a class: write {value.__name__}()")
    elif issubclass(kind, cls):
        try:
            plan_of(kind)
        except TypeError as problem:
            raise MisfitError(str(problem)) from None
        return value
    else:
        given = name_of(kind) if is_service(kind) else ""
    if given != name:
        raise MisfitError(f"expected an object of the service {name}, got {_described(value, given, cls)}")
    if kind is not Reference and kind is not Proxy:
        raise MisfitError(f"expected {cls.__qualname__}, got {kind.__qualname__}, another class of the service {name}")
    return value


def _described(value: object, given: str, cls: type) -> str:
    if given:
        return f"one of the service {given}"
    missing = [method.name for method in plan_of(cls).methods if not callable(getattr(type(value), method.name, None))]
    if len(missing) == len(plan_of(cls).methods):
        return describe_value(value)
    lacks = f"it has no method '{missing[0]}'" if missing else f"derive its class from {cls.__name__}"
    return f"{describe_value(value)}: {lacks}"


def is_remote(value: object) -> bool:
    """Whether an object is at the other end of some connection, so that giving it means to pass its calls on."""
    return type(value) is Reference or type(value) is Proxy


def own_plan(_cls: type, kind: type) -> ServicePlan:
    """The plan by which objects of a class of one's own are called."""
    return plan_of(kind)


def own_handler(kind: type, plan: MethodPlan) -> Handler:
    """What runs a method of such an object: its class's function."""
    handler: Handler = getattr(kind, plan.name)
    return handler


def forwarding_plan(cls: type, kind: type) -> ServicePlan:
    """The plan by which an object at the other end of another connection is called through this process."""
    plan = plan_of(cls)
    return msgspec.structs.replace(plan, methods=tuple(_in_threads(method) for method in plan.methods))


def _in_threads(plan: MethodPlan) -> MethodPlan:
    arguments = plan.arguments
    if plan.handler_is_async and arguments.remake is not None:
        arguments = arguments.remake(arguments.names, False)
    item = None if plan.request_item is None else plan.request_item.in_loop(False)
    return msgspec.structs.replace(plan, arguments=arguments, request_item=item, handler_is_async=False)


def forwarding_handler(_kind: type, plan: MethodPlan) -> Handler:
    """What passes a call on."""
    name = plan.name
    return lambda target, *args, **kwargs: getattr(target, name)(*args, **kwargs)


def end_of_given(given: object) -> Callable[[], Any] | None:
    """What is to be called when the last reference to an object is gone: its ``aclose`` or ``close``, unless that is a
    method of its service.
    """
    if is_remote(given):
        return None
    served = {method.name for method in plan_of(type(given)).methods}
    for name in ("aclose", "close"):
        end: Any = getattr(given, name, None)
        if end is not None and name not in served and inspect.isroutine(end):
            return end
    return None


Await: TypeAlias = "Callable[[Awaitable[object]], object]"
"""Waits for something in an event loop, for another thread."""


def finish_given(given: object, wait_for: Await | None, failures: Failures, peer: dict[str, Any]) -> None:
    """The last reference to an object is gone: ends the object.

    Args:
        given: The object.
        wait_for: Waits for what an ``aclose`` returns; ``None`` if there is no event loop.
        failures: Where what it raises is told.
        peer: Who had the reference.
    """
    finish(given, end_of_given(given), wait_for, failures, peer)


def finish(
    ended: object, end: Callable[[], Any] | None, wait_for: Await | None, failures: Failures, peer: dict[str, Any]
) -> None:
    """Calls what ends an object, if there is anything; see :func:`finish_given`."""
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
