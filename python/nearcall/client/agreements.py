"""What the clients of a channel and its server agree on, and how that is renewed when another server comes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import copy
from typing import TypeAlias, TypeVar

from .. import _core
from ..codec.protocol import Codec
from ..codec.statuses import MakeError
from ..errors import Cancelled, FailedPrecondition, RpcError
from ..options.schemes import speaks_http, speaks_protobuf
from ..references.catalogue import error_maker, for_caller
from ..service.agreement import MALFORMED, Agreed, agree, agree_in_codec, refused
from ..service.description import Description
from ..service.dynamic import DescribedService, described_services
from ..service.making import in_codec
from ..service.outward import text_of_service
from ..service.plan import MethodPlan, ServicePlan
from ..service.reading import read_of_server
from ..service.references import passed_in, passed_with
from ..service.service import plan_of
from ..types.shown import shown
from .references import check_passed

__all__ = ["Agreement", "Agreements"]

Methods: TypeAlias = "dict[str, tuple[MethodPlan, _core.Method]]"
"""The methods of one service, by name."""
T = TypeVar("T")


class Agreement:
    """What one client and its server agree on; renewed when another server comes that describes itself differently.

    Its methods keep it alive.

    Args:
        url: Where the server is, for messages.
        cls: The class that the client was made with; without one it is what the first server described.
        make_error: Turns failures into exceptions, if the class declares exceptions of its own.
        max_values: Values that a received message may hold.
        codec: The codec of messages; ``None``: msgpack.
        for_loop: Whether the client is used in an event loop, which awaits the methods of objects that it receives.
    """

    def __init__(
        self,
        url: str,
        cls: type | None,
        make_error: MakeError | None,
        max_values: int,
        codec: Codec | None,
        *,
        for_loop: bool,
    ) -> None:
        self._url = url
        self.cls = cls
        self._make_error = make_error
        self._max_values = max_values
        self._codec = codec
        self._for_loop = for_loop
        self._plans: dict[str, ServicePlan] = {}
        """The plan of the class, by the service's name; empty without a class."""
        self._described: dict[str, DescribedService] = {}
        """The services that the first server described, if there is no class."""
        self._methods: dict[str, Methods] = {}
        """By the services' names: all methods of a class, or those of a described service that were asked for."""
        self._state: Description | RpcError = FailedPrecondition(f"{url}: nobody has said what is served")
        """The server's description of itself, or the error that every call raises."""
        self._ended: Cancelled | None = None
        self.gives = False
        """Whether the client may pass objects of its own, which the server calls."""

    @property
    def is_dynamic(self) -> bool:
        """The client has no class."""
        return self.cls is None

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of the methods of each service, in order."""
        named = {name: [method.name for method in plan.methods] for name, plan in self._plans.items()}
        return named | {name: list(service.names) for name, service in self._described.items()}

    def method(self, service: str, name: str) -> tuple[MethodPlan, _core.Method]:
        """A method of one of the services. For a client without a class it is made when it is first asked for.

        Raises:
            FailedPrecondition: the server's description of it is malformed.
        """
        found = self._methods[service].get(name)
        return _checked(self._url, lambda: self._late(service, name)) if found is None else found

    def text(self, service: str) -> str:
        """The docstring of a client of one of the services: the service's own, and the methods."""
        if (plan := self._plans.get(service)) is not None:
            return text_of_service(plan.doc, plan.methods, len(plan.methods), for_loop=self._for_loop)
        described = self._described[service]
        names, doc = list(described.names), described.doc
        methods = (self._sound(described, name) for name in names)
        found = (method for method in methods if method is not None)
        return text_of_service(doc and shown(doc, keep="\n"), found, len(names), for_loop=self._for_loop)

    def _sound(self, described: DescribedService, name: str) -> MethodPlan | None:
        try:
            return _checked(self._url, lambda: described.method(name))
        except FailedPrecondition:
            return None  # whoever calls it is told

    def begin(self, description: Description | None) -> None:
        """Agrees with the first server.

        Args:
            description: The server's description of itself; ``None`` over gRPC and Connect, whose servers give none.

        Raises:
            FailedPrecondition: the server does not serve the class, or differs so much that every call of some method
                would fail.
            TypeError: a method cannot be called over gRPC or Connect, which the URL asks for.
        """
        cls = self.cls
        if description is None:
            self._take(cls)
            return
        self._state = description
        if cls is not None:
            _checked(self._url, lambda: self._compare(plan_of(cls), description))
        else:
            # Without a class the client takes what the server describes: there is nothing to compare.
            self._described = {service.name: service for service in described_services(description)}
            self._methods = {name: {} for name in self._described}
            self.gives = bool(passed_in(description, self._described).implemented)

    def _compare(self, plan: ServicePlan, description: Description) -> None:
        passed, plan = passed_with(plan), for_caller(plan, self._for_loop)
        agreed = self._agreed(plan, description)
        for method in agreed.values():
            if method.problem is not None:
                raise FailedPrecondition(method.problem)
        check_passed(passed, description)
        self.gives = bool(passed.implemented)
        self._plans = {plan.name: plan}
        self._methods = {plan.name: self._make(plan, agreed)}

    def _take(self, cls: type | None) -> None:
        """Assumes that the server serves the class: servers of gRPC and Connect do not describe themselves. They refuse
        calls of methods that they lack.
        """
        if cls is None:
            whose = "Connect" if speaks_http(self._url) else "gRPC"
            raise FailedPrecondition(
                f"{self._url}: {whose}'s servers do not describe themselves: give the service's class"
            )
        plan = plan_of(cls)
        assert self._codec is not None, "at such a URL there always is one"
        if plan.encoded and self._codec.name != "protobuf":
            raise FailedPrecondition(
                f"{self._url}: who encodes messages of {plan.name} writes Protobuf: leave out codec='json'"
            )
        plan = in_codec(plan, self._codec)
        agreed = {method.name: Agreed(number, method) for number, method in enumerate(plan.methods)}
        self._plans = {plan.name: plan}
        self._methods = {plan.name: self._make(plan, agreed)}

    def _late(self, service: str, name: str) -> tuple[MethodPlan, _core.Method]:
        """Makes a method of a described service, when it is first asked for."""
        described = self._described[service]
        plan = for_caller(described.with_methods([described.method(name)]), self._for_loop)
        state = self._state
        # If two threads make the same method, both get the one that was entered first.
        found = self._methods[service].setdefault(name, self._make(plan, self._agreed(plan, state))[name])
        while state is not self._state:
            # The state has changed meanwhile, and `_turn` may have missed this method.
            state = self._state
            self._succeed(plan, {name: found}, state)
        return found

    def renew(self, description: Description) -> None:
        """Agrees with a later server, before the first call reaches it. Methods that no longer fit refuse each call, so
        that the client's other methods go on working, and so do the channel's other clients.
        """
        self._turn(description)
        if self._ended is not None:  # the client was closed meanwhile
            self._turn(self._ended)

    def end(self) -> None:
        """Refuses every call from now on: the client was closed, while other clients use its connection."""
        self._ended = Cancelled(f"this client of {self._url} was closed")
        self._turn(self._ended)

    def _turn(self, state: Description | RpcError) -> None:
        self._state = state
        for name, methods in self._methods.items():
            made = methods.copy()
            plan = self._plans.get(name) or self._described[name].with_methods(each for each, _ in made.values())
            self._succeed(plan, made, state)

    def _succeed(self, plan: ServicePlan, methods: Methods, state: Description | RpcError) -> None:
        try:
            made = _checked(self._url, lambda: self._make(plan, self._agreed(plan, state)))
        except FailedPrecondition as error:
            made = self._make(plan, self._agreed(plan, error))
        for name, (_, core) in methods.items():
            core.succeed(made[name][1])

    def _make(self, plan: ServicePlan, agreed: dict[str, Agreed]) -> Methods:
        return {method.name: (method, self._core(agreed[method.name])) for method in plan.methods}

    def _agreed(self, plan: ServicePlan, state: Description | RpcError) -> dict[str, Agreed]:
        if not isinstance(state, Description):
            return {method.name: refused(method, state) for method in plan.methods}
        return agree(plan, state) if self._codec is None else agree_in_codec(plan, state, self._codec)

    def _core(self, agreed: Agreed) -> _core.Method:
        return _core.Method(
            agreed.plan,
            max_values=self._max_values,
            number=agreed.number,
            make_error=self._make_error,
            keeps=self,
        )


class Agreements:
    """The agreements of all clients of one channel.

    Any thread may add an agreement while another thread, which has just connected, renews them all. There is no lock,
    because a fork could leave it locked. Instead :meth:`add` enters the agreement before it looks at the description,
    and :meth:`renew` changes the description before it looks at the agreements.
    """

    def __init__(self, url: str, max_values: int, codec: Codec | None = None, *, for_loop: bool = False) -> None:
        self._url = url
        self._codec = codec
        self._for_loop = for_loop
        self._max_values = max_values
        self._description: Description | None = None
        """The description of the latest server; ``None`` until :meth:`renew` is called."""
        self._last: tuple[str, Description | FailedPrecondition] | None = None
        """The text that was read last, with its description or the error in it. All clients of a channel have the same
        server.
        """
        # Weak: a channel may outlive any number of clients. A dict, because it is copied in one step.
        self._agreements: dict[weakref.ref[Agreement], None] = {}

    def add(self, cls: type | None, description: str) -> Agreement:
        """An agreement for one more client.

        Args:
            cls: The client's class; ``None`` for a dynamic client.
            description: The description that the server of the last connection gave.

        Raises:
            FailedPrecondition: the server does not serve the class, or differs so much that every call of some method
                would fail.
        """
        maker = None if cls is None else error_maker(plan_of(cls))
        agreement = Agreement(self._url, cls, maker, self._max_values, self._codec, for_loop=self._for_loop)
        ref = weakref.ref(agreement, self._forget)
        self._agreements[ref] = None
        try:
            # While a connection is being renewed, it still shows the earlier server's description.
            seen = None if speaks_protobuf(self._url) else self._description or self._read(description)
            agreement.begin(seen)
            while self._description not in (None, seen):
                seen = self._description
                agreement.renew(seen)
        except BaseException:
            self._forget(ref)
            raise
        return agreement

    def renew(self, description: str) -> None:
        """Renews all agreements for a later server, before the first call reaches it.

        Raises:
            FailedPrecondition: the description is malformed; all stays as it was.
        """
        if speaks_protobuf(self._url):
            return  # such servers have no description
        self._description = read = self._read(description)
        for ref in list(self._agreements):
            agreement = ref()
            if agreement is not None:
                agreement.renew(read)

    def foresee(self, description: str) -> None:
        """Reads a description ahead of the clients that will need it. A long description takes long to read, so this is
        called where blocking does no harm. If the description is malformed, those clients raise the error.
        """
        if not speaks_protobuf(self._url):
            self._last = description, self._looked_at(description)

    def _read(self, text: str) -> Description:
        last = self._last
        if last is None or last[0] != text:
            last = self._last = text, self._looked_at(text)
        if isinstance(last[1], FailedPrecondition):
            raise copy(last[1])  # each has its own traceback
        return last[1]

    def _looked_at(self, text: str) -> Description | FailedPrecondition:
        try:
            return _checked(self._url, lambda: read_of_server(text))
        except FailedPrecondition as error:
            return error

    def end(self, agreement: Agreement) -> None:
        """Ends the agreement of one client, for good. Harmless when repeated."""
        self._forget(weakref.ref(agreement))
        agreement.end()

    def _forget(self, ref: weakref.ref[Agreement]) -> None:
        self._agreements.pop(ref, None)


def _checked(url: str, read: Callable[[], T]) -> T:
    """Calls ``read``; whatever a malformed description makes it raise becomes ``FailedPrecondition``."""
    try:
        return read()
    except FailedPrecondition as error:
        raise FailedPrecondition(f"{url}: {shown(error.message)}") from None
    except MALFORMED:
        raise FailedPrecondition(f"{url}: the server's description of itself is malformed") from None
