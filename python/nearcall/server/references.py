"""What a server knows of the services whose objects it passes and gets: it numbers their methods."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from .. import _core
from ..call.interceptors import intercept_method
from ..client.callables import make_callable
from ..errors import Unimplemented
from ..references.catalogue import Catalogue
from ..references.passage import ConnectionPassage
from ..service.agreement import Agreed, refused
from ..service.implementing import ImplementedMethod
from ..service.plan import MethodPlan, ServicePlan
from .methods import Surroundings

__all__ = ["ServerCatalogue"]


class ServerCatalogue(Catalogue):
    """What a server knows of the services that are passed.

    Args:
        numbers: The numbers of methods, by the names of service and method.
        surroundings: What is around every handler.
        need_loop: Starts the server's event loop, before an object is passed whose methods need it. A weak reference,
            because the server keeps the core, and the core keeps this catalogue.
    """

    def __init__(
        self,
        numbers: Mapping[tuple[str, str], int],
        surroundings: Surroundings,
        need_loop: weakref.ReferenceType[Callable[[], object]],
    ) -> None:
        super().__init__(_callable_of_object, surroundings.max_values)
        self._numbers = numbers
        self._around = surroundings
        self.injector = surroundings.injector
        self._need_loop = need_loop

    def passage(self, _references: _core.References) -> ConnectionPassage:
        """The passage of a new connection."""
        return ConnectionPassage(self)

    def agreed(self, plan: ServicePlan) -> Mapping[str, Agreed]:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        return {
            method.name: Agreed(number, method)
            if (number := self._numbers.get((plan.name, method.name))) is not None
            else refused(method, Unimplemented(f"{method.full_name}() is not declared in what this server serves"))
            for method in plan.methods
        }

    def implemented(self, plan: ServicePlan) -> Iterable[ImplementedMethod]:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        for method in plan.methods:
            if method.handler_is_async or self._around.chain.across is not None:
                need_loop = self._need_loop()
                if need_loop is not None:
                    need_loop()
            number = self._numbers.get((plan.name, method.name))
            if number is not None:
                yield ImplementedMethod(number, method, partial(intercept_method, self._around.chain, method))

    def describer(self, method: MethodPlan, service: ServicePlan) -> Any:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        return self._around.describer(method, service.errors)


def _callable_of_object(target: _core.Calls, plan: MethodPlan, method: _core.Method, for_loop: bool) -> Any:
    if not for_loop:
        return make_callable(target, plan, method)
    from ..aio.objects import object_callable  # asyncio only where it is needed

    return object_callable(target, plan, method)
