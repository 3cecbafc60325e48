"""What a client and a server agree on: their declarations, compared method by method, and plans of calls that take care
of the differences.

The rule is one (docs/adr/0023): what both sides declare alike is sent; what only one of them declares may be left out,
and is refused where it is used. If every call of some method would fail, the client cannot connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, NoReturn

import msgspec

from ..codec.msgpack.watching import watch_named, watch_received, watch_sent
from ..codec.protocol import BUFFER_FORMS, CODED, FORMS, PARTS, Codec, Parts
from ..errors import FailedPrecondition, RpcError, Unimplemented
from ..types.differences import Types, differences
from ..types.fields import Finder, UnknownField, field_finder
from .describing import method_info
from .description import Description, MethodInfo, Numbered, ParameterInfo, ServiceInfo, StreamInfo, ValueInfo
from .making import in_codec
from .plan import BIDI_STREAM, KINDS, SERVER_STREAM, MethodPlan, ServicePlan

__all__ = [
    "MALFORMED",
    "Agreed",
    "Finding",
    "Sides",
    "agree",
    "agree_in_codec",
    "agree_on_reference",
    "method_findings",
    "refused",
    "service_findings",
]


MOST_LISTED: Final = 50
"""Names of services or methods that a message lists; a server may have thousands."""

MALFORMED: Final = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What reading a malformed description may raise."""


class Sides(NamedTuple):
    """How messages speak of the two declarations."""

    client: str = "client's"
    server: str = "the server's"


class Finding(NamedTuple):
    """One difference between two declarations of a method."""

    method: str
    """``"Users.email"``"""
    text: str
    """One line that names both declarations."""
    always: bool
    """Whether every call would fail; otherwise only calls that use what differs are refused."""
    user: Literal["client", "server"]
    """The side whose use of the difference makes a call fail: it gives the argument or returns the value."""


class Agreed(NamedTuple):
    """A method as agreed on."""

    number: int
    """The method's number on the wire."""
    plan: MethodPlan
    """The client's own plan if both sides declare the same, else a plan that takes care of the differences."""
    problem: str | None = None
    """Why every call would fail, if so; each call is refused with this message."""
    is_refused: bool = False
    """Whether every call is refused, because of a problem or because the server lacks the method."""


def agree(client: ServicePlan, description: Description) -> dict[str, Agreed]:
    """Compares a client's service with that of a server.

    Returns:
        What was agreed on, for each of the client's methods.

    Raises:
        FailedPrecondition: the description is malformed.
    """
    found = description.served.get(client.name)
    if found is None:
        names = _listed(service.name for service in description.services)
        problem = f"the server does not serve {client.name}; it serves {names}: connect with the class of one of these"
        return {plan.name: refused(plan, FailedPrecondition(problem), problem) for plan in client.methods}
    return _agree(client, found)


def agree_on_reference(client: ServicePlan, description: Description) -> dict[str, Agreed]:
    """The same for a service whose objects the server passes to the client.

    Raises:
        FailedPrecondition: the description is malformed.
    """
    found = description.served_references.get(client.name)
    if found is None:
        problem = f"the server passes no objects of the service {client.name}: update the server"
        return {plan.name: refused(plan, FailedPrecondition(problem), problem) for plan in client.methods}
    return _agree(client, found)


def agree_in_codec(client: ServicePlan, description: Description, codec: Codec) -> dict[str, Agreed]:
    """The same for calls in another codec than msgpack: what is sent has names, and its receiver must know them all.

    Raises:
        FailedPrecondition: the description is malformed.
    """
    agreed = agree(client, description)
    if client.name not in {service.name for service in description.services}:
        return agreed  # the server's own service is in msgpack only
    first = description.in_codec(codec.name)
    if first is None:
        offered: Iterable[str] = () if description.codecs is msgspec.UNSET else description.codecs
        known = _listed(["msgpack", *offered])
        problem = (
            f"the server does not offer the codec '{codec.name}'; it has {known}: choose one, or give it codecs=[...]"
        )
        return {plan.name: refused(plan, FailedPrecondition(problem), problem) for plan in client.methods}
    try:
        plans = {plan.name: plan for plan in in_codec(client, codec, by_path=False).methods}
    except TypeError as error:
        problem = f"in the codec '{codec.name}': {error}"
        return {plan.name: refused(plan, FailedPrecondition(problem), problem) for plan in client.methods}
    for name, found in agreed.items():
        if not found.is_refused:
            agreed[name] = Agreed(first + found.number, plans[name])
    return agreed


def _agree(client: ServicePlan, found: Numbered) -> dict[str, Agreed]:
    result: dict[str, Agreed] = {}
    for plan in client.methods:
        entry = found.find(plan.name)
        if entry is None:
            has = _listed(found.service.places)
            missing = f"the server's {client.name} has no method '{plan.name}'; it has {has}: update the server"
            result[plan.name] = refused(plan, Unimplemented(missing))
            continue
        number, method = entry
        try:
            result[plan.name] = _agreed(client, plan, number, found.service, method)
        except MALFORMED:
            raise FailedPrecondition(f"the server's description of {client.name}.{plan.name} is malformed") from None
    return result


def service_findings(client: ServiceInfo, server: ServiceInfo, sides: Sides) -> list[Finding]:
    """All differences between two declarations of a service that the client's calls could meet."""
    served = {method.name: method for method in server.methods}
    found: list[Finding] = []
    for method in client.methods:
        name = f"{client.name}.{method.name}"
        if method.name in served:
            theirs = served[method.name]
            found += method_findings(client.name, method, client.types, theirs, server.types, sides)
        else:
            found.append(Finding(name, f"{sides.server} {server.name} has no method '{method.name}'", False, "client"))
    return found


def method_findings(
    service: str, client: MethodInfo, client_types: Types, server: MethodInfo, server_types: Types, sides: Sides
) -> Iterator[Finding]:
    """The differences between two declarations of a method that calls could meet."""
    name = f"{service}.{client.name}"
    if server.kind not in KINDS:
        text = f"{sides.server} {name} is of a kind that only a newer nearcall knows, {server.kind}"
        yield Finding(name, text, True, "client")
        return
    if client.kind != server.kind:
        text = f"{sides.client} {name} is {_article(client.kind)} but {sides.server} is {_article(server.kind)}"
        yield Finding(name, text, True, "client")
        return
    served = {parameter.name: parameter for parameter in server.parameters}
    for parameter in client.parameters:
        known = served.pop(parameter.name, None)
        written = f"{sides.client} {name}({parameter.name}: {parameter.type})"
        if known is None:
            text = f"{written} but {sides.server} has no parameter '{parameter.name}': it is {server.signature}"
            yield Finding(name, text, parameter.required, "client")
            continue
        for problem, always in _differences(parameter, client_types, known, server_types):
            yield Finding(
                name, f"{written} but {sides.server} has {known.name}: {known.type}{problem}", always, "client"
            )
        if known.required and not parameter.required:
            text = f"{sides.client} {name} has a default for '{parameter.name}' but {sides.server} requires it"
            yield Finding(name, text, False, "client")
    for parameter in served.values():
        if parameter.required:
            needed = f"{sides.server} requires {parameter.name}: {parameter.type}"
            text = f"{sides.client} {name} has no parameter '{parameter.name}' but {needed}"
            yield Finding(name, text, True, "client")
    ours, theirs = client.stream, server.stream
    if ours and theirs:
        for problem, always in _differences(ours, client_types, theirs, server_types, bare=True):
            written = f"{sides.client} {name} streams {ours.name}: {ours.type}"
            yield Finding(name, f"{written} but {sides.server} expects {theirs.type}{problem}", always, "client")
    verb = "streams" if client.kind in (SERVER_STREAM, BIDI_STREAM) else "returns"
    for problem, always in _differences(
        server.returns, server_types, client.returns, client_types, bare=True, reply=True
    ):
        written = f"{sides.client} {name} {verb} {client.returns.type}"
        text = f"{written} but {sides.server} {verb} {server.returns.type}{problem}"
        yield Finding(name, text, always, "server")


def _differences(
    sent: ValueInfo | ParameterInfo | StreamInfo,
    sent_types: Types,
    expected: ValueInfo | ParameterInfo | StreamInfo,
    expected_types: Types,
    *,
    bare: bool = False,
    reply: bool = False,
) -> Iterator[tuple[str, bool]]:
    """For each difference, a text to follow both types' names, and whether every value meets it. ``bare``: the value is
    sent by itself, so both sides must agree on its form.
    """
    if unknown := {sent.form, expected.form} - FORMS:
        yield f" (in a form that only a newer nearcall knows, {unknown.pop()})", True
        return
    if bare and _wire_form(sent.form) != _wire_form(expected.form):
        is_buffer = BUFFER_FORMS & {sent.form, expected.form}
        yield " (one is a bare buffer and the other is not)" if is_buffer else "", True
        return
    for part in differences(sent.schema, sent_types, expected.schema, expected_types):
        here, there = (part.expected, part.sent) if reply else (part.sent, part.expected)
        where = f"{part.path.lstrip('.')}: " if part.path else ""
        is_told = not where and (part.sent, part.expected) == (sent.type, expected.type)
        told = "" if is_told else f" ({where}{here} here, {there} there)"
        yield told + (f": {part.advice}" if part.advice else ""), part.always


def _agreed(client: ServicePlan, plan: MethodPlan, number: int, service: ServiceInfo, server: MethodInfo) -> Agreed:
    """A method whose plan takes care of what the two sides declare differently."""
    ours = method_info(plan)
    for finding in method_findings(client.name, ours, client.types, server, service.types, Sides()):
        if finding.always:
            return refused(plan, FailedPrecondition(finding.text), finding.text)
    where = _Where(f"{plan.full_name}()", client, service)
    arguments = _Arguments(plan, ours, server, where)
    if arguments.differ:
        guarded = msgspec.structs.replace(plan.arguments, encode_named=arguments.encode)
        plan = msgspec.structs.replace(plan, arguments=guarded, always_named=True)
    if plan.request_item is not None and ours.stream is not None and server.stream is not None:
        finder = where.finder_of_sent(ours.stream.schema, server.stream.schema)
        if finder is not None:
            what = f"an item of '{ours.stream.name}'"
            coding = watch_sent(plan.request_item.coding, what, finder, where.refuse_sent)
            plan = msgspec.structs.replace(plan, request_item=msgspec.structs.replace(plan.request_item, coding=coding))
    if client.plain:  # a plan without a class takes all fields that arrive
        return Agreed(number, plan)
    finder = field_finder(server.returns.schema, service.types, ours.returns.schema, client.types)
    if finder is not None:
        coding = watch_received(plan.reply.coding, "the result", finder, where.refuse_received)
        plan = msgspec.structs.replace(plan, reply=msgspec.structs.replace(plan.reply, coding=coding))
    return Agreed(number, plan)


class _Where(NamedTuple):
    """A method, its two declarations, and the errors about their differences."""

    method: str
    client: ServicePlan
    service: ServiceInfo

    def finder_of_sent(self, ours: Any, theirs: Any) -> Finder | None:
        return field_finder(ours, self.client.types, theirs, self.service.types)

    def refuse_sent(self, what: str, found: UnknownField) -> NoReturn:
        advice = "leave it out" if found.type_name is None else "leave it at its default"
        raise FailedPrecondition(
            f"{self.method}: {what} has the field '{found}' at {found.path}, but the server's {found.reader} has "
            f"no such field: {advice}, or update the server"
        )

    def refuse_received(self, what: str, found: UnknownField) -> NoReturn:
        raise FailedPrecondition(
            f"{self.method}: {what} has the field '{found}' at {found.path}, but the client's {found.reader} has "
            "no such field: update the client's class"
        )


class _Arguments:
    """Encodes the arguments for a server that declares the parameters differently."""

    def __init__(self, plan: MethodPlan, ours: MethodInfo, server: MethodInfo, where: _Where) -> None:
        self._method = where.method
        self._where = where
        self._order = plan.arguments.names
        self._signature = server.signature
        served = {parameter.name: parameter for parameter in server.parameters}
        self._unknown = {each.name: each.type for each in ours.parameters if each.name not in served}
        self._needed = {
            each.name: served[each.name].type
            for each in ours.parameters
            if not each.required and each.name in served and served[each.name].required
        }
        finders: dict[str, Finder] = {}
        for each in ours.parameters:
            if each.name in served:
                finder = where.finder_of_sent(each.schema, served[each.name].schema)
                if finder is not None:
                    finders[each.name] = finder
        same = [_place(each) for each in ours.parameters] == [_place(each) for each in server.parameters]
        self.differ = not same or bool(self._needed or finders)
        # Only plans in msgpack are compared, and msgpack can encode arguments by name.
        encode: Any = plan.arguments.encode_named
        self._encode = watch_named(encode, finders, where.refuse_sent)

    def encode(self, bound: tuple[Any, ...] | dict[str, Any]) -> Parts:
        """In place of the plan's own ``encode_named``."""
        values = bound if isinstance(bound, dict) else dict(zip(self._order, bound, strict=True))
        for name in values:
            if name in self._unknown:
                raise FailedPrecondition(
                    f"{self._method}: '{name}: {self._unknown[name]}' was given, but the server's has no such "
                    f"parameter, it is {self._signature}: leave it out, or update the server"
                )
        for name, type_name in self._needed.items():
            if name not in values:
                raise FailedPrecondition(
                    f"{self._method}: '{name}' was not given, but the server's requires {name}: {type_name}, it is "
                    f"{self._signature}"
                )
        return self._encode(values)


def _place(parameter: ParameterInfo) -> tuple[str, bool]:
    """For arguments to be sent by position, both sides must have the same of these, in the same order."""
    return parameter.name, parameter.form in BUFFER_FORMS


def refused(plan: MethodPlan, error: RpcError, problem: str | None = None) -> Agreed:
    """A method whose calls raise this error, before anything is sent."""

    def refuse(bound: Any) -> NoReturn:
        raise type(error)(error.message)

    arguments = msgspec.structs.replace(plan.arguments, encode_named=refuse)
    return Agreed(0, msgspec.structs.replace(plan, arguments=arguments, always_named=True), problem, is_refused=True)


def _wire_form(form: str) -> str:
    if form in BUFFER_FORMS:
        return "buffer"
    return CODED if form == PARTS else form


def _article(kind: str) -> str:
    return {"unary": "unary", "oneway": "one-way"}.get(kind, f"a {kind.replace('_', ' ')}")


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return ", ".join(found[:MOST_LISTED]) + more or "nothing"
