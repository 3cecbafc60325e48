"""What one side of a connection knows of the services whose objects are passed: how to call them and to be called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from .. import _core
from ..call.proxy import Around
from ..codec.statuses import make_error
from ..service.agreement import Agreed
from ..service.implementing import Handler, ImplementedMethod
from ..service.injecting import Injector
from ..service.plan import MethodPlan, ServicePlan
from ..service.service import plan_of
from .target import Target

__all__ = ["Catalogue", "MakeCallable", "ObjectTable", "error_maker", "for_caller"]

MakeCallable: TypeAlias = "Callable[[Target, MethodPlan, _core.Method, bool], Callable[..., Any]]"
"""Makes the callable for a method of an object; the last argument says whether it is to be awaited."""


class Given(Protocol):
    """A kind of objects that is passed where a service class is declared."""

    @property
    def key(self) -> tuple[type, Hashable]:
        """The service class, and the kind."""
        ...

    def plan(self) -> ServicePlan:
        """How they are called."""
        ...

    def handler(self, plan: MethodPlan) -> Handler:
        """What runs one of their methods."""
        ...


class ObjectTable(_core.ServedObject):
    """What runs the calls on objects of one class: the core's table, and what an event loop needs to know of it."""

    handlers: Mapping[int, tuple[MethodPlan, Handler]]
    """By the method's number."""


class Catalogue(ABC):
    """What one side knows of the services that are passed. Any thread may use it.

    Args:
        make_callable: Makes what calls a method of an object.
        max_values: Values that a received message may hold.
    """

    home: Around | None = None
    """What is around methods of references to be awaited, when another event loop awaits them than the one that they
    belong to."""

    injector = Injector()
    """What fills in what the methods of objects of one's own depend on."""

    def __init__(self, make_callable: MakeCallable, max_values: int) -> None:
        self.make_callable = make_callable
        self._max_values = max_values
        # Both are filled by whoever comes first; two at once make the same.
        self._methods: dict[tuple[type, bool], dict[str, tuple[MethodPlan, _core.Method]]] = {}
        self._tables: dict[tuple[type, Hashable], ObjectTable] = {}

    def methods(self, cls: type, for_loop: bool) -> dict[str, tuple[MethodPlan, _core.Method]]:
        """How to call objects of a service class at the other end, by the methods' names.

        Args:
            cls: The class.
            for_loop: Whether the methods are to be awaited.
        """
        found = self._methods.get((cls, for_loop))
        if found is None:
            plan = for_caller(plan_of(cls), for_loop)
            maker = error_maker(plan)
            found = self._methods[cls, for_loop] = {
                name: (
                    each.plan,
                    _core.Method(each.plan, max_values=self._max_values, number=each.number, make_error=maker),
                )
                for name, each in self.agreed(plan).items()
            }
        return found

    def table(self, given: Given) -> ObjectTable:
        """How objects of one's own are called where a service class is declared."""
        found = self._tables.get(given.key)
        if found is None:
            plan = given.plan()
            methods: list[tuple[_core.Method, Handler]] = []
            handlers: dict[int, tuple[MethodPlan, Handler]] = {}
            for each in self.implemented(plan):
                handler = each.arrange(self.injector.around(each.plan, given.handler(each.plan)))
                method = _core.Method(
                    each.plan,
                    max_values=self._max_values,
                    number=each.number,
                    describe_error=self.describer(each.plan, plan),
                )
                methods.append((method, handler))
                handlers[each.number] = each.plan, handler
            found = ObjectTable(methods)
            found.handlers = handlers
            self._tables[given.key] = found
        return found

    @abstractmethod
    def agreed(self, plan: ServicePlan) -> Mapping[str, Agreed]:
        """What is agreed on about calling a service at the other end, by the names of methods."""

    @abstractmethod
    def implemented(self, plan: ServicePlan) -> Iterable[ImplementedMethod]:
        """What is agreed on about objects of one's own, whose methods a plan describes."""

    @abstractmethod
    def describer(self, method: MethodPlan, service: ServicePlan) -> Any:
        """What the core calls with each exception of a method of an object of one's own."""

    def where(self, references: _core.References) -> str:
        """Where the other end is, for people."""
        return references.url


def for_caller(plan: ServicePlan, for_loop: bool) -> ServicePlan:
    """A service's plan for callers that await, or do not await, methods of the objects that they get."""

    def changed(method: MethodPlan) -> MethodPlan:
        reply = msgspec.structs.replace(method.reply, coding=method.reply.coding.in_loop(for_loop))
        return msgspec.structs.replace(method, reply=reply)

    methods = tuple(changed(method) if method.gives else method for method in plan.methods)
    return msgspec.structs.replace(plan, methods=methods)


def error_maker(plan: ServicePlan) -> Callable[[int, str, bytes], BaseException] | None:
    """What makes exceptions of failures, if the service declares some of its own."""
    declared = {error.__name__: error for error in plan.errors}
    return partial(make_error, declared=declared) if declared else None
