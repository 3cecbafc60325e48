"""What a client knows of the services whose objects it passes and gets: agreed on with the server it talks to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import _core
from ..call.failures import Failures
from ..errors import FailedPrecondition
from ..references.catalogue import Catalogue, MakeCallable
from ..references.passage import ConnectionPassage
from ..service.agreement import Agreed, agree_on_reference
from ..service.description import Description
from ..service.implementing import ImplementedMethod, agree_to_implement
from ..service.plan import MethodPlan, ServicePlan
from ..service.reading import read_description
from ..service.references import Passed
from ..service.service import plan_of

__all__ = ["ClientCatalogue", "Passages", "check_passed"]


def check_passed(passed: Passed, description: Description) -> None:
    """Compares what is passed with a service as client and server declare it.

    Raises:
        FailedPrecondition: no call of one of the methods could go right; says why.
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
        make_callable: Makes what calls a method of an object.
        max_values: Values that a received message may hold.
        description: What the server says of itself.
        failures: Where exceptions of the client's own objects are told.
    """

    def __init__(
        self, make_callable: MakeCallable, max_values: int, description: Description, failures: Failures
    ) -> None:
        super().__init__(make_callable, max_values)
        self._description = description
        self._failures = failures

    def agreed(self, plan: ServicePlan) -> Mapping[str, Agreed]:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        return agree_on_reference(plan, self._description)

    def implemented(self, plan: ServicePlan) -> Iterable[ImplementedMethod]:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        methods = agree_to_implement(plan, self._description)
        for method in methods:
            if method.problem is not None:
                raise FailedPrecondition(method.problem)
        return methods

    def describer(self, method: MethodPlan, service: ServicePlan) -> Any:
        """See :class:`~nearcall.references.catalogue.Catalogue`."""
        return self._failures.describer(method, service.errors, tracebacks=False)


class Passages:
    """Makes the passages of a channel's connections, one for each; all that have one server share what was agreed on.

    It must not know the channel: the connection keeps it, and the channel keeps the connection.

    Args:
        make_callable: Makes what calls a method of an object.
        max_values: Values that a received message may hold.
    """

    def __init__(self, make_callable: MakeCallable, max_values: int) -> None:
        self._make_callable = make_callable
        self._max_values = max_values
        self._failures = Failures()
        self._latest: tuple[str, ClientCatalogue] | None = None

    def __call__(self, references: _core.References) -> ConnectionPassage:
        """The passage of a new connection."""
        description, latest = references.description, self._latest
        if latest is None or latest[0] != description:
            read = read_description(description.encode())
            made = ClientCatalogue(self._make_callable, self._max_values, read, self._failures)
            latest = self._latest = description, made
        return ConnectionPassage(latest[1])
