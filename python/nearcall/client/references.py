"""What a client knows of the services whose objects it passes and gets, as agreed on with its server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import _core
from ..call.failures import Failures
from ..call.proxy import Around
from ..errors import FailedPrecondition
from ..references.catalogue import Catalogue, MakeCallable
from ..references.passage import ConnectionPassage
from ..service.agreement import Agreed, agree_on_reference
from ..service.description import Description
from ..service.implementing import Handler, ImplementedMethod, agree_to_implement
from ..service.plan import MethodPlan, ServicePlan
from ..service.reading import read_of_server
from ..service.references import Passed
from ..service.service import plan_of
from .callbacks import need_loop

__all__ = ["ClientCatalogue", "Passages", "check_passed"]


def check_passed(passed: Passed, description: Description) -> None:
    """Compares how client and server declare the services of the objects that are passed.

    Raises:
        FailedPrecondition: every call of some method would fail; the message says why.
    """
    for cls in passed.called:
        for agreed in agree_on_reference(plan_of(cls), description).values():
            if agreed.problem is not None:
                raise FailedPrecondition(agreed.problem)
    for cls in passed.implemented:
        for method in agree_to_implement(plan_of(cls), description):
            if method.problem is not None:
                raise FailedPrecondition(method.problem)


class ClientCatalogue(Catalogue):
    """What a client and one server have agreed on.

    Args:
        make_callable: Makes the callable for a method of an object.
        max_values: Values that a received message may hold.
        description: The server's description of itself.
        failures: Reports the exceptions of the client's own objects.
        around: Wraps the methods of these objects: those of an asyncio client run in its event loop.
    """

    def __init__(
        self,
        make_callable: MakeCallable,
        max_values: int,
        description: Description,
        failures: Failures,
        around: Around | None,
    ) -> None:
        super().__init__(make_callable, max_values)
        self._description = description
        self._failures = failures
        self.home = around

    def agreed(self, plan: ServicePlan) -> Mapping[str, Agreed]:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        return agree_on_reference(plan, self._description)

    def implemented(self, plan: ServicePlan) -> Iterable[ImplementedMethod]:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        for each in agree_to_implement(plan, self._description):
            if each.problem is not None:
                raise FailedPrecondition(each.problem)
            if each.plan.handler_is_async:
                need_loop()
            yield each if self.home is None else each._replace(arrange=_arrange(self.home, each))

    def describer(self, method: MethodPlan, service: ServicePlan) -> Any:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        return self._failures.describer(method, service.errors, tracebacks=False)


def _arrange(around: Around, method: ImplementedMethod) -> Callable[[Handler], Handler]:
    return lambda handler: method.arrange(around(method.plan, handler))


class Passages:
    """Makes a passage for each connection of a channel. Connections whose servers describe themselves alike share one
    catalogue.

    It must not refer to the channel: the channel keeps the connection, and the connection keeps this object.

    Args:
        make_callable: Makes the callable for a method of an object.
        max_values: Values that a received message may hold.
        around: Wraps the methods of objects that the client passes.
    """

    def __init__(self, make_callable: MakeCallable, max_values: int, around: Around | None = None) -> None:
        self._make_callable = make_callable
        self._around = around
        self._max_values = max_values
        self._failures = Failures()
        self._latest: tuple[str, ClientCatalogue] | None = None

    def __call__(self, references: _core.References) -> ConnectionPassage:
        """The passage of a new connection."""
        description, latest = references.description, self._latest
        if latest is None or latest[0] != description:
            read = read_of_server(description)
            made = ClientCatalogue(self._make_callable, self._max_values, read, self._failures, self._around)
            latest = self._latest = description, made
        return ConnectionPassage(latest[1])
