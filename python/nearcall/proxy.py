"""What a client calls: an object with one callable for each method of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from . import _core
from .agreement import MALFORMED, Agreed, agree
from .description import plans_from, read_description
from .errors import FailedPrecondition
from .plan import MethodPlan, ServicePlan
from .service import plan_of
from .shown import shown

__all__ = ["Agreement", "MakeMethod", "Proxy", "make_proxy"]

MakeMethod = Callable[[_core.Connection, MethodPlan, _core.Method], Callable[..., Any]]
"""Makes the callable for a method."""
Methods = dict[str, dict[str, _core.Method]]
"""By the names of service and method."""
T = TypeVar("T")
MakeError = Callable[[int, str, bytes], BaseException]


class Agreement:
    """What one client and its server agree on; made anew when another server comes that describes itself differently.

    Args:
        url: Where the server is, for messages.
        cls: The class that the client was made with; without one it is what the first server described.
        make_error: What makes exceptions of failures, if the class declares some of its own.
        max_values: Values that a received message may hold.
    """

    def __init__(self, url: str, cls: type | None, make_error: MakeError | None, max_values: int) -> None:
        self._url = url
        self._cls = cls
        self._make_error = make_error
        self._max_values = max_values
        self._methods: Methods = {}
        self.plans: list[ServicePlan] = []

    @property
    def is_dynamic(self) -> bool:
        """The client has no class."""
        return self._cls is None

    def begin(self, description: bytes) -> list[list[tuple[MethodPlan, _core.Method]]]:
        """The methods of each service, for the first server.

        Raises:
            FailedPrecondition: the server does not serve it, or no call of one of the methods could go right.
        """
        return self._checked(lambda: self._begin(description))

    def renew(self, description: str) -> None:
        """For a later server, before the first call reaches it. What no longer fits is refused call by call: the rest
        of a client that runs shall go on.

        Raises:
            FailedPrecondition: the description is malformed; all stays as it was.
        """
        made = self._checked(lambda: self._make(self._agree(description.encode())))
        for name, methods in self._methods.items():
            for method, core in methods.items():
                core.succeed(made[name][method])

    def _begin(self, description: bytes) -> list[list[tuple[MethodPlan, _core.Method]]]:
        self.plans = plans_from(description) if self._cls is None else [plan_of(self._cls)]
        agreed = self._agree(description)
        for methods in agreed.values():
            for method in methods.values():
                if method.problem is not None:
                    raise FailedPrecondition(method.problem)
        made = self._methods = self._make(agreed)
        return [[(method, made[plan.name][method.name]) for method in plan.methods] for plan in self.plans]

    def _agree(self, description: bytes) -> dict[str, dict[str, Agreed]]:
        read = read_description(description)
        return {plan.name: agree(plan, read) for plan in self.plans}

    def _make(self, agreed: dict[str, dict[str, Agreed]]) -> Methods:
        return {
            name: {
                method: _core.Method(
                    each.plan, max_values=self._max_values, number=each.number, make_error=self._make_error
                )
                for method, each in methods.items()
            }
            for name, methods in agreed.items()
        }

    def _checked(self, read: Callable[[], T]) -> T:
        """What comes of reading a description, whatever a server may write into it."""
        try:
            return read()
        except FailedPrecondition as error:
            raise FailedPrecondition(f"{self._url}: {shown(error.message)}") from None
        except MALFORMED:
            raise FailedPrecondition(f"{self._url}: the server's description of itself is malformed") from None


class Proxy:
    """A service at the other end of a connection. Its attributes are the service's methods."""

    def __init__(self, name: str, url: str) -> None:
        # Names that no service method can have: they begin with an underscore.
        self._nearcall_name = name
        self._nearcall_url = url

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        import difflib  # only on the way to an error

        known = [method for method in self.__dict__ if not method.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
        raise AttributeError(f"{self._nearcall_name} at {self._nearcall_url} has no method '{name}': {hint}")

    def __repr__(self) -> str:
        return f"<{self._nearcall_name} at {self._nearcall_url}>"


def make_proxy(connection: _core.Connection, agreement: Agreement, make_method: MakeMethod) -> Proxy:
    """A proxy for the service of a class; without one, for all that the server describes.

    The proxy of a server with several services has one attribute for each service, and those methods that only one of
    them has.

    Raises:
        FailedPrecondition: the server's service is not the class's.
    """
    agreed = agreement.begin(connection.description.encode())
    services = [
        _proxy(connection, plan.name, methods, make_method)
        for plan, methods in zip(agreement.plans, agreed, strict=True)
    ]
    if not agreement.is_dynamic:
        return services[0]
    names = [plan.name for plan in agreement.plans]
    together = Proxy(" and ".join(names), connection.url)
    for proxy in services:
        for name, method in proxy.__dict__.items():
            if not name.startswith("_"):
                unique = sum(name in other.__dict__ for other in services) == 1
                if unique:
                    together.__dict__[name] = method
    for name, proxy in zip(names, services, strict=True):
        together.__dict__[name] = proxy
    return together


def _proxy(
    connection: _core.Connection,
    name: str,
    methods: Iterable[tuple[MethodPlan, _core.Method]],
    make_method: MakeMethod,
) -> Proxy:
    proxy = Proxy(name, connection.url)
    for plan, method in methods:
        # Not setattr: a dynamic client's names are the server's choice.
        proxy.__dict__[plan.name] = make_method(connection, plan, method)
    return proxy
