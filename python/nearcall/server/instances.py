"""The objects that answer: one for all clients, or one for each client, which the server makes."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from ..call.context import context
from ..call.session import ServerConnection
from ..errors import Unimplemented
from ..service.plan import MethodPlan, ServicePlan
from ..service.service import is_service, plan_of
from ..types import special

__all__ = ["Served", "end_of", "handler_of", "is_made_per_client", "look_at"]


class Served(NamedTuple):
    """Something to serve."""

    plan: ServicePlan
    cls: type
    instance: object | None
    """The object that answers all clients; ``None`` if each client has one of its own."""
    make: Callable[[], object] | None
    """Makes the object of one client; ``None`` if all have the same."""

    @property
    def ends_in_loop(self) -> bool:
        """Whether the end of a client's object is to be awaited."""
        return self.make is not None and inspect.iscoroutinefunction(end_of(self.cls))


def end_of(instance: object) -> Any:
    """The method that ends an object of one client: its ``aclose`` or ``close``, if it has one."""
    return getattr(instance, "aclose", None) or getattr(instance, "close", None)


def handler_of(served: Served, method: MethodPlan) -> Callable[..., Any]:
    """The handler of a method: the served object's own, or that of the calling client's object. One that the object's
    class has from an interface, and does not implement, says so.
    """
    make, name = served.make, method.name
    if make is None:
        written = getattr(served.instance, special.attribute(served.instance, name))
        missing = _is_missing(written, method)
        return _unimplemented(served, method) if missing else special.handler_of(served.instance, name)
    if _is_missing(getattr(served.cls, special.attribute(served.cls, name)), method):
        return _unimplemented(served, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        connection: ServerConnection = context()._call.belongings(ServerConnection)
        return special.handler_of(connection._instance(make), name)(*args, **kwargs)

    return call


def _is_missing(handler: object, method: MethodPlan) -> bool:
    """Whether a handler does nothing, as the methods of an interface, and is to return something."""
    function = getattr(handler, "__func__", handler)
    if not isinstance(function, types.FunctionType) or _body_of(function) not in _NOTHING:
        return False
    return not method.takes_none


def _body_of(function: types.FunctionType) -> tuple[object, ...]:
    # The code alone is not enough: that of a function which returns `True` differs in its constants only.
    text = function.__doc__
    constants = ["its text" if text is not None and each == text else each for each in function.__code__.co_consts]
    return function.__code__.co_code, text is None, *constants


def _unimplemented(served: Served, method: MethodPlan) -> Callable[..., Any]:
    def missing(*_args: Any, **_kwargs: Any) -> Any:
        what = f"{served.cls.__name__}.{method.name} does nothing, as in an interface, and is to return something"
        raise Unimplemented(f"{method.full_name} is not implemented: {what}")

    return missing


def look_at(item: object) -> Served:
    """Reads one thing that a server was given to serve.

    Raises:
        TypeError: it cannot be served; the message says what to give instead.
    """
    if type(item) in (list, tuple, set, frozenset):
        kind = type(item).__name__
        raise TypeError(f"services and URLs are given one by one, and not in a {kind}: put a * before it")
    made = _made_by(item)
    if made is None:
        plan = plan_of(type(item))
        if plan.instance == "session":
            name = type(item).__name__
            raise TypeError(
                f"each client has a {name} of its own, which the server makes: serve the class, {name}, or "
                f"functools.partial({name}, ...)"
            )
        return Served(plan, type(item), item, None)
    plan = plan_of(made)
    if plan.instance != "session":
        raise TypeError(f"serve an object, not {_what(item)}: write {made.__name__}()")
    make: Any = item
    if inspect.iscoroutinefunction(make):
        raise TypeError(
            f"{item!r} makes an object for each client, and must be an ordinary function, not 'async def': it runs in "
            "a thread of the server"
        )
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise TypeError(
            f"{made.__name__} is made for each client, and cannot be made without arguments ({error}): serve "
            f"functools.partial({made.__name__}, ...)"
        ) from None
    except ValueError:
        pass  # a class written in C has no signature to look at
    return Served(plan, made, None, make if isinstance(item, type) else _checked(make, made))


def _checked(make: Callable[[], object], made: type) -> Callable[[], object]:
    """``make``, checked: raises if the object is not of the class ``made``."""

    def checked() -> object:
        instance = make()
        if not isinstance(instance, made):
            raise TypeError(f"{make!r} is to make a {made.__name__} for each client, and has returned {instance!r}")
        return instance

    return checked


def is_made_per_client(item: object) -> bool:
    """Whether a server is to make an object for each client with it."""
    try:
        made = _made_by(item)
    except TypeError:
        return False
    return made is not None and is_service(made) and plan_of(made).instance == "session"


def _made_by(item: object) -> type | None:
    """The class of the objects that calling ``item`` makes; ``None`` if ``item`` is itself the object to serve.

    Raises:
        TypeError: the result of the function is not annotated with a class.
    """
    if isinstance(item, type):
        return item
    if isinstance(item, functools.partial):
        return _made_by(item.func)
    if not inspect.isroutine(item):
        return None
    try:
        made = typing.get_type_hints(item).get("return")
    except NameError:
        made = None
    if not isinstance(made, type):
        raise TypeError(
            f"{item!r} does not say of what class the objects are that it makes: annotate its result, or write "
            "functools.partial(Class, ...) in its place"
        )
    return made


def _what(item: object) -> str:
    return "the class" if isinstance(item, type) else "a function"


def _nothing() -> None: ...


def _described() -> None:
    """It has a text, which makes it another code."""


async def _nothing_in_loop() -> None: ...


async def _described_in_loop() -> None:
    """The same."""


_NOTHING = [
    _body_of(cast("types.FunctionType", each)) for each in (_nothing, _described, _nothing_in_loop, _described_in_loop)
]
"""Functions without a body. A list, because constants of others may have no hash."""
