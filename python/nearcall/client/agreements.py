"""What the clients of a channel and its server agree on, and what becomes of that when another server comes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from .. import _core
from ..codec.protocol import Codec
from ..errors import Cancelled, FailedPrecondition, RpcError
from ..options.common import HttpCodec
from ..options.schemes import speaks_http, speaks_protobuf
from ..references.catalogue import error_maker, for_caller
from ..service.agreement import MALFORMED, Agreed, agree, refused
from ..service.description import Description
from ..service.dynamic import plans_from
from ..service.making import in_codec
from ..service.plan import MethodPlan, ServicePlan
from ..service.reading import read_description
from ..service.references import Passed, passed_with
from ..service.service import plan_of
from ..types.shown import shown
from .references import check_passed

__all__ = ["Agreement", "Agreements"]

Methods = dict[str, dict[str, _core.Method]]
"""By the names of service and method."""
MakeError = Callable[[int, str, bytes], BaseException]
T = TypeVar("T")


class Agreement:
    """What one client and its server agree on; made anew when another server comes that describes itself differently.

    It lives as long as one of its methods does.

    Args:
        url: Where the server is, for messages.
        cls: The class that the client was made with; without one it is what the first server described.
        make_error: What makes exceptions of failures, if the class declares some of its own.
        max_values: Values that a received message may hold.
        codec: How messages are written where there is a choice.
        for_loop: Whether the methods of objects that are received are to be awaited.
    """

    def __init__(
        self,
        url: str,
        cls: type | None,
        make_error: MakeError | None,
        max_values: int,
        codec: HttpCodec,
        *,
        for_loop: bool,
    ) -> None:
        self._url = url
        self.cls = cls
        self._make_error = make_error
        self._max_values = max_values
        self._codec: HttpCodec = codec
        self._methods: Methods = {}
        self._ended = False
        self._for_loop = for_loop
        self._passed: list[Passed] = []
        self.plans: list[ServicePlan] = []

    @property
    def is_dynamic(self) -> bool:
        """The client has no class."""
        return self.cls is None

    @property
    def gives(self) -> bool:
        """Whether the client may pass objects of its own, which the server calls."""
        return any(passed.implemented for passed in self._passed)

    def begin(self, description: str) -> None:
        """For the first server.

        Raises:
            FailedPrecondition: the server does not serve it, or no call of one of the methods could go right.
            TypeError: one of the methods cannot be called over gRPC or Connect, which is spoken here.
        """
        if speaks_protobuf(self._url):
            self._take(self.cls)
        else:
            _checked(self._url, lambda: self._begin(description.encode()))

    def methods_of(self, plan: ServicePlan) -> list[tuple[MethodPlan, _core.Method]]:
        """The methods of one of the services, in order."""
        return [(method, self._methods[plan.name][method.name]) for method in plan.methods]

    def _begin(self, description: bytes) -> None:
        plans = plans_from(description) if self.cls is None else [plan_of(self.cls)]
        self.plans = [for_caller(plan, self._for_loop) for plan in plans]
        self._passed = [passed_with(plan) for plan in plans]
        read = read_description(description)
        agreed = self._agree(read)
        for methods in agreed.values():
            for method in methods.values():
                if method.problem is not None:
                    raise FailedPrecondition(method.problem)
        for passed in self._passed:
            check_passed(passed, read)
        self._methods = self._make(agreed)

    def _take(self, cls: type | None) -> None:
        """Takes for granted that the server serves a class: over gRPC and Connect nobody says, and what it lacks it
        refuses when it is called.
        """
        if cls is None:
            whose = "Connect" if speaks_http(self._url) else "gRPC"
            raise FailedPrecondition(
                f"{self._url}: {whose}'s servers do not describe themselves: give the service's class"
            )
        plan = plan_of(cls)
        if plan.encoded and self._codec == "json":
            raise FailedPrecondition(
                f"{self._url}: who encodes messages of {plan.name} writes Protobuf: leave out codec='json'"
            )
        plan = in_codec(plan, _codec_of(self._codec))
        self.plans = [plan]
        agreed = {method.name: Agreed(number, method) for number, method in enumerate(plan.methods)}
        self._methods = self._make({plan.name: agreed})

    def renew(self, description: Description) -> None:
        """For a later server, before the first call reaches it. What no longer fits is refused call by call: the rest
        of a client that runs shall go on, and so shall the other clients of its channel.
        """
        try:
            made = _checked(self._url, lambda: self._make(self._agree(description)))
        except FailedPrecondition as error:
            made = self._refusing(error)
        self._succeed(made)
        if self._ended:  # meanwhile
            self.end()

    def end(self) -> None:
        """Calls that are made from now on are refused: the client was closed, and others use its connection."""
        self._ended = True
        self._succeed(self._refusing(Cancelled(f"this client of {self._url} was closed")))

    def _succeed(self, made: Methods) -> None:
        for name, methods in self._methods.items():
            for method, core in methods.items():
                core.succeed(made[name][method])

    def _agree(self, read: Description) -> dict[str, dict[str, Agreed]]:
        return {plan.name: agree(plan, read) for plan in self.plans}

    def _refusing(self, error: RpcError) -> Methods:
        return self._make(
            {plan.name: {method.name: refused(method, error) for method in plan.methods} for plan in self.plans}
        )

    def _make(self, agreed: dict[str, dict[str, Agreed]]) -> Methods:
        return {
            name: {
                method: _core.Method(
                    each.plan,
                    max_values=self._max_values,
                    number=each.number,
                    make_error=self._make_error,
                    keeps=self,
                )
                for method, each in methods.items()
            }
            for name, methods in agreed.items()
        }


class Agreements:
    """Those of all clients of one channel.

    Any thread may add one while another, which has just connected, renews them all. There is no lock, which a fork
    could leave locked: who adds one looks at the description afterwards, who renews them changes it before.
    """

    def __init__(self, url: str, max_values: int, codec: HttpCodec = "protobuf", *, for_loop: bool = False) -> None:
        self._url = url
        self._codec: HttpCodec = codec
        self._for_loop = for_loop
        self._max_values = max_values
        self._description: str | None = None
        # Weak: a channel may outlive any number of clients. A dict, because it is copied in one step.
        self._agreements: dict[weakref.ref[Agreement], None] = {}

    def add(self, cls: type | None, description: str) -> Agreement:
        """An agreement for one more client.

        Args:
            cls: The client's class; ``None`` for one that takes what there is.
            description: What the server of the last connection says of itself.

        Raises:
            FailedPrecondition: the server does not serve the class, or no call of one of the methods could go right.
        """
        maker = None if cls is None else error_maker(plan_of(cls))
        agreement = Agreement(self._url, cls, maker, self._max_values, self._codec, for_loop=self._for_loop)
        ref = weakref.ref(agreement, self._forget)
        self._agreements[ref] = None
        try:
            # A connection that is being renewed shows the earlier server for a moment longer.
            seen = self._description or description
            agreement.begin(seen)
            while self._description not in (None, seen):
                seen = self._description or seen
                agreement.renew(read_description(seen.encode()))
        except BaseException:
            self._forget(ref)
            raise
        return agreement

    def renew(self, description: str) -> None:
        """For a later server, before the first call reaches it.

        Raises:
            FailedPrecondition: the description is malformed; all stays as it was.
        """
        if speaks_protobuf(self._url):
            return  # it has none
        read = _checked(self._url, lambda: read_description(description.encode()))
        self._description = description
        for ref in list(self._agreements):
            agreement = ref()
            if agreement is not None:
                agreement.renew(read)

    def end(self, agreement: Agreement) -> None:
        """Ends that of one client, for good. Harmless when repeated."""
        self._forget(weakref.ref(agreement))
        agreement.end()

    def _forget(self, ref: weakref.ref[Agreement]) -> None:
        self._agreements.pop(ref, None)


def _codec_of(name: HttpCodec) -> Codec:
    if name == "json":
        from ..codec.protobuf.json import Json  # only where it is needed

        return Json()
    from ..codec.protobuf.service import Protobuf

    return Protobuf()


def _checked(url: str, read: Callable[[], T]) -> T:
    """What comes of reading a description, whatever a server may write into it."""
    try:
        return read()
    except FailedPrecondition as error:
        raise FailedPrecondition(f"{url}: {shown(error.message)}") from None
    except MALFORMED:
        raise FailedPrecondition(f"{url}: the server's description of itself is malformed") from None
