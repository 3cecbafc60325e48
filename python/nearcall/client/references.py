"""What a client knows of the services whose objects it passes and gets: agreed on with the server it talks to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..call.failures import Failures
from ..errors import FailedPrecondition
from ..references.catalogue import Catalogue, MakeCallable
from ..service.agreement import Agreed, agree_on_reference
from ..service.description import Description
from ..service.implementing import ImplementedMethod, agree_to_implement
from ..service.plan import MethodPlan, ServicePlan
from ..service.references import Passed
from ..service.service import plan_of

__all__ = ["ClientCatalogue", "check_passed"]


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
