"""What one side of a connection knows of the services whose objects are passed: how this side calls such objects, and
how its own are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from .. import _core
from ..call.proxy import Around
from ..codec.statuses import MakeError, make_error
from ..service.agreement import Agreed
from ..service.implementing import Handler, ImplementedMethod
from ..service.injecting import Injector
from ..service.plan import MethodPlan, ServicePlan
from ..service.service import plan_of

__all__ = ["Catalogue", "MakeCallable", "ObjectTable", "error_maker", "for_caller"]

MakeCallable: TypeAlias = "Callable[[_core.Calls, MethodPlan, _core.Method, bool], Callable[..., Any]]"
"""Makes the callable for a method of an object; the last argument says whether it is to be awaited."""


class Given(Protocol):
    """A kind of objects that are passed where a service class is declared."""

    @property
    def key(self) -> tuple[type, Hashable]:
        """The declared service class, and what else tells this kind from others."""
        ...

    def plan(self) -> ServicePlan:
        """The plan of calls on these objects."""
        ...

    def handler(self, plan: MethodPlan) -> Handler:
        """The function that runs one of their methods."""
        ...


class ObjectTable(_core.ServedObject):
    """Runs the calls on objects of one class: the core's table, and the handlers for an event loop."""

    handlers: Mapping[int, tuple[MethodPlan, Handler]]
    """Plan and handler of each method, by its number."""


class Catalogue(ABC):
    """What one side knows of the services that are passed. Any thread may use it.

    Args:
        make_callable: Makes the callable for a method of an object.
        max_values: Values that a received message may hold.
    """

    home: Around | None = None
    """Wraps the methods of references for event loops, so that they can be awaited in another loop than their own."""

    injector = Injector()
    """Fills in the dependencies of methods of this side's own objects."""

    def __init__(self, make_callable: MakeCallable, max_values: int) -> None:
        self.make_callable = make_callable
        self._max_values = max_values
        # Any thread that finds an entry missing fills it in; two threads at once make equal entries.
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
        """The table that runs calls on this side's own objects where a service class is declared."""
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
        """The methods of a service at the other end as agreed on, by their names."""

    @abstractmethod
    def implemented(self, plan: ServicePlan) -> Iterable[ImplementedMethod]:
        """The methods of this side's own objects as agreed on; ``plan`` describes them."""

    @abstractmethod
    def describer(self, method: MethodPlan, service: ServicePlan) -> Any:
        """The function that the core calls with each exception of a method of this side's own objects."""

    def where(self, references: _core.References) -> str:
        """Where the other end is, for messages."""
        return references.url


def for_caller(plan: ServicePlan, for_loop: bool) -> ServicePlan:
    """A service's plan for callers that await, or do not await, methods of the objects that they get."""

    def changed(method: MethodPlan) -> MethodPlan:
        reply = msgspec.structs.replace(method.reply, coding=method.reply.coding.in_loop(for_loop))
        return msgspec.structs.replace(method, reply=reply)

    methods = tuple(changed(method) if method.gives else method for method in plan.methods)
    return msgspec.structs.replace(plan, methods=methods)


def error_maker(plan: ServicePlan) -> MakeError | None:
    """Turns failures into exceptions, if the service declares exceptions of its own."""
    declared = {error.__name__: error for error in plan.errors}
    return partial(make_error, declared=declared) if declared else None
