"""How a server calls objects that a client passes to it, where both declare the objects' service differently.

The roles are those of any call, turned around: the server sends arguments as it declares them. The client compares the
declarations and takes care of the differences, as ever, because it alone knows both
(:mod:`nearcall.service.agreement`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import msgspec

from ..codec.msgpack.arguments import UNKNOWN
from ..codec.msgpack.watching import watch_arguments, watch_received, watch_sent
from ..errors import FailedPrecondition, InvalidArgument
from ..types.fields import UnknownField, field_finder
from .agreement import MALFORMED, Sides, method_findings
from .describing import method_info
from .description import Description, MethodInfo, ServiceInfo
from .plan import MethodPlan, ServicePlan

__all__ = ["Handler", "ImplementedMethod", "agree_to_implement", "by_position"]

Handler = Callable[..., Any]
"""Runs a method: takes the object, and the arguments as the method itself takes them."""


class ImplementedMethod(NamedTuple):
    """A method of an object of this process, as the other side calls it."""

    number: int
    """The method's number on the wire."""
    plan: MethodPlan
    """The plan, with the parameters in the other side's order."""
    arrange: Callable[[Handler], Handler]
    """Turns a handler into a function that takes the object, and every argument by position in the plan's order."""
    problem: str | None = None
    """Why every call would fail, if so."""


def agree_to_implement(plan: ServicePlan, description: Description) -> list[ImplementedMethod]:
    """Compares a service that a client implements with that of a server, which calls it.

    Methods that only one side has are left out: a call of such a method is refused when it arrives.

    Raises:
        FailedPrecondition: the server knows no such service, or its description is malformed.
    """
    found = description.served_references.get(plan.name)
    if found is None:
        raise FailedPrecondition(f"the server takes no objects of the service {plan.name}: update the server")
    own = {method.name: method for method in plan.methods}
    try:
        return [
            _implemented(plan, own[method.name], number, found.service, method)
            for number, method in enumerate(found.service.methods, found.first)
            if method.name in own
        ]
    except MALFORMED:
        raise FailedPrecondition(f"the server's description of {plan.name} is malformed") from None


def _implemented(
    service: ServicePlan, plan: MethodPlan, number: int, caller_service: ServiceInfo, caller: MethodInfo
) -> ImplementedMethod:
    ours, sides = method_info(plan), Sides("the server's", "the client's")
    for finding in method_findings(service.name, caller, caller_service.types, ours, service.types, sides):
        if finding.always:
            return ImplementedMethod(number, plan, by_position(plan), finding.text)
    theirs = [parameter.name for parameter in caller.parameters]
    if caller.stream is not None:
        theirs.insert(caller.stream.position, caller.stream.name)
    arrange = by_position(plan)
    coding = plan.arguments.coding
    if theirs != [slot.name for slot in plan.slots] and coding.remake is not None:
        names = [parameter.name for parameter in caller.parameters]
        arguments = msgspec.structs.replace(plan.arguments, coding=coding.remake(names, plan.handler_is_async))
        arrange = _Arranged(plan, theirs).arrange
        position = -1 if caller.stream is None else caller.stream.position
        plan = msgspec.structs.replace(plan, arguments=arguments, stream_position=position)
    return ImplementedMethod(number, _careful(service, plan, caller_service, caller, ours), arrange)


def by_position(plan: MethodPlan) -> Callable[[Handler], Handler]:
    """Lets a handler be called with the object and with every parameter by position, in the plan's own order."""
    count = sum(slot.by_position for slot in plan.slots)
    names = [slot.name for slot in plan.slots if not slot.by_position]

    def arrange(handler: Handler) -> Handler:
        def call(target: object, *values: Any) -> Any:
            return handler(target, *values[:count], **dict(zip(names, values[count:], strict=True)))

        return call if names else handler

    return arrange


class _Arranged:
    """Puts arguments into the handler's own order, and refuses arguments that the handler does not have."""

    def __init__(self, plan: MethodPlan, theirs: list[str]) -> None:
        self._method = plan.full_name
        self._theirs = theirs
        self._nameless = [slot.name for slot in plan.slots if not slot.by_name]
        self._named = frozenset(slot.name for slot in plan.slots if slot.by_name)

    def arrange(self, handler: Handler) -> Handler:
        """The handler for arguments in the caller's order."""

        def call(target: object, *values: Any) -> Any:
            given = dict(zip(self._theirs, values, strict=True))
            leading = [given.pop(name) for name in self._nameless if name in given]
            for name in given.keys() - self._named:
                if given.pop(name) is not UNKNOWN:
                    raise InvalidArgument(
                        f"{self._method}(): '{name}' was given, but the client's has no such parameter: leave it out, "
                        "or update the client"
                    )
            return handler(target, *leading, **given)

        return call


def _careful(
    service: ServicePlan, plan: MethodPlan, caller_service: ServiceInfo, caller: MethodInfo, ours: MethodInfo
) -> MethodPlan:
    """The plan; where one side has fields that the other lacks, it refuses values in which such a field would be
    lost.
    """
    name = plan.full_name
    known = {parameter.name: parameter for parameter in ours.parameters}
    finders = {
        each.name: finder
        for each in caller.parameters
        if each.name in known
        and (finder := field_finder(each.schema, caller_service.types, known[each.name].schema, service.types))
    }

    def refuse_received(what: str, found: UnknownField) -> NoReturn:
        raise FailedPrecondition(
            f"{name}(): {what} has the field '{found}' at {found.path}, but the client's {found.reader} has no such "
            "field: update the client"
        )

    def refuse_sent(what: str, found: UnknownField) -> NoReturn:
        raise FailedPrecondition(
            f"{name}(): {what} has the field '{found}' at {found.path}, but the server's {found.reader} has no such "
            "field: leave it at its default, or update the server"
        )

    arguments, item, reply = plan.arguments, plan.request_item, plan.reply
    if finders:
        coding = watch_arguments(arguments.coding, finders, refuse_received)
        arguments = msgspec.structs.replace(arguments, coding=coding)
    if item is not None and caller.stream is not None and ours.stream is not None:
        finder = field_finder(caller.stream.schema, caller_service.types, ours.stream.schema, service.types)
        if finder is not None:
            watched = watch_received(item.coding, f"an item of '{ours.stream.name}'", finder, refuse_received)
            item = msgspec.structs.replace(item, coding=watched)
    finder = field_finder(ours.returns.schema, service.types, caller.returns.schema, caller_service.types)
    if finder is not None:
        reply = msgspec.structs.replace(reply, coding=watch_sent(reply.coding, "the result", finder, refuse_sent))
    return msgspec.structs.replace(plan, arguments=arguments, request_item=item, reply=reply)
